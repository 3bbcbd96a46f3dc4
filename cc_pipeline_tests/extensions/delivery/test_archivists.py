"""The commands of the page about delivery, in their order, as they stand there."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import pytest

from cc_pipeline_tests.cli.conftest import Cli, World, commands_of

pytestmark = pytest.mark.xdist_group("cli published")
PAGE = Path(__file__).resolve().parents[3] / "docs" / "extensions" / "delivery.md"


@pytest.mark.process
def test_an_archivists_task_needs_no_sql(
    cli: Cli, world: World, rich: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = shutil.copytree(rich, tmp_path / "home")
    monkeypatch.setenv("CC_PIPELINE_SOURCE", str(world.bucket))
    monkeypatch.setenv("CC_PIPELINE_HOME", str(home))
    monkeypatch.chdir(tmp_path)
    # one record was damaged when the home was made
    assert cli("run", "--refetch", "-c", "CC-MAIN-2024-22", "example.com").status == 0
    commands = commands_of(PAGE)
    assert len(commands) == 6
    for command in commands:
        said = cli(*shlex.split(command)[1:])
        assert said.status == 0, (command, said.err)
        assert " sql " not in command
    assert "<html" in (tmp_path / "page.html").read_text("utf-8").lower()
    assert (tmp_path / "page.arc.gz").read_bytes()[:2] == (tmp_path / "page.warc.gz").read_bytes()[:2] == b"\x1f\x8b"
