"""Files that workers write, committed by a driver: as if the rows had been committed here, whoever else is at it."""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cc_pipeline.lake.adding import AddedFile, commit_added, write_rows
from cc_pipeline.lake.replacing import open_fixed_version
from hypothesis import given, settings
from hypothesis import strategies as st

from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.lake import adding
from cc_pipeline.lake.compaction import Bounds, compact_due
from cc_pipeline.lake.lake import Lake, TableSpec
from cc_pipeline.lake.layout import list_stored_files
from cc_pipeline.lake.slice import Slice, Stage
from cc_pipeline.lake.streaming import stream_slices
from cc_pipeline.lake.vacuum import vacuum
from cc_pipeline_tests.weedserver import REGION, S3Server

SCHEMA = pa.schema(
    [
        pa.field("crawl", pa.string(), nullable=False),
        pa.field("target", pa.string(), nullable=False),
        pa.field("value", pa.int64()),
        pa.field("extra", pa.map_(pa.string(), pa.string())),
        pa.field("at", pa.timestamp("ms", tz="UTC")),
        pa.field("where", pa.string()),
    ]
)
SLICE = ("crawl", "target")
SORTED = TableSpec("sorted", SCHEMA, SLICE, ("target", "value"), provenance_columns=("where",))
LOOSE = TableSpec("loose", SCHEMA, SLICE, (), provenance_columns=("where",))
WHOLE = TableSpec("whole", SCHEMA, ("crawl",), ("value",))
STAGE = Stage("stage", ("sorted", "loose"), "stage:{crawl}:{target}")
SPECS = (SORTED, LOOSE, WHOLE)
Row = tuple[str, int]


def rows(values: Sequence[Row], crawl: str = "A", schema: pa.Schema = SCHEMA) -> pa.Table:
    full = [
        {"crawl": crawl, "target": t, "value": v, "extra": [("k", str(v))], "at": v, "where": f"{os.getpid()}"}
        for t, v in values
    ]
    return pa.Table.from_pylist([{name: row[name] for name in schema.names} for row in full], schema=schema)


def written(
    lake: Lake, table: str, *tasks: Sequence[Row], crawl: str = "A", options: dict[str, str] | None = None
) -> list[AddedFile]:
    """What so many tasks give of a table."""
    return [
        file
        for number, values in enumerate(tasks)
        for file in write_rows(
            lake.root, options, lake.specs[table], crawl, rows(values, crawl).to_batches(), f"task-{number}"
        )
    ]


def slices(*targets: str, crawl: str = "A") -> list[dict[str, str]]:
    return [{"crawl": crawl, "target": target} for target in targets]


def commit(lake: Lake, table: str, values: Sequence[Row], *targets: str, crawl: str = "A") -> None:
    digests = {f"stage:{crawl}:{target}": "1" for target in targets}
    lake.commit(table, rows(values, crawl), slices(*targets, crawl=crawl), digests)


def content(lake: Lake, table: str, crawl: str | None = None) -> list[tuple[str, str, int]]:
    found = lake.read(table, None if crawl is None else {"crawl": crawl}).to_pylist()
    assert all(dict(r["extra"]) == {"k": str(r["value"])} and r["at"].timestamp() * 1000 == r["value"] for r in found)
    return sorted((r["crawl"], r["target"], r["value"]) for r in found)


def paths(lake: Lake, table: str) -> set[str]:
    return {Path(file).name for file in lake.pin(table).files}


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(str(tmp_path / "my läke"), SPECS)


@pytest.mark.parametrize("table", ["sorted", "loose"])
def test_slices_come_into_a_table_that_is_not_there_and_go_out_of_files_shared_with_neighbours(
    lake: Lake, table: str
) -> None:
    added = written(lake, table, [("x", 1), ("y", 2)], [("x", 3)])
    assert lake.version(table) == -1
    assert commit_added(lake, table, added, slices("x", "y"), {"d:x": "1", "d:y": "2"}) == 3
    assert content(lake, table) == [("A", "x", 1), ("A", "x", 3), ("A", "y", 2)]
    assert lake.digests(table, ["d:x", "d:y"]) == {"d:x": "1".zfill(15), "d:y": "2".zfill(15)}
    commit(lake, table, [("x", 9)], "x", crawl="B")
    again = written(lake, table, [("x", 7)])
    assert commit_added(lake, table, again, slices("x"), {"d:x": "3"}) == 1
    assert content(lake, table) == [("A", "x", 7), ("A", "y", 2), ("B", "x", 9)]
    assert lake.pin(table).rows == 3
    # and the local engine goes on with them
    commit(lake, table, [("y", 8)], "y")
    commit(lake, table, [], "x")
    assert content(lake, table) == [("A", "y", 8), ("B", "x", 9)]


