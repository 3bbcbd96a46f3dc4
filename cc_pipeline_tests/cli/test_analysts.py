"""The commands of docs/analytics.md, in their order, as they stand there."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import pytest

from cc_pipeline_tests.cli.conftest import Cli, World, commands_of

pytestmark = pytest.mark.xdist_group("cli published")
PAGE = Path(__file__).resolve().parents[2] / "docs" / "analytics.md"


@pytest.mark.process
def test_an_analysts_task_needs_no_sql(
    cli: Cli, world: World, rich: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC_PIPELINE_SOURCE", str(world.bucket))
    monkeypatch.setenv("CC_PIPELINE_HOME", str(shutil.copytree(rich, tmp_path / "home")))
    monkeypatch.chdir(tmp_path)
    commands = commands_of(PAGE)
    assert len(commands) == 2
    for command in commands:
        said = cli(*shlex.split(command)[1:])
        assert said.status == 0, (command, said.err)
        assert " sql " not in command
    assert (tmp_path / "example.duckdb").stat().st_size > 0
