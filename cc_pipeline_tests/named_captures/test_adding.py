"""Captures that a person names become a target like any other: of several crawls, by place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import cc_pipeline
from cc_pipeline.api.add_captures import AddedCaptures, add_captures
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.defs.purging import forget_unfound_targets
from cc_pipeline.errors import EnvironmentFault, UserInputError
from cc_pipeline.extraction.blocklist import block
from cc_pipeline.extraction.crawl_plan import plan_crawl
from cc_pipeline.lake import slices
from cc_pipeline.lake.lake import Lake
from cc_pipeline.lake.slice import FETCH, LOCATE, Slice
from cc_pipeline.maintenance.purge_plan import plan_purge
from cc_pipeline.named_captures import adding
from cc_pipeline.workspace.workspace import Workspace
from cc_pipeline_tests.world import (
    ARC,
    NEW,
    OLD,
    Bucket,
    Killed,
    due,
    extract,
    publish,
    workspace_of,
)

pytestmark = pytest.mark.xdist_group("given")
_PLACE = ("warc_filename", "warc_record_offset")


def wrote(path: Path, rows: list[dict[str, object]]) -> Path:
    """Rows as a Parquet file."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    pq.write_table(pa.Table.from_pylist([{name: row.get(name) for name in names} for row in rows]), path)
    return path


def places(bucket: Bucket, crawl: str, *, prefix: str = "", length: bool = True) -> list[dict[str, object]]:
    """What a person may have of a crawl's captures."""
    return [
        {
            "filename": prefix + one.warc_filename,
            "offset": one.warc_record_offset,
            **({"length": one.warc_record_length, "url": one.url} if length else {}),
        }
        for one in bucket[1].captures_of(crawl)
    ]


def there(workspace: Workspace, table: str, slug: str) -> set[tuple[object, ...]]:
    """Crawl and place of the rows of a target."""
    rows = workspace.lake.read(table, columns=["crawl", "target", *_PLACE]).to_pylist()
    return {(row["crawl"], *(row[name] for name in _PLACE)) for row in rows if row["target"].partition("~")[0] == slug}


def test_places_of_three_crawls_through_to_pages(bucket: Bucket, tmp_path: Path) -> None:
    workspace = workspace_of(bucket[0], tmp_path / "home")
    rows = [
        *places(bucket, NEW),
        *places(bucket, OLD, length=False),
        *places(bucket, ARC, prefix="s3n://aws-publicdatasets/common-crawl/", length=False),
    ]
    wrong = {"filename": rows[0]["filename"], "offset": int(str(rows[0]["offset"])) + 3}
    done = add_captures(workspace.settings, wrote(tmp_path / "My rows.parquet", [*rows, wrong, rows[0]]))
    assert done.target.slug == "captures_my-rows" and not done.wrong.count
    assert (done.counts.new, done.counts.repeats) == (len(rows) + 1, 1)
    assert done.run == f"cc-pipeline run captures:my-rows --crawl {ARC} --crawl {OLD} --crawl {NEW}"
    truth = {
        (one.crawl, one.warc_filename, one.warc_record_offset): one
        for crawl in (NEW, OLD, ARC)
        for one in bucket[1].captures_of(crawl)
    }
    for crawl in (NEW, OLD, ARC):
        # no index was harvested, and none is asked
        extract(workspace, "captures:my-rows", crawl=crawl)
        reasons = plan_crawl(workspace, crawl, ["captures_my-rows"]).plan.reasons_for(FETCH)
        # the wrong one is asked for again
        assert [reason.n for reason in reasons.values()] == [1] * (crawl == NEW)
    odd = (NEW, wrong["filename"], wrong["offset"])
    assert there(workspace, "page_metadata", "captures_my-rows") == {*truth, odd}
    records = workspace.lake.read("records").to_pylist()
    [lost] = [row for row in records if row["outcome"] != "fetched"]
    assert (lost["warc_record_offset"], lost["reason"]) == (wrong["offset"], "not_gzip")
    for row in records:
        if row is not lost:
            known = truth[row["crawl"], row["warc_filename"], row["warc_record_offset"]]
            assert (row["warc_record_length"], row["subset"]) == (known.warc_record_length, known.subset)
            assert row["url"].partition("://")[2].rstrip("/") == known.url.partition("://")[2].rstrip("/")
    assert not due(workspace, LOCATE, "captures:my-rows where mime=text/html", crawl=ARC) - {
        parse_target("captures:my-rows where mime=text/html").slug
    }
    assert plan_purge(workspace, "captures_my-rows", "").rows["named_captures"] == len(truth) + 1
    publish(workspace)