def test_slices_of_whole_crawls_are_replaced_whole(lake: Lake) -> None:
    lake.commit("whole", rows([("x", 1), ("y", 2)]), [{"crawl": "A"}], {"d": "1"})
    lake.commit("whole", rows([("x", 1)], "B"), [{"crawl": "B"}], {"d": "1"})
    added = written(lake, "whole", [("z", 5), ("a", 4)])
    assert [(one.first, one.contents) for one in added] == [(None, {})]
    commit_added(lake, "whole", added, [{"crawl": "A"}], {"d": "2"})
    assert content(lake, "whole") == [("A", "a", 4), ("A", "z", 5), ("B", "x", 1)]


def test_files_are_as_the_local_engine_writes_them_and_are_found_by_target(lake: Lake) -> None:
    many = [(f"t{number:03}", number) for number in range(100)]
    commit_added(lake, "sorted", written(lake, "sorted", many[50:], many[:50][::-1]), slices(*dict(many)), {"d": "1"})
    files = sorted(list_stored_files(SORTED, open_fixed_version(lake, "sorted")), key=lambda one: one.first)
    assert [(one.rows, one.first, one.last) for one in files] == [(50, "t000", "t049"), (50, "t050", "t099")]
    for file in files:
        stored = pq.ParquetFile(f"{lake.address('sorted')}/{file.path}")
        assert stored.schema_arrow.names == ["target", "value", "extra", "at", "where"]
        assert stored.schema_arrow.field("at").type == pa.timestamp("us", "UTC")
        assert b"ARROW:schema" not in (stored.metadata.metadata or {}), (
            "pola-rs/polars#20806: it would say milliseconds"
        )
        values = stored.read().column("target").to_pylist()
        assert values == sorted(values)
    Path(f"{lake.address('sorted')}/{files[0].path}").unlink()
    # a reader of a slice opens no other file
    [batch] = stream_slices(lake, "sorted", "A", ["t077"], ["value"])
    assert batch.column("value").to_pylist() == [77]


def test_files_that_hold_none_of_the_slices_stay(lake: Lake) -> None:
    commit(lake, "sorted", [("a", 1), ("c", 2)], "a", "c")  # its bounds have b between them
    commit(lake, "sorted", [("b", 3)], "b")
    [between] = [one.path for one in list_stored_files(SORTED, open_fixed_version(lake, "sorted")) if one.first == "a"]
    commit_added(lake, "sorted", written(lake, "sorted", [("b", 4)]), slices("b"), {"d:b": "2"})
    assert Path(between).name in paths(lake, "sorted")
    assert content(lake, "sorted") == [("A", "a", 1), ("A", "b", 4), ("A", "c", 2)]


def test_slices_without_rows_are_committed_with_their_digests(lake: Lake) -> None:
    commit_added(lake, "sorted", [], slices("x", "y"), {"d:x": "1", "d:y": "1"})
    assert lake.holds("sorted", {"d:x": "1".zfill(15), "d:y": "1".zfill(15)})
    commit(lake, "sorted", [("x", 1), ("z", 2)], "x", "z")
    commit_added(lake, "sorted", [], slices("x"), {"d:x": "2"})
    assert content(lake, "sorted") == [("A", "z", 2)]
    assert write_rows(lake.root, None, SORTED, "A", [], "task") == []


