"""Digests read from the log in one pass are those the Delta library gives one by one."""

from __future__ import annotations

import ast
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from cc_pipeline.lake.digests.log import UNKNOWN_DIGESTS, TransactionLog
from deltalake import DeltaTable

from cc_pipeline.lake.content_digests import compute_input_digest, digest_to_int
from cc_pipeline.lake.digests import log as log_module
from cc_pipeline.lake.lake import DigestsNotInLog, Lake, TableSpec

SCHEMA = pa.schema([pa.field("crawl", pa.string()), pa.field("target", pa.string()), pa.field("n", pa.int64())])
SPEC = TableSpec("rows", SCHEMA, ("crawl", "target"), ("target",))


def commit(lake: Lake, number: int, slug: str) -> None:
    rows = pa.Table.from_pylist([{"crawl": "C", "target": slug, "n": number}], schema=SCHEMA)
    lake.commit("rows", rows, [{"crawl": "C", "target": slug}], {f"slice:{slug}": compute_input_digest({"n": number})})


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """104 commits over 40 slices, so one checkpoint, in a folder whose name has a space and an umlaut."""
    made = Lake(str(tmp_path_factory.mktemp("lake") / "a h\u00f6me"), [SPEC])
    for number in range(104):
        commit(made, number, f"s{number % 40:02d}")
    return made


def one_by_one(table: str, version: int, names: list[str]) -> dict[str, int]:
    handle = DeltaTable(table, version)
    found = {name: handle.transaction_version(name) for name in names}
    return {name: value for name, value in found.items() if value is not None}


def all_of(every: Iterator[tuple[pa.Array, pa.Array]] | None) -> dict[str, int]:
    assert every is not UNKNOWN_DIGESTS
    pairs = [pair for names, numbers in every for pair in zip(names.to_pylist(), numbers.to_pylist(), strict=True)]
    assert len(dict(pairs)) == len(pairs)
    return dict(pairs)


@pytest.mark.parametrize("few", [20_000, 5])
@pytest.mark.parametrize("version", [1, 50, 100, 101, 103, 104])
def test_every_version_has_what_the_library_says(
    lake: Lake, version: int, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_module, "_SMALL_CHECKPOINT", few)
    address = lake.address("rows")
    assert (Path(address) / "_delta_log" / "_last_checkpoint").exists()
    names = [f"{kind}:s{number:02d}" for kind in ("slice", "rows:C") for number in range(41)]
    expected = one_by_one(address, version, names)
    log = TransactionLog(lake.file_system(), address)
    found = log.find(version, names)
    every = log.read_all(version)
    # a version before the newest checkpoint is left to the library
    assert found == expected if version >= 100 else found is UNKNOWN_DIGESTS
    assert all_of(every) == expected if version >= 100 else every is UNKNOWN_DIGESTS
    digests = lake.digests("rows", names, version)
    assert {name: digest_to_int(digest) for name, digest in digests.items() if digest is not None} == expected


