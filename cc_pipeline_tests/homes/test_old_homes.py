"""Homes that earlier versions made: run, published, read, moved, and given new columns."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from cc_pipeline.checks.health import examine
from cc_pipeline.commoncrawl.crawls import SUBSETS
from cc_pipeline.defs.automation.flight import EXTRACTED
from cc_pipeline.defs.instance import open_instance
from cc_pipeline.defs.internals import recorded_versions
from cc_pipeline.defs.launch import unchanged
from cc_pipeline.documents.schemas import PARSER_VERSION
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.extraction import plan
from cc_pipeline.extraction.fetch import fetch_captures
from cc_pipeline.extraction.locate import locate_captures
from cc_pipeline.home import LAYOUT, read_note
from cc_pipeline.indexing.catalog import columnar_versions, versions_of_rows
from cc_pipeline.indexing.crawl_index import commit_manifest, commit_row_groups, harvest_footers, is_harvested
from cc_pipeline.lake.lake import Lake
from cc_pipeline.lake.slice import PAGE_TABLES
from cc_pipeline.lake.vacuum import vacuum
from cc_pipeline.pagefiles.export import export_slices
from cc_pipeline.pagefiles.stage import read_sources
from cc_pipeline.settings import load_settings
from cc_pipeline.upkeep import upkeep
from cc_pipeline.upkeep.upkeep import keep_up
from cc_pipeline.workspace.tables import MIGRATIONS
from cc_pipeline.workspace.workspace import Workspace, open_lake, open_workspace
from cc_pipeline_tests.homes.unpack import LAYOUTS, RECORDED, unpack
from cc_pipeline_tests.world import ARC, NEW, OLD, extract, harvest, publish, workspace_of

CRAWLS = (NEW, OLD, ARC)
SITE = "example.com"
#: What the published file shows of a home; times of the publication are its own.
VIEWS = ("crawls", "targets", "captures", "capture_targets", "records", "ledger", *PAGE_TABLES, "source_files")


def shown(home: Path) -> dict[str, Counter[str]]:
    with duckdb.connect(str(home / "cc.duckdb"), read_only=True) as connection:
        return {name: Counter(map(str, connection.execute(f"FROM {name}").fetchall())) for name in VIEWS}


#: Captures that homes of each layout show.
SHOWN = {1: 114, 2: 114, 3: 140, 4: 140}


@pytest.fixture(params=[pytest.param(one, marks=pytest.mark.matrix) for one in LAYOUTS])
def layout(request: pytest.FixtureRequest) -> int:
    return request.param


@pytest.fixture
def old_home(layout: int, tmp_path: Path) -> Path:
    return unpack(layout, tmp_path)[0]


@pytest.fixture(scope="module")
def published(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home of an older layout, brought to this one and published. Tests work on copies."""
    home, _ = unpack(request.param, tmp_path_factory.mktemp("published"))
    with open_workspace(load_settings({}, home=str(home))) as workspace:
        publish(workspace)
    return home


def workspace_in(home: Path) -> Workspace:
    return Workspace(load_settings({}, home=str(home)))


def parsed_by(workspace: Workspace) -> set[str]:
    """Versions of the parsers that made the home's pages: those of an older one are parsed again."""
    return set(workspace.lake.read("page_metadata", columns=["parser_version"])["parser_version"].to_pylist())


def test_there_is_a_home_of_every_layout_before_this_one() -> None:
    assert set(LAYOUTS) >= set(range(1, LAYOUT))


def test_each_layout_but_the_first_has_one_migration() -> None:
    assert [step.layout for step in MIGRATIONS] == list(range(2, LAYOUT + 1))


def test_nothing_is_done_again_in_an_old_home(old_home: Path, layout: int) -> None:
    workspace = workspace_in(old_home)
    parsed_by_this = parsed_by(workspace) == {PARSER_VERSION}
    for crawl in CRAWLS:
        commit_manifest(workspace, crawl)
        if crawl != ARC:
            assert harvest_footers(workspace, crawl).requests == 0
    for _ in range(3):
        assert [report.written for report in commit_row_groups(workspace, CRAWLS).values()] == [0, 0, 0]
        # what a digest of layout 1 stands for is written down once
        versions = {name: workspace.lake.pin(name).version for name in workspace.lake.specs}
        built = workspace.settings.catalog_path.stat().st_mtime_ns
    commit_row_groups(workspace, CRAWLS)
    assert {name: workspace.lake.pin(name).version for name in workspace.lake.specs} == versions
    assert workspace.settings.catalog_path.stat().st_mtime_ns == built
    noted = columnar_versions(workspace.lake, CRAWLS)
    for crawl in CRAWLS:
        assert is_harvested(workspace, crawl)
        of_rows = versions_of_rows(workspace.lake, crawl)
        assert of_rows == {subset: noted[crawl, subset] for subset in of_rows}
        # since layout 4 a harvest asks for the subsets that are wanted
        assert of_rows.keys() >= ({*SUBSETS} if crawl != ARC and layout < 4 else {"warc"})
        located, fetched, parsed = extract(workspace, SITE, f"host:www.{SITE}", crawl=crawl)
        assert located.written == fetched.written == 0
        assert parsed.written == (0 if parsed_by_this else parsed.rows)
        assert fetched.requests == 0
        assert located.rows == fetched.rows == parsed.rows > 0
    note = read_note(old_home)
    assert note is not None
    assert note.layout == LAYOUT


