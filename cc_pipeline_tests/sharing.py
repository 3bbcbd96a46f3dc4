"""How the suite is shared out among the workers of pytest-xdist (``--dist loadgroup``, as ``make test`` asks for it).

A module is one piece of work, so that what its tests share is made once and not once a worker; modules that share more
are one group (``pytest.mark.xdist_group``). Pieces are begun in the order of the collection, so the longest come first:
one that is begun late would be waited for by all the others. What tests of several workers start from is made by one
of them (:func:`make_once`).
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

#: Groups and modules that take longest, begun in this order. Those that mostly wait for other processes are among those
#: that keep a processor busy. A name that is wrong costs time and nothing else; a test finds it.
LONGEST = (
    "dagster_process",
    "cli homes",
    "extraction/test_monotone.py",
    "test_without_extensions.py",
    "cli published",
    "extensions/spark",
    "real_crawl",
    "cli",
    "wheel",
    "oracles/test_frozen.py",
    "extensions/spark/test_submission.py",
    "maintenance/test_purge.py",
    "fault matrix",
    "extensions/spark/test_engine.py",
    "maintenance/test_torn_tables.py",
    "extraction/test_group_state.py",
    "maintenance/test_s3_lake.py",
    "questions",
    "cli/test_credentials.py",
    "cli/test_stopped.py",
    "cli/test_incomplete.py",
    "odd_domains",
    "publish/test_incomplete_slices.py",
    "checks/test_publication.py",
    "publish/test_publish.py",
    "extraction/test_sets.py",
    "cli/test_news.py",
    "defs/test_sources_job.py",
    "records/test_sweep_orders.py",
    "lake/test_slices.py",
    "documents/batch/test_batch.py",
    "index/footers/test_harvest.py",
)
_RANKS = {name: rank for rank, name in enumerate(LONGEST)}


def mark_first_cells(items: Iterable[pytest.Item]) -> None:
    """Marks the first cell of each matrix as ``smoke``, where its test names no other cell itself: that one stays in
    the first gear."""
    cells: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.nodeid.endswith("]") and item.get_closest_marker("matrix") is not None:
            cells.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for of_one in cells.values():
        if all(item.get_closest_marker("smoke") is None for item in of_one):
            of_one[0].add_marker(pytest.mark.smoke)


def piece_of(item: pytest.Item) -> str:
    """The piece of work that a test belongs to: its group, or else its module below this folder."""
    mark = item.get_closest_marker("xdist_group")
    if mark is not None:
        return str(mark.args[0])
    return item.nodeid.partition("::")[0].removeprefix("cc_pipeline_tests/")


def share_out(items: list[pytest.Item]) -> None:
    """Marks each test with its piece of work, and puts the longest pieces first; otherwise the order stays."""
    pieces = {item: piece_of(item) for item in items}
    for item, piece in pieces.items():
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(piece))
    items.sort(key=lambda item: _RANKS.get(pieces[item], len(LONGEST)))


def make_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """A folder that ``make`` has filled, once for all workers of this run of the suite: the first that asks makes it,
    the others wait. Tests read it or copy it, and never write to it."""
    temporary = factory.getbasetemp()
    root = (temporary.parent if "PYTEST_XDIST_WORKER" in os.environ else temporary) / "made once"
    root.mkdir(exist_ok=True)
    folder, made = root / name, root / f"{name}.made"
    with (root / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            # a worker that failed here may have left a part
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            make(folder)
            made.touch()
    return folder
