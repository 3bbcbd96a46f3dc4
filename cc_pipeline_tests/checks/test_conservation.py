"""No capture is lost or doubled between the tables without the check, ``doctor`` and publications seeing it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from cc_pipeline.checks.conservation import conservation_verdict, count_balance
from cc_pipeline.checks.doctor import examine
from cc_pipeline.checks.outputs import withheld_verdict
from cc_pipeline.checks.scope import Scope
from cc_pipeline.checks.tables import missing_captures_verdict
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.extraction.locate import locate_captures
from cc_pipeline.lake.lake import Lake, PinnedTable, TableSpec
from cc_pipeline.lake.repeats import PER_CAPTURE, find_slices_with_repeats
from cc_pipeline.lake.slice import FETCH, LOCATE, PARSE, Slice, empty_notes
from cc_pipeline.publish.publish import find_repeating_slices
from cc_pipeline.workspace.workspace import Workspace
from cc_pipeline_tests.world import NEW, OLD, Bucket, extract, harvest, publish, workspace_of

SITE, OTHER = "example.com", "example.org"
MINE, KEY = Slice(NEW, SITE), f"{NEW}|{SITE}"
#: Whose captures overlap those of others.
HOST, WHOLE = "host:www.example.com", "suffix:com"


@pytest.fixture(scope="module")
def sound(bucket: Bucket, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home of two crawls with overlapping targets, one of them only located, published."""
    workspace = workspace_of(bucket[0], tmp_path_factory.mktemp("conserved") / "home")
    for crawl in (NEW, OLD):
        harvest(workspace, crawl)
    extract(workspace, SITE, OTHER, HOST, WHOLE)
    extract(workspace, SITE, crawl=OLD)
    locate_captures(workspace, OLD, [OTHER])
    publish(workspace)
    return workspace.settings.home


@pytest.fixture
def home(bucket: Bucket, sound: Path, tmp_path: Path) -> Workspace:
    return workspace_of(bucket[0], shutil.copytree(sound, tmp_path / "home"))


def looks() -> list[Scope]:
    return [Scope(), Scope([MINE, Slice(NEW, OTHER)])]


def broken(workspace: Workspace, wrong: tuple[str, ...] = (KEY,), severity: str = "error") -> None:
    for look in looks():
        found = conservation_verdict(workspace, look)
        assert (found.severity, found.wrong) == (severity, wrong), found
        assert all(key in found.message for key in wrong)
    [said] = [one for one in examine(workspace.settings) if one.topic == "balance"]
    assert said.level == ("bad" if severity == "error" else "note")


def without_the_first(rows: pa.Table) -> pa.Table:
    return rows.slice(1)


def rows_of(workspace: Workspace, table: str) -> pa.Table:
    return workspace.lake.read(table, MINE.where)


def published(workspace: Workspace, query: str) -> list[tuple[Any, ...]]:
    with duckdb.connect(str(workspace.settings.published_path), read_only=True) as connection:
        return connection.execute(query).fetchall()


def test_a_sound_home_balances_and_what_is_only_located_is_said(home: Workspace) -> None:
    for look in looks():
        found = conservation_verdict(home, look)
        assert found.passed, found
    found = conservation_verdict(home, Scope())
    assert (found.metrics["partitions"], found.metrics["unfetched partitions"]) == (6, 1)
    assert found.metrics["records"] == found.metrics["pages"] == home.lake.row_count("records")
    assert "1 partition is located and not fetched yet" in found.message


