"""Sets of many members: the same captures as their members alone, and a change that costs what changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from cc_pipeline.checks.tables import missing_captures_verdict
from cc_pipeline.commoncrawl.slice_slugs import SEPARATOR, whole_slug
from cc_pipeline.commoncrawl.surt import surt_key
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.errors import Incomplete, UserInputError
from cc_pipeline.extraction import locate, parsed_pages
from cc_pipeline.extraction.crawl_plan import find_current_targets
from cc_pipeline.extraction.fetch import fetch_captures
from cc_pipeline.extraction.fetch_counts import share
from cc_pipeline.extraction.locate import locate_captures
from cc_pipeline.extraction.parse import parse_records
from cc_pipeline.index.lookup import LookupResult
from cc_pipeline.lake.slice import FETCH, LOCATE, PARSE, Slice
from cc_pipeline.lake.slices import read_slice_rows
from cc_pipeline.workspace.workspace import Workspace
from cc_pipeline_tests.faultserver import FaultServer, Rule
from cc_pipeline_tests.world import ARC, NEW, Bucket, due, extract, harvested, notes_of, publish, workspace_of

SET = "set-many"
TABLES = ("captures", "records", "page_metadata")


def absent(count: int, start: int = 0) -> list[str]:
    return [f"absent-{number:05}.example" for number in range(start, start + count)]


def listed(folder: Path, members: list[str]) -> str:
    """Writes the file of the set and gives its definition."""
    (folder / "many.txt").write_text("# members\n\n" + "\n".join(members) + "\n", "utf-8")
    return "set:many = @many.txt"


def register(workspace: Workspace, folder: Path, members: list[str]) -> None:
    workspace.register_targets([parse_target(listed(folder, members), folder)])


def run(workspace: Workspace, crawl: str = NEW) -> list:
    return [stage(workspace, crawl, [SET]) for stage in (locate_captures, fetch_captures, parse_records)]


def rows(workspace: Workspace, table: str = "captures", crawl: str = NEW) -> Counter[tuple[str, int]]:
    found = workspace.lake.read(table, {"crawl": crawl}, ["target", "warc_filename", "warc_record_offset"]).to_pylist()
    return Counter(
        (row["warc_filename"], row["warc_record_offset"]) for row in found if whole_slug(row["target"]) == SET
    )


def truth_of(bucket: Bucket, domains: list[str], crawl: str = NEW) -> Counter[tuple[str, int]]:
    subset = {} if crawl == ARC else {"subset": "warc"}
    found = [capture for domain in domains for capture in bucket[1].captures_of(crawl, domain=domain, **subset)]
    return Counter((capture.warc_filename, capture.warc_record_offset) for capture in found)


def parts_here(workspace: Workspace, stage=LOCATE, crawl: str = NEW) -> dict[str, str]:
    [own] = workspace.parts([SET]).values()
    made = read_slice_rows(workspace.lake, [Slice(crawl, part) for part in own], (stage,))
    return {slice_.target: row.content for (slice_, _), row in made.items() if row.tables}


@pytest.fixture
def home(bucket: Bucket, tmp_path: Path) -> Workspace:
    return harvested(bucket[0], tmp_path / "home")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[list[str]]]:
    """The members that each lookup of a crawl asked for."""
    seen: list[list[str]] = []
    plain = locate.find_captures

    def noted(workspace: Workspace, crawl: str, targets, **options) -> LookupResult:
        seen.append([member.written for target in targets for member in target.members or (target,)])
        return plain(workspace, crawl, targets, **options)

    monkeypatch.setattr(locate, "find_captures", noted)
    return seen


def test_a_member_more_costs_itself_and_a_member_less_goes(
    bucket: Bucket, tmp_path: Path, home: Workspace, asked: list[list[str]]
) -> None:
    first, second, third = bucket[1].domains()[:3]
    members = [first, second, *absent(300)]
    register(home, tmp_path, members)
    run(home)
    assert sorted(asked.pop()) == sorted(members)
    before = {stage: parts_here(home, stage) for stage in (LOCATE, FETCH, PARSE)}
    versions = home.lake.pin("targets").version
    register(home, tmp_path, [*members, third])
    grown = parse_target("set:many = @many.txt", tmp_path)
    assert due(home, LOCATE, grown) == {SET}
    located, fetched, parsed = run(home)
    assert asked == [[third]]
    assert home.lake.pin("targets").version == versions + 2
    own = bucket[1].captures_of(NEW, subset="warc", domain=third)
    for stage, was in before.items():
        changed = [part for part, digest in parts_here(home, stage).items() if digest != was[part]]
        assert len(changed) == 1, stage.label
    assert [report.fresh_slices for report in (located, fetched, parsed)] == [1, 1, 1]
    assert fetched.per_target.keys() == {SET}
    assert fetched.per_target[SET]["rows:records"] == located.rows == truth_of(bucket, [first, second, third]).total()
    assert fetched.bytes <= 2 * sum(capture.warc_record_length for capture in own) + 400_000
    for table in TABLES:
        assert rows(home, table) == truth_of(bucket, [first, second, third]), table
    assert find_current_targets(home, NEW, [SET]).keys() == {SET}
    asked.clear()
    register(home, tmp_path, [second, third, *absent(299)])
    reports = run(home)
    assert asked == []
    assert reports[1].requests == 0
    for table in TABLES:
        assert rows(home, table) == truth_of(bucket, [second, third]), table


@pytest.mark.process
def test_pages_of_members_that_stay_are_not_parsed_again(
    bucket: Bucket, tmp_path: Path, home: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third = bucket[1].domains()[:3]
    extract(home, f"set:many = {first}, {second}")
    tried: list[str] = []
    plain = parsed_pages.parse_batches

    def noted(tasks, *given):
        def seen():
            for task in tasks:
                tried.extend(row["domain"] for row, _ in task)
                yield task

        return plain(seen(), *given)

    monkeypatch.setattr(parsed_pages, "parse_batches", noted)
    extract(home, f"set:many = {second}, {third}")
    # of those that stay only what failed is tried again
    failed = home.lake.read("page_metadata", {"crawl": NEW, "target": SET}).to_pylist()
    failed = [row for row in failed if row["domain"] == second and row["disposition"] == "FAILURE"]
    assert Counter(tried) == {third: len(bucket[1].captures_of(NEW, subset="warc", domain=third))} | (
        {second: len(failed)} if failed else {}
    )
    # another parser, or other options, and all are parsed
    tried.clear()
    marked = workspace_of(bucket[0], tmp_path / "home", markdown=True, workers=1)
    extract(marked, f"set:many = {second}, {third}")
    assert len(tried) == truth_of(bucket, [second, third]).total()
    assert any(home.lake.read("page_text", columns=["main_content_markdown"])[0].to_pylist())


@pytest.mark.process
def test_a_set_that_is_divided_anew_keeps_its_bytes_and_shows_nothing_twice(
    bucket: Bucket, tmp_path: Path, home: Workspace
) -> None:
    first, second, third = bucket[1].domains()[:3]
    parts = []
    some, more = [first, second], [first, third, *absent(300)]
    # at last as it was before, twice: with its notes of then
    for members in (some, more, [first, third, *absent(5_000)], some, more):
        register(home, tmp_path, members)
        own = home.parts([SET])[SET]
        parts.append(len(own))
        _, fetched, _ = run(home)
        wanted = truth_of(bucket, [one for one in members if "absent" not in one])
        for table in TABLES:
            assert rows(home, table) == wanted, (table, members[:2])
        for stage in (LOCATE, FETCH):
            assert sorted(row["target"] for row in notes_of(home, stage)) == own, (stage.label, len(members))
        if parts[-1] == 128:
            assert fetched.requests == 0
    assert parts == [1, 16, 128, 1, 16]
    assert publish(home).rows["captures"] == truth_of(bucket, [first, third]).total()


def test_sets_whose_names_differ_in_capitals_alone_are_not_one(bucket: Bucket, home: Workspace) -> None:
    first, second = bucket[1].domains()[:2]
    extract(home, f"set:Press = {first}")
    with pytest.raises(UserInputError, match="set:Press, since partition keys have no capital letters"):
        extract(home, f"set:press = {second}")
    # read back, it is the same set, and may get other members under its own name
    [target] = home.targets(["set-press"]).values()
    assert (target.name, target.value) == ("Press", "press")
    before = home.lake.read("captures").num_rows
    extract(home, f"set:Press = {first}, {second}")
    assert home.lake.read("captures").num_rows > before > 0


@pytest.mark.process
def test_a_source_is_judged_by_a_whole_set_and_not_by_its_parts(bucket: Bucket, tmp_path: Path) -> None:
    many, few = bucket[1].domains()[:2]
    pages = bucket[1].captures_of(NEW, subset="warc", domain=few)
    keys = Counter(surt_key(page.url) for page in pages)
    page = next(page for page in pages if keys[surt_key(page.url)] == 1)
    refused = page.warc_filename
    with FaultServer(bucket[0]) as server:
        strict = harvested(server.url, tmp_path / "home")
        server.set_rules([Rule("500", key=refused, times=None)])
        lenient = workspace_of(server.url, tmp_path / "home", max_pending=0.99)
        register(lenient, tmp_path, [many])
        run(lenient)
        register(strict, tmp_path, [f"url:{page.url}", many, *absent(300)])
        locate_captures(strict, NEW, [SET])
        wanted = strict.lake.read("captures").to_pylist()
        kept_away = sum(row["warc_filename"] == refused for row in wanted)
        with pytest.raises(Incomplete, match=f"{kept_away} of {len(wanted)} captures .* of {SET} in {NEW};"):
            fetch_captures(strict, NEW, [SET])
        # the set was divided by this run: how it stood before is no longer counted
        standing = notes_of(strict, FETCH)
        assert sorted(row["target"] for row in standing) == strict.parts([SET])[SET]
        # one of its parts has nothing, and the set lacks a share that is allowed
        assert [row["planned"] for row in standing if row["planned"] and not row["fetched"]]
        assert sum(row["pending"] > 0 for row in standing) == 2
        told = missing_captures_verdict(strict.lake).message
        assert told.count(f"{NEW}|{SET}: {kept_away} of {len(wanted)}, server_error") == told.count(SET) == 1
        shown = run(lenient)[1].per_target[SET]
        assert shown["not fetched"] == share(kept_away, len(wanted))
        assert shown["pending"] == kept_away


@pytest.mark.process
def test_what_is_published_names_the_set_and_never_a_part(bucket: Bucket, tmp_path: Path, home: Workspace) -> None:
    first, second = bucket[1].domains()[:2]
    register(home, tmp_path, [first, second, *absent(100)])
    run(home)
    extract(home, first)
    publish(home)
    with duckdb.connect(str(home.settings.published_path), read_only=True) as connection:
        ask = connection.execute
        assert ask("SELECT slug, definition, parts FROM targets ORDER BY 1 DESC").fetchall() == [
            (SET, "set:many = @many.txt", 16),
            (first, first, None),
        ]
        total = truth_of(bucket, [first, second]).total()
        for view, column in (("lookups", "captures"), ("fetches", "planned")):
            assert ask(f"SELECT {column} FROM {view} WHERE target = '{SET}'").fetchall() == [(total,)]
            assert ask(f"SELECT count(*) FROM {view}").fetchall() == [(2,)]
        assert ask(f"SELECT count(*) FROM capture_targets WHERE target = '{SET}'").fetchall() == [(total,)]
        assert ask("SELECT count(*) FROM captures").fetchall() == [(total,)]
        nothing = ask("SELECT member FROM set_members WHERE captures = 0 ORDER BY 1").fetchall()
        assert nothing == [(name,) for name in absent(100)]
        for view in ("captures", "records", "capture_targets", "page_metadata", "targets", "lookups", "fetches"):
            shown = ask(f"FROM {view}").fetchall()
            assert not any(f"{SET}{SEPARATOR}" in value for row in shown for value in row if isinstance(value, str)), (
                view
            )
