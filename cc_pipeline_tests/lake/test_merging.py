"""Merging files changes no row, loses none and doubles none, whoever commits or merges at the same time."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cc_pipeline.lake import adding, compaction, layout, replacing, streaming
from cc_pipeline.lake.compaction import (
    Bounds,
    compact_due,
    compact_files,
    is_due,
    open_fixed_version,
)
from cc_pipeline.lake.lake import Lake, TableSpec
from cc_pipeline.lake.layout import (
    StoredFile,
    find_due_merges,
    group_disjoint_files,
    list_stored_files,
    split_into_runs,
)

SCHEMA = pa.schema(
    [
        pa.field("crawl", pa.string(), nullable=False),
        pa.field("target", pa.string(), nullable=False),
        pa.field("at", pa.timestamp("ms", tz="UTC")),
        pa.field("key", pa.binary()),
        pa.field("small", pa.int16()),
        pa.field("said", pa.map_(pa.string(), pa.string())),
        pa.field("links", pa.list_(pa.struct([pa.field("url", pa.string()), pa.field("rel", pa.list_(pa.string()))]))),
        pa.field("text", pa.string()),
    ]
)
SPEC = TableSpec("things", SCHEMA, ("crawl", "target"))
# a name that is escaped wherever somebody escapes it
CRAWL = "C ü%41"


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(str(tmp_path / "my läke"), [SPEC])


def rows(target: str, numbers: range, crawl: str = CRAWL) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {
                "crawl": crawl,
                "target": target,
                "at": 1_700_000_000_123 + number,
                "key": random.Random(number).randbytes(40) + b"\x00\xff",
                "small": None if number % 3 else number % 100,
                "said": None if number % 2 else [("a", "1"), ("b", None)],
                "links": [{"url": f"https://{target}/{number}", "rel": ["x", None]}] * (number % 3),
                "text": f"ä\x00{number}" * (number % 5),
            }
            for number in numbers
        ],
        schema=SCHEMA,
    )


def commit(lake: Lake, target: str, numbers: range, crawl: str = CRAWL) -> None:
    where = {"crawl": crawl, "target": target}
    lake.commit("things", rows(target, numbers, crawl), [where], {f"made:{crawl}:{target}": f"{len(numbers):x}"})


def content(lake: Lake) -> dict[tuple[str, str], list[dict[str, object]]]:
    """The rows of each slice, in the order in which the table's files have them."""
    found: dict[tuple[str, str], list[dict[str, object]]] = {}
    for row in lake.read("things").to_pylist():
        found.setdefault((row["crawl"], row["target"]), []).append(row)
    return found


def merged(lake: Lake, scratch: Path, few: int = 1) -> int:
    return compact_due(lake, "things", scratch, Bounds(few))


def test_merging_keeps_rows_their_order_in_a_slice_and_digests(lake: Lake, tmp_path: Path) -> None:
    targets = [f"t{number}" for number in range(12)]
    random.Random(1).shuffle(targets)
    for number, target in enumerate(targets):
        commit(lake, target, range(40 - number))
    commit(lake, "t3", range(5), crawl="other")
    before = content(lake)
    assert merged(lake, tmp_path / "scratch") == 12
    assert content(lake) == before
    [one, other] = sorted(lake.pin("things").files)
    assert pq.ParquetFile(one).read().column("target").to_pylist() == sorted(
        target for (crawl, target), own in before.items() if crawl == CRAWL for _ in own
    )
    assert lake.digests("things", [f"made:{CRAWL}:t3"])[f"made:{CRAWL}:t3"] is not None
    stored = [field.with_type(pa.timestamp("us", "UTC")) if field.name == "at" else field for field in SCHEMA]
    assert pq.ParquetFile(one).schema_arrow.equals(pa.schema(stored[1:]))
    assert "other" in other
    assert merged(lake, tmp_path / "scratch") == 0


def test_the_log_bounds_slices_of_merged_files_so_that_a_new_one_rewrites_nothing(lake: Lake, tmp_path: Path) -> None:
    for target in "bdf":
        commit(lake, target, range(3))
    merged(lake, tmp_path / "scratch")
    [file] = list_stored_files(SPEC, open_fixed_version(lake, "things"))
    assert (file.first, file.last, file.rows) == ("b", "f", 9)
    [path] = lake.pin("things").files
    commit(lake, "e", range(2))
    assert path in lake.pin("things").files
    commit(lake, "d", range(1))
    assert path not in lake.pin("things").files
    assert {target: len(own) for (_, target), own in content(lake).items()} == {"b": 3, "d": 1, "e": 2, "f": 3}


