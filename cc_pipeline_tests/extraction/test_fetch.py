"""Fetching: damaged members, sources that refuse, disks that fill up; what is held already stays."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from cc_pipeline.errors import EnvironmentFault, Incomplete
from cc_pipeline.extraction.fetch import fetch_captures
from cc_pipeline.extraction.fetch_counts import SliceFetchCounts
from cc_pipeline.extraction.locate import locate_captures
from cc_pipeline.extraction.loss_policy import build_incomplete_error, exceeds_pending_limit
from cc_pipeline.extraction.parse import parse_records
from cc_pipeline.extraction.plan import ReasonKind
from cc_pipeline.lake.slice import FETCH, LOCATE, Slice
from cc_pipeline.settings import load_settings
from cc_pipeline.testing.mini_crawl.truth import Capture
from cc_pipeline.workspace.claim import claim_home
from cc_pipeline.workspace.workspace import Workspace
from cc_pipeline_tests.faultserver import FaultServer, Rule
from cc_pipeline_tests.world import (
    NEW,
    Bucket,
    copy_of,
    due,
    extract,
    fill,
    harvest,
    harvested,
    notes_of,
    replace_file,
    rewrite_slice,
    small_disk,
    workspace_of,
)


def damage(bucket: Path, capture: Capture) -> None:
    """Changes bytes in the middle of a capture's gzip member."""
    path = bucket / capture.warc_filename
    data = bytearray(path.read_bytes())
    middle = capture.warc_record_offset + capture.warc_record_length // 2
    data[middle : middle + 8] = b"\xff" * 8
    replace_file(path, bytes(data))


