"""Removing stored files that nothing names any more: of runs whose rows were replaced or never committed."""

from __future__ import annotations

import time
from collections.abc import Collection

from cc_pipeline.extraction.record_segments import SUFFIXES
from cc_pipeline.extraction.record_shelf import JOURNAL_SUFFIX, RecordShelf

#: A run may hold what it stored or adopted for this long before it commits.
MIN_AGE_SECONDS = 7 * 86_400.0


def unneeded_files(
    shelf: RecordShelf, crawl: str, named: Collection[str], min_age_seconds: float = MIN_AGE_SECONDS
) -> list[tuple[str, int]]:
    """(key, bytes) of a crawl's stored files that are not in ``named``, have no journal, and are old enough.

    ``named`` is every ``stored_file`` of the records table, at any version a reader may still use. A journal means
    that a later run will adopt the file's records.
    """
    prefix = f"{shelf.folder(crawl)}/"
    listed = {one.key: one for one in shelf.transport.listing(prefix) if "/" not in one.key[len(prefix) :]}
    now = time.time()
    return [
        (key, one.size)
        for key, one in sorted(listed.items())
        if key.endswith(tuple(SUFFIXES.values()))
        and key not in named
        and key + JOURNAL_SUFFIX not in listed
        and one.modified
        and now - one.modified > min_age_seconds
    ]


def sweep(
    shelf: RecordShelf, crawl: str, named: Collection[str], min_age_seconds: float = MIN_AGE_SECONDS
) -> tuple[int, int]:
    """Deletes ``unneeded_files``; how many and how many bytes. Raises ``EnvironmentFault``."""
    unneeded = unneeded_files(shelf, crawl, named, min_age_seconds)
    for key, _ in unneeded:
        shelf.transport.delete(key)
    return len(unneeded), sum(size for _, size in unneeded)
