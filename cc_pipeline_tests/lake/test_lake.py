"""Commits replace exactly their slices, carry their digests, and survive company."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.lake import lake as lakes
from cc_pipeline.lake.compaction import Bounds, compact_due
from cc_pipeline.lake.content_digests import compute_input_digest, digest_from_int, digest_to_int
from cc_pipeline.lake.lake import Lake, TableSpec

SCHEMA = pa.schema(
    [
        pa.field("crawl", pa.string(), nullable=False),
        pa.field("target", pa.string(), nullable=False),
        pa.field("value", pa.int64()),
        pa.field("extra", pa.map_(pa.string(), pa.string())),
        pa.field("at", pa.timestamp("ms", tz="UTC")),
    ]
)
SPEC = TableSpec("things", SCHEMA, ("crawl", "target"), ("target", "value"))


def rows(crawl: str, target: str, values: list[int]) -> pa.Table:
    return pa.Table.from_pylist(
        [{"crawl": crawl, "target": target, "value": v, "extra": [("k", str(v))], "at": v} for v in values],
        schema=SCHEMA,
    )


def commit(lake: Lake, crawl: str, target: str, values: list[int], digest: str = "abc") -> None:
    lake.commit(
        "things", rows(crawl, target, values), [{"crawl": crawl, "target": target}], {f"stage:{crawl}:{target}": digest}
    )


def content(lake: Lake) -> list[tuple[str, str, int]]:
    return sorted((r["crawl"], r["target"], r["value"]) for r in lake.read("things").to_pylist())


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(str(tmp_path), [SPEC])


def test_a_commit_replaces_its_slice_and_no_other(lake: Lake) -> None:
    commit(lake, "A", "x", [3, 1, 2])
    commit(lake, "A", "y", [9])
    commit(lake, "B", "x", [7])
    commit(lake, "A", "x", [5])
    assert content(lake) == [("A", "x", 5), ("A", "y", 9), ("B", "x", 7)]


def test_an_empty_slice_is_committed_with_its_digest(lake: Lake) -> None:
    commit(lake, "A", "x", [1])
    commit(lake, "A", "x", [], digest="def")
    assert content(lake) == []
    assert lake.digest("things", "stage:A:x") == "000000000000def"


def test_many_slices_in_one_commit(lake: Lake) -> None:
    commit(lake, "A", "x", [1])
    commit(lake, "B", "y", [2])
    commit(lake, "B", "z", [3])
    data = pa.concat_tables([rows("A", "x", [10]), rows("B", "z", [30])])
    before = lake.pin("things").version
    slices = [{"crawl": "A", "target": "x"}, {"crawl": "B", "target": "z"}]
    lake.commit("things", data, slices, {"stage:A:x": "1", "stage:B:z": "2"})
    assert lake.pin("things").version == before + 1
    assert content(lake) == [("A", "x", 10), ("B", "y", 2), ("B", "z", 30)]
    digests = lake.digests("things", ["stage:A:x", "stage:B:z", "stage:C:c"])
    assert [digests["stage:A:x"], digests["stage:C:c"]] == ["000000000000001", None]


def test_a_quote_in_a_value_is_only_a_quote(lake: Lake) -> None:
    commit(lake, "A", "o'hara", [1])
    commit(lake, "A", "x", [2])
    commit(lake, "A", "o'hara", [3])
    assert content(lake) == [("A", "o'hara", 3), ("A", "x", 2)]


def test_reading_narrows_by_value_and_by_any_of(lake: Lake) -> None:
    commit(lake, "A", "x", [1])
    commit(lake, "A", "y", [2])
    commit(lake, "B", "x", [3])
    found = lake.read("things", {"crawl": "A", "target": ["x", "nothing"]}, columns=["value", "extra"])
    assert found.to_pylist() == [{"value": 1, "extra": [("k", "1")]}]
    assert found.schema.names == ["value", "extra"]


def test_a_table_nobody_wrote_is_empty_and_typed(lake: Lake) -> None:
    assert lake.read("things").schema == SCHEMA
    assert lake.digest("things", "stage:A:x") is None
    assert lake.pin("things").files == ()


def test_a_stream_is_committed_with_flat_batches(lake: Lake) -> None:
    batches = [rows("A", "x", [n]).to_batches()[0] for n in range(5)]
    written = lake.commit_stream("things", lambda: iter(batches), [{"crawl": "A", "target": "x"}], {"stage:A:x": "5"})
    assert written == 5
    assert [value for _, _, value in content(lake)] == [0, 1, 2, 3, 4]


def test_few_new_rows_are_written_for_a_quick_look_and_all_others_to_stay(lake: Lake) -> None:
    def packed() -> list[tuple[str, int]]:
        found = [pq.ParquetFile(file).metadata for file in lake.pin("things").files]
        return sorted((one.row_group(0).column(0).compression, one.num_rows) for one in found)

    where = [{"crawl": "A", "target": "x"}, {"crawl": "A", "target": "y"}]
    few = [*rows("A", "x", [1]).to_batches(), *rows("A", "y", [2]).to_batches()]
    lake.commit_stream("things", lambda: iter(few), where, {"stage:A:x": "1", "stage:A:y": "1"})
    assert packed() == [("SNAPPY", 2)]
    # what it leaves of the old file may be much more than what is new
    commit(lake, "A", "y", [3])
    assert packed() == [("SNAPPY", 1), ("ZSTD", 1)]
    many = rows("B", "z", list(range(60_000))).to_batches(20_000)
    lake.commit_stream("things", lambda: iter(many), [{"crawl": "B", "target": "z"}], {"stage:B:z": "1"})
    assert packed() == [("SNAPPY", 1), ("ZSTD", 1), ("ZSTD", 60_000)]
    assert [value for crawl, _, value in content(lake) if crawl == "B"] == list(range(60_000))


def test_bounds_of_long_values_are_short_and_still_true(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("crawl", pa.string(), nullable=False), pa.field("text", pa.string())])
    lake = Lake(str(tmp_path), [TableSpec("pages", schema, ("crawl",))])
    texts = ["m" * 50_000, "ä" * 50_000]
    lake.commit("pages", pa.table({"crawl": ["A", "A"], "text": texts}), [{"crawl": "A"}], {"stage:A": "1"})
    [file] = lake.pin("pages").files
    assert pq.ParquetFile(file).metadata.serialized_size < 5_000
    asked = "SELECT max(text), count(*) FILTER (text > ?) FROM read_parquet(?)"
    with duckdb.connect() as connection:
        assert connection.execute(asked, ["ä", file]).fetchall() == [(texts[1], 1)]
        asked = "SELECT count(*) FROM read_parquet(?) WHERE text = ?"
        assert connection.execute(asked, [file, texts[1]]).fetchall() == [(1,)]


def test_a_pinned_version_stays_readable_after_the_next_commit(lake: Lake) -> None:
    commit(lake, "A", "x", [1])
    pinned = lake.pin("things")
    commit(lake, "A", "x", [2])
    assert all(Path(file).exists() for file in pinned.files)
    assert pinned.rows == 1


def _write(root: str, worker: int) -> None:
    own = Lake(root, [SPEC])
    for number in range(5):
        commit(own, "A", f"w{worker}", [number], digest=f"{worker}{number}")


def test_processes_commit_different_slices_of_one_table(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path), [SPEC])
    commit(lake, "A", "first", [0])
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_write, args=(str(tmp_path), number)) for number in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
        assert worker.exitcode == 0
    assert content(lake) == [("A", "first", 0), ("A", "w0", 4), ("A", "w1", 4), ("A", "w2", 4)]


def test_a_place_that_cannot_be_written_is_an_environment_fault(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(EnvironmentFault, match="file"):
        commit(Lake(str(tmp_path / "file"), [SPEC]), "A", "x", [1])


def test_a_lake_that_may_not_be_read_is_an_environment_fault(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    commit(lake, "A", "x", [1])

    def refuse(path: Path, **_: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    for reader in (lake, Lake(lake.root, [SPEC])):
        with (
            monkeypatch.context() as patched,
            pytest.raises(EnvironmentFault, match=r"things.*Permission denied") as found,
        ):
            patched.setattr(Path, "exists", refuse)
            reader.handle(SPEC)
        assert "the right to read that folder" in found.value.advice


def test_digests_are_order_free_and_fit_an_int64() -> None:
    assert compute_input_digest({"a": 1, "b": [2]}) == compute_input_digest({"b": [2], "a": 1})
    assert compute_input_digest({"a": 1}) != compute_input_digest({"a": 2})
    digest = compute_input_digest({"x": "y"})
    assert digest_from_int(digest_to_int(digest)) == digest
    assert digest_to_int("f" * 15) < 2**63


def test_a_handle_is_opened_anew_after_some_commits_and_sees_those_of_others(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    real = lakes.DeltaTable

    class Counted(real):
        def __init__(self, *given: object, **named: object) -> None:
            opened.append("")
            super().__init__(*given, **named)

    commit(lake, "A", "x", [0])
    monkeypatch.setattr(lakes, "DeltaTable", Counted)
    monkeypatch.setattr(lakes, "_MAX_HANDLE_COMMITS", 3)
    other = Lake(lake.root, [SPEC])
    for number in range(9):
        commit(lake, "A", f"t{number}", [number])
        assert len(content(other)) == number + 2
    # a handle for some five commits and each of the two
    assert len(opened) <= 6


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tables of which it is looked whether they have a newer commit, in order."""
    seen: list[str] = []
    newest = Lake._get_newest

    def counted(lake: Lake, spec: TableSpec) -> object:
        seen.append(spec.name)
        return newest(lake, spec)

    monkeypatch.setattr(Lake, "_get_newest", counted)
    return seen


