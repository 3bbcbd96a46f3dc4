"""The catalog in step with the lake: which crawls are built after which commits, and what a killed harvest leaves."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from cc_pipeline.index.catalog import keep
from cc_pipeline.index.catalog.catalog import open_catalog
from cc_pipeline.index.catalog.contents import crawl_file
from cc_pipeline.indexing.catalog import rebuild_catalog
from cc_pipeline.indexing.crawl_index import commit_row_groups
from cc_pipeline.lake.slice import HARVEST, Slice
from cc_pipeline_tests.world import NEW, OLD, harvest, harvested, workspace_of


def files(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_ino for path in folder.glob("*.duckdb")}


def test_a_harvest_builds_its_crawl_alone_and_from_no_other_rows(
    bucket: tuple[Path, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = workspace_of(bucket[0], tmp_path)
    folder = workspace.settings.catalog_path
    harvest(workspace, OLD)
    before = files(folder)
    built: list[str] = []
    real = keep.build_catalog

    def noted(path: Path, **sources: object) -> object:
        built.append(path.stem)
        assert all(isinstance(source, pa.RecordBatchReader) for source in sources.values())
        return real(path, **sources)

    monkeypatch.setattr(keep, "build_catalog", noted)
    monkeypatch.setattr(workspace.lake, "read", None)  # whole tables of the lake are not needed
    assert not rebuild_catalog(workspace)
    monkeypatch.undo()
    monkeypatch.setattr(keep, "build_catalog", noted)
    harvest(workspace, NEW)
    assert built == [NEW]
    assert files(folder) == before | {f"{NEW}.duckdb": crawl_file(folder, NEW).stat().st_ino}
    with open_catalog(folder) as catalog:
        for table in HARVEST.tables:
            kept = workspace.lake.read(table)
            shown = catalog.sql(f"FROM catalog.{table}").select(kept.column_names).cast(kept.schema)
            assert sorted(map(str, shown.to_pylist())) == sorted(map(str, kept.to_pylist()))


def test_a_crawl_whose_tables_differ_waits_for_its_harvest(bucket: tuple[Path, object], tmp_path: Path) -> None:
    workspace = workspace_of(bucket[0], tmp_path)
    folder = workspace.settings.catalog_path
    harvest(workspace, NEW)
    before = files(folder)
    slice_ = Slice(NEW)
    empty = workspace.lake.specs["index_files"].schema.empty_table()
    workspace.lake.commit("index_files", empty, [slice_.where], {HARVEST.digest_name(slice_): "abc"})
    assert not rebuild_catalog(workspace)
    assert files(folder) == before
    with open_catalog(folder) as catalog:
        assert len(catalog.index_files(NEW)) > 0
    commit_row_groups(workspace, [NEW])
    assert files(folder) != before
    with open_catalog(folder) as catalog:
        assert len(catalog.index_files(NEW)) == len(workspace.lake.read("index_files", {"crawl": NEW})) > 0


def test_a_crawl_that_left_the_lake_leaves_the_catalog(bucket: tuple[Path, object], tmp_path: Path) -> None:
    workspace = harvested(bucket[0], tmp_path, crawl=OLD)
    harvest(workspace, NEW)
    for table in HARVEST.tables:
        empty = workspace.lake.specs[table].schema.empty_table()
        workspace.lake.commit(table, empty, [{"crawl": OLD}], {})
    assert rebuild_catalog(workspace).dropped == (OLD,)
    assert set(files(workspace.settings.catalog_path)) == {f"{NEW}.duckdb"}
