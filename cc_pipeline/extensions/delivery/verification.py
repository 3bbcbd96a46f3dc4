"""Verifies the files of a place against its manifest. It needs neither the source nor the home that copied them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from cc_pipeline.errors import DataFault, UserInputError
from cc_pipeline.extensions.delivery.manifest import MANIFEST, FileEntry, Manifest, read_manifest, sha256_of
from cc_pipeline.transport.client import Transport

#: ``(files done, files in all, bytes read, bytes in all)``.
Progress = Callable[[int, int, int, int], None]


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """The result of a verification: each file that differs from the manifest, by crawl, and the names of files that
    the manifest does not name."""

    manifest: Manifest
    problems: dict[str, list[str]]
    unlisted: tuple[str, ...]


def verify_place(place: Transport, *, parallel: int = 4, progress: Progress | None = None) -> VerifyReport:
    """Reads every file that the manifest of ``place`` names, ``parallel`` at a time, and compares its size and SHA-256.

    Raises ``UserInputError`` if there is no manifest, ``EnvironmentFault`` if the place does not answer or the manifest
    is damaged.
    """
    manifest = read_manifest(place)
    if manifest is None:
        raise UserInputError(f"there is no delivery in {place.source}: it has no {MANIFEST}")
    entries = list(manifest.entries)
    problems: dict[str, list[str]] = {copy.crawl: [] for copy in manifest.copies}
    read, total = 0, sum(entry.size for entry in entries)
    with ThreadPoolExecutor(max(1, parallel)) as pool:
        for done, (entry, problem) in enumerate(
            zip(entries, pool.map(partial(_find_problem, place), entries), strict=True), start=1
        ):
            if problem is not None:
                problems.setdefault(entry.name.partition("/")[0], []).append(f"{entry.name}: {problem}")
            read += entry.size
            if progress is not None:
                progress(done, len(entries), read, total)
    listed = {MANIFEST, *(entry.name for entry in entries)}
    unlisted = sorted(stored.key for stored in place.listing("") if stored.key not in listed)
    return VerifyReport(manifest, problems, tuple(unlisted))


def _find_problem(place: Transport, entry: FileEntry) -> str | None:
    stored = place.head(entry.name)
    if stored is None:
        return "the file is missing"
    if stored.size != entry.size:
        return f"has {stored.size:,} bytes, the manifest says {entry.size:,}"
    try:
        is_same = sha256_of(place, entry.name, entry.size) == entry.sha256
    except DataFault as fault:
        return str(fault)
    return None if is_same else "its SHA-256 differs from the manifest"