#: Partitions of layout 3, by the options they were made with, and captures that the source did not give then.
MADE_WITH: list[tuple[dict[str, object], list[str], int]] = [
    ({}, [f"{crawl}|{slug}" for crawl in CRAWLS for slug in (SITE, f"host_www.{SITE}", "set-three")], 0),
    ({}, [f"{NEW}|set-many"], 0),
    ({"subsets": ("warc", "robotstxt")}, [f"{OLD}|example.org"], 0),
    ({"subsets": ("robotstxt",)}, [f"{OLD}|beispiel-example.de"], 0),
    ({"via": "zipnum"}, [f"{NEW}|primer-example.ru"], 0),
    ({}, [f"{OLD}|example-foo.com"], 5),
]


def test_a_home_of_layout_3_is_whole_and_dagster_has_recorded_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, _ = unpack(3, tmp_path)
    with monkeypatch.context() as patched:
        # all of it would be parsed again, for no other reason than a newer parser
        patched.setattr(plan, "PARSER_VERSION", *parsed_by(workspace_in(home)))
        _is_whole(home, tmp_path)


def _is_whole(home: Path, tmp_path: Path) -> None:
    written = json.loads((tmp_path / RECORDED).read_text("utf-8"))
    for options, keys, lacking in MADE_WITH:
        settings = load_settings({}, home=str(home), **options)
        with open_workspace(settings) as workspace, open_instance(settings) as instance:
            crawl_and_slug = [key.split("|") for key in keys]
            assert unchanged(instance, workspace, keys) == ({*keys} if not lacking else set())
            for asset in EXTRACTED:
                found = recorded_versions(instance, asset, keys)
                assert {key: found[key] for key in keys} == {key: written[asset][key] for key in keys}
            rows = [workspace.lake.read("fetches", {"crawl": c, "target": s}).to_pylist() for c, s in crawl_and_slug]
            assert sum(row["unsettled"] for some in rows for row in some) == lacking
    assert sum(len(found) for found in written.values()) == len(EXTRACTED) * sum(len(keys) for _, keys, _ in MADE_WITH)


def test_an_old_home_publishes_what_it_had_and_can_be_moved(old_home: Path, layout: int, tmp_path: Path) -> None:
    publish(workspace_in(old_home))
    before = shown(old_home)
    assert before["records"].total() == before["captures"].total() == SHOWN[layout]
    home = shutil.copytree(old_home, tmp_path / "elsewhere" / "a home")
    shutil.rmtree(old_home)
    workspace = workspace_in(home)
    publish(workspace)
    assert shown(home) == before
    assert [stage(workspace, NEW, [SITE]).written for stage in (locate_captures, fetch_captures)] == [0, 0]
    # the files of the bucket are new ones on this disk, and their footers say which they belong to
    shutil.rmtree(home / "footers")
    harvest(workspace, OLD)
    extract(workspace, "example.co.uk", crawl=OLD)
    publish(workspace)
    grown = shown(home)
    assert all(grown[name] >= before[name] for name in VIEWS)
    assert grown["page_metadata"].total() > before["page_metadata"].total()
    (file,) = [row["slug"] for row in workspace.lake.read("source_files").to_pylist() if "metadata" in row["slug"]]
    assert read_sources(workspace, [file]).rows > 0
    assert export_slices(workspace, ARC, [SITE]).rows == 72


def test_a_source_within_the_home_moves_with_it(tmp_path: Path) -> None:
    home = tmp_path / "home"
    workspace_of(home / "minicrawl", home).lake.read("crawls")
    assert json.loads((home / "home.json").read_text())["source"] == "minicrawl"
    home.rename(tmp_path / "moved")
    assert load_settings({}, home=str(tmp_path / "moved")).source == str(tmp_path / "moved" / "minicrawl")


def test_a_source_within_the_home_may_become_a_link(tmp_path: Path) -> None:
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    (home / "minicrawl").mkdir(parents=True)
    workspace_of(home / "minicrawl", home).lake.read("crawls")
    (home / "minicrawl").rename(elsewhere)
    (home / "minicrawl").symlink_to(elsewhere)
    assert workspace_of(home / "minicrawl", home).lake.read("crawls").num_rows == 0


