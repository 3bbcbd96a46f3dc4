"""A table has exactly the columns of its spec: no other table is read or written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import Field

from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.lake.columns import with_columns
from cc_pipeline.lake.keyed import update_rows
from cc_pipeline.lake.lake import Lake, TableSpec
from cc_pipeline.lake.layout import StoredFile
from cc_pipeline_tests.lake.things import TARGETS

CRAWL, NUMBER = pa.field("crawl", pa.string(), nullable=False), pa.field("n", pa.int32())
NAME = pa.field("name", pa.list_(pa.string()))
SCHEMA = pa.schema([CRAWL, NUMBER, NAME])
ROWS = pa.Table.from_pylist([{"crawl": "a", "n": 1, "name": ["x"]}], schema=SCHEMA)

#: How a spec may differ from the table, and the columns that the refusal names.
OTHERS = {
    "lacks a column": ([CRAWL, NUMBER], "name"),
    "has a column more": ([*SCHEMA, pa.field("extra", pa.string())], "extra"),
    "has a column in another type": ([CRAWL, NUMBER.with_type(pa.int64()), NAME], "n"),
    "has a list of another type": ([CRAWL, NUMBER, NAME.with_type(pa.list_(pa.int64()))], "name"),
    "has a column under another name": ([CRAWL, NUMBER.with_name("number"), NAME], "n, number"),
}

USES: list[Callable[[Lake], object]] = [
    lambda lake: lake.read("things"),
    lambda lake: lake.pin("things"),
    lambda lake: lake.pin("things", 0),
    lambda lake: lake.append("things", [StoredFile("crawl=a/x.parquet", {"crawl": "a"}, 1, 1)]),
]


def lake_of(folder: Path, schema: pa.Schema) -> Lake:
    return Lake(str(folder / "lake"), [TableSpec("things", schema, key=("crawl",)), TARGETS])


def put(lake: Lake) -> None:
    update_rows(lake, "things", {"crawl": "a"}, lambda stored: ROWS.to_pylist())


@pytest.mark.parametrize("use", range(len(USES)))
@pytest.mark.parametrize("difference", OTHERS)
def test_a_table_with_other_columns_is_refused_and_left_alone(tmp_path: Path, difference: str, use: int) -> None:
    fields, named = OTHERS[difference]
    own = lake_of(tmp_path, SCHEMA)
    put(own)
    version = own.version("things")
    with pytest.raises(EnvironmentFault, match=f"the table things has other columns .* writes: {named}\n") as refused:
        USES[use](lake_of(tmp_path, pa.schema(fields)))
    assert "make a new home" in refused.value.advice
    assert (own.version("things"), own.read("things")) == (version, ROWS)


def test_columns_that_another_program_adds_meanwhile_are_refused(tmp_path: Path) -> None:
    lake = lake_of(tmp_path, SCHEMA)
    put(lake)
    handle = lake_of(tmp_path, SCHEMA).handle(lake.specs["things"])
    assert handle is not None
    handle.alter.add_columns([Field("extra", "string")])
    with pytest.raises(EnvironmentFault, match="extra"):
        lake.read("things")


def test_rows_get_the_order_and_types_of_a_schema() -> None:
    rows = pa.table({"n": [1], "name": [["x"]], "crawl": ["a"], "other": [2]})
    assert with_columns(rows, SCHEMA).equals(ROWS)
    with pytest.raises(pa.ArrowInvalid, match="no column name"):
        with_columns(rows.drop(["name"]), SCHEMA)
    with pytest.raises(pa.ArrowInvalid, match="no value in column crawl"):
        with_columns(rows.set_column(2, "crawl", pa.array([None], pa.string())), SCHEMA)
