"""The commands of docs/extensions/host_facts.md, each run as it is written there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from cc_pipeline.extensions.host_facts.datasets import parse_dataset
from cc_pipeline_tests.cli.conftest import NEW, Cli, World
from cc_pipeline_tests.extensions.host_facts.keyed import KeyedSpec, write_keyed
from cc_pipeline_tests.world import copy_of

pytestmark = pytest.mark.xdist_group("cli homes")

PAGE = Path(__file__).resolve().parents[3] / "docs" / "extensions" / "host_facts.md"


@pytest.mark.process
def test_the_examples_of_the_page_work(cli: Cli, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = PAGE.read_text("utf-8")
    commands = [line for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]
    described, own = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    assert len(commands) >= 9
    root = copy_of(world.bucket, tmp_path / "bucket")
    write_keyed(root, KeyedSpec((NEW,)), world.truth.captures)
    (tmp_path / "join_scores.yaml").write_text(described)
    (tmp_path / "scores.csv").write_text("host,score\nexample.org,7\n")
    assert parse_dataset(own, "docs/extensions/host_facts.md").name == "tranco"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CC_PIPELINE_SOURCE", str(root))
    monkeypatch.setenv("CC_PIPELINE_HOME", str(tmp_path / "home"))
    assert cli("index", "harvest", "-c", NEW).status == 0
    for command in commands:
        program, *arguments = shlex.split(command)
        assert program == "cc-pipeline"
        said = cli(*arguments)
        assert said.status == 0, (command, said.err)
        if "score" in command and "--columns" in command:
            assert "7" in said.shown