def test_a_home_of_a_newer_version_is_refused_and_left_alone(old_home: Path) -> None:
    note = old_home / "home.json"
    note.write_text(json.dumps(json.loads(note.read_text()) | {"layout": LAYOUT + 1}))
    before = note.read_text()
    with pytest.raises(EnvironmentFault, match=rf"layout {LAYOUT + 1}.*layouts up to {LAYOUT}"):
        workspace_in(old_home).lake.read("crawls")
    assert note.read_text() == before
    findings = {finding.topic: finding for finding in examine(load_settings({}, home=str(old_home)))}
    assert findings["layout"].level == "bad"


def test_doctor_says_the_layout_and_changes_nothing(old_home: Path) -> None:
    settings = load_settings({}, home=str(old_home))
    before = (old_home / "home.json").read_text()
    findings = {finding.topic: finding for finding in examine(settings)}
    assert MIGRATIONS[-1].what in findings["layout"].text
    assert (old_home / "home.json").read_text() == before
    assert Workspace(settings).lake.read("crawls").num_rows
    findings = {finding.topic: finding for finding in examine(settings)}
    assert findings["layout"].text == f"{LAYOUT}, the newest"


def test_the_fetch_plan_ends_and_readers_of_before_keep_their_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old_home, _ = unpack(1, tmp_path)
    plan = old_home / "lake" / "tables" / "fetch_plan"
    files = set(plan.rglob("*.parquet"))
    assert files
    workspace = workspace_in(old_home)
    assert "fetch_plan" not in workspace.lake.specs
    vacuumed: list[str] = []
    monkeypatch.setattr(upkeep, "vacuum", lambda lake, name, *rest: vacuumed.append(name) or vacuum(lake, name, *rest))
    keep_up(workspace)
    assert set(plan.rglob("*.parquet")) == files, "a reader may still have them for a week"
    assert "fetch_plan" in vacuumed


def widened(lake: Lake, table: str) -> pa.Schema:
    """The lake with one more column in the middle of ``table``, as a later version would have it."""
    spec = lake.specs[table]
    fields = list(spec.schema)
    fields.insert(3, pa.field("added", pa.list_(pa.struct([pa.field("name", pa.string())]))))
    lake.specs[table] = replace(spec, schema=pa.schema(fields))
    return lake.specs[table].schema


#: Every table in the newest of them, and every layout.
_ADDED = [(3, table) for table in ("records", *PAGE_TABLES, "source_faults", "targets")]


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("published", "table"),
    [*((layout, "captures") for layout in LAYOUTS), *_ADDED],
    indirect=["published"],
)
def test_an_added_column_is_null_in_rows_of_before(published: Path, tmp_path: Path, table: str) -> None:
    home = shutil.copytree(published, tmp_path / "home")
    workspace = workspace_in(home)
    before = shown(published)
    lake = workspace.lake
    count = lake.read(table).num_rows
    schema = widened(lake, table)
    assert lake.read(table)["added"].null_count == count
    for written in (False, True):  # the column is in no file, and then in the log but still in no file
        if written:
            nothing = dict.fromkeys(lake.specs[table].slice_columns, "none")
            lake.commit(table, schema.empty_table(), [nothing], {"none": "abc"})
        publish(workspace)
        with duckdb.connect(str(home / "cc.duckdb"), read_only=True) as connection:
            (rows,) = connection.execute(f"SELECT count(added) FROM lake.{table}").fetchone() or (None,)
        assert rows == 0
    row = dict.fromkeys(schema.names) | {
        **{field.name: "new" for field in schema if field.type == pa.string() and not field.nullable},
        **{field.name: 1 for field in schema if pa.types.is_integer(field.type) and not field.nullable},
        "crawl": NEW,
        "added": [{"name": "value"}],
    }
    fresh = pa.Table.from_pylist([{name: row[name] for name in schema.names}], schema=schema)
    where = {name: str(row[name]) for name in lake.specs[table].slice_columns}
    lake.commit(table, fresh, [where], {"test": "abc"})
    assert lake.read(table)["added"].null_count == count
    assert lake.read(table, where).to_pylist() == fresh.to_pylist()
    publish(workspace)
    with duckdb.connect(str(home / "cc.duckdb"), read_only=True) as connection:
        (rows,) = connection.execute(f"SELECT count(added) FROM lake.{table}").fetchone() or (None,)
    assert rows == 1
    grown = shown(home)
    assert all(grown[name].total() >= before[name].total() for name in VIEWS)
    assert all(grown[name] == before[name] for name in VIEWS if name not in (table, "ledger", "capture_targets"))


def test_a_table_of_a_newer_version_is_not_written(old_home: Path) -> None:
    newer = workspace_in(old_home).lake
    schema = widened(newer, "targets")
    newer.commit("targets", schema.empty_table(), [{"slug": "none"}], {"test": "abc"})
    older = open_lake(load_settings({}, home=str(old_home)))
    assert older.read("targets").num_rows > 0
    with pytest.raises(EnvironmentFault, match=r"(?s)columns this version does not know: added.*newer version"):
        older.commit("targets", older.read("targets"), [], {"test": "abd"})
