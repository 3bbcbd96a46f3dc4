"""One home that a person has already used, and the command line as that person calls it."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest import mock

import pytest

from cc_pipeline.cli import main
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.defs.recording import PartitionsFailed
from cc_pipeline.defs.stage_runner import StageRunner
from cc_pipeline.extraction import fetch
from cc_pipeline.settings import load_settings
from cc_pipeline.testing.mini_crawl import Capture, MiniCrawlTruth
from cc_pipeline.workspace.workspace import open_workspace
from cc_pipeline_tests.sharing import make_once
from cc_pipeline_tests.world import copy_of, extract, publish, replace_file, workspace_of

NEW, OLD, ARC = "CC-MAIN-2024-22", "CC-MAIN-2018-05", "CC-MAIN-2012"


@dataclass(frozen=True, slots=True)
class World:
    """A generated bucket, what is in it, a home prepared by one run, and the capture whose record was damaged then.

    ``home`` is worked on by tests. ``untouched`` is a copy of it as it was prepared: to be copied, and not written to.
    """

    bucket: Path
    truth: MiniCrawlTruth
    home: Path
    untouched: Path
    damaged: Capture


@dataclass(frozen=True, slots=True)
class Said:
    """What a command ended with. ``source`` is the line of standard error that says which source answers, where there
    was one; ``err`` is the rest of it."""

    status: int
    out: str
    err: str
    source: str = ""

    @property
    def told(self) -> str:
        """What it said to a person, on one line, however wide the screen was."""
        return " ".join(self.err.split())

    @property
    def shown(self) -> str:
        """Its output on one line, in the same way."""
        return " ".join(self.out.split())


Cli = Callable[..., Said]


def commands_of(page: Path) -> list[str]:
    """The commands in the blocks of a page, in their order."""
    blocks = re.findall(r"```sh\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line.startswith("cc-pipeline ")]


@pytest.fixture(scope="session")
def world(bucket: tuple[Path, MiniCrawlTruth], tmp_path_factory: pytest.TempPathFactory) -> World:
    """Harvested: both columnar crawls. Extracted: example.com in the newest one, with one record of it damaged."""
    source, truth = bucket
    victim = next(c for c in truth.captures_of(NEW, subset="warc", domain="example.com") if c.kind == "html")
    prepared = make_once(tmp_path_factory, "cli", lambda folder: _prepare(source, victim, folder))
    root = tmp_path_factory.mktemp("cli")
    home, untouched = (shutil.copytree(prepared / "home", root / name) for name in ("home", "untouched"))
    return World(prepared / "bucket", truth, home, untouched, victim)


def _prepare(source: Path, victim: Capture, folder: Path) -> None:
    """``folder`` gets a copy of the bucket, and a home of it that a run has filled while the record was damaged."""
    copied = copy_of(source, folder / "bucket")
    file = copied / victim.warc_filename
    sound = file.read_bytes()
    at = victim.warc_record_offset + victim.warc_record_length // 2
    replace_file(file, sound[:at] + bytes([sound[at] ^ 0x55]) + sound[at + 1 :])
    with (
        open_workspace(load_settings({}, source=str(copied), home=str(folder / "home"))) as workspace,
        StageRunner(workspace) as runner,
    ):
        runner.list_new_crawls()
        runner.harvest([NEW, OLD])
        # lost on the third day
        for days in (3, 2, 1):
            day = datetime.now(UTC) - timedelta(days=days)
            with mock.patch.object(fetch, "current_time", return_value=day), suppress(PartitionsFailed):
                runner.extract([NEW], [parse_target("example.com")])
        runner.publish()
    file.write_bytes(sound)


@pytest.fixture(scope="session")
def rich(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the prepared home with some domains in all crawls. Tests only read it."""

    def make(folder: Path) -> None:
        home = shutil.copytree(world.untouched, folder / "home")
        workspace = workspace_of(world.bucket, home)
        for crawl in (NEW, OLD, ARC):
            extract(workspace, "example.com", *world.truth.domains(NEW)[:2], crawl=crawl)
        publish(workspace)
        workspace.close()

    return shutil.copytree(make_once(tmp_path_factory, "rich", make) / "home", tmp_path_factory.mktemp("rich") / "home")


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Cli:
    """Runs ``cc-pipeline`` in this process, as the installed script does."""
    for name in [name for name in os.environ if name.startswith("CC_PIPELINE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", "200")
    # a command sets it for all that it starts
    monkeypatch.setenv("PYTHONSAFEPATH", "1")

    def call(*arguments: object) -> Said:
        monkeypatch.setattr(sys, "argv", ["cc-pipeline", *map(str, arguments)])
        capfd.readouterr()
        status = 0
        try:
            main()
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else int(end.code is not None)
        out, err = capfd.readouterr()
        source, rest = split_source(err)
        return Said(status, out, rest, source)

    return call


def split_source(err: str) -> tuple[str, str]:
    """The line of ``err`` that says which source answers, or nothing, and what comes behind it."""
    first, _end, rest = err.partition("\n")
    return (first, rest) if first.startswith(("INVENTED WEB: ", "source: ", "no contact is set")) else ("", err)
