"""Files read whole and exports, through Dagster and from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import dagster as dg
import pytest
from typer.testing import CliRunner

from cc_pipeline.cli.app import app
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.defs.home_namespace import WORKSPACE
from cc_pipeline.defs.launcher import Launcher
from cc_pipeline.derived_files.sequencefile import SequenceFileWriter
from cc_pipeline.publish.publish import publish_warehouse
from cc_pipeline.workspace.workspace import Workspace, export_prefix
from cc_pipeline_tests.defs.graph import asset
from cc_pipeline_tests.defs.published import query
from cc_pipeline_tests.publish.lake_pages import CRAWL, TARGET, commit_pages, make_workspace, page


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    workspace = make_workspace(tmp_path_factory.mktemp("sources"))
    commit_pages(workspace, [page(number) for number in range(50)])
    publish_warehouse(workspace)
    return workspace


def export(workspace: Workspace, assets: list[str], config: dict[str, object]) -> dg.ExecuteInProcessResult:
    with Launcher(workspace) as launcher:
        launcher.add_targets([parse_target(TARGET)])
        launcher.instance.add_dynamic_partitions("crawl", [CRAWL])
        return dg.materialize(
            [asset("text_sequencefile")],
            selection=assets,
            instance=launcher.instance,
            partition_key=f"{CRAWL}|{TARGET}",
            resources={WORKSPACE: workspace},
            run_config={"ops": {"export_sequencefiles": {"config": config}}},
        )


def files_of(workspace: Workspace, pattern: str) -> list[Path]:
    return sorted((Path(workspace.settings.lake) / export_prefix(CRAWL, TARGET)).glob(pattern))


def damaged_file(folder: Path) -> str:
    path = folder / "textData-00000"
    with path.open("wb") as stream, SequenceFileWriter(stream, block_bytes=100) as writer:
        for number in range(50):
            writer.append(f"http://www.example.com/{number}", f"text {number} " * 5)
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2] ^= 0xFF
    path.write_bytes(damaged)
    return str(path)


@pytest.mark.process
def test_an_exported_partition_and_a_damaged_file_are_read_in_a_home_of_their_own(
    workspace: Workspace, tmp_path: Path
) -> None:
    both = ["text_sequencefile", "metadata_sequencefile"]
    result = export(workspace, both, {"records_per_file": 20, "compat": "2012"})
    shown = {
        event.asset_key.to_user_string(): event.materialization.metadata["dagster/partition_row_count"].value
        for event in result.get_asset_materialization_events()
        if event.asset_key is not None
    }
    assert shown == dict.fromkeys(both, 50)
    files = files_of(workspace, "metadata-*")
    assert [path.name for path in files] == [f"metadata-{number:05d}" for number in range(3)]
    arguments = ["--kind", "sequencefile", "--home", str(tmp_path), "--source", workspace.settings.source]
    done = CliRunner().invoke(app, ["files", "add", *map(str, files), damaged_file(tmp_path), *arguments])
    assert done.exit_code == 0, done.output
    assert "source_faults" in done.output
    [(texts, faults)] = query(tmp_path, "SELECT (SELECT count(*) FROM page_text), (SELECT count(*) FROM source_faults)")
    assert 40 <= texts < 50 and faults
    assert query(tmp_path, "SELECT count(*), count(DISTINCT source_file) FROM page_metadata") == [(50, 3)]
    titles = "SELECT url, content.title FROM page_metadata WHERE content.title IS NOT NULL ORDER BY ALL"
    assert query(tmp_path, titles) == query(workspace.settings.home, titles)


def test_one_kind_alone_can_be_exported(workspace: Workspace) -> None:
    assert export(workspace, ["text_sequencefile"], {"compression": "none"}).success
    (manifest,) = files_of(workspace, "_textData.json")
    assert json.loads(manifest.read_text())["compression"] == "none"


def test_documents_of_2012_are_exported_on_demand(workspace: Workspace, tmp_path: Path) -> None:
    feeds = "FROM page_metadata WHERE parsed_as = 'feed' AND disposition = 'SUCCESS' LIMIT 2"
    home = ["--home", str(workspace.settings.home)]
    for form in ("metadata-json", "metadata-json-2012"):
        out = tmp_path / f"{form}.tsv"
        done = CliRunner().invoke(app, ["export", "--query", feeds, "--format", form, "--out", str(out), *home])
        assert done.exit_code == 0, done.output
        lines = out.read_text("utf-8").splitlines()
        assert 1 <= len(lines) <= 2
        assert json.loads(lines[0].partition("\t")[2])["parsed_as"] == "feed"
    assert CliRunner().invoke(app, ["export", "--format", "metadata-json", "--out", str(out), *home]).exit_code == 0
    [(pages,)] = query(workspace.settings.home, "SELECT count(*) FROM page_metadata")
    assert len(out.read_text("utf-8").splitlines()) == pages
    few = ["export", "--query", "SELECT url FROM page_metadata", "--format", "metadata-json", "--out", str(out), *home]
    assert CliRunner().invoke(app, few).exit_code != 0
