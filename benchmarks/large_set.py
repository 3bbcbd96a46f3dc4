"""What a set costs by its members: reading its file, locating it, a whole run, and one member more beside a domain
alone. ``figures`` measures one size in this process; start one for each, since memory is measured too.

Most members are domains that the mini crawl does not have, as a mini crawl has few.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path

from cc_pipeline.commoncrawl.target import Target
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.extraction.fetch import fetch_captures
from cc_pipeline.extraction.locate import locate_captures
from cc_pipeline.extraction.parse import parse_records
from cc_pipeline.minicrawl.generate import ensure
from cc_pipeline.minicrawl.spec import DEMO
from cc_pipeline.settings import load_settings
from cc_pipeline.stages.indexing.harvest import commit_manifest, commit_row_groups, harvest_footers
from cc_pipeline.stages.publish import publish_warehouse
from cc_pipeline.stages.workspace import Workspace

CRAWL = "CC-MAIN-2024-22"
#: Members of the set, from and to.
SIZES = (10, 1_000, 10_000, 100_000)
_SLUG = "set-large"


def figures(bucket: Path, folder: Path, members: int) -> dict[str, float]:
    """Seconds of each step with a set of ``members`` in a new home in ``folder``; ``*_cpu_s`` are of the processor.

    ``located`` is the captures found, ``lone_s`` a run of a domain alone in the same home, ``added_s`` the run after
    a member was added, ``peak_mb`` of this process.
    """
    domains = list(ensure(bucket, DEMO).domains())
    first, lone, added, *here = domains
    names = [*here[: members // 2], *(f"site-{number:06d}.example" for number in range(members))][:members]
    workspace = Workspace(load_settings({}, source=str(bucket), home=str(folder / "home")))
    commit_manifest(workspace, CRAWL)
    harvest_footers(workspace, CRAWL)
    commit_row_groups(workspace, [CRAWL])
    found: dict[str, float] = {}
    try:
        # what the first run of a process pays alone is no part of a figure
        _run(workspace, first)
        _timed(found, "listed", lambda: _write(folder, names))
        _timed(found, "registered", lambda: workspace.register_targets([_write(folder, names)]))
        _timed(found, "located", lambda: locate_captures(workspace, CRAWL, [_SLUG]))
        _timed(found, "fetched", lambda: fetch_captures(workspace, CRAWL, [_SLUG]))
        _timed(found, "parsed", lambda: parse_records(workspace, CRAWL, [_SLUG]))
        _timed(found, "published", lambda: publish_warehouse(workspace))
        _timed(found, "unchanged", lambda: _run(workspace, _SLUG))
        _timed(found, "lone", lambda: _run(workspace, lone))
        _timed(found, "added", lambda: _grow(workspace, folder, [*names, added]))
        found["captures"] = float(workspace.lake.read("captures", columns=["target"]).num_rows)
    finally:
        workspace.close()
    found["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return found


def _timed(found: dict[str, float], name: str, step: Callable[[], object]) -> None:
    started, used = time.perf_counter(), time.process_time()
    step()
    found[f"{name}_s"] = time.perf_counter() - started
    found[f"{name}_cpu_s"] = time.process_time() - used


def _write(folder: Path, names: list[str]) -> Target:
    (folder / "large.txt").write_text("\n".join(names) + "\n", "utf-8")
    return parse_target("set:large = @large.txt", folder)


def _run(workspace: Workspace, slug: str) -> None:
    for stage in (locate_captures, fetch_captures, parse_records):
        stage(workspace, CRAWL, [slug])


def _grow(workspace: Workspace, folder: Path, names: list[str]) -> None:
    workspace.register_targets([_write(folder, names)])
    _run(workspace, _SLUG)


def main() -> None:
    """Writes the figures of one size as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bucket", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--members", type=int, default=SIZES[-1])
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    json.dump(figures(given.bucket, given.folder, given.members), sys.stdout, indent=1)


if __name__ == "__main__":
    main()
