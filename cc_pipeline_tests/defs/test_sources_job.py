"""Files read whole, and documents of 2012, from the command line."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import dagster as dg
import pytest
from typer.testing import CliRunner

from cc_pipeline.cli.app import app
from cc_pipeline.cli.commands.doctor import verify_and_repair
from cc_pipeline.defs.lake_records import SOURCE_TABLES
from cc_pipeline.documents.document2012.json import metadata_json
from cc_pipeline.lake.slice import Slice
from cc_pipeline.publish.publish import publish_warehouse
from cc_pipeline.workspace.source_files import identify, register
from cc_pipeline.workspace.workspace import Workspace, open_workspace
from cc_pipeline_tests.archive.sequencefile_writer import write_sequencefile
from cc_pipeline_tests.checks.changed_slices import lose_rows
from cc_pipeline_tests.defs.graph import failure_of, materialize
from cc_pipeline_tests.defs.published import query
from cc_pipeline_tests.extraction.written_whole import sequencefile
from cc_pipeline_tests.publish.lake_pages import commit_pages, make_workspace, page

PAGES = [page(number) for number in range(50)]


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    workspace = make_workspace(tmp_path_factory.mktemp("sources"))
    commit_pages(workspace, PAGES)
    publish_warehouse(workspace)
    return workspace


def damaged_file(folder: Path) -> str:
    path = folder / "textData-00000"
    pairs = [(f"http://www.example.com/{number}", f"text {number} " * 5) for number in range(50)]
    damaged = bytearray(write_sequencefile(pairs, block_bytes=100))
    damaged[damaged.index(b"\x1f\x8b", len(damaged) // 2)] ^= 0xFF
    path.write_bytes(damaged)
    return str(path)


@pytest.mark.process
def test_a_file_and_a_damaged_one_are_read_in_a_home_of_their_own(workspace: Workspace, tmp_path: Path) -> None:
    pairs = [(one.keys["url"], metadata_json(one.metadata, one.links)) for one in PAGES]
    good = sequencefile(tmp_path / "metadata-00000", pairs)
    arguments = ["--kind", "sequencefile", "--home", str(tmp_path), "--source", workspace.settings.source]
    done = CliRunner().invoke(app, ["files", "add", str(good), damaged_file(tmp_path), *arguments])
    assert done.exit_code == 0, done.output
    assert "source_faults" in done.output
    [(texts, faults)] = query(tmp_path, "SELECT (SELECT count(*) FROM page_text), (SELECT count(*) FROM source_faults)")
    assert 40 <= texts < 50 and faults
    assert query(tmp_path, "SELECT count(*), count(DISTINCT source_file) FROM page_metadata") == [(50, 1)]
    titles = "SELECT url, content.title FROM page_metadata WHERE content.title IS NOT NULL ORDER BY ALL"
    assert query(tmp_path, titles) == query(workspace.settings.home, titles)


@pytest.mark.process
def test_doctor_reads_a_file_again_that_lost_rows_of_a_table(workspace: Workspace, tmp_path: Path) -> None:
    arguments = ["--kind", "sequencefile", "--home", str(tmp_path), "--source", workspace.settings.source]
    done = CliRunner().invoke(app, ["files", "add", damaged_file(tmp_path), *arguments])
    assert done.exit_code == 0, done.output
    settings = replace(workspace.settings, home=tmp_path, lake=str(tmp_path / "lake"))
    texts = query(tmp_path, "FROM page_text ORDER BY ALL")
    with open_workspace(settings) as own:
        lake = own.lake
        slugs = {*lake.read("page_text", columns=["target"])["target"].to_pylist()}
        for slug in slugs:
            lose_rows(lake, "page_text", Slice("CC-MAIN-2012", slug))
    [finding] = verify_and_repair(settings, verify=False, everything=False, repair=True)
    assert "did not match; they were rebuilt" in finding.text
    assert query(tmp_path, "FROM page_text ORDER BY ALL") == texts


def test_documents_of_2012_are_exported_on_demand(workspace: Workspace, tmp_path: Path) -> None:
    feeds = "FROM page_metadata WHERE parsed_as = 'feed' AND disposition = 'SUCCESS' LIMIT 2"
    home = ["--home", str(workspace.settings.home)]
    out = tmp_path / "feeds.tsv"
    done = CliRunner().invoke(app, ["export", "--query", feeds, "--format", "metadata-json", "--out", str(out), *home])
    assert done.exit_code == 0, done.output
    lines = out.read_text("utf-8").splitlines()
    assert 1 <= len(lines) <= 2
    assert json.loads(lines[0].partition("\t")[2])["parsed_as"] == "feed"
    assert CliRunner().invoke(app, ["export", "--format", "metadata-json", "--out", str(out), *home]).exit_code == 0
    [(pages,)] = query(workspace.settings.home, "SELECT count(*) FROM page_metadata")
    assert len(out.read_text("utf-8").splitlines()) == pages
    few = ["export", "--query", "SELECT url FROM page_metadata", "--format", "metadata-json", "--out", str(out), *home]
    assert CliRunner().invoke(app, few).exit_code != 0


def test_cc_duckdb_is_published_behind_files_in_the_same_run(
    workspace: Workspace, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    settings = replace(workspace.settings, home=tmp_path, lake=str(tmp_path / "lake"))
    with open_workspace(settings) as own:
        [file] = register(own, [identify(own.transport, damaged_file(tmp_path))])
        instance.add_dynamic_partitions("source_file", [file.slug])
        assets = [*SOURCE_TABLES, "warehouse"]
        result = materialize(instance, own, file.slug, assets=assets)
        assert result.success, failure_of(result)
        events = result.get_asset_materialization_events()
        assert {event.asset_key.path[-1] for event in events} == {*assets}