@pytest.mark.parametrize("in_memory", [0, 3_000, 1 << 20])
@pytest.mark.parametrize("seed", range(4))
def test_any_files_become_one_sorted_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_memory: int, seed: int
) -> None:
    """Files of one slice, some that overlap, and what a merge has left; with and without DuckDB."""
    monkeypatch.setattr(compaction, "_SORTED_IN_MEMORY", in_memory)
    monkeypatch.setattr(streaming, "_SMALL_BYTES", in_memory)
    monkeypatch.setattr(compaction, "BATCH_ROWS", 40)
    spec = TableSpec("things", SCHEMA, ("crawl", "target"), sort_by=("small", "key"))
    lake, chance = Lake(str(tmp_path / "lake"), [spec]), random.Random(seed)
    for number in range(8):
        some = chance.sample(range(40), chance.choice([1, 1, 3]))
        own = pa.concat_tables([rows(f"t{one:02}-{number}", range(chance.randint(1, 30))) for one in some])
        slices = [{"crawl": CRAWL, "target": target} for target in own["target"].unique().to_pylist()]
        lake.commit("things", own, slices, {f"made:{number}": "1"})
    if seed % 2:
        merged(lake, tmp_path / "scratch", few=3)
        for number in range(3):
            lake.commit("things", rows(f"u{number}", range(5)), [{"crawl": CRAWL, "target": f"u{number}"}], {})
    before = {name: sorted(own, key=str) for name, own in content(lake).items()}
    merged(lake, tmp_path / "scratch")
    assert {name: sorted(own, key=str) for name, own in content(lake).items()} == before
    [path] = lake.pin("things").files
    found = pq.ParquetFile(path).read()
    assert found.equals(found.sort_by([(name, "ascending") for name in ("target", "small", "key")]))


def test_no_slice_is_in_two_groups_of_files() -> None:
    files = [stored(*bounds, MB) for bounds in ("dd", "ac", "bb", "de", "cc", "ff")]
    assert [[(one.first, one.last) for one in group] for group in group_disjoint_files(files)] == [
        [("a", "c"), ("b", "b"), ("c", "c")],
        [("d", "d"), ("d", "e")],
        [("f", "f")],
    ]
    unknown = StoredFile("unknown", {"crawl": "C"}, MB, 1)
    assert group_disjoint_files([*files, unknown]) == [sorted([*files, unknown], key=lambda one: one.path)]


def test_files_and_row_groups_end_at_their_bounds(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replacing, "FILE_BYTES", 10_000)
    monkeypatch.setattr(replacing, "_ROW_GROUP_BYTES", 40_000)
    monkeypatch.setattr(replacing, "BATCH_ROWS", 50)
    for number in range(8):
        commit(lake, f"t{number}", range(number * 1_000, number * 1_000 + 400))
    before = content(lake)
    merged(lake, tmp_path / "scratch", few=2)
    assert content(lake) == before
    files = list_stored_files(SPEC, open_fixed_version(lake, "things"))
    assert len(files) > 2
    assert len(split_into_runs(files)) == 1
    assert max(file.size for file in files) < 50_000
    for path in lake.pin("things").files:
        stored = pq.ParquetFile(path).metadata
        assert max(stored.row_group(n).total_byte_size for n in range(stored.num_row_groups)) < 60_000


def test_of_two_merges_of_the_same_files_one_counts(lake: Lake, tmp_path: Path) -> None:
    for target in "abcd":
        commit(lake, target, range(3))
    before = content(lake)
    # both begin at one version
    handles = [open_fixed_version(lake, "things") for _ in range(2)]
    files = [list_stored_files(SPEC, handle) for handle in handles]
    done = [compact_files(lake, "things", handles[n], files[n], tmp_path / f"scratch{n}") for n in range(2)]
    assert done == [True, False]
    assert content(lake) == before


def test_a_slice_replaced_meanwhile_stays_replaced_and_a_new_one_stays(lake: Lake, tmp_path: Path) -> None:
    for target in "abcd":
        commit(lake, target, range(3))
    handle = open_fixed_version(lake, "things")
    files = list_stored_files(SPEC, handle)
    commit(lake, "e", range(2))
    assert compact_files(lake, "things", handle, files, tmp_path / "scratch"), "a new slice is in no file of the others"
    handle = open_fixed_version(lake, "things")
    files = list_stored_files(SPEC, handle)
    commit(lake, "b", range(1))
    assert not compact_files(lake, "things", handle, files, tmp_path / "scratch")
    assert {target: len(own) for (_, target), own in content(lake).items()} == {"a": 3, "b": 1, "c": 3, "d": 3, "e": 2}


