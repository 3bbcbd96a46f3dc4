"""The commands of docs/delivery.md and docs/analytics.md, in their order, as they stand there."""

from __future__ import annotations

import re
import shlex
import shutil
import zipfile
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from cc_pipeline_tests.cli.conftest import Cli, World

pytestmark = pytest.mark.xdist_group("cli published")
DOCS = Path(__file__).resolve().parents[2] / "docs"


def commands_of(page: str) -> list[str]:
    blocks = re.findall(r"```sh\n(.*?)```", (DOCS / page).read_text("utf-8"), re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line.startswith("cc-pipeline ")]


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
    commands = commands_of("delivery.md")
    assert len(commands) == 10
    for command in commands:
        said = cli(*shlex.split(command)[1:])
        assert said.status == 0, (command, said.err)
        assert " sql " not in command
    assert zipfile.is_zipfile(tmp_path / "example.wacz")
    assert "<html" in (tmp_path / "page.html").read_text("utf-8").lower()
    assert (tmp_path / "page.arc.gz").read_bytes()[:2] == (tmp_path / "page.warc.gz").read_bytes()[:2] == b"\x1f\x8b"


@pytest.mark.process
def test_an_analysts_tasks_need_no_sql(
    cli: Cli, world: World, rich: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC_PIPELINE_SOURCE", str(world.bucket))
    monkeypatch.setenv("CC_PIPELINE_HOME", str(shutil.copytree(rich, tmp_path / "home")))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sites.txt").write_text("example.com\nexample.org\n", "utf-8")
    commands = commands_of("analytics.md")
    assert len(commands) == 5
    for command in commands:
        said = cli(*shlex.split(command)[1:])
        assert said.status == 0, (command, said.err)
        assert " sql " not in command
    assert "<html" in (tmp_path / "example.html").read_text("utf-8").lower()
    assert (tmp_path / "example.duckdb").stat().st_size > 0
    texts = next((tmp_path / "texts").glob("*.parquet"))
    assert pq.read_metadata(texts).num_rows > 0
    assert list((tmp_path / "texts").glob("*.md"))
