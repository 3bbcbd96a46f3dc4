"""Columns of any writer as the types an answer has."""

from __future__ import annotations

from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cc_pipeline.capture_columns import TIMESTAMP
from cc_pipeline.commoncrawl.key_ranges import KeyRange
from cc_pipeline.extensions.host_facts.keyed_lookup import KeyedLookup, KeyedRows
from cc_pipeline.extensions.host_facts.shards import Shard, arrow_type, column_types, common_type, open_shard
from cc_pipeline.index.parquet.fetch import PageIndexes
from cc_pipeline.transport.client import Transport

EVERYTHING = [KeyRange(b"", None)]
MOMENT = datetime(2025, 5, 1, 12, 30, 15, 250_000, tzinfo=timezone.utc)  # noqa: UP017  # as pyarrow gives it


def shard_of(folder: Path, name: str, columns: dict[str, pa.Array], **options: Any) -> Shard:
    count = len(next(iter(columns.values())))
    table = pa.table({"key": [f"com,{place:03d}" for place in range(count)], **columns})
    pq.write_table(table, folder / name, **options)
    data = (folder / name).read_bytes()
    return open_shard(name, data[-8 - int.from_bytes(data[-8:-4], "little") :], len(data), None, "key")


def read(folder: Path, shards: list[Shard], schema: pa.Schema) -> KeyedRows:
    with Transport(str(folder)) as reader:
        return KeyedLookup(shards, EVERYTHING, schema, None).read(reader, PageIndexes())


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        (pa.array([-1, None, 127], pa.int8()), pa.int64(), [-1, None, 127]),
        (pa.array([0, 2**16 - 1], pa.uint16()), pa.int64(), [0, 2**16 - 1]),
        (pa.array([0, 2**32 - 1], pa.uint32()), pa.int64(), [0, 2**32 - 1]),
        (pa.array([1, 2**63], pa.uint64()), pa.float64(), [1.0, float(2**63)]),
        (pa.array([1.5, None], pa.float32()), pa.float64(), [1.5, None]),
        (pa.array([Decimal("12.50"), None, Decimal("-0.25")], pa.decimal128(7, 2)), pa.float64(), [12.5, None, -0.25]),
        (pa.array([True, None, False]), pa.bool_(), [True, None, False]),
        (pa.array(["a", None, "é"]), pa.string(), ["a", None, "é"]),
        (pa.array([b"a", b"\xff"], pa.binary()), pa.string(), ["a", "\\xff"]),
        (pa.array([date(2025, 5, 1), None]), pa.date32(), [date(2025, 5, 1), None]),
        (pa.array([MOMENT, None], pa.timestamp("us", tz="UTC")), TIMESTAMP, [MOMENT, None]),
        (pa.array([MOMENT, None], pa.timestamp("ns", tz="UTC")), TIMESTAMP, [MOMENT, None]),
        (pa.array([MOMENT.replace(tzinfo=None)], pa.timestamp("ms")), TIMESTAMP, [MOMENT]),
    ],
)
def test_types_of_writers(tmp_path: Path, values: pa.Array, kind: pa.DataType, expected: list[object]) -> None:
    shard = shard_of(tmp_path, "x.parquet", {"v": values})
    physical, _, meaning = shard.file.columns["v"]
    assert arrow_type(physical, meaning) == kind
    found = read(tmp_path, [shard], pa.schema([("v", kind)]))
    assert not found.gaps
    assert found.table["v"].to_pylist() == expected


def test_old_times(tmp_path: Path) -> None:
    values = pa.array([MOMENT, None], pa.timestamp("us", tz="UTC"))
    shard = shard_of(tmp_path, "x.parquet", {"v": values}, use_deprecated_int96_timestamps=True)
    assert read(tmp_path, [shard], pa.schema([("v", TIMESTAMP)])).table["v"].to_pylist() == [MOMENT, None]


def test_shards_that_differ_get_one_type(tmp_path: Path) -> None:
    shards = [
        shard_of(tmp_path, "a.parquet", {"n": pa.array([1, 2], pa.int8()), "x": pa.array(["1", "2"])}),
        shard_of(tmp_path, "b.parquet", {"n": pa.array([2**40, None]), "x": pa.array([3, 4])}),
        shard_of(tmp_path, "c.parquet", {"n": pa.array([3.0, float("nan")]), "y": pa.array([True, False])}),
    ]
    types = column_types(shard.file for shard in shards)
    assert types == {"key": pa.string(), "n": pa.float64(), "x": pa.string(), "y": pa.bool_()}
    found = read(tmp_path, shards, pa.schema([("n", pa.int64()), ("x", pa.string()), ("y", pa.bool_())]))
    assert not found.gaps
    assert found.table["n"].to_pylist() == [1, 2, 2**40, None, 3, None]
    assert found.table["x"].to_pylist() == ["1", "2", "3", "4", None, None]
    assert found.table["y"].to_pylist() == [None] * 4 + [True, False]


def test_a_fraction_is_no_whole_number(tmp_path: Path) -> None:
    shards = [
        shard_of(tmp_path, "a.parquet", {"n": pa.array([1, 2])}),
        shard_of(tmp_path, "b.parquet", {"n": pa.array([2.5])}),
    ]
    found = read(tmp_path, shards, pa.schema([("n", pa.int64())]))
    assert [gap.path for gap in found.gaps] == ["b.parquet"]
    assert found.table["n"].to_pylist() == [1, 2]


def test_widest() -> None:
    assert common_type([pa.int64(), pa.float64()]) == pa.float64()
    assert common_type([pa.int64(), pa.bool_()]) == pa.string()
    assert common_type([TIMESTAMP]) == TIMESTAMP


def test_a_nested_column_is_not_there(tmp_path: Path) -> None:
    shard = shard_of(tmp_path, "a.parquet", {"n": pa.array([[1], [2, 3]]), "m": pa.array([{"a": 1}, {"a": 2}])})
    assert set(shard.file.columns) == {"key"}
    assert read(tmp_path, [shard], pa.schema([("n", pa.int64())])).table["n"].to_pylist() == [None, None]
