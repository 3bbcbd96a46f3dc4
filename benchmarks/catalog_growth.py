"""A home that grows crawl by crawl: what adding one costs, as a harvest does it, and what the way of before cost.

Rows are generated and committed to a lake as a harvest commits them. Each measurement runs in a process of its own:

    python -m benchmarks.catalog_growth add HOME       brings the catalog up to date; prints what it took as JSON
    python -m benchmarks.catalog_growth before HOME    reads all crawls through Arrow into one file, as it was before
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.catalog_synthetic import Shape, crawl_tables
from cc_pipeline.extraction.slice import HARVEST, Slice
from cc_pipeline.index.catalog.build import build_catalog
from cc_pipeline.index.catalog.from_footers import coverage_table
from cc_pipeline.settings import load_settings
from cc_pipeline.stages.indexing.catalog import rebuild_catalog
from cc_pipeline.stages.workspace import Workspace
from cc_pipeline_tests.peak import own_peak


def open_home(home: Path) -> Workspace:
    """The workspace of a home whose source is never asked."""
    return Workspace(load_settings({}, source=str(home / "bucket"), home=str(home)))


def commit_crawl(workspace: Workspace, shape: Shape, number: int) -> str:
    """Commits the rows of crawl ``number``, as a harvest does; gives its name."""
    tables = crawl_tables(shape, number)
    slice_ = Slice(tables.crawl)
    digest = HARVEST.digest(number=number)
    if HARVEST.stale(workspace.lake, {slice_: digest}):
        covered = coverage_table(
            tables.crawl, tables.index_files["path"].to_pylist(), tables.index_files, tables.row_groups
        )
        rows = {
            "coverage": covered,
            "index_files": tables.index_files,
            "column_chunks": tables.column_chunks,
            "row_groups": tables.row_groups,
        }
        HARVEST.commit(workspace.lake, {slice_: digest}, rows)
    return tables.crawl


def grow(home: Path, shape: Shape) -> Iterator[tuple[int, dict[str, float]]]:
    """Adds crawl after crawl; yields how many there are and what adding the last one took."""
    workspace = open_home(home)
    for number in range(shape.crawls):
        commit_crawl(workspace, shape, number)
        yield number + 1, measured("add", home)


def measured(what: str, home: Path) -> dict[str, float]:
    """``seconds``, ``user`` seconds and ``peak`` MB of one way, in a process of its own; ``merged`` where it merged."""
    arguments = [sys.executable, "-m", "benchmarks.catalog_growth", what, str(home)]
    done = subprocess.run(arguments, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def disk(folder: Path) -> dict[str, int]:
    """Bytes of the crawls' own files, and of the merged ones."""
    files = list(folder.glob("*.duckdb"))
    merged = sum(path.stat().st_size for path in files if path.name.endswith(".merged.duckdb"))
    return {"crawls": sum(path.stat().st_size for path in files) - merged, "merged": merged}


def _before(workspace: Workspace) -> None:
    lake, path = workspace.lake, workspace.settings.home / "before.duckdb"
    build_catalog(
        path,
        index_files=lake.read("index_files"),
        row_groups=lake.read("row_groups"),
        column_chunks=lake.read("column_chunks"),
        coverage=lake.read("coverage"),
    )
    path.unlink()


def main() -> None:
    what, home = sys.argv[1:]
    workspace = open_home(Path(home))
    started, before = time.perf_counter(), os.times()
    merged = False
    if what == "add":
        merged = rebuild_catalog(workspace).merged
    else:
        _before(workspace)
    spent = os.times()
    seconds = time.perf_counter() - started
    figures = {"seconds": seconds, "user": spent.user - before.user, "peak": own_peak() / 1024, "merged": merged}
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