def test_a_still_lake_looks_once(lake: Lake, looks: list[str]) -> None:
    commit(lake, "A", "x", [1])
    looks.clear()
    with lake.hold_versions():
        for _ in range(3):
            assert content(lake) == [("A", "x", 1)]
            assert lake.digest("things", "stage:A:x") == digest_from_int(digest_to_int("abc"))
            with lake.hold_versions():
                assert lake.version("things") == lake.pin("things").version
    assert looks == ["things"]
    assert content(lake) == [("A", "x", 1)]
    assert looks == ["things", "things"]


def test_a_still_lake_shows_what_others_commit_after_its_own_commit_or_the_block(lake: Lake) -> None:
    other = Lake(lake.root, [SPEC])
    commit(lake, "A", "x", [1])
    with lake.hold_versions():
        before = lake.version("things")
        commit(other, "A", "y", [2])
        assert (lake.version("things"), content(lake)) == (before, [("A", "x", 1)])
        assert lake.digest("things", "stage:A:y") is None
        commit(lake, "A", "x", [3])
        assert content(lake) == [("A", "x", 3), ("A", "y", 2)]
        commit(other, "B", "y", [4])
        assert len(content(lake)) == 2
        lake.commit_digests("things", {"noted": "abc"})
        assert lake.digest("things", "noted") is not None
        assert len(content(lake)) == 3
        commit(other, "B", "z", [5])
    assert len(content(lake)) == 4


