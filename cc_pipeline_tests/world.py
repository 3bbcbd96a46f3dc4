"""The stages without Dagster: workspaces over a mini crawl, buckets with something wrong in them, full disks."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pytest

from cc_pipeline.commoncrawl.target import Target
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.extraction.crawl_plan import plan_crawl
from cc_pipeline.extraction.fetch import fetch_captures
from cc_pipeline.extraction.locate import locate_captures
from cc_pipeline.extraction.parse import parse_records
from cc_pipeline.extraction.plan import ReasonKind
from cc_pipeline.harvesting.crawl_index import commit_manifest, commit_row_groups, harvest_footers
from cc_pipeline.home import LAKE_NOTE, NOTE
from cc_pipeline.lake.files import write_rows
from cc_pipeline.lake.slice import Slice, Stage, StageReport
from cc_pipeline.lake.slices import SliceRow, commit_written, current_rows, draw_generations, read_base, read_slice_rows
from cc_pipeline.lake.snapshot import Publication
from cc_pipeline.settings import load_settings
from cc_pipeline.testing.mini_crawl.truth import MiniCrawlTruth
from cc_pipeline.workspace.workspace import Workspace
from cc_pipeline_tests.closing import closed_later
from cc_pipeline_tests.ports import free_port

#: A bucket's root and the truth about it, as the fixture gives them.
Bucket: TypeAlias = tuple[Path, MiniCrawlTruth]
NEW, OLD, ARC = "CC-MAIN-2024-22", "CC-MAIN-2018-05", "CC-MAIN-2012"
#: Announced in collinfo.json by :func:`announce`, and nothing else of it is there.
ANNOUNCED = "CC-MAIN-2024-26"


class Killed(BaseException):
    """Stands for SIGKILL: no handler of ours may catch it."""


def workspace_of(source: Path | str, home: Path, **overrides: object) -> Workspace:
    """A workspace with nothing from this machine's environment in it; closed after the test."""
    return closed_later(Workspace(load_settings({}, source=str(source), home=str(home), **overrides)))


def harvest(workspace: Workspace, crawl: str = NEW) -> StageReport:
    """Manifest, footers, row groups and the catalog of a crawl; the report of its footers."""
    commit_manifest(workspace, crawl)
    footers = harvest_footers(workspace, crawl)
    commit_row_groups(workspace, [crawl])
    return footers


def harvested(source: Path | str, home: Path, *, crawl: str = NEW, **overrides: object) -> Workspace:
    """A workspace by :func:`workspace_of` in which a crawl is harvested."""
    workspace = workspace_of(source, home, **overrides)
    harvest(workspace, crawl)
    return workspace


def extract(workspace: Workspace, *texts: str, crawl: str = NEW) -> list[StageReport]:
    """Captures to pages of targets; the reports of locate, fetch and parse."""
    targets = [parse_target(text) for text in texts]
    workspace.register_targets(targets)
    slugs = [target.slug for target in targets]
    return [stage(workspace, crawl, slugs) for stage in (locate_captures, fetch_captures, parse_records)]


def due(
    workspace: Workspace, stage: Stage, *asked: str | Target, crawl: str = NEW, but: Collection[ReasonKind] = ()
) -> set[str]:
    """The slugs of targets of which a run would make ``stage``, for other reasons than ``but``."""
    targets = [parse_target(one) if isinstance(one, str) else one for one in asked]
    workspace.register_targets(targets)
    found = plan_crawl(workspace, crawl, [target.slug for target in targets]).plan.reasons_for(
        stage, excluded_kinds=but
    )
    return {slice_.partition.target for slice_ in found}


def notes_of(workspace: Workspace, stage: Stage, where: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
    """The notes of slices that a stage made, with their details, by crawl and target."""
    rows = current_rows(workspace.lake, where, ["note", "details"]).to_pylist()
    return [
        {
            "crawl": row["crawl"],
            "target": row["target"],
            **json.loads(row["note"]),
            **json.loads(row["details"] or "{}"),
        }
        for row in rows
        if row["stage"] == stage.label and row["note"] != "{}"
    ]


def slice_row(workspace: Workspace, stage: Stage, target: str, crawl: str = NEW) -> SliceRow | None:
    """The state of a slice; ``None`` if the stage never made it."""
    slice_ = Slice(crawl, target)
    return read_slice_rows(workspace.lake, [slice_], (stage,)).get((slice_, stage.label))


def rewrite_slice(workspace: Workspace, stage: Stage, target: str, rows: pa.Table, crawl: str = NEW) -> None:
    """Commits other rows for a slice, with the input and the note that it has."""
    base = read_base(workspace.lake, stage, [Slice(crawl, target)])
    [(slice_, old)] = base.replaced.items()
    generations = draw_generations([slice_])
    by_target = {target: generations[slice_]}
    written = {stage.main_table: write_rows(workspace.lake, stage.main_table, crawl, rows.to_batches(), by_target)}
    commit_written(workspace.lake, stage, {slice_: old.input}, written, generations, base, notes={slice_: old.note})


def publish(workspace: Workspace) -> Publication:
    """A new ``cc.duckdb``."""
    from cc_pipeline.publish.publish import publish_warehouse  # noqa: PLC0415  # not all tests publish

    return publish_warehouse(workspace)


def copy_of(bucket: Path, to: Path) -> Path:
    """The bucket again, its files hard links: change one only by :func:`replace_file`."""
    shutil.copytree(bucket, to, copy_function=os.link)
    return to


def rehome(home: Path, source: Path | str) -> None:
    """Makes a copied home one of ``source``: the same bucket at another place."""
    (home / NOTE).write_text(json.dumps({"source": str(source)}), "utf-8")
    (home / "lake" / LAKE_NOTE).unlink(missing_ok=True)


def replace_file(path: Path, data: bytes) -> None:
    """Writes ``data`` in the place of a linked file, leaving the other name's bytes alone."""
    path.unlink()
    path.write_bytes(data)


def announce(bucket: Path, crawl: str = ANNOUNCED) -> None:
    """Puts a crawl at the head of the bucket's collinfo.json."""
    path = bucket / "collinfo.json"
    entries = json.loads(path.read_bytes())
    new = {**entries[0], "id": crawl, "name": "announced", "from": "2024-06-12T00:00:00", "to": "2024-06-25T00:00:00"}
    replace_file(path, json.dumps([new, *entries]).encode())


def closed_port() -> str:
    """An address on loopback at which nobody listens."""
    return f"http://127.0.0.1:{free_port()}"


@contextmanager
def small_disk(at: Path, kilobytes: int) -> Iterator[Path]:
    """A file system of its own at ``at``; skips the test where this user may not mount one."""
    at.mkdir(parents=True, exist_ok=True)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "none", str(at)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"a full disk needs a small file system, and mounting is refused: {mounted.stderr.strip()}")
    try:
        yield at
    finally:
        subprocess.run(["umount", "-l", str(at)], check=True)


def fill(disk: Path, leave: int = 0) -> Path:
    """Fills a small disk but for ``leave`` bytes; deleting the file this gives frees it again."""
    filler = disk / "filler"
    with filler.open("wb") as file:
        while free := max(0, (found := os.statvfs(disk)).f_bavail * found.f_frsize - leave):
            file.write(b"\0" * min(free, 1 << 20))
            file.flush()
    return filler
