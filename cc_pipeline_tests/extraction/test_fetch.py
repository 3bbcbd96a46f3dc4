"""Fetching: damaged members, sources that refuse, disks that fill up; what is held already stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.extraction.fetch import fetch_captures
from cc_pipeline.extraction.fetch_counts import SliceFetchCounts
from cc_pipeline.extraction.locate import locate_captures
from cc_pipeline.extraction.loss_policy import build_incomplete_error, exceeds_pending_limit
from cc_pipeline.lake.slice import Slice
from cc_pipeline.settings import load_settings
from cc_pipeline.workspace.claim import claim_home
from cc_pipeline_tests.world import (
    NEW,
    Bucket,
    extract,
    fill,
    harvested,
    small_disk,
)


@pytest.mark.parametrize("place", ["records", "tables"])
def test_a_full_disk_stops_the_fetch_and_the_next_run_goes_on(bucket: Bucket, tmp_path: Path, place: str) -> None:
    home = tmp_path / "home"
    with small_disk(tmp_path / "disk", 4_096) as disk:
        (home / "lake").mkdir(parents=True)
        # a note before there are tables, as every home has it
        claim_home(load_settings({}, source=str(bucket[0]), home=str(home)))
        (home / "lake" / place).symlink_to(disk)
        workspace = harvested(bucket[0], home)
        extract(workspace, "example-foo.com")
        locate_captures(workspace, NEW, ["example.com"])
        before = workspace.lake.read("records").to_pylist()
        filler = fill(disk)
        with pytest.raises(EnvironmentFault, match=r"disk is full|No space left") as refused:
            fetch_captures(workspace, NEW, ["example.com"])
        assert "space" in refused.value.advice
        assert workspace.lake.read("records").to_pylist() == before
        filler.unlink()
        _, fetched, _ = extract(workspace, "example.com")
        mine = len(bucket[1].captures_of(NEW, subset="warc", domain="example.com"))
        assert fetched.per_target["example.com"]["fetched"] == mine
        # what a stopped run had stored whole is taken over, what not is fetched again
        named = set(workspace.lake.read("records").column("stored_file").to_pylist())
        stored = {str(path.relative_to(home / "lake")) for path in (home / "lake" / "records").rglob("*.warc.gz")}
        assert named <= stored
        assert not list((home / "lake" / "records" / NEW).glob("*.rows.jsonl"))


def test_nothing_at_all_is_a_failure_however_often_it_was_asked_for() -> None:
    def lacking(fetched: int, pending: int) -> SliceFetchCounts:
        return SliceFetchCounts(
            slice_=Slice(NEW, "a"),
            planned=fetched + pending,
            fetched=fetched,
            pending=pending,
            lost=0,
            reason="timeout",
            example="u: late",
        )

    assert exceeds_pending_limit(lacking(0, 30), 0.01)
    assert not exceeds_pending_limit(lacking(29, 1), 0.01)
    assert exceeds_pending_limit(lacking(28, 2), 0.01)
    assert exceeds_pending_limit(lacking(990, 11), 0.01)
    assert not exceeds_pending_limit(lacking(0, 0), 0)

    # a larger limit lets only a target pass of which something was fetched
    def advice(counts: SliceFetchCounts) -> str:
        error = build_incomplete_error({counts.slice_: counts}, (), 0.01, "the source")
        assert error is not None
        return error.advice

    assert "CC_PIPELINE_MAX_PENDING" in advice(lacking(28, 2))
    assert "CC_PIPELINE_MAX_PENDING" not in advice(lacking(0, 30))
