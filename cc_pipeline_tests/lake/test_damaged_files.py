"""Files of a table that a power cut or a person left incomplete are found, and said with what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.lake.damaged_files import find_damaged_files
from cc_pipeline.lake.lake import Lake
from cc_pipeline_tests.lake.things import commit, content, lake_in


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = lake_in(tmp_path / "lake")
    for number in range(4):
        commit(lake, {f"t{number}": range(20)}, "C ü%41")
    return lake


@pytest.mark.parametrize(("state", "kept"), [("missing", None), ("incomplete", 0), ("incomplete", -9)])
@pytest.mark.parametrize("target", ["t0", "t3"])
def test_a_file_of_rows_is_said_with_its_state(lake: Lake, state: str, kept: int | None, target: str) -> None:
    [file] = [file for file in lake.pin("things").stored_files() if file.first == target]
    path = Path(lake.address("things")) / file.path
    data = path.read_bytes()
    path.unlink()
    if kept is not None:
        path.write_bytes(data[:kept])
    [found] = find_damaged_files(lake, "things")
    assert (found.path, found.state, found.file) == (str(path), state, file)
    assert "doctor --repair" in found.advice


@pytest.mark.parametrize(("back", "is_needed"), [(0, False), (1, True)])
def test_an_incomplete_entry_of_a_log_is_said(lake: Lake, back: int, is_needed: bool) -> None:
    version = lake.version("things") - back
    entry = Path(lake.address("things"), "_delta_log", f"{version:020}.json")
    complete = entry.read_bytes()
    entry.write_bytes(complete[: len(complete) // 2])
    other = lake_in(lake.root)
    [found] = find_damaged_files(other, "things")
    assert (found.path, found.file, found.is_needed) == (str(entry), None, is_needed)
    with pytest.raises(EnvironmentFault, match="could not open"):
        content(other)
    entry.write_bytes(b"")
    assert find_damaged_files(other, "things") == []
    assert len(content(other)) == 60


def test_a_folder_without_files_is_no_table(lake: Lake) -> None:
    for name in ("stray", "_torn"):
        Path(lake.address(name), "empty").mkdir(parents=True)
    Path(lake.address("_torn"), "empty", "file").touch()
    assert lake.other_tables() == []
    Path(lake.address("stray"), "empty", "file").touch()
    assert lake.other_tables() == ["stray"]
    assert lake_in(f"{lake.root}/nowhere").other_tables() == []
