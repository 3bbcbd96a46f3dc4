"""``ui --init``: the files by which Dagster's own programs open the state of a home."""

from __future__ import annotations

from pathlib import Path

import pytest

from cc_pipeline_tests.cli.conftest import Cli


def test_files_are_written_once_and_named(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC_PIPELINE_HOME", str(tmp_path / "home"))
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    said = cli("ui", "--init")
    assert said.status == 0, said.err
    written = [tmp_path / "project" / ".env", tmp_path / "home" / "dagster" / "dagster.yaml"]
    assert sorted(said.out.replace("wrote ", "").split()) == sorted(map(str, written))
    written[0].write_text("MINE=1\n", "utf-8")
    assert cli("ui", "--init").out == ""
    assert written[0].read_text("utf-8") == "MINE=1\n"
