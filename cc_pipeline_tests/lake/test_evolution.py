"""Migrations: once, in order, under a lock, with their price first, and again after a kill."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake.table import TableAlterer

from cc_pipeline import home as homes
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.home import HomeNote, read_note, write_note
from cc_pipeline.lake.evolution import Migration, find_pending, migrate
from cc_pipeline.lake.lake import Lake, TableSpec
from cc_pipeline_tests.lake.rewriting import rewrite
from cc_pipeline_tests.world import Killed

CRAWL, NAME = pa.field("crawl", pa.string(), nullable=False), pa.field("name", pa.string())
OLD = pa.schema([CRAWL, pa.field("n", pa.int32()), NAME])
#: ``n`` became a 64-bit ``number``.
NEW = pa.schema([CRAWL, pa.field("number", pa.int64()), NAME])


def spec(schema: pa.Schema, name: str = "things") -> TableSpec:
    return TableSpec(name, schema, ("crawl",), ())


def rename(batch: pa.RecordBatch) -> pa.RecordBatch:
    columns = {("number" if name == "n" else name): batch.column(name) for name in batch.schema.names}
    table = pa.table(columns).select(NEW.names).cast(NEW).combine_chunks()
    return table.to_batches()[0] if table.num_rows else pa.RecordBatch.from_pylist([], schema=NEW)


RENAMING = Migration(2, "n is called number and has 64 bits", lambda lake: rewrite(lake, "things", rename), ("things",))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of layout 1 with a table of two crawls; this version is at layout 2."""
    monkeypatch.setattr(homes, "LAYOUT", 2)
    monkeypatch.setattr(homes, "OLDEST_LAYOUT", 1)
    folder = tmp_path / "home"
    folder.mkdir()
    write_note(folder, HomeNote("s3://bucket", 1))
    lake = Lake(str(folder / "lake"), [spec(OLD)])
    for crawl in ("a", "b"):
        rows = pa.Table.from_pylist([{"crawl": crawl, "n": n, "name": f"{crawl}{n}"} for n in range(5)], schema=OLD)
        lake.commit("things", rows, [{"crawl": crawl}], {f"made:{crawl}": "abc"})
    return folder


def layout_of(home: Path) -> int:
    note = read_note(home)
    assert note is not None
    return note.layout


def new_lake(home: Path) -> Lake:
    return Lake(str(home / "lake"), [spec(NEW)])


def test_a_renamed_and_retyped_column_keeps_rows_digests_and_old_readers(home: Path) -> None:
    old = Lake(str(home / "lake"), [spec(OLD)]).pin("things")
    lake = new_lake(home)
    assert migrate(home, lake, [RENAMING], rewrite=True) == 1
    rows = lake.read("things").sort_by([("crawl", "ascending"), ("number", "ascending")])
    assert rows.schema == NEW
    assert rows["number"].to_pylist() == [*range(5), *range(5)]
    assert lake.digests("things", ["made:a", "made:b"]) == {"made:a": "000000000000abc", "made:b": "000000000000abc"}
    assert all(Path(file).exists() for file in old.files)
    assert layout_of(home) == 2
    lake.commit("things", rows.slice(0, 1), [{"crawl": "a"}], {"made:a": "abd"})
    assert lake.read("things").num_rows == 6


def test_it_runs_once(home: Path) -> None:
    lake = new_lake(home)
    migrate(home, lake, [RENAMING], rewrite=True)
    version = lake.pin("things").version
    assert migrate(home, lake, [RENAMING], rewrite=True) == 0
    assert lake.pin("things").version == version
    assert find_pending(home, [RENAMING]) == []


def test_what_rewrites_is_asked_for_with_its_price(home: Path) -> None:
    lake = new_lake(home)
    assert RENAMING.price(lake) == sum(Path(file).stat().st_size for file in lake.pin("things").files)
    with pytest.raises(EnvironmentFault, match=r"(?s)rewrites .* GB.*cc-pipeline doctor --migrate"):
        migrate(home, lake, [RENAMING])
    assert layout_of(home) == 1


def test_a_full_disk_is_seen_before_anything_is_written(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10, 10, 0))
    lake = new_lake(home)
    with pytest.raises(EnvironmentFault, match=r"needs .* GB free"):
        migrate(home, lake, [RENAMING], rewrite=True)
    assert layout_of(home) == 1


