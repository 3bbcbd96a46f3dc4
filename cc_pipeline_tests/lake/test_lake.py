"""Files of tables, their bounds in the log, and reads of them: whatever crawls and targets are called, and where."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from cc_pipeline.capture_columns import SLICE
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.lake import files as files_module
from cc_pipeline.lake import streaming
from cc_pipeline.lake.compaction import Bounds, compact
from cc_pipeline.lake.content_digests import NOTHING, compute_content_digests
from cc_pipeline.lake.files import join_rows, write_rows
from cc_pipeline.lake.lake import Lake, TableSpec
from cc_pipeline.lake.layout import StoredFile
from cc_pipeline.lake.live_rows import find_live_rows
from cc_pipeline.lake.slices import list_slices, read_liveness
from cc_pipeline.lake.streaming import (
    count_generations,
    count_rows,
    stream_crawl,
    stream_rows,
    stream_slices,
)
from cc_pipeline_tests.lake.things import (
    CRAWL,
    MAKE,
    SCHEMA,
    SPECS,
    THINGS,
    Values,
    build_rows,
    commit,
    content,
    lake_in,
    new_generations,
)
from cc_pipeline_tests.weedserver import REGION, S3Server

ODD = ["o'hara", "a b", "ü%41", "100%25", "a/b", "#1?", 'with "quotes"', "back\\slash", "a=b&c", "日本~x", ""]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return lake_in(tmp_path / "my läke")


def append(lake: Lake, values: Values, generations: dict[str, int], table: str = "things") -> tuple[StoredFile, ...]:
    written = write_rows(lake, table, CRAWL, build_rows(CRAWL, values).to_batches(), generations)
    lake.append(table, written.files)
    return written.files


def test_other_readers_take_the_types_of_the_log(tmp_path: Path) -> None:
    """A stored Arrow schema says milliseconds where the log says microseconds: polars refuses such a table."""
    lake = lake_in(tmp_path / "lake")
    append(lake, {"a": [1]}, {"a": 1})
    assert pl.read_delta(lake.address("things"))["at"].to_list() == [datetime.fromtimestamp(1_700_000_001, UTC)]


@pytest.mark.parametrize("is_checkpoint", [False, True])
def test_the_log_has_generations_to_the_last_digit(lake: Lake, is_checkpoint: bool) -> None:
    generations = {"a": (1 << 62) + 1, "b": (1 << 62) + 2, "c'": (1 << 53) + 1}
    append(lake, {"c'": [1]}, generations)
    append(lake, {"a": range(3), "b": range(2)}, generations)
    append(lake, {"a": [5]}, generations)
    if is_checkpoint:
        lake.prepare("things").create_checkpoint()
        for entry in Path(lake.address("things"), "_delta_log").glob("*.json"):
            entry.unlink()
    files = sorted(lake_in(lake.root).pin("things").stored_files(), key=lambda file: (file.last or "", file.rows))
    assert [(file.first, file.last, file.rows, file.bounds["generation"]) for file in files] == [
        ("a", "a", 1, ((1 << 62) + 1, (1 << 62) + 1)),
        ("a", "b", 5, ((1 << 62) + 1, (1 << 62) + 2)),
        ("c'", "c'", 1, ((1 << 53) + 1, (1 << 53) + 1)),
    ]
    # a file of one generation is counted unread
    Path(lake.address("things"), files[0].path).unlink()
    counts = [count_generations(lake, "things", file) for file in files]
    assert counts == [{(1 << 62) + 1: 1}, {(1 << 62) + 1: 3, (1 << 62) + 2: 2}, {(1 << 53) + 1: 1}]


def test_crawls_and_targets_may_have_any_name(lake: Lake) -> None:
    for number, crawl in enumerate(ODD[:-1]):
        commit(lake, {target: [number, n] for n, target in enumerate(ODD)}, crawl)
    for table in ("things", "slices"):
        lake.prepare(table).create_checkpoint()
    lake = lake_in(lake.root)
    expected = sorted(
        (crawl, target, value)
        for number, crawl in enumerate(ODD[:-1])
        for n, target in enumerate(ODD)
        for value in (number, n)
    )
    assert content(lake) == expected
    assert len(list_slices(lake, MAKE)) == len(ODD) * (len(ODD) - 1)
    pinned = lake.pin("things")
    assert pinned.crawls == sorted(ODD[:-1])
    assert all(Path(file).exists() for file in pinned.files)
    for crawl in ODD[:-1]:
        own = [(target, value) for name, target, value in expected if name == crawl]
        assert sorted(
            (row["target"], row["value"])
            for batch in stream_crawl(lake, "things", crawl, ["target", "value"])
            for row in batch.to_pylist()
        ) == sorted(own)
        assert sum(count_rows(lake, "things", {"crawl": crawl, "target": ODD[:3]}).values()) == 6
        assert len(pinned.stored_files([crawl])) == 1
        assert len(read_liveness(lake, "things", crawl).alive) == len(ODD)
    assert compact(lake, "slices", Bounds(0)) == 0
    commit(lake, {"o'hara": [99]}, ODD[2])
    assert compact(lake, "things", Bounds(1)) == compact(lake, "slices", Bounds(1)) == 2
    assert (ODD[2], "o'hara", 99) in content(lake)
    assert len(content(lake)) == len(expected) - 1
    assert find_live_rows(lake, [lake.pin("slices"), lake.pin("things")]).miscounts == []


def test_values_that_are_not_there_stay_so(lake: Lake) -> None:
    rows = [{"crawl": CRAWL, "target": "a", "value": None}, {"crawl": CRAWL, "target": "a", "value": 1}]
    batches = pa.Table.from_pylist(rows, SCHEMA).to_batches()
    generations = new_generations(CRAWL, ["a"])
    [file] = write_rows(lake, "things", CRAWL, batches, generations).files
    lake.append("things", [file])
    found = [
        row
        for batch in stream_crawl(lake, "things", CRAWL, SCHEMA.names[1:], excluded=pa.array([], pa.int64()))
        for row in batch.to_pylist()
    ]
    assert found == [{name: row.get(name) for name in SCHEMA.names[1:]} for row in rows]
    with pytest.raises(pa.ArrowInvalid, match="no value in column target"):
        write_rows(lake, "whole", CRAWL, [], {})
        loose = pa.RecordBatch.from_pylist([{"target": None}], pa.schema([("target", pa.string())]))
        [*files_module.build_row_groups([loose], pa.schema([SCHEMA.field("target")]))]


def test_rows_of_other_slices_are_refused(lake: Lake) -> None:
    with pytest.raises(KeyError):
        append(lake, {"a": [1], "b": [2]}, {"a": 1})
    assert lake.version("things") == -1


def test_written_rows_are_counted_and_digested_by_slice_however_they_come(lake: Lake) -> None:
    generations = new_generations(CRAWL, ["a", "b"])
    rows = build_rows(CRAWL, {"a": range(70), "b": range(3)})
    one = write_rows(lake, "things", CRAWL, rows.to_batches(), generations)
    assert (one.rows, len(one.files)) == ({"a": 70, "b": 3}, 1)
    assert one.contents == compute_content_digests(rows.to_batches(), "target", ("made_by", "crawl"))
    others = build_rows(CRAWL, {"a": range(70), "b": range(3)}, made_by="another")
    shuffled = others.take(pa.array(random.Random(1).sample(range(73), 73)))
    two = write_rows(
        lake, "things", CRAWL, shuffled.to_batches(max_chunksize=9), generations, is_sorted=False, name="w"
    )
    assert (two.rows, two.contents) == (one.rows, one.contents)
    [path] = [file.path for file in two.files]
    assert path.startswith("crawl=C/part-00000-w-")
    stored = pq.ParquetFile(Path(lake.address("things"), path)).read()
    assert stored.select(["target", "value"]).to_pylist() == rows.select(["target", "value"]).to_pylist()
    halves = [write_rows(lake, "things", CRAWL, part.to_batches(), generations) for part in (rows[:50], rows[50:])]
    assert (join_rows(halves).rows, join_rows(halves).contents) == (one.rows, one.contents)
    assert join_rows([]).contents == {}
    assert compute_content_digests([], "target", ()).get("a", NOTHING) == NOTHING


def test_bounds_of_long_values_are_short_and_still_true(tmp_path: Path) -> None:
    schema = pa.schema([SCHEMA.field("crawl"), SCHEMA.field("target"), pa.field("text", pa.string())])
    lake = Lake(str(tmp_path), [TableSpec("pages", schema, SLICE), *SPECS])
    texts = ["m" * 50_000, "ä" * 50_000]
    rows = pa.table({"crawl": ["A", "A"], "target": ["t", "t"], "text": texts}, schema=schema)
    lake.append("pages", write_rows(lake, "pages", "A", rows.to_batches(), {"t": 1}).files)
    [file] = lake.pin("pages").files
    assert pq.ParquetFile(file).metadata.serialized_size < 5_000
    with duckdb.connect() as connection:
        asked = "SELECT max(text), count(*) FILTER (text > ?) FROM read_parquet(?)"
        assert connection.execute(asked, ["ä", file]).fetchall() == [(texts[1], 1)]
        asked = "SELECT count(*) FROM read_parquet(?) WHERE text = ?"
        assert connection.execute(asked, [file, texts[1]]).fetchall() == [(1,)]


def test_reading_narrows_by_value_and_by_any_of(lake: Lake) -> None:
    commit(lake, {"x": [1], "y": [2]}, "A")
    commit(lake, {"x": [3]}, "B")
    found = lake.read("things", {"crawl": "A", "target": ["x", "nothing"]}, columns=["value", "target"])
    assert found.to_pylist() == [{"value": 1, "target": "x"}]
    assert found.schema.names == ["value", "target"]
    assert lake.read("things", {"target": []}).num_rows == 0
    assert lake.read("things").schema == SCHEMA
    assert lake_in(f"{lake.root}/nowhere").read("things").schema == SCHEMA


@pytest.mark.parametrize("count", [3, 30])
@pytest.mark.parametrize("seed", range(2))
def test_many_names_are_read_as_few_are(lake: Lake, monkeypatch: pytest.MonkeyPatch, seed: int, count: int) -> None:
    """Three names are many: then their bounds are compared, and what lies between is left out."""
    monkeypatch.setattr("cc_pipeline.lake.predicates.MAX_NAMED_VALUES", 2)
    names = [f"t{number:02}'" for number in range(40)]
    chance = random.Random(seed)
    for _ in range(3):
        commit(lake, {name: [chance.randrange(9)] for name in chance.sample(names, 30)})
    chosen = chance.sample(names, count)
    expected = sorted((target, value) for _, target, value in content(lake) if target in chosen)

    def values(batches: object) -> list[tuple[str, int]]:
        return sorted((row["target"], row["value"]) for batch in batches for row in batch.to_pylist())  # type: ignore[attr-defined]

    assert values([lake.read("things", {"crawl": CRAWL, "target": chosen})]) == expected
    assert values(stream_rows(lake, "things", {"target": chosen}, ["value", "target"])) == expected
    assert lake.read("things", {"target": chosen}, ["value"]).num_rows == len(expected)
    assert sum(count_rows(lake, "things", {"target": chosen}, ["crawl"]).values()) == len(expected)


def test_rows_of_a_slice_are_looked_for_only_in_files_that_may_have_them(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(6):
        commit(lake, {f"t{number}": range(number, number + 3)})
    commit(lake, {"t3": range(3)}, "other")
    opened: list[str] = []
    plain = streaming._read_file
    monkeypatch.setattr(
        streaming,
        "_read_file",
        lambda lake, table, file, *more: (opened.append(file.path), plain(lake, table, file, *more))[1],
    )
    found = stream_slices(lake, "things", CRAWL, {"t2", "t3"}, SCHEMA.names[1:])
    rows = [(CRAWL, row["target"], row["value"]) for batch in found for row in batch.to_pylist()]
    assert sorted(rows) == [row for row in content(lake) if row[0] == CRAWL and row[1] in ("t2", "t3")]
    assert len(opened) == 2


_MANY = """
import sys
from cc_pipeline.lake.streaming import count_rows
from cc_pipeline_tests.lake.things import commit, lake_in

