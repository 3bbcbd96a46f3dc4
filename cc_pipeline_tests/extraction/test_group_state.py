"""What a run has read is compared again by its commits."""

from __future__ import annotations

from pathlib import Path

import pytest

from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.extraction import blocklist
from cc_pipeline.extraction.fetch import fetch_captures
from cc_pipeline.extraction.group_state import RunState, read_group_state
from cc_pipeline.extraction.locate import locate_captures
from cc_pipeline.lake.slices import SlicesChanged
from cc_pipeline.workspace.workspace import Workspace
from cc_pipeline_tests.world import NEW, Bucket, Killed, harvested, workspace_of

SITE = "example.com"


def block_and_die(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """The list is written, and the process is killed before it learns so."""
    plain, reads = blocklist._read_newest, []

    def dying(workspace: Workspace) -> object:
        if reads:
            raise Killed
        reads.append(workspace)
        return plain(workspace)

    with monkeypatch.context() as patch:
        patch.setattr(blocklist, "_read_newest", dying)
        with pytest.raises(Killed):
            blocklist.block(workspace, [parse_target(SITE)])


def test_a_block_whose_process_was_killed_stops_a_running_run(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = harvested(bucket[0], tmp_path)
    workspace.register_targets([parse_target(SITE)])
    run = RunState(workspace)
    locate_captures(workspace, NEW, [SITE], run=run)
    assert workspace.lake.read("captures").num_rows
    block_and_die(workspace_of(bucket[0], tmp_path), monkeypatch)
    with pytest.raises(SlicesChanged) as changed:
        fetch_captures(workspace, NEW, [SITE], run=run)
    assert changed.value.relocate
    assert not workspace.lake.read("records").num_rows
    assert read_group_state(workspace, NEW, [SITE]).list_number == 1, "the next run reads the list"
    with pytest.raises(EnvironmentFault, match="the list of blocked sites was changed"):
        fetch_captures(workspace, NEW, [SITE])