def test_a_still_lake_sees_the_tables_it_makes(lake: Lake) -> None:
    with lake.hold_versions():
        assert content(lake) == []
        commit(lake, "A", "x", [1])
        assert content(lake) == [("A", "x", 1)]


def test_a_still_lake_commits_over_slices_that_others_replaced(lake: Lake) -> None:
    other = Lake(lake.root, [SPEC])
    commit(lake, "A", "x", [1])
    with lake.hold_versions():
        assert content(lake) == [("A", "x", 1)]
        commit(other, "A", "x", [2])
        commit(lake, "A", "x", [3])
        assert content(lake) == [("A", "x", 3)]
    assert content(other) == [("A", "x", 3)]


def test_files_replaced_by_a_handle_of_their_own_are_seen_in_a_still_lake(lake: Lake, tmp_path: Path) -> None:
    for value in range(5):
        commit(lake, "A", f"t{value}", [value])
    with lake.hold_versions():
        files = lake.pin("things").files
        assert compact_due(lake, "things", tmp_path, Bounds(max_small_files=1)) == len(files)
        assert len(lake.pin("things").files) == 1
        assert len(content(lake)) == 5


def test_a_table_that_another_process_makes_at_the_same_time_is_used(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = DeltaTable.create

    def create(*given: object, **named: object) -> None:
        real(*given, **named)
        raise CommitFailedError("another process was first")

    monkeypatch.setattr(DeltaTable, "create", create)
    with lake.hold_versions():
        assert lake.version("things") == -1
        lake.prepare("things")
        assert lake.version("things") == 0
