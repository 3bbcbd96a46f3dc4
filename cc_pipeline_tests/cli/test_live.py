"""``doctor --live``: a line a step, and status 1 where one is bad."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cc_pipeline_tests.cli.conftest import Cli
from cc_pipeline_tests.faultserver import FaultServer, Rule
from cc_pipeline_tests.world import Bucket


def test_it_prints_a_line_a_step(cli: Cli, bucket: Bucket, tmp_path: Path) -> None:
    with FaultServer(bucket[0]) as server:
        place = server.url.replace("//", "//somebody:secret@").rstrip("/")
        said = cli("doctor", "--live", "--source", place, "--home", tmp_path / "home")
    assert said.status == 0
    assert re.findall(r"^(?:ok|note) +(\w+)", said.out, re.MULTILINE) == [
        "crawls", "index", "footer", "record", "missing",
    ]  # fmt: skip
    assert "secret" not in said.out + said.err


def test_what_could_not_be_done_is_status_1(cli: Cli, bucket: Bucket, tmp_path: Path) -> None:
    with FaultServer(bucket[0], rules=[Rule("404", "*.warc.gz", times=None)]) as server:
        said = cli("doctor", "--live", "--source", server.url, "--home", tmp_path / "home")
    assert said.status == 1
    assert re.search(r"bad +record .*not_found", said.shown)


@pytest.mark.parametrize("other", [("--verify",), ("--repair",)], ids=" ".join)
def test_it_is_asked_alone(cli: Cli, tmp_path: Path, other: tuple[str, ...]) -> None:
    assert "use one of them" in cli("doctor", "--live", *other, "--home", tmp_path).told
