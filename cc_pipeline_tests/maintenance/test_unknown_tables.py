"""A table that this version does not know stops every purge, since it may have rows of the target."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from cc_pipeline.checks.doctor import examine
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.lake.files import write_rows
from cc_pipeline.lake.lake import Lake, TableSpec
from cc_pipeline.lake.slice import Slice, Stage
from cc_pipeline.maintenance.purge import remove_empty_targets
from cc_pipeline.maintenance.purge_plan import plan_purge
from cc_pipeline.workspace.workspace import Workspace
from cc_pipeline_tests.world import NEW, Bucket, workspace_of

SITE = "example.com"
SCHEMA = pa.schema([*(pa.field(name, pa.string(), nullable=False) for name in ("crawl", "target", "title"))])
TITLES = Stage("titles", ("titles",))
SPEC = TableSpec("titles", SCHEMA, ("crawl", "target"), ("target",), stage=TITLES)


@pytest.fixture
def workspace(bucket: Bucket, tmp_path: Path) -> Workspace:
    """A home with a table of another version."""
    workspace = workspace_of(bucket[0], tmp_path / "home")
    slice_ = Slice(NEW, SITE)
    other = Lake(workspace.lake.root, [SPEC])
    rows = pa.RecordBatch.from_pylist([slice_.where | {"title": "A"}], SCHEMA)
    other.append("titles", write_rows(other, "titles", NEW, [rows], {SITE: 1}).files)
    return workspace


ASKS: dict[str, Callable[[Workspace], object]] = {
    "a target": lambda workspace: plan_purge(workspace, SITE, SITE),
    "targets without captures": lambda workspace: remove_empty_targets(workspace, [SITE]),
}


@pytest.mark.parametrize("ask", ASKS)
def test_nothing_is_purged_beside_an_unknown_table(workspace: Workspace, ask: str) -> None:
    with pytest.raises(EnvironmentFault, match="tables/titles may have rows of targets"):
        ASKS[ask](workspace)
    [finding] = [finding for finding in examine(workspace.settings) if "table titles" in finding.text]
    assert finding.level == "bad"


def test_nobody_is_told_to_delete_a_table_that_cannot_be_read(workspace: Workspace, tmp_path: Path) -> None:
    entry = tmp_path / "home" / "lake" / "tables" / "titles" / "_delta_log" / f"{0:020}.json"
    entry.write_text(entry.read_text()[:40])
    with pytest.raises(EnvironmentFault, match="the table cannot be read") as refused:
        plan_purge(workspace, SITE, SITE)
    [finding] = [finding for finding in examine(workspace.settings) if "table titles" in finding.text]
    assert finding.level == "bad" and "delete its folder" not in f"{finding.advice} {refused.value.advice}"