def test_each_table_is_listed_once_for_all_crawls(home: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    listed: list[str] = []
    read = Lake._pin_handle

    def noted(lake: Lake, spec: TableSpec, handle: DeltaTable) -> PinnedTable:
        listed.append(spec.name)
        return read(lake, spec, handle)

    monkeypatch.setattr(Lake, "_pin_handle", noted)
    count_balance(home)
    assert "captures" in listed
    assert len(listed) == len(set(listed)), "two crawls, and one look"


@pytest.mark.matrix
@pytest.mark.parametrize("table", ["captures", "records", "page_metadata"])
def test_a_row_less_in_any_table_is_an_error(home: Workspace, table: str) -> None:
    home.lake.commit(table, without_the_first(rows_of(home, table)), [MINE.where], {})
    broken(home)


@pytest.mark.matrix
@pytest.mark.parametrize("table", PER_CAPTURE)
def test_rows_that_vanish_from_a_file_are_an_error(home: Workspace, table: str) -> None:
    handle = home.lake.open(home.lake.specs[table])
    assert handle is not None
    first = rows_of(home, table)["warc_record_offset"][0].as_py()
    handle.delete(f"crawl = '{NEW}' AND target = '{SITE}' AND warc_record_offset = {first}")
    broken(home)


@pytest.mark.matrix
@pytest.mark.parametrize(("tables", "stage"), [(("records",), FETCH), (("captures",), LOCATE)])
def test_partitions_without_any_rows_in_a_table_fail(home: Workspace, tables: tuple[str, ...], stage: object) -> None:
    """As after a commit that a power cut took back: neither rows nor digests are there, and the notes are."""
    for table in tables:
        log = Path(home.lake.address(table)) / "_delta_log"
        entries = [path for path in sorted(log.glob("*.json")) if f"{stage.label}:{NEW}:{SITE}" in path.read_text()]  # type: ignore[attr-defined]
        later = sorted(path for path in log.glob("*.json") if path >= entries[0])
        for path in later:
            path.unlink()
    again = workspace_of(home.settings.source, home.settings.home)
    found = conservation_verdict(again, Scope())
    assert found.severity == "error"
    assert KEY in found.wrong
    assert conservation_verdict(again, Scope([MINE])).wrong == (KEY,)


def test_what_was_located_again_is_the_next_runs_and_no_error(home: Workspace) -> None:
    fewer = without_the_first(rows_of(home, "captures"))
    input_digest = "ab" * 32
    LOCATE.commit(home.lake, {MINE: input_digest[:15]}, {"captures": fewer})
    empty_notes(home.lake, "lookups", [MINE])
    found = conservation_verdict(home, Scope())
    assert (found.severity, found.wrong) == ("warn", (KEY,)), found


@pytest.mark.matrix
@pytest.mark.parametrize("table", PER_CAPTURE)
def test_a_capture_that_is_there_twice_holds_its_slice_back(home: Workspace, table: str) -> None:
    assert find_repeating_slices(home) == {}
    rows = rows_of(home, table)
    assert rows.num_rows
    shown = published(home, "SELECT count(*) FROM captures")
    home.lake.commit(table, pa.concat_tables([rows, rows]), [MINE.where], {})
    assert find_slices_with_repeats(home.lake, table) == {MINE}
    assert find_repeating_slices(home) == {MINE: (table,)}
    assert "repeated" in conservation_verdict(home, Scope()).message
    broken(home)
    publish(home)
    found = withheld_verdict(home)
    assert (found.severity, found.wrong) == ("error", (KEY,))
    assert "doctor --repair" in found.advice
    for view in PER_CAPTURE:
        places = "crawl, warc_filename, warc_record_offset"
        number = {"page_links": ", link_index", "feed_items": ", item_index"}.get(view, "")
        twice = f"SELECT {places} FROM {view} GROUP BY {places}{number} HAVING count(*) > 1"
        assert published(home, twice) == []
    assert published(home, f"SELECT count(*) FROM capture_targets WHERE crawl = '{NEW}' AND target = '{SITE}'") == [
        (0,)
    ]
    # what another target has of these captures is shown
    assert published(home, "SELECT count(*) FROM captures") == shown
    home.lake.commit(table, rows, [MINE.where], {})
    assert find_repeating_slices(home) == {}
    assert conservation_verdict(home, Scope()).passed
    publish(home)
    assert withheld_verdict(home).passed


def test_rows_that_another_program_added_are_found_too(home: Workspace) -> None:
    assert find_repeating_slices(home) == {}
    write_deltalake(home.lake.address("captures"), rows_of(home, "captures"), mode="append")
    again = workspace_of(home.settings.source, home.settings.home)
    assert find_repeating_slices(again) == {MINE: ("captures",)}
    broken(again)


def _lose(rows: pa.Table) -> pa.Table:
    return rows.slice(0, 0)


def _double(rows: pa.Table) -> pa.Table:
    return pa.concat_tables([rows, rows])


@pytest.mark.matrix
@pytest.mark.parametrize("harm", [_lose, _double])
@pytest.mark.parametrize("target", [SITE, "all"])
def test_no_view_has_more_rows_for_a_definition_that_is_lost_or_there_twice(
    home: Workspace, harm: Callable[[pa.Table], pa.Table], target: str
) -> None:
    views = [view for (view,) in published(home, "SELECT view_name FROM duckdb_views() WHERE schema_name = 'main'")]
    before = {view: published(home, f"SELECT count(*) FROM main.{view}") for view in views}
    rows = home.lake.read("targets")
    for row in rows.to_pylist():
        if target in ("all", row["definition"]):
            own = pa.Table.from_pylist([row], rows.schema)
            home.lake.commit("targets", harm(own), [{"slug": row["slug"]}], {})
    publish(home)
    after = {view: published(home, f"SELECT count(*) FROM main.{view}") for view in views}
    assert {view for view in views if after[view] != before[view]} <= ({"targets"} if harm is _lose else set())


@pytest.mark.matrix
@pytest.mark.parametrize("table", ["lookups", "fetches"])
def test_a_note_that_is_there_twice_counts_once(home: Workspace, table: str) -> None:
    shown = published(home, f"FROM {table} ORDER BY crawl, target")
    members = published(home, "FROM set_members ORDER BY ALL")
    home.lake.commit(table, _double(rows_of(home, table)), [MINE.where], {})
    publish(home)
    assert published(home, f"FROM {table} ORDER BY crawl, target") == shown
    assert published(home, "FROM set_members ORDER BY ALL") == members


def test_pages_that_are_gone_with_their_parse_are_an_error_only_where_they_were_parsed(home: Workspace) -> None:
    PARSE.empty(home.lake, [MINE])
    assert conservation_verdict(home, Scope()).passed, "it is as if it was never parsed"
    extract(home, SITE)
    home.lake.commit("page_metadata", _lose(rows_of(home, "page_metadata")), [MINE.where], {})
    broken(home)


@pytest.mark.process
def test_captures_of_several_targets_are_counted_once_as_sql_does(home: Workspace) -> None:
    """Also where the targets say different things of one capture: a fetched record counts before another."""
    counts = (
        "SELECT count(*), count(*) FILTER (outcome = 'fetched'), count(*) FILTER (outcome <> 'fetched' AND is_final IS "
        "NOT true), count(*) FILTER (outcome = 'fetched' AND digest_check = 'mismatch') FROM ledger"
    )

    def compare() -> tuple[object, ...]:
        publish(home)
        found = missing_captures_verdict(home.lake).metrics
        [row] = published(home, counts)
        names = ("planned", "pending", "payloads other than indexed")
        assert tuple(found[name] for name in names) == (row[0], *row[2:])
        assert int(found["planned"]) - int(found["pending"]) - int(found["lost"]) == row[1]
        return tuple(row)

    planned, fetched, *_ = compare()
    assert home.lake.row_count("records") > planned == fetched
    for number, slug in enumerate((parse_target(HOST).slug, SITE, parse_target(WHOLE).slug)):
        where = Slice(NEW, slug).where
        rows = home.lake.read("records", where).to_pylist()
        for place, row in enumerate(rows):
            if place % (number + 2) == 0:
                row |= {"outcome": "missing", "reason": "not_found", "is_final": place % 4 == 0}
            elif place % 5 == 0:
                row["digest_check"] = "mismatch"
        changed = pa.Table.from_pylist(rows, home.lake.specs["records"].schema)
        home.lake.commit("records", changed, [where], {})
    told = compare()
    assert told[0] == planned
    assert 0 < told[1] < planned
    assert told[2] and told[3]
    [said] = [one for one in examine(home.settings) if one.topic == "records" and "are not fetched" in one.text]
    assert f"of {planned:,} captures" in said.text