def test_the_same_commit_again_changes_nothing(lake: Lake, tmp_path: Path) -> None:
    commit(lake, "sorted", [("x", 1), ("y", 2)], "x", "y")
    added = [AddedFile(**json.loads(json.dumps(one.plain()))) for one in written(lake, "sorted", [("x", 3)])]
    assert added == pickle.loads(pickle.dumps(added))
    digests = {"stage:A:x": "2".zfill(15)}
    assert commit_added(lake, "sorted", added, slices("x"), digests) == 1
    before = lake.version("sorted")
    assert commit_added(lake, "sorted", [*added, *added], slices("x"), digests) == 1
    assert commit_added(Lake(lake.root, SPECS), "sorted", added, slices("x"), digests) == 1
    assert lake.version("sorted") == before
    # files that were merged since stand for the same rows
    for number in range(3):
        commit(lake, "sorted", [(f"z{number}", 0)], f"z{number}")
    assert compact_due(lake, "sorted", tmp_path / "scratch", Bounds(max_small_files=1))
    assert commit_added(lake, "sorted", added, slices("x"), digests) == 1
    assert [row[1:] for row in content(lake, "sorted")] == [("x", 3), ("y", 2), ("z0", 0), ("z1", 0), ("z2", 0)]


def test_rows_that_say_the_same_are_replaced_all_the_same(lake: Lake) -> None:
    """They may lie elsewhere: a record that was lost and fetched again."""
    fetch = Stage("fetch", ("sorted",), "fetch:{crawl}:{target}")
    made = {Slice("A", "x"): "0a"}
    first, second = written(lake, "sorted", [("x", 1)]), written(lake, "sorted", [("x", 1)])
    assert first[0].contents == second[0].contents
    fetch.commit_files(lake, made, {"sorted": first})
    fetch.commit_files(lake, made, {"sorted": second})
    assert paths(lake, "sorted") == {Path(second[0].path).name}


def test_a_file_that_is_not_there_whole_is_refused(lake: Lake) -> None:
    commit(lake, "sorted", [("x", 1)], "x")
    added = written(lake, "sorted", [("x", 3)], [("x", 4)])
    file, version = Path(f"{lake.address('sorted')}/{added[1].path}"), lake.version("sorted")
    for spoil in (lambda: file.write_bytes(b"PAR1"), file.unlink):
        spoil()
        with pytest.raises(EnvironmentFault, match="1 of 2 files"):
            commit_added(lake, "sorted", added, slices("x"), {"d": "2"})
        assert (lake.version("sorted"), content(lake, "sorted")) == (version, [("A", "x", 1)])


def test_files_with_rows_of_other_slices_tables_or_crawls_are_refused(lake: Lake) -> None:
    added = written(lake, "sorted", [("x", 3), ("y", 4)])
    with pytest.raises(ValueError, match="'y'"):
        commit_added(lake, "sorted", added, slices("x"), {})
    with pytest.raises(ValueError, match="'A'"):
        commit_added(lake, "sorted", added, slices("x", "y", crawl="B"), {})
    with pytest.raises(ValueError, match="written for sorted"):
        commit_added(lake, "loose", added, slices("x", "y"), {})
    with pytest.raises(ValueError, match="another crawl"):
        write_rows(lake.root, None, SORTED, "A", rows([("x", 1)], "B").to_batches(), "task")
    with pytest.raises(ValueError, match="not a name"):
        write_rows(lake.root, None, SORTED, "A", [], "../task")


def committed_meanwhile(lake: Lake, monkeypatch: pytest.MonkeyPatch, *meanwhile: Callable[[Lake], object]) -> None:
    """Has another process do something right before each commit of added files."""
    real, waiting = adding.replace_files, iter(meanwhile)

    def after_another(*given: object) -> None:
        next(waiting, lambda _: None)(Lake(lake.root, SPECS))
        real(*given)

    monkeypatch.setattr(adding, "replace_files", after_another)


def other_added(lake: Lake) -> None:
    commit_added(lake, "sorted", written(lake, "sorted", [("x", 5)]), slices("x"), {"stage:A:x": "5"})