def test_nothing_is_added_or_taken_away_unasked(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = workspace_of(bucket[0], tmp_path / "home")
    new, old = places(bucket, NEW), places(bucket, OLD)
    first = wrote(tmp_path / "first.parquet", [*new[:20], *old[:10]])

    def add(file: Path, **how: bool) -> AddedCaptures:
        return add_captures(workspace.settings, file, "mine", **how)

    def version() -> str:
        [row] = workspace.lake.read("targets", {"slug": "captures_mine"}).to_pylist()
        return str(row["version"])

    # killed between two crawls, the same command goes on
    commit = adding.commit_stage
    killed = iter([True])

    def dies(*given: Any, **more: Any) -> Any:
        committed = commit(*given, **more)
        if next(killed, False):
            raise Killed
        return committed

    with monkeypatch.context() as patch:
        patch.setattr(adding, "commit_stage", dies)
        with pytest.raises(Killed):
            add(first)
    assert add(first).held == {OLD: 10, NEW: 20}
    assert not plan_purge(workspace, "captures_mine", "").is_empty
    before = version()
    assert (add(first).counts.new, version()) == (0, before)

    changed = wrote(tmp_path / "changed.parquet", [*new[5:25], *old[:10]])
    with pytest.raises(UserInputError, match=r"nothing was changed.* 5 new captures, lacks 5, .* other values for 0:"):
        add(changed)
    assert len(there(workspace, "named_captures", "captures_mine")) == 30 and version() == before
    assert add(changed, extend=True).held == {OLD: 10, NEW: 25}
    assert len({before, version()}) == 2
    extract(workspace, "captures:mine", "captures:mine where url like %a%")
    home = cc_pipeline.open(workspace.settings.home, source=str(bucket[0]), quiet=True)
    values = wrote(tmp_path / "values.parquet", [row | {"status": 299} for row in new[5:25]])
    kept = home.add_captures(values, "mine", extend=True)
    assert "replace=True overwrites them" in repr(kept)
    assert kept.run == f'home.run("captures:mine", crawls=["{OLD}", "{NEW}"])'
    asked = home.add_captures(changed, "mine", replace=True)
    assert (asked.held, asked.counts.unmatched) == ({OLD: 10, NEW: 20}, 5)
    assert due(workspace, LOCATE, "captures:mine", "captures:mine where url like %a%") == {
        "captures_mine",
        parse_target("captures:mine where url like %a%").slug,
    }
    extract(workspace, "captures:mine")
    named = {(NEW, row["filename"], row["offset"]) for row in new[5:25]}
    assert there(workspace, "records", "captures_mine") == named
    with pytest.raises(UserInputError, match="no captures named 'others'"):
        extract(workspace, "captures:others")
    with pytest.raises(UserInputError, match="a set, a list or captures in it"):
        parse_target("set:x = captures:mine")
    assert adding.list_named_captures(workspace.lake)["captures_mine"].keys() == {NEW, OLD}


def test_no_run_takes_away_what_was_given(bucket: Bucket, tmp_path: Path) -> None:
    workspace = workspace_of(bucket[0], tmp_path / "home")
    done = add_captures(workspace.settings, wrote(tmp_path / "mine.parquet", places(bucket, OLD)[:5]))
    part = parse_target("captures:mine where url like %nothing%").slug
    assert not plan_purge(workspace, done.target.slug, "").is_empty
    extract(workspace, "captures:mine", "captures:mine where url like %nothing%")
    with dg.DagsterInstance.ephemeral() as instance:
        unfound = {slug: [Slice(NEW, slug)] for slug in (done.target.slug, part)}
        assert forget_unfound_targets(workspace, instance, unfound) == [part]
    extract(workspace, "captures:mine", crawl=OLD)
    assert len(there(workspace, "records", done.target.slug)) == 5
    more = wrote(tmp_path / "mine.parquet", places(bucket, OLD)[:7])
    assert add_captures(workspace.settings, more, extend=True).held == {OLD: 7}


def test_what_a_file_corrects_is_taken(bucket: Bucket, tmp_path: Path) -> None:
    workspace = workspace_of(bucket[0], tmp_path / "home")
    truth = places(bucket, NEW)[:3]
    torn = wrote(tmp_path / "torn.parquet", [truth[0] | {"length": 5}, *truth[1:]])
    right = wrote(tmp_path / "right.parquet", [truth[0] | {"length": None}, *truth])

    def outcomes() -> set[str]:
        extract(workspace, "captures:mine")
        return {*workspace.lake.read("records").column("outcome").to_pylist()}

    add_captures(workspace.settings, torn, "mine")
    assert outcomes() == {"fetched", "pending"}
    with pytest.raises(UserInputError, match=r"has 0 new captures, lacks 0, and has other values for 1:"):
        add_captures(workspace.settings, right, "mine")
    # others are added, and what was there stays
    assert add_captures(workspace.settings, right, "mine", extend=True).counts.changed == 1
    assert outcomes() == {"fetched", "pending"}
    done = add_captures(workspace.settings, right, "mine", replace=True)
    assert (done.held, done.counts.changed, done.counts.repeats) == ({NEW: 3}, 1, 1)
    assert outcomes() == {"fetched"}
    assert add_captures(workspace.settings, right, "mine").counts.changed == 0


@pytest.mark.parametrize("behind", [0, 1, 2])
def test_of_two_at_once_none_loses_rows(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, behind: int
) -> None:
    """The other one commits before this one adds its rows, before it compares, or behind that."""
    workspace = workspace_of(bucket[0], tmp_path / "home")
    rows = places(bucket, NEW)
    mine, other = (wrote(tmp_path / f"{at}.parquet", rows[at : at + 3]) for at in (0, 3))
    where, name = ((adding, "commit_stage"), (slices, "commit_slices"), (Lake, "swap"))[behind]
    real, others = getattr(where, name), []

    def commit(*given: Any, **named: Any) -> Any:
        if not others and (name != "swap" or given[1] == "slices"):
            others.append({})
            others[0] = add_captures(workspace.settings, other, "both").held
        return real(*given, **named)

    monkeypatch.setattr(where, name, commit)
    with pytest.raises(EnvironmentFault, match="another process changed captures:both meanwhile"):
        add_captures(workspace.settings, mine, "both")
    assert others == [{NEW: 3}]
    assert add_captures(workspace.settings, mine, "both", extend=True).held == {NEW: 6}
    assert len(there(workspace, "named_captures", "captures_both")) == 6


def test_blocked_sites_are_left_out(bucket: Bucket, tmp_path: Path) -> None:
    workspace = workspace_of(bucket[0], tmp_path / "home")
    site = "example.com"
    known, unknown = places(bucket, NEW), places(bucket, NEW, length=False)
    add_captures(workspace.settings, wrote(tmp_path / "known.parquet", known))
    block(workspace, [parse_target(site)])
    mine = [one for one in bucket[1].captures_of(NEW) if one.domain == site]
    assert add_captures(workspace.settings, wrote(tmp_path / "known.parquet", known)).blocked == len(mine) > 0
    # of whom nobody knows what site they are of, nothing is fetched
    add_captures(workspace.settings, wrote(tmp_path / "unknown.parquet", unknown))
    extract(workspace, "captures:known", "captures:unknown")
    assert site not in {*workspace.lake.read("records").column("domain").to_pylist()}
    assert there(workspace, "records", "captures_unknown") == set()
    assert len(there(workspace, "records", "captures_known")) == len(known) - len(mine)