lake = lake_in(sys.argv[1])
names = [f"name-{one:06}.example" for one in range(30_000)]
commit(lake, {name: [1] if number % 10 == 0 else [] for number, name in enumerate(names)})
assert lake.read("things", {"crawl": "C", "target": names}, ["value"]).num_rows == 3_000
assert count_rows(lake, "things", {"target": names[5:]}, ["crawl"]) == {("C",): 2_999}
"""


@pytest.mark.bomb
def test_very_many_names_end_no_process(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _MANY, str(tmp_path)], capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_a_lake_that_may_not_be_read_is_an_environment_fault(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    commit(lake, {"x": [1]})

    def refuse(path: Path, **_: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "exists", refuse)
    for reader in (lake, lake_in(lake.root)):
        with pytest.raises(EnvironmentFault, match=r"things.*Permission denied") as found:
            reader.handle(THINGS)
        assert "the right to read that folder" in found.value.advice


def test_a_table_that_another_process_makes_at_the_same_time_is_used(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = DeltaTable.create

    def create(*given: object, **named: object) -> None:
        real(*given, **named)
        raise CommitFailedError("another process was first")

    monkeypatch.setattr(DeltaTable, "create", create)
    commit(lake, {"x": [1]})
    assert content(lake) == [("C", "x", 1)]


def test_the_same_on_s3(weed: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", weed.key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", weed.secret)
    options = {"AWS_ENDPOINT_URL": weed.endpoint, "AWS_REGION": REGION, "AWS_ALLOW_HTTP": "true"}
    lake, other = (lake_in("s3://lake/here", options) for _ in range(2))
    crawl = "C ü%41"
    commit(lake, {"x.example": [1, 2], "y'": [3]}, crawl)
    commit(other, {"x.example": [4]}, crawl)
    # of two swaps on one version the second is refused
    handles = [one.prepare("slices") for one in (lake, other)]
    files = [[*files_module.write_files(one, one.specs["slices"], {"crawl": crawl}, [])] for one in (lake, other)]
    assert lake.swap("slices", handles[0], files[0]) and not other.swap("slices", handles[1], files[1])
    assert compact(lake, "things", Bounds(1)) == compact(other, "slices", Bounds(1)) == 2
    assert content(lake) == content(other) == [(crawl, "x.example", 4), (crawl, "y'", 3)]
    assert find_live_rows(lake, [lake.pin("slices"), lake.pin("things")]).miscounts == []