@pytest.mark.parametrize("is_new", [True, False])
@pytest.mark.parametrize("other", ["overwrite", "neighbour", "merge", "added"])
def test_it_is_tried_again_when_others_commit(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: str, is_new: bool
) -> None:
    commit(lake, "sorted", [("y", 2)] if is_new else [("x", 1), ("y", 2)], "y", *([] if is_new else ["x"]))
    commit(lake, "sorted", [("z", 2)], "z")
    ways: dict[str, Callable[[Lake], object]] = {
        "overwrite": lambda own: commit(own, "sorted", [("x", 8), ("x", 9)], "x"),
        "neighbour": lambda own: commit(own, "sorted", [("y", 3)], "y"),
        "merge": lambda own: compact_due(own, "sorted", tmp_path / "scratch", Bounds(max_small_files=1)),
        "added": other_added,
    }
    committed_meanwhile(lake, monkeypatch, ways[other])
    commit_added(lake, "sorted", written(lake, "sorted", [("x", 3)], [("x", 4)]), slices("x"), {"stage:A:x": "2"})
    expected = [("x", 3), ("x", 4), ("y", 3 if other == "neighbour" else 2), ("z", 2)]
    assert [row[1:] for row in content(lake, "sorted")] == expected
    assert lake.digest("sorted", "stage:A:x") == "2".zfill(15)
    assert lake.pin("sorted").rows == 4


def _commit_added(root: str, *given: object) -> None:
    commit_added(Lake(root, SPECS), *given)


@pytest.mark.process
def test_drivers_at_once_leave_one_of_their_answers(lake: Lake) -> None:
    commit(lake, "sorted", [("x", 1), ("y", 2)], "x", "y")
    context = multiprocessing.get_context("spawn")
    given = [
        (lake.root, "sorted", written(lake, "sorted", [("x", 10 + number)]), slices("x"), {"stage:A:x": f"{number}"})
        for number in range(3)
    ]
    drivers = [context.Process(target=_commit_added, args=one) for one in given]
    for driver in drivers:
        driver.start()
    for driver in drivers:
        driver.join(120)
        assert driver.exitcode == 0
    [x, y] = content(lake, "sorted")
    assert lake.digest("sorted", "stage:A:x") == f"{x[2] - 10}".zfill(15)
    assert y == ("A", "y", 2)


