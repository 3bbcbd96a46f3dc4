"""The bytes of each part of a home, and which parts may be deleted."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from cc_pipeline.checks.finding import Finding
from cc_pipeline.progress import human_bytes

#: The content of each part of a home, and the consequence of deleting it. A part may be deleted if nothing is lost.
_PARTS: Final = {
    "lake/records": ("stored records", "keep: there is no other copy"),
    "lake/tables": ("tables", "keep: there is no other copy"),
    "lake": ("locks and small notes of running processes", "keep"),
    "cc.duckdb": ("published tables", "can be deleted: the next run publishes it again"),
    "footers": ("footers of index files", "can be deleted: the next harvest fetches them again"),
    "cache": ("lists and small answers of the source", "can be deleted: they are fetched again"),
    "dagster": ("history of runs", "shrinks with CC_PIPELINE_HISTORY_DAYS"),
    "reports": ("reports", "can be deleted: they are written again"),
    "scratch": ("files of running processes", "can be deleted while nothing runs"),
    "spool": ("files of running processes", "can be deleted while nothing runs"),
    "demo": ("the demo, which is its own home", "can be deleted: make clean"),
    "minicrawl": ("the invented web of the demo", "can be deleted with the demo: make clean"),
}
_OTHER_PARTS: Final = "others"


def size_findings(home: Path) -> Iterator[Finding]:
    """Yields a finding for each part of a home that has bytes, the largest first; none if there is no home."""
    sizes = _measure_parts(home)
    for part, size in sizes.most_common():
        description, consequence = _PARTS.get(part, ("settings, locks and small files", "keep"))
        yield Finding("ok", "disk", f"{human_bytes(size)} in {part}: {description}; {consequence}")


def _measure_parts(home: Path) -> Counter[str]:
    """Counts bytes on disk by part. Files that are deleted meanwhile are skipped."""
    sizes: Counter[str] = Counter()
    for folder, _, names in os.walk(home, onerror=lambda _: None):
        for name in names:
            path = os.path.join(folder, name)
            try:
                size = os.lstat(path).st_blocks * 512
            except OSError:
                continue
            sizes[_find_part(os.path.relpath(path, home))] += size
    return sizes


def _find_part(path: str) -> str:
    """Returns the part that a file belongs to: the longest one that its path begins with."""
    words = path.split(os.sep)
    return next((part for part in ("/".join(words[:2]), words[0]) if part in _PARTS), _OTHER_PARTS)
