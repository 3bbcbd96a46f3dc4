"""Grows a home, and times a small partition in it. A program of its own, so that the code of before can run it too:
it uses only what both have (``python growth_home.py grow|ask …`` with ``PYTHONPATH`` at one or the other).

Rows are those of one extracted domain, again and again under other targets, so they have real sizes.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.lake.digests import input_digest
from cc_pipeline.settings import load_settings
from cc_pipeline.stages.fetch import fetch_captures
from cc_pipeline.stages.harvest import commit_manifest, commit_row_groups, harvest_footers
from cc_pipeline.stages.locate import locate_captures
from cc_pipeline.stages.parse import parse_records
from cc_pipeline.stages.publish import publish_warehouse
from cc_pipeline.stages.slice import FETCH, LOCATE, PARSE, Slice, Stage
from cc_pipeline.stages.workspace import Workspace

CRAWL = "CC-MAIN-2024-22"
TEMPLATE, ASKED = "example.com", "example-foo.com"
#: Which tables of which stage grow, by what grows.
GROWN: dict[str, list[tuple[Stage, str]]] = {
    "rows": [(LOCATE, "captures"), (FETCH, "records")],
    "slices": [(LOCATE, "captures"), (FETCH, "records"), *((PARSE, table) for table in PARSE.tables)],
}


def extract(workspace: Workspace, domain: str) -> None:
    """Captures to pages of a domain."""
    workspace.register_targets([parse_target(domain)])
    for stage in (locate_captures, fetch_captures, parse_records):
        stage(workspace, CRAWL, [domain])


def grow(workspace: Workspace, what: str, slices: int, rows: int) -> None:
    """A harvested home with the template's pages, and ``slices`` more slices of ``rows`` rows in every grown table."""
    commit_manifest(workspace, CRAWL)
    harvest_footers(workspace, CRAWL)
    commit_row_groups(workspace, [CRAWL])
    extract(workspace, TEMPLATE)
    targets = [parse_target(f"site-{number:06d}.example") for number in range(slices)]
    workspace.register_targets(targets)
    lake = workspace.lake
    for stage, table in GROWN[what]:
        template = lake.read(table, {"crawl": CRAWL, "target": TEMPLATE})
        for target in targets:
            slice_ = Slice(CRAWL, target.slug)
            data = _again(template, target.slug, rows)
            digest = input_digest({"grown": target.slug})
            lake.commit(table, data, [slice_.where], {stage.digest_name(slice_): digest})


def _again(template: pa.Table, slug: str, rows: int) -> pa.Table:
    """``rows`` rows under another target, each of a place of its own."""
    whole = pa.concat_tables([template] * -(-rows // max(1, template.num_rows))).slice(0, rows)
    place = whole.schema.get_field_index("warc_filename")
    numbers = pa.array([f"grown/{slug}/{number // 500}.warc.gz" for number in range(whole.num_rows)], pa.string())
    whole = whole.set_column(place, whole.schema.field(place), numbers)
    column = whole.schema.get_field_index("target")
    return whole.set_column(column, whole.schema.field(column), pa.array([slug] * whole.num_rows, pa.string()))


def ask(workspace: Workspace) -> dict[str, float]:
    """Seconds (wall and processor) of a new small partition and of a publication, and this process's peak in MB."""
    found: dict[str, float] = {}
    steps: list[tuple[str, Callable[[], object]]] = [
        ("pages", lambda: extract(workspace, ASKED)),
        ("publish", lambda: publish_warehouse(workspace)),
    ]
    for name, step in steps:
        started, used = time.perf_counter(), time.process_time()
        step()
        found[f"{name}_s"] = time.perf_counter() - started
        found[f"{name}_cpu_s"] = time.process_time() - used
    found["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return found


def main() -> None:
    """One of the two, in a home."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("step", choices=["grow", "ask"])
    parser.add_argument("bucket", type=Path)
    parser.add_argument("home", type=Path)
    parser.add_argument("--what", choices=sorted(GROWN), default="rows")
    parser.add_argument("--slices", type=int, default=0)
    parser.add_argument("--rows", type=int, default=0)
    given = parser.parse_args()
    workspace = Workspace(load_settings({}, source=str(given.bucket), home=str(given.home)))
    try:
        if given.step == "grow":
            grow(workspace, given.what, given.slices, given.rows)
        else:
            json.dump(ask(workspace), sys.stdout)
    finally:
        workspace.close()


if __name__ == "__main__":
    main()