def test_a_commit_whose_file_is_merged_meanwhile_gets_through(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for target in "abcd":
        commit(lake, target, range(3))
    other = Lake(lake.root, [SPEC])
    first = iter([True])
    write = adding.replace_files

    def merged_before(*given: object, **named: object) -> None:
        if next(first, False):
            assert merged(other, tmp_path / "scratch") == 4
        write(*given, **named)

    monkeypatch.setattr(adding, "replace_files", merged_before)
    commit(lake, "b", range(1))
    assert next(first, None) is None
    assert {target: len(own) for (_, target), own in content(lake).items()} == {"a": 3, "b": 1, "c": 3, "d": 3}


def test_a_killed_merge_changes_nothing(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for target in "abcd":
        commit(lake, target, range(3))
    before = content(lake), lake.pin("things").version

    def killed(*_: object) -> str:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(replacing, "build_statistics", killed)
        with pytest.raises(KeyboardInterrupt):
            merged(lake, tmp_path / "scratch")
    assert (content(lake), lake.pin("things").version) == before
    assert merged(lake, tmp_path / "scratch") == 4
    assert content(lake) == before[0]


def test_what_is_due_is_read_from_the_log_alone(lake: Lake, tmp_path: Path) -> None:
    assert not is_due(lake, "things", Bounds(1)), "no table yet"
    for target in "abc":
        commit(lake, target, range(1))
    for path in lake.pin("things").files:
        Path(path).rename(f"{path}.away")
    assert is_due(lake, "things", Bounds(2))
    assert not is_due(lake, "things", Bounds(3))


def stored(first: str, last: str, size: int, crawl: str = "C") -> StoredFile:
    return StoredFile(f"{crawl}-{first}-{last}-{size}", {"crawl": crawl}, size, 1, first, last)


MB = 1 << 20


def test_small_files_are_merged_by_crawl_when_there_are_many() -> None:
    few = [stored("a", "a", MB, "A") for _ in range(layout.MAX_SMALL_FILES)]
    many = [stored("a", "a", MB, "B") for _ in range(layout.MAX_SMALL_FILES + 1)]
    large = [stored("a", "a", 9 * MB, "B")]
    assert find_due_merges([*few, *many, *large]) == [many]


def test_the_files_of_a_home_that_was_never_merged_are_merged_by_and_by() -> None:
    many = [stored(f"{n:05}", f"{n:05}", 10_000) for n in range(3_000)]
    assert [len(merge) for merge in find_due_merges(many)] == [layout.MAX_MERGED_FILES]


def test_a_run_of_large_files_is_never_merged_again_and_deep_ones_are() -> None:
    base = [stored(f"{n:03}", f"{n + 1:03}", 16 * MB) for n in range(100)]
    assert find_due_merges(base) == []
    over = [stored("000", "100", 16 * MB) for _ in range(layout.MAX_OVERLAPPING_RUNS)]
    [deep] = find_due_merges([*base, *over])
    assert sorted(deep, key=str) == sorted(over, key=str), "the large run is left alone"
    # of one large slice: every reader of it reads all its files
    assert find_due_merges([stored("a", "a", 16 * MB) for _ in range(100)]) == []
    assert find_due_merges([*base, *over[1:]]) == []


def test_rows_are_merged_a_few_times_only_however_many_commits_there_are() -> None:
    """A life of 1,500 commits of 1 MB each: what merging writes grows with the logarithm of what there is."""
    files: list[StoredFile] = []
    written = 0
    for number in range(1_500):
        slug = f"{number * 7919 % 1_511:06}"
        files.append(stored(slug, slug, MB))
        while steps := find_due_merges(files):
            size = sum(file.size for file in steps[0])
            written += size
            gone = {id(file) for file in steps[0]}
            files = [file for file in files if id(file) not in gone]
            parts = -(-size // layout.FILE_BYTES)
            bounds = [f"{1_511 * n // parts:06}" for n in range(parts + 1)]
            files += [stored(bounds[n], bounds[n + 1], min(16 * MB, size - n * 16 * MB)) for n in range(parts)]
        deep = len(split_into_runs([file for file in files if file.size >= layout.SMALL_BYTES]))
        assert deep <= layout.MAX_OVERLAPPING_RUNS
    assert len(files) < 1_500 / 16 * 1.5 + layout.MAX_SMALL_FILES
    assert written / (1_500 * MB) < 6


def test_a_bound_of_bytes_still_merges_the_smallest() -> None:
    files = [stored("a", "b", n * MB) for n in (1, 2, 3, 4)]
    assert find_due_merges(files, 1, 6 * MB) == [files[:3]]
    assert find_due_merges(files, 1, 2 * MB) == []
    wide = [stored("a", "z", 16 * MB + n) for n in range(12)]
    assert find_due_merges(wide, max_bytes=100 * MB) == [wide[:6]]


def test_rows_of_a_slice_are_looked_for_only_in_files_that_may_have_them(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(6):
        commit(lake, f"t{number}", range(number, number + 3))
    commit(lake, "t3", range(3), "other")
    opened: list[bytes] = []
    plain = streaming._file_rows
    monkeypatch.setattr(streaming, "_file_rows", lambda *given: (opened.append(b""), plain(*given))[1])
    found = streaming.stream_slices(lake, "things", CRAWL, {"t2", "t3"}, SCHEMA.names[1:])
    keys = [(row["target"], row["key"]) for batch in found for row in batch.to_pylist()]
    assert sorted(keys) == sorted(
        (target, row["key"]) for target in ("t2", "t3") for row in content(lake)[CRAWL, target]
    )
    assert len(opened) == 2
