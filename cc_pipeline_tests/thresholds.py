"""Constants at which rooms that keep rows take another way, and a small value for each: so that a few captures go
the ways of a million. ``shrunk()`` sets all of them until its block ends; the code reads them when it is called."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

import pytest

import cc_pipeline
from cc_pipeline.extraction.engine import LocalEngine
from cc_pipeline.records.orders import RecordOptions

#: By module, below ``cc_pipeline``.
SHRUNK: Final[dict[str, dict[str, Any]]] = {
    "commoncrawl.slice_slugs": {"_CLASSES": ((3, 1), (24, 4), (102_400, 16)), "_MAX_PART_MEMBERS": 8},
    "lake.predicates": {"MAX_NAMED_VALUES": 3, "_MAX_COMPARED_VALUES": 2},
    "lake.keyed": {"_MAX_KEPT_ANSWERS": 2, "_MAX_ANSWER_BYTES": 4 << 10, "_MAX_CONDITION": 40},
    "lake.lake": {"_MAX_HANDLE_COMMITS": 2},
    "lake.layout": {
        "FILE_BYTES": 32 << 10, "ROW_GROUP_ROWS": 16, "MAX_SMALL_FILES": 2, "MAX_OVERLAPPING_RUNS": 2,
        "MAX_MERGED_FILES": 5,
        "SMALL_BYTES": 16 << 10,
    },
    "lake.compaction": {"_KEYED_ROWS": 8, "_SMALL_FILE": 4 << 10},
    "lake.content_digests": {"_WORDS_AT_ONCE": 64, "_ROWS_AT_ONCE": 16, "_BYTES_AT_ONCE": 4 << 10},
    "lake.files": {
        "_ROW_GROUP_BYTES": 16 << 10, "BATCH_ROWS": 8, "_JOINED_BATCHES": 2, "_JOINED_BYTES": 1 << 10,
        "_SORT_BYTES": 8 << 10, "_FEW_BYTES": 4 << 10,
    },
    "lake.streaming": {
        "_BATCH_ROWS": 3, "_NARROW_ROWS": 16, "_BATCH_BYTES": 4 << 10, "_MAX_BATCH_ROWS": 8,
        "_SMALL_FILE": 1 << 10,
    },
    "lake.ordered": {
        "IN_MEMORY": 4 << 10, "_BATCH_ROWS": 16, "_BATCH_BYTES": 2 << 10, "_MAX_RUNS": 3, "_PIECE": 1 << 10,
    },
    "lake.target_definitions": {"_DEFINITIONS_PER_COMMIT": 2},
    "lake.slices": {"_NOTES": 3},
    "lake.live_rows": {"_STATES_AT_ONCE": 4},
    "records.storage": {"_LISTING_THRESHOLD": 2},
    "records.outcomes": {"_BATCH": 16},
    "records.reading": {"WINDOW": 8 << 10, "_WINDOW_ROWS": 8, "_GAP": 1 << 10},
    "records.range_plan": {"FIRST_READ": 4 << 10, "_PRICED": 8},
    "records.fetch": {"_BATCH": 16},
    "records.segments": {"MAX_RECORDS": 20},
    "extraction.fetch": {"RecordOptions": partial(RecordOptions, group=20, rotation=32 << 10)},
    "extraction.locate": {"_WRITE_BATCH_BYTES": 8 << 10},
    "extraction.capture_buffer": {"_TEXT_ROWS": 16, "_MEMORY_BYTES": 8 << 10},
    "extraction.lookup_notes": {"_MEMBERS_AT_ONCE": 4, "_SLICES_AT_ONCE": 2},
    "extraction.parsed_pages": {"BATCH_ROWS": 8, "_BATCH_BYTES": 32 << 10, "CHUNK_PAGES": 16, "_WRITE_BYTES": 4 << 10},
    "extraction.whole_files": {"_BATCH_ROWS": 4},
    "publish.views": {"_MAX_NAMED_TARGETS": 1},
    "maintenance.maintain": {"_MAX_MERGED_BYTES": 64 << 10},
    "maintenance.purge": {"_FILES_AT_ONCE": 1},
    "maintenance.record_erasure": {"_COPIED_BYTES": 4 << 10, "_JOURNAL_BATCH_ROWS": 4, "_EMPTY_RECORD_BYTES": 512},
}  # fmt: skip
#: Groups of partitions as small.
SMALL_ENGINE: Final = LocalEngine(partitions=2, captures=40)


@contextmanager
def shrunk() -> Iterator[None]:
    """Sets every threshold small until the end of the block."""
    with pytest.MonkeyPatch.context() as patch:
        for module, values in SHRUNK.items():
            for name, small in values.items():
                for where in (module, *_importers(module, name)):
                    patch.setattr(f"cc_pipeline.{where}.{name}", small)
        yield


def _importers(module: str, name: str) -> list[str]:
    """The modules that have the constant by an import of their own."""
    if name.startswith("_"):
        return []
    imported = re.compile(rf"^from cc_pipeline\.{re.escape(module)} import (?:\([^)]*|.*)\b{name}\b", re.MULTILINE)
    return [other for other, text in _modules().items() if imported.search(text)]


@cache
def _modules() -> dict[str, str]:
    """The text of each module by its name below ``cc_pipeline``."""
    root = Path(cc_pipeline.__file__).parent
    paths = [path for path in sorted(root.rglob("*.py")) if "extensions" not in path.parts]
    return {".".join(path.relative_to(root).with_suffix("").parts): path.read_text("utf-8") for path in paths}