def test_what_was_written_and_never_committed_goes_after_a_week(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    commit(lake, "sorted", [("x", 1), ("y", 2)], "x", "y")
    before = (lake.version("sorted"), content(lake, "sorted"))

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(adding, "replace_files", killed)
        with pytest.raises(KeyboardInterrupt):
            commit_added(lake, "sorted", written(lake, "sorted", [("x", 3)]), slices("x"), {"stage:A:x": "2"})
    assert (lake.version("sorted"), content(lake, "sorted")) == before
    left = {file for file in Path(lake.address("sorted")).rglob("*.parquet") if file.name not in paths(lake, "sorted")}
    assert len(left) == 2  # the one that was to be added, and the neighbour's rows
    assert vacuum(lake, "sorted") == 0
    for file in left:
        old = time.time() - 8 * 86_400
        os.utime(file, (old, old))
    assert vacuum(lake, "sorted") == 2
    assert not any(file.exists() for file in left)
    assert content(lake, "sorted") == before[1]


TARGETS = ("a", "b", "c", "d")
COMMITS = st.lists(
    st.tuples(
        st.sampled_from(["rows", "files", "merge"]),
        st.sampled_from(["A", "B"]),
        st.sets(st.sampled_from(TARGETS), min_size=1),
        st.lists(st.tuples(st.integers(0, 3), st.sampled_from(TARGETS), st.integers(0, 9)), max_size=8),
    ),
    min_size=1,
    max_size=5,
)


@settings(max_examples=8)
@given(COMMITS)
def test_any_commits_equal_a_plain_model_and_the_local_engine(
    commits: list[tuple[str, str, set[str], list[tuple[int, str, int]]]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        mixed, plain = (Lake(f"{folder}/{name}", SPECS) for name in ("mixed", "plain"))
        model: dict[tuple[str, str], list[int]] = {}
        for number, (way, crawl, targets, given_rows) in enumerate(commits):
            if way == "merge":
                for table in STAGE.tables:
                    compact_due(mixed, table, Path(folder, "scratch"), Bounds(max_small_files=1))
                continue
            own = [(task, target, value) for task, target, value in given_rows if target in targets]
            model |= {(crawl, target): sorted(v for _, t, v in own if t == target) for target in targets}
            input_digest = {Slice(crawl, target): f"{number:x}".zfill(15) for target in sorted(targets)}
            values = rows([(target, value) for _, target, value in own], crawl)
            beside = {"loose": {f"beside:{crawl}": f"{number:x}".zfill(15)}}
            STAGE.commit(plain, input_digest, dict.fromkeys(STAGE.tables, values), beside)
            if way == "rows":
                STAGE.commit(mixed, input_digest, dict.fromkeys(STAGE.tables, values), beside)
            else:
                tasks = [[(t, v) for task, t, v in own if task == nr] for nr in range(4)]
                added = {table: written(mixed, table, *tasks, crawl=crawl) for table in STAGE.tables}
                STAGE.commit_files(mixed, input_digest, added, beside)
        expected = sorted((*slice_, value) for slice_, own in model.items() for value in own)
        every = [Slice(crawl, target) for crawl in ("A", "B") for target in TARGETS]
        for table in STAGE.tables:
            assert content(mixed, table) == expected
            assert mixed.pin(table).rows == len(expected)
            assert (mixed.version(table) < 0) == (plain.version(table) < 0)
            names = plain.digest_names(table)
            assert mixed.digests(table, names) == plain.digests(table, names)
            assert set(names) == set(mixed.digest_names(table))
        assert STAGE.read_content_metrics(mixed, every) == STAGE.read_content_metrics(plain, every)


def test_a_stage_goes_on_behind_the_tables_that_have_these_digests(lake: Lake) -> None:
    made = {Slice("A", "x"): "0a".zfill(15), Slice("A", "y"): "0b".zfill(15)}
    added = {table: written(lake, table, [("x", 1)]) for table in STAGE.tables}
    assert STAGE.commit_files(lake, made, {"sorted": added["sorted"], "loose": []}) == 0
    version = lake.version("sorted")
    lake.commit_digests("loose", {"stage:A:x": "0c"})
    assert STAGE.find_stale(lake, made) == [Slice("A", "x")]
    assert STAGE.commit_files(lake, made, {**added, "sorted": written(lake, "sorted", [("x", 9)])}) == 1
    assert lake.version("sorted") == version
    assert STAGE.find_stale(lake, made) == []


#: Writes rows of a megabyte each, many of them, and says how much memory Arrow had at most.
WORKER = """
import sys
import pyarrow as pa
from cc_pipeline.lake.adding import write_rows
from cc_pipeline_tests.lake.test_adding import LOOSE, SCHEMA
def batch(start):
    texts = [f'{start} {n} '.ljust(1_000) * 1_000 for n in range(16)]
    rows = [{"crawl": "A", "target": f"t{n % 3}", "value": n, "where": text} for n, text in enumerate(texts)]
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)
added = write_rows(sys.argv[1], None, LOOSE, "A", (batch(n) for n in range(20)), "task")
print(pa.default_memory_pool().max_memory() >> 20, sum(one.rows for one in added), len(added))
"""


@pytest.mark.bomb
def test_a_worker_needs_little_memory_where_rows_are_megabytes(lake: Lake) -> None:
    ran = subprocess.run([sys.executable, "-c", WORKER, lake.root], capture_output=True, text=True, check=True)
    megabytes, count, files = map(int, ran.stdout.split())
    assert (count, files > 4) == (320, True)
    assert megabytes < 300, "held and sorted at a time are 64 MB, and 320 were written"


def test_the_same_on_s3(weed: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", weed.key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", weed.secret)
    options = {"AWS_ENDPOINT_URL": weed.endpoint, "AWS_REGION": REGION, "AWS_ALLOW_HTTP": "true"}
    lake = Lake("s3://lake/here", SPECS, options)
    commit_added(
        lake, "sorted", written(lake, "sorted", [("x", 1)], [("y", 2), ("x", 3)], options=options), slices("x", "y"), {}
    )
    commit_added(lake, "sorted", written(lake, "sorted", [("x", 4)], options=options), slices("x"), {"d": "1"})
    commit(lake, "sorted", [("z", 5)], "z")
    assert content(lake, "sorted") == [("A", "x", 4), ("A", "y", 2), ("A", "z", 5)]
    lost = written(lake, "sorted", [("x", 6)], options=options)
    lake.file_system().delete_file(f"lake/here/tables/sorted/{lost[0].path}")
    with pytest.raises(EnvironmentFault, match="1 of 1 files"):
        commit_added(lake, "sorted", lost, slices("x"), {"d": "2"})