def test_killed_between_and_within_steps_it_goes_on_there(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(homes, "LAYOUT", 3)
    done: list[int] = []

    def second(_: Lake) -> None:
        if not done:
            done.append(1)
            raise Killed
        done.append(2)

    steps = [Migration(3, "another", second), RENAMING]
    lake = new_lake(home)
    with pytest.raises(Killed):
        migrate(home, lake, steps, rewrite=True)
    assert layout_of(home) == 2
    # the rewriting was committed; had the note not been written, it would find nothing to do
    write_note(home, HomeNote("s3://bucket", 1))
    version = lake.pin("things").version
    assert migrate(home, lake, steps, rewrite=True) == 2
    assert lake.pin("things").version == version
    assert (layout_of(home), done) == (3, [1, 2])


def test_two_at_a_time_do_it_once(home: Path) -> None:
    ran: list[int] = []

    def slow(_: Lake) -> None:
        ran.append(1)
        time.sleep(0.5)

    step = Migration(2, "counted", slow)
    threads = [threading.Thread(target=migrate, args=(home, new_lake(home), [step])) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ran == [1]


def test_a_kill_between_announcing_and_adding_columns_leaves_nothing_unsaid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wider = pa.schema([*OLD, pa.field("extra", pa.string())])
    root = str(tmp_path / "lake")
    row = {"crawl": "a", "n": 1, "name": "x"}
    narrow = Lake(root, [spec(OLD)])
    narrow.commit("things", pa.Table.from_pylist([row], schema=OLD), [{"crawl": "a"}], {})
    # whatever of the two is done first, a table that has the column says that files of before lack it
    commits = []
    for name in ("set_table_properties", "add_columns"):
        real = getattr(TableAlterer, name)

        def counted(*given: object, real: Callable[..., None] = real, **named: object) -> None:
            real(*given, **named)
            pinned = Lake(root, [spec(wider)]).pin("things")
            commits.append(("extra" in pinned.columns, pinned.uneven))

        monkeypatch.setattr(TableAlterer, name, counted)
    rows = pa.Table.from_pylist([row | {"crawl": "b", "extra": "y"}], schema=wider)
    Lake(root, [spec(wider)]).commit("things", rows, [{"crawl": "b"}], {})
    assert commits == [(False, True), (True, True)]


def test_an_added_column_that_may_not_be_null_is_a_mistake_of_ours(home: Path) -> None:
    wider = pa.schema([*OLD, pa.field("extra", pa.string(), nullable=False)])
    with pytest.raises(ValueError, match="extra"):
        Lake(str(home / "lake"), [spec(wider)]).commit("things", wider.empty_table(), [{"crawl": "a"}], {})


def test_columns_added_by_two_processes_at_once_are_added_once(tmp_path: Path) -> None:
    wider = pa.schema([*OLD, pa.field("extra", pa.string())])
    root = str(tmp_path / "lake")
    row = {"crawl": "a", "n": 1, "name": "x"}
    Lake(root, [spec(OLD)]).commit("things", pa.Table.from_pylist([row], schema=OLD), [{"crawl": "a"}], {})

    def write(crawl: str) -> None:
        rows = pa.Table.from_pylist([{"crawl": crawl, "n": 2, "name": "y", "extra": crawl}], schema=wider)
        Lake(root, [spec(wider)]).commit("things", rows, [{"crawl": crawl}], {})

    threads = [threading.Thread(target=write, args=(crawl,)) for crawl in "bcde"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = Lake(root, [spec(wider)]).read("things")
    assert dict(zip(found["crawl"].to_pylist(), found["extra"].to_pylist(), strict=True)) == {
        "a": None, "b": "b", "c": "c", "d": "d", "e": "e"
    }  # fmt: skip


def test_a_column_of_another_type_is_refused(home: Path) -> None:
    retyped = pa.schema([OLD.field("crawl"), pa.field("n", pa.string()), OLD.field("name")])
    lake = Lake(str(home / "lake"), [spec(retyped)])
    with pytest.raises(EnvironmentFault, match=r"(?s)has n in another type.*cc-pipeline doctor --migrate"):
        lake.commit("things", retyped.empty_table(), [{"crawl": "a"}], {})


@pytest.mark.parametrize("note", ["", "[]", '{"layout": 1}', "{", '{"source": "s3://b", "layout": "x"}'])
def test_a_note_that_says_nothing_is_refused(tmp_path: Path, note: str) -> None:
    (tmp_path / "home.json").write_text(note)
    with pytest.raises(EnvironmentFault, match=r"(?s)home.json is damaged.*write the source of the tables"):
        read_note(tmp_path)


def test_a_note_without_a_layout_has_the_oldest_one(tmp_path: Path) -> None:
    (tmp_path / "home.json").write_text(json.dumps({"source": "s3://b"}))
    assert read_note(tmp_path) == HomeNote("s3://b", homes.OLDEST_LAYOUT)
