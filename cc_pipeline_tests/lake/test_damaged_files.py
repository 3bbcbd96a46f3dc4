"""Files of a table that a power cut or a person left incomplete are found, and said with what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from cc_pipeline.lake.damaged_files import ROWS, DamagedTable, find_damaged_files, find_damaged_paths
from cc_pipeline.lake.lake import Lake
from cc_pipeline_tests.lake.things import commit, content, lake_in


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = lake_in(tmp_path / "lake")
    for number in range(4):
        commit(lake, {f"t{number}": range(20)}, "C ü%41")
    return lake


@pytest.mark.parametrize(
    ("state", "end"), [("missing", None), ("empty", b""), ("cut", b"PAR1"), ("unreadable", b"\0\0\0\0")]
)
@pytest.mark.parametrize("target", ["t0", "t3"])
def test_a_file_of_rows_is_said_with_its_state(lake: Lake, state: str, end: bytes | None, target: str) -> None:
    pinned = lake.pin("things")
    [file] = [file for file in pinned.stored_files() if file.first == target]
    path = Path(lake.address("things")) / file.path
    data = path.read_bytes()
    path.unlink()
    if end is not None:
        path.write_bytes(data[: {"cut": -9, "unreadable": -4}.get(state, 0)] + end)
    [found] = find_damaged_files(lake, "things")
    assert (found.kind, found.path, found.state, found.file) == (ROWS, str(path), state, file)
    assert found.text == f"a file of things is incomplete: {path} is {state}"
    assert "doctor --repair" in found.advice
    assert not found.is_harmless
    # a publication looks at sizes alone
    assert find_damaged_paths(lake, pinned) == ([] if state == "unreadable" else [file.path])


@pytest.mark.parametrize("data", [b"", b'{"add": {"pa'])
def test_the_last_entry_of_a_log_stops_readers_until_it_is_repaired(lake: Lake, data: bytes) -> None:
    version = lake.version("things")
    entry = Path(lake.address("things"), "_delta_log", f"{version:020}.json")
    complete = entry.read_bytes()
    entry.write_bytes(data)
    with pytest.raises(DamagedTable, match="the last commit of things is incomplete"):
        content(lake_in(lake.root))
    entry.write_bytes(complete)
    assert len(content(lake_in(lake.root))) == 80


def test_a_folder_without_files_is_no_table(lake: Lake) -> None:
    for name in ("stray", "_torn"):
        Path(lake.address(name), "empty").mkdir(parents=True)
    Path(lake.address("_torn"), "empty", "file").touch()
    assert lake.other_tables() == []
    Path(lake.address("stray"), "empty", "file").touch()
    assert lake.other_tables() == ["stray"]
    assert lake_in(f"{lake.root}/nowhere").other_tables() == []
