"""Where assets and columns come from, as the graph says it, against what the stages do."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest

from cc_pipeline.commoncrawl.index_schema import CAPTURE_SCHEMA
from cc_pipeline.definitions import defs
from cc_pipeline.defs.lineage import COLUMNS
from cc_pipeline.testing.mini_crawl.truth import MiniCrawlTruth
from cc_pipeline.workspace.schemas import CAPTURES_SCHEMA
from cc_pipeline_tests.world import NEW, extract, harvest, workspace_of

PLACE = ("warc_filename", "warc_record_offset")


@pytest.fixture(scope="module")
def specs() -> dict[dg.AssetKey, dg.AssetSpec]:
    return {spec.key: spec for spec in defs().resolve_all_asset_specs()}


def test_assets_depend_on_what_their_columns_come_from(specs: dict[dg.AssetKey, dg.AssetSpec]) -> None:
    for table, columns in COLUMNS.items():
        spec = specs[dg.AssetKey(table)]
        asked = {dep.asset_key for dep in spec.deps}
        assert {asset for found in columns.values() for asset, _ in found} <= asked, table
        lineage = spec.metadata["dagster/column_lineage"]
        assert set(lineage.deps_by_column) == {name for name, found in columns.items() if found}
    # files read whole fill the same tables, and from nothing of ours
    assert "dagster/column_lineage" not in specs[dg.AssetKey("source_text")].metadata


def test_a_column_of_the_same_name_has_the_values_it_is_said_to_come_from(
    bucket: tuple[Path, MiniCrawlTruth], tmp_path: Path
) -> None:
    workspace = workspace_of(bucket[0], tmp_path / "home")
    harvest(workspace)
    extract(workspace, "example.com")
    tables = {
        name: {tuple(row[part] for part in PLACE): row for row in workspace.lake.read(name, {"crawl": NEW}).to_pylist()}
        for name in COLUMNS
    }
    compared = 0
    for table, columns in COLUMNS.items():
        for name, found in columns.items():
            if len(found) != 1 or found[0][0].path[0] not in tables:
                continue
            [(asset, of)] = found
            for place, row in tables[table].items():
                assert row[name] == tables[asset.path[0]][place][of], (table, name)
                compared += 1
    assert compared > 1_000
    assert set(CAPTURE_SCHEMA.names) <= set(CAPTURES_SCHEMA.names)
