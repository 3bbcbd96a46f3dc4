"""A scan of whole row groups gives what DuckDB finds, whichever column is read whole and whatever is null."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from cc_pipeline.commoncrawl.conditions import parse_condition
from cc_pipeline.commoncrawl.index_schema import INDEX_COLUMN_NAMES, LATER_COLUMNS
from cc_pipeline.commoncrawl.key_ranges import KeyRange
from cc_pipeline.index.parquet.locator import ParquetLocator
from cc_pipeline.transport.client import Transport
from cc_pipeline_tests.commoncrawl.test_conditions import READ_WHOLE, TABLE, condition, oracle, term
from cc_pipeline_tests.index.parquet.file_finder import FileFinder
from cc_pipeline_tests.index.parquet.test_read import PATH

_COLUMNS = [*INDEX_COLUMN_NAMES, *(field.name for field in LATER_COLUMNS)]
_ASKED = (
    term("mime=text/html", "mime = 'text/html'"),
    term("charset=''", "charset = ''"),
    ("mime=text/html and charset is not null", "mime = 'text/html' AND charset IS NOT NULL"),
    ("query is null", "query IS NULL"),
    ("lang is null", "lang IS NULL AND known_lang"),
)


@pytest.mark.parametrize("options", [{}, {"write_page_index": True, "data_page_size": 40, "write_batch_size": 12}])
def test_a_scan_gives_what_sql_finds(tmp_path: Path, options: dict[str, Any]) -> None:
    path = tmp_path / PATH
    path.parent.mkdir(parents=True)
    # rows numbered by their lengths; of the columns that are read whole, whole pages are null
    rows = TABLE.filter(pc.equal(TABLE["subset"], "warc")).sort_by([(name, "ascending") for name in READ_WHOLE])
    index = rows.select([name for name in _COLUMNS if name in rows.column_names])
    at = index.schema.get_field_index("url_host_registered_domain")
    index = index.set_column(at, "url_host_registered_domain", rows["domain"])
    keys = pa.array([f"k{number:05d}" for number in range(rows.num_rows)])
    index = index.set_column(index.schema.get_field_index("url_surtkey"), "url_surtkey", keys)
    pq.write_table(index, path, row_group_size=60, **options)
    draw = random.Random(5)
    # the registered domain of a row that has none is found out from its host
    asked = [*_ASKED, *(said for said in (condition(draw) for _ in range(12)) if "domain" not in said[0])]
    with Transport(str(tmp_path)) as transport, duckdb.connect() as session:
        oracle(session)
        locator = ParquetLocator(transport, FileFinder(transport, [PATH]))
        places = locator.places("CC-MAIN-2024-22", ["warc"], [KeyRange(b"", None)])
        for ours, theirs in asked:
            sql = f"SELECT url, length FROM captures WHERE subset = 'warc' AND ({theirs})"
            wanted = sorted(session.execute(sql).fetchall(), key=repr)
            for column in READ_WHOLE if (ours, theirs) in _ASKED else draw.sample(READ_WHOLE, 1):
                found = [
                    row
                    for some in locator.scan(places, column, parse_condition(ours))
                    for row in some.select(["url", "warc_record_length"]).to_pylist()
                ]
                assert sorted((tuple(row.values()) for row in found), key=repr) == wanted, (ours, column)