def test_a_corrupt_member_is_put_aside_and_its_neighbours_come_through(bucket: Bucket, tmp_path: Path) -> None:
    root = copy_of(bucket[0], tmp_path / "bucket")
    mine = bucket[1].captures_of(NEW, subset="warc", domain="example.com")
    bad = mine[len(mine) // 2]
    damage(root, bad)
    workspace = harvested(root, tmp_path / "home")
    _, fetched, parsed = extract(workspace, "example.com")
    figures = fetched.per_target["example.com"]
    assert figures.pop("version:records")
    assert figures.pop("written:records") == len(mine)
    assert str(figures.pop("pending because of")).startswith("gzip")
    assert figures | {"stored bytes": 0} == {
        "rows:records": len(mine), "fetched": len(mine) - 1, "lost": 0, "stored bytes": 0, "pending": 1,
        "not fetched": f"{100 / len(mine):.1f} %",
    }  # fmt: skip
    rows = workspace.lake.read("records").to_pylist()
    [set_aside] = [row for row in rows if row["outcome"] == "pending"]
    assert (set_aside["warc_filename"], set_aside["warc_record_offset"]) == (bad.warc_filename, bad.warc_record_offset)
    assert set_aside["reason"].startswith("gzip")
    assert set_aside["stored_length"] == bad.warc_record_length
    assert parsed.rows == len(mine)
    replace_file(root / bad.warc_filename, (bucket[0] / bad.warc_filename).read_bytes())
    again = fetch_captures(workspace, NEW, ["example.com"])
    assert again.per_target["example.com"]["fetched"] == len(mine)
    assert again.requests == 1


def test_a_source_that_gives_nothing_is_an_error_and_costs_few_requests(bucket: Bucket, tmp_path: Path) -> None:
    with FaultServer(bucket[0]) as server:
        workspace = harvested(server.url, tmp_path)
        extract(workspace, "example-foo.com")
        workspace.targets(["example.com"])
        locate_captures(workspace, NEW, ["example.com"])
        server.set_rules([Rule("500", key="*.warc.gz", times=None)])
        asked = len(server.hits)
        with pytest.raises(EnvironmentFault, match="500") as refused:
            fetch_captures(workspace, NEW, ["example.com"])
        assert refused.value.advice
        assert len(server.hits) - asked < 200
        records = workspace.lake.read("records", {"target": "example.com"}, ["outcome", "asks"]).to_pylist()
        assert {(row["outcome"], row["asks"]) for row in records} == {("pending", 0)}
        server.set_rules([])
        # the breaker of this run stays open; the next one asks again
        _, fetched, _ = extract(workspace_of(server.url, tmp_path), "example.com", "example-foo.com")
        assert fetched.per_target["example.com"]["pending"] == 0
        assert fetched.reused_slices == 1


def test_one_file_that_is_refused_fails_the_run_keeps_the_others_and_is_asked_again_next_time(
    bucket: Bucket, tmp_path: Path
) -> None:
    mine = bucket[1].captures_of(NEW, subset="warc", domain="example.com")
    refused = sorted({capture.warc_filename for capture in mine})[0]
    kept_away = sum(capture.warc_filename == refused for capture in mine)
    assert 0 < kept_away < len(mine)
    with FaultServer(bucket[0], rules=[Rule("500", key=refused, times=None)]) as server:
        workspace = harvested(server.url, tmp_path)
        with pytest.raises(Incomplete, match=f"{kept_away} of {len(mine)} captures") as lacking:
            extract(workspace, "example.com")
        assert "server_error" in lacking.value.problem
        assert "CC_PIPELINE_MAX_PENDING" in lacking.value.advice
        [row] = notes_of(workspace, FETCH)
        assert (row["fetched"], row["pending"], row["ask_pending"]) == (len(mine) - kept_away, kept_away, 0)
        assert (row["reason"], row["failed_runs"]) == ("server_error", 1)
        # who allows it goes on with what is there
        lenient = workspace_of(server.url, tmp_path, max_pending=0.9)
        _, fetched, parsed = extract(lenient, "example.com")
        assert fetched.per_target["example.com"]["pending"] == kept_away
        assert [note for note in fetched.notes if f"{kept_away:,} captures pending, asked 0 of 3 times" in note]
        assert parsed.rows == len(mine)
        assert due(workspace, FETCH, "example.com", but=(ReasonKind.PENDING_CAPTURES,)) == set()
        assert notes_of(workspace, FETCH)[0]["failed_runs"] == 2
        server.set_rules([])
        _, fetched, parsed = extract(workspace, "example.com")
        assert fetched.per_target["example.com"]["fetched"] == len(mine)
        assert [note for note in fetched.notes if f"{len(mine) - kept_away:,} captures were stored already" in note]
        reasons = workspace.lake.read("records", columns=["reason"]).column("reason").unique().to_pylist()
        assert reasons == [None]


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


def test_a_full_disk_under_what_is_put_aside_stops_the_parse(bucket: Bucket, tmp_path: Path) -> None:
    home = tmp_path / "home"
    with small_disk(tmp_path / "disk", 512) as disk:
        home.mkdir()
        workspace = harvested(bucket[0], home)
        workspace.targets(["example.com"])
        locate_captures(workspace, NEW, ["example.com"])
        fetch_captures(workspace, NEW, ["example.com"])
        (workspace.settings.cache_path / "parsing").symlink_to(disk)
        filler = fill(disk)
        with pytest.raises(EnvironmentFault, match=r"No space left|disk is full") as refused:
            parse_records(workspace, NEW, ["example.com"])
        assert "space" in refused.value.advice
        assert workspace.lake.read("page_metadata").num_rows == 0
        filler.unlink()
        report = parse_records(workspace, NEW, ["example.com"])
        assert report.rows == len(bucket[1].captures_of(NEW, subset="warc", domain="example.com"))


def test_another_digest_policy_judges_anew_what_is_held(bucket: Bucket, tmp_path: Path) -> None:
    root = copy_of(bucket[0], tmp_path / "bucket")
    mine = bucket[1].captures_of(NEW, subset="warc", domain="example.com")
    noting, failing = (workspace_of(root, tmp_path / "home", digest_policy=policy) for policy in ("record", "fail"))
    harvest(noting)
    noting.targets(["example.com"])
    locate_captures(noting, NEW, ["example.com"])
    captures = noting.lake.read("captures")
    wrong = pa.array(["A" * 32, *captures["content_digest"].to_pylist()[1:]])
    column = captures.schema.get_field_index("content_digest")
    rewrite_slice(noting, LOCATE, "example.com", captures.set_column(column, "content_digest", wrong))

    def outcomes(workspace: Workspace) -> dict[str, int]:
        figures = fetch_captures(workspace, NEW, ["example.com"]).per_target["example.com"]
        return {name: int(figures[name]) for name in ("fetched", "pending")}

    for _ in range(2):
        assert outcomes(noting) == {"fetched": len(mine), "pending": 0}
        assert outcomes(failing) == {"fetched": len(mine) - 1, "pending": 1}


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
