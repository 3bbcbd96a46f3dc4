"""Tables from footers, the footer store's other promises."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from cc_pipeline.errors import UserInputError
from cc_pipeline.index.catalog.from_footers import FooterTableBuilder, crawl_tables
from cc_pipeline.index.catalog.schemas import INDEX_FILES_SCHEMA, ROW_GROUPS_SCHEMA
from cc_pipeline.index.footers.decode import decode_footer
from cc_pipeline.index.footers.harvest import harvest_crawl
from cc_pipeline.index.footers.store import FooterEntry, FooterStore
from cc_pipeline_tests.index.footers.footer_files import encrypted_bytes, index_table, parquet_bytes
from cc_pipeline_tests.index.footers.harvest_world import CRAWL, MemoryReader, key_of


def entry(path: str, size: int) -> FooterEntry:
    return FooterEntry(path, size, '"e"', 100, datetime(2026, 1, 1, tzinfo=UTC))


def test_tables_say_what_the_footers_say():
    files = {
        key_of(0): parquet_bytes(index_table(60), write_page_index=True),
        key_of(1, "robotstxt"): parquet_bytes(index_table(0)),
        key_of(2): encrypted_bytes(index_table(40), plaintext_footer=True),
    }
    builder = FooterTableBuilder(CRAWL)
    expected = []
    for path, data in files.items():
        rows = decode_footer(data, len(data), path)
        expected.append(rows)
        builder.add(rows, entry(path, len(data)))
    builder.add_failure(FooterEntry(key_of(3), 9, None, 0, datetime(2026, 1, 1, tzinfo=UTC), "bad", 5))
    tables = builder.tables()
    assert tables.index_files.schema.equals(INDEX_FILES_SCHEMA)
    assert tables.row_groups.schema.equals(ROW_GROUPS_SCHEMA)
    groups = {(row["path"], row["row_group"]): row for row in tables.row_groups.to_pylist()}
    for rows in expected:
        for group in rows.row_groups:
            row = groups.pop((rows.path, group.row_group))
            assert (row["subset"], row["part"], row["rows"]) == (rows.subset, rows.part, group.rows)
            assert (row["data_offset"], row["data_end"]) == (group.data_offset, group.data_end)
            assert row["compressed_bytes"] == group.compressed_bytes
            for column, known in group.statistics.items():
                low = row[f"{column}_min"]
                low = round(low.timestamp() * 1000) if isinstance(low, datetime) else low
                assert low == known.minimum
                assert row[f"{column}_source"] == known.source
    assert not groups
    rows = tables.index_files.to_pylist()
    assert [row["outcome"] for row in rows] == ["decoded", "decoded", "decoded", "failed"]
    assert rows[0]["columns"][0] == "url_surtkey BYTE_ARRAY optional UTF8"
    assert rows[3]["columns"] is None


def test_files_not_yet_harvested_are_missing_and_strangers_are_left_out(tmp_path: Path):
    keys = [key_of(number) for number in range(4)]
    store = FooterStore(tmp_path)
    harvest_crawl(CRAWL, keys, MemoryReader(dict.fromkeys(keys, parquet_bytes(index_table()))), store)
    tables = crawl_tables(CRAWL, [*keys[:2], key_of(9)], store)
    assert tables.coverage.to_pylist()[0] | {"rows": 0} == {
        "crawl": CRAWL, "subset": "warc", "expected": 3, "harvested": 2, "failed": 0, "missing": 1, "row_groups": 6,
        "rows": 0, "without_statistics": 0, "reason": None,
    }  # fmt: skip


@pytest.mark.parametrize("name", ["", "..", "a/b", ".hidden", "a\0"])
def test_odd_crawl_names_lead_nowhere(tmp_path: Path, name: str):
    with pytest.raises(UserInputError):
        FooterStore(tmp_path).read(name)
