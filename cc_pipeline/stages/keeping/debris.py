"""What killed processes leave in a home: half-written files and scratch folders."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from cc_pipeline.atomic import unfinished
from cc_pipeline.processes import is_gone, started
from cc_pipeline.settings import Settings

#: Seconds for which nobody has touched what is left, where nobody can know whether its process still lives.
_UNTOUCHED = 86_400


def clear_debris(settings: Settings) -> int:
    """Deletes what processes that are gone left in the home; gives how many files and folders.

    What belongs to processes of other machines and containers, or to versions that wrote a bare process id, goes once
    it has not been touched for a day. What cannot be deleted stays.
    """
    cleared = 0
    for path, mark in _left(settings):
        with suppress(OSError):
            if _is_debris(path, mark):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
                cleared += 1
    return cleared


def _left(settings: Settings) -> Iterator[tuple[Path, str]]:
    for folder in {settings.home, settings.cache_path, settings.published_path.parent}:
        for path in folder.glob(".*.part*"):
            if left := unfinished(path.name):
                yield path, left[1]
    published = settings.published_path
    # as versions of before named them
    for path in published.parent.glob(f"{published.name}.building-*"):
        yield path, path.name.partition(".building-")[2].removesuffix(".wal").removesuffix(".tmp")
    scratch = settings.home / "scratch"
    for path in scratch.iterdir() if scratch.is_dir() else ():
        yield path, path.name


def _is_debris(path: Path, mark: str) -> bool:
    gone = is_gone(mark)
    if gone is not None:
        return gone
    alive = mark.isdigit() and started(int(mark)) != ""
    return not alive and time.time() - path.stat().st_mtime > _UNTOUCHED
