"""The catalog is the lake's table: what is committed is what is asked, crawl by crawl."""

from __future__ import annotations

from pathlib import Path

from cc_pipeline.commoncrawl.key_ranges import KeyRange
from cc_pipeline.harvesting.catalog import open_catalog, read_catalog_table, read_subsets
from cc_pipeline.index.catalog.rows import VIEW_SCHEMAS
from cc_pipeline.lake.slice import HARVEST, Slice
from cc_pipeline.lake.slices import empty_slices
from cc_pipeline.workspace.workspace import open_lake
from cc_pipeline_tests.world import NEW, OLD, harvest, harvested, workspace_of

EVERY_KEY = [KeyRange(b"", None)]


def test_a_harvest_replaces_the_files_of_its_crawl_alone(bucket: tuple[Path, object], tmp_path: Path) -> None:
    workspace = workspace_of(bucket[0], tmp_path)
    harvest(workspace, OLD)
    before = workspace.lake.pin("row_groups").files
    harvest(workspace, NEW)
    after = workspace.lake.pin("row_groups").files
    assert set(before) < set(after)
    assert len(after) == 2
    with open_catalog(workspace.lake) as catalog:
        assert catalog.crawls() == (OLD, NEW)
        for table, schema in VIEW_SCHEMAS.items():
            every = catalog.connection.sql(f"FROM catalog.{table}").to_arrow_table().cast(schema).to_pylist()
            rows = [row for crawl in (OLD, NEW) for row in read_catalog_table(workspace.lake, table, crawl).to_pylist()]
            assert sorted(map(str, every)) == sorted(map(str, rows)) != []
    assert [(one.crawl, one.subset, one.expected) for one in read_subsets(workspace.lake) if one.crawl == NEW] == [
        (NEW, "warc", 2)
    ]


def test_an_open_catalog_answers_as_it_was_opened(bucket: tuple[Path, object], tmp_path: Path) -> None:
    workspace = harvested(bucket[0], tmp_path, crawl=OLD)
    harvest(workspace, NEW)
    with open_catalog(workspace.lake) as catalog:
        before = catalog.row_groups_for(NEW, None, EVERY_KEY)
        empty_slices(workspace.lake, HARVEST, [Slice(NEW)])
        assert catalog.index_files(NEW).num_rows > 0
        assert catalog.row_groups_for(NEW, None, EVERY_KEY).equals(before)
    with open_catalog(open_lake(workspace.settings)) as catalog:
        assert catalog.crawls() == (OLD,)
        assert not len(catalog.row_groups_for(NEW, None, EVERY_KEY))
