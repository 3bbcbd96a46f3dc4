"""Tables with a key: the newest row of a key counts, and commits to it follow each other."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.lake import keyed
from cc_pipeline.lake.compaction import Bounds, compact
from cc_pipeline.lake.keyed import Row, read_newest, select_newest, update_rows
from cc_pipeline.lake.lake import Lake, TableSpec
from cc_pipeline.lake.predicates import Prefix

SCHEMA = pa.schema([pa.field("name", pa.string(), nullable=False), ("count", pa.int64()), ("kind", pa.string())])
SPEC = TableSpec("counters", SCHEMA, key=("name",), sort_by=("name",), hidden=(pa.field("epoch", pa.int64()),))


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(str(tmp_path / "lake"), [SPEC])


def put(lake: Lake, *rows: Row) -> None:
    update_rows(lake, "counters", {"name": [row["name"] for row in rows]}, lambda stored: rows)


def content(lake: Lake, **where: str) -> dict[str, int]:
    return {row["name"]: row["count"] for row in lake.read("counters", where).to_pylist()}


def test_the_newest_row_of_each_key_counts_until_it_is_removed(lake: Lake) -> None:
    put(lake, {"name": "b'", "count": 1, "kind": "x", "epoch": 1 << 61}, {"name": "a", "count": 2, "kind": "x"})
    put(lake, {"name": "b'", "count": 3, "kind": "y", "epoch": 5})
    assert content(lake) == {"a": 2, "b'": 3}
    # another column may have had the value before
    assert content(lake, kind="x") == {"a": 2}
    assert content(lake, kind="y") == {"b'": 3}
    assert lake.read("counters").schema == SCHEMA, "hidden columns are read on request alone"
    assert read_newest(lake, "counters", {"name": "b'"}, ["epoch"]).to_pylist() == [{"epoch": 5}]
    put(lake, {"name": "a", "is_removed": True})
    assert content(lake) == {"b'": 3}
    seen: list[Row] = []
    update_rows(lake, "counters", {"name": ["a", "b'"]}, lambda stored: seen.extend(stored) or [])
    assert [row["name"] for row in seen] == ["b'"]
    # what is removed and comes again is newer than its end
    put(lake, {"name": "a", "count": 9})
    assert content(lake) == {"a": 9, "b'": 3}
    assert compact(lake, "counters", Bounds(1)) == 4
    assert content(lake) == {"a": 9, "b'": 3}
    assert lake.pin("counters").rows == 2


def test_a_prefix_is_a_target_and_its_slices(lake: Lake) -> None:
    names = ["a.b", "a.b.c", "a.b~16-0003", "a.b~robotstxt", "a.c", "a"]
    put(lake, *({"name": name, "count": 1} for name in names))
    assert sorted(content(lake, name=Prefix("a.b"))) == ["a.b", "a.b.c", "a.b~16-0003", "a.b~robotstxt"]
    assert content(lake, name="a.b") == {"a.b": 1}
    assert read_newest(lake, "counters", {"name": []}).num_rows == 0


def test_answers_are_kept_by_version_until_the_table_is_forgotten(lake: Lake, tmp_path: Path) -> None:
    """A repair, or a backup, may give a version other rows."""
    put(lake, {"name": "a", "count": 1})
    assert (content(lake, name="a"), content(lake, name="b")) == ({"a": 1}, {})
    assert content(lake, name="a") == {"a": 1}
    other = Lake(str(tmp_path / "other"), [SPEC])
    put(other, {"name": "a", "count": 2})
    shutil.rmtree(lake.address("counters"))
    shutil.copytree(other.address("counters"), lake.address("counters"))
    lake.forget("counters")
    assert content(lake, name="a") == {"a": 2}


def test_updates_of_many_at_once_are_all_there(lake: Lake) -> None:
    def count_up(worker: int) -> None:
        own = Lake(lake.root, [SPEC])
        for _ in range(5):
            update_rows(
                own,
                "counters",
                {"name": ["all", f"w{worker}"]},
                lambda stored: [
                    {"name": name, "count": {row["name"]: row["count"] for row in stored}.get(name, 0) + 1}
                    for name in ("all", f"w{worker}")
                ],
            )

    with ThreadPoolExecutor(4) as pool:
        [*pool.map(count_up, range(4))]
    assert content(lake) == {"all": 20} | {f"w{worker}": 5 for worker in range(4)}


def test_an_update_that_always_meets_others_gives_up(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyed, "TRIES", 3)
    monkeypatch.setattr(Lake, "swap", lambda *given, **named: False)
    with pytest.raises(EnvironmentFault, match="could not commit to counters"):
        put(lake, {"name": "a"})


ROWS = st.lists(st.tuples(st.sampled_from(["", "a", "é", "~"]), st.integers(-2, 2), st.integers(0, 9)), max_size=30)


@given(ROWS, st.integers(1, 30))
def test_the_newest_rows_are_those_that_a_dictionary_keeps(rows: list[tuple[str, int, int]], at_once: int) -> None:
    newest: dict[tuple[str, int], int] = {}
    for name, number, seq in rows:
        newest[name, number] = max(seq, newest.get((name, number), 0))
    schema = pa.schema(
        [("name", pa.string()), ("number", pa.int64()), ("seq", pa.int64()), ("more", pa.map_("string", "int64"))]
    )
    table = pa.Table.from_pylist(
        [{"name": name, "number": number, "seq": seq, "more": [("seq", seq)]} for name, number, seq in rows], schema
    )
    chunked = pa.Table.from_batches(table.to_batches(max_chunksize=at_once), schema)
    found = select_newest(chunked, ["name", "number"]).to_pylist()
    assert {(row["name"], row["number"]): row["seq"] for row in found} == newest
    assert len(found) == len(newest)
    assert all(row["more"] == [("seq", row["seq"])] for row in found)