def test_a_longer_log_is_read_from_where_it_was(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    log = TransactionLog(lake.file_system(), lake.address("rows"))
    names = [f"slice:s{n:02d}" for n in range(40)]
    log.find(103, names[:1])
    read: list[int] = []
    of_commit = TransactionLog.read_commit

    def counted(self: TransactionLog, version: int) -> dict[str, int]:
        read.append(version)
        return of_commit(self, version)

    monkeypatch.setattr(TransactionLog, "read_commit", counted)
    assert log.find(104, names) == one_by_one(lake.address("rows"), 104, names)
    assert read == [104]
    assert log.find(103, names) is not UNKNOWN_DIGESTS
    assert read == [104]


def test_of_a_large_checkpoint_what_was_asked_for_is_read_once(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_module, "_SMALL_CHECKPOINT", 5)
    log = TransactionLog(lake.file_system(), lake.address("rows"))
    read: list[int] = []
    of_checkpoint = TransactionLog.read_checkpoint

    def counted(self: TransactionLog, version: int) -> Iterator[tuple[pa.Array, pa.Array]]:
        read.append(version)
        return of_checkpoint(self, version)

    monkeypatch.setattr(TransactionLog, "read_checkpoint", counted)
    for version in (103, 104, 103):
        names = ["slice:s20", "slice:s21", "slice:nobody", "slice:s23"]
        assert log.find(version, names) == one_by_one(lake.address("rows"), version, names)
    assert len(read) == 1
    assert log.find(104, ["slice:s30"]) == one_by_one(lake.address("rows"), 104, ["slice:s30"])
    assert len(read) == 2


@pytest.mark.parametrize("damage", ["checkpoint gone", "checkpoint cut", "commit gone", "in parts"])
def test_a_log_it_cannot_read_is_left_to_the_library(lake: Lake, tmp_path: Path, damage: str) -> None:
    copy = Lake(str(tmp_path / "copy"), [SPEC])
    shutil.copytree(lake.address("rows"), copy.address("rows"))
    folder = Path(copy.address("rows")) / "_delta_log"
    checkpoint = next(folder.glob("*.checkpoint.parquet"))
    if damage == "checkpoint gone":
        checkpoint.unlink()
    elif damage == "checkpoint cut":
        checkpoint.write_bytes(checkpoint.read_bytes()[:200])
    elif damage == "commit gone":
        (folder / f"{103:020}.json").unlink()
    else:
        (folder / "_last_checkpoint").write_text('{"version": 100, "size": 3, "parts": 2}', "utf-8")
    assert TransactionLog(copy.file_system(), copy.address("rows")).find(104, ["slice:s01"]) is UNKNOWN_DIGESTS


def test_another_process_and_another_version_are_seen(tmp_path: Path) -> None:
    one, other = Lake(str(tmp_path), [SPEC]), Lake(str(tmp_path), [SPEC])
    commit(one, 1, "a")
    assert other.digest("rows", "slice:a") == one.digest("rows", "slice:a")
    commit(other, 2, "a")
    commit(other, 3, "b")
    assert one.digests("rows", ["slice:a", "slice:b"]) == other.digests("rows", ["slice:a", "slice:b"])
    assert sorted(one.read("rows", {"target": "a"})["n"].to_pylist()) == [2]
    assert one.read("rows", {"crawl": "C", "target": ["a", "b", "it's"]}).num_rows == 2


@pytest.mark.parametrize("version", [-1, 103, 104])
def test_names_that_differ_among_tables_are_found(lake: Lake, tmp_path: Path, version: int) -> None:
    both = Lake(str(tmp_path / "both"), [SPEC, replace(SPEC, name="others")])
    shutil.copytree(lake.address("rows"), both.address("rows"))
    every = both.find_differing(["rows", "others"], {}, "slice:")
    assert every is not UNKNOWN_DIGESTS
    assert len(every) == 40
    shutil.copytree(lake.address("rows"), both.address("others"))
    for number in (2, 3):
        digests = {
            f"slice:s{number:02d}": compute_input_digest({"n": "other"}),
            f"new:{number}": compute_input_digest({}),
        }
        both.commit_digests("others", digests)
    assert both.find_differing(["rows", "others"], {}, "slice:") == ["slice:s02", "slice:s03"]
    assert both.find_differing(["rows", "others"], {}, "new:") == ["new:2", "new:3"]
    # at a version of before the second of these commits
    assert both.find_differing(["rows", "others"], {"others": both.version("others") - 1}, "slice:s") == ["slice:s02"]
    assert both.find_differing(["rows"], {}, "slice:") == []
    names = [f"slice:s{number:02d}" for number in range(40)]
    then = {"rows": version, "others": 104}
    told = [both.digests(table, names, then[table]) for table in then]
    expected = [name for name in names if len({one[name] for one in told}) > 1]
    assert both.find_differing(["rows", "others"], then, "slice:") == expected


@pytest.mark.parametrize("hint", [b"", b'{"versi', b"[]", b"{}", b"\0\0\0", None])
def test_a_hint_that_cannot_be_read_counts_as_absent_and_the_log_is_listed(
    lake: Lake, tmp_path: Path, hint: bytes | None
) -> None:
    copy = Lake(str(shutil.copytree(lake.root, tmp_path / "lake")), [SPEC])
    path = Path(copy.address("rows")) / "_delta_log" / "_last_checkpoint"
    path.unlink() if hint is None else path.write_bytes(hint)
    names = [f"slice:s{number:02d}" for number in range(40)]
    log = TransactionLog(copy.file_system(), copy.address("rows"))
    assert log.find_checkpoint() == TransactionLog(lake.file_system(), lake.address("rows")).find_checkpoint() > 0
    assert log.find(104, names) == one_by_one(lake.address("rows"), 104, names)
    assert sorted(copy.digest_names("rows", "slice:")) == names
    assert copy.digests("rows", names) == lake.digests("rows", names)


_PACKAGE = Path(log_module.__file__).parents[2]


def _functions_that_may_not_know() -> set[str]:
    """Names of the functions whose answer may be ``UNKNOWN_DIGESTS``."""
    found = set()
    for file in _PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if (
                isinstance(node, ast.FunctionDef)
                and node.returns is not None
                and "Unknown" in ast.unparse(node.returns)
            ):
                found.add(node.name)
    return found


def _replaced_by_nothing(tree: ast.AST, names: set[str]) -> list[str]:
    """The expressions that put something else in the place of an answer of functions with these ``names``: behind the
    call, or behind a variable that has it."""
    holders = {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and _called(node.value) in names
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or):
            first = node.values[0]
            is_answer = isinstance(first, ast.Call) and _called(first) in names
            if is_answer or (isinstance(first, ast.Name) and first.id in holders):
                found.append(ast.unparse(node))
    return found


def _called(call: ast.Call) -> str:
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def test_nothing_stands_for_an_answer_that_is_not_known() -> None:
    names = _functions_that_may_not_know()
    assert names >= {"find", "read_all", "names_since", "find_differing", "changed_since"}
    # it raises where the log does not tell
    names.add("digest_names")
    example = ast.parse(
        "for one in lake.find_differing(a) or ():\n    found = changed_since(lake)\n    print(found or set())"
    )
    assert len(_replaced_by_nothing(example, names)) == 2
    for file in _PACKAGE.rglob("*.py"):
        for scope in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(scope, ast.FunctionDef):
                assert not _replaced_by_nothing(scope, names), (file.name, scope.name)


def test_an_answer_that_is_not_known_is_not_empty(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TransactionLog, "_read_state", lambda *_: None)
    asked = Lake(lake.root, [SPEC])
    assert asked.find_differing(["rows"], {}, "") is UNKNOWN_DIGESTS
    with pytest.raises(DigestsNotInLog, match="does not tell"):
        asked.digest_names("rows")
    assert asked.digest("rows", "slice:s01") == lake.digest("rows", "slice:s01")
    assert bool(UNKNOWN_DIGESTS)
