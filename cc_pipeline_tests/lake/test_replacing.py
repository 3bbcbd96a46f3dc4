"""Rows that are changed where they lie: no other file is touched, and none is lost to a commit that comes between."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from cc_pipeline.lake import replacing
from cc_pipeline.lake.lake import Lake, TableSpec
from cc_pipeline.lake.layout import list_stored_files
from cc_pipeline.lake.replacing import change_rows, open_fixed_version

SPEC = TableSpec(
    "things",
    pa.schema([("crawl", pa.string()), ("target", pa.string()), ("file", pa.string()), ("at", pa.int64())]),
    ("crawl", "target"),
    ("target", "at"),
)
OLD = pa.array(["old"])


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(str(tmp_path), [SPEC])


def commit(lake: Lake, target: str, *files: str, crawl: str = "C") -> None:
    rows = [{"crawl": crawl, "target": target, "file": file, "at": at} for at, file in enumerate(files)]
    lake.commit("things", pa.Table.from_pylist(rows, SPEC.schema), [{"crawl": crawl, "target": target}], {target: "0a"})


def renamed(rows: pa.RecordBatch) -> pa.RecordBatch:
    names = pc.replace_with_mask(rows.column("file"), pc.equal(rows.column("file"), "old"), pa.scalar("new"))
    return pa.RecordBatch.from_arrays(
        [names if name == "file" else rows.column(name) for name in rows.schema.names], schema=rows.schema
    )


def content(lake: Lake) -> list[tuple[str, str, str, int]]:
    return sorted(tuple(row.values()) for row in lake.read("things").to_pylist())


def test_rows_change_where_they_lie_and_other_files_stay(lake: Lake) -> None:
    commit(lake, "a", "old", "kept", "old")
    commit(lake, "b", "kept")
    commit(lake, "a", "old", crawl="D")
    before = set(lake.pin("things").files)
    assert change_rows(lake, "things", "C", "file", OLD, renamed) == 1
    assert content(lake) == [
        ("C", "a", "kept", 1), ("C", "a", "new", 0), ("C", "a", "new", 2), ("C", "b", "kept", 0), ("D", "a", "old", 0),
    ]  # fmt: skip
    assert len(before - set(lake.pin("things").files)) == 1
    assert lake.digest("things", "a") == "a".zfill(15)
    [file] = [one for one in list_stored_files(SPEC, open_fixed_version(lake, "things")) if one.rows == 3]
    assert (file.first, file.last) == ("a", "a")
    assert change_rows(lake, "things", "C", "file", OLD, renamed) == 0


def test_what_is_replaced_meanwhile_stays_replaced_and_is_looked_at_again(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(lake, "a", "old")
    commit(lake, "b", "old")
    real, meanwhile = replacing.replace_files, iter([True])

    def after_another(*given: object) -> None:
        if next(meanwhile, False):
            commit(Lake(str(tmp_path), [SPEC]), "a", "old", "kept", "old", "old")
        real(*given)

    monkeypatch.setattr(replacing, "replace_files", after_another)
    change_rows(lake, "things", "C", "file", OLD, renamed)
    assert [row[1:3] for row in content(lake)] == [
        ("a", "kept"), ("a", "new"), ("a", "new"), ("a", "new"), ("b", "new")
    ]  # fmt: skip


def test_a_change_that_loses_rows_is_refused(lake: Lake) -> None:
    commit(lake, "a", "old", "kept")
    with pytest.raises(replacing.EnvironmentFault, match="would change the number of rows"):
        change_rows(lake, "things", "C", "file", OLD, lambda rows: rows.slice(1))
    assert len(content(lake)) == 2


def test_digests_get_through_when_files_are_replaced_meanwhile(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(lake, "a", "old")
    real, stale = lake.handle, iter([open_fixed_version(lake, "things")])
    change_rows(Lake(str(tmp_path), [SPEC]), "things", "C", "file", OLD, renamed)
    monkeypatch.setattr(lake, "handle", lambda *given: next(stale, None) or real(*given))
    lake.commit_digests("things", {"b": "0b"})
    assert next(stale, None) is None
    assert lake.digest("things", "b") == "b".zfill(15)
