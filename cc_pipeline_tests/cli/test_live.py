"""``doctor --live``: a line a step, a line an assumption, and a file where one is wanted."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from cc_pipeline.checks.assumptions import ASSUMPTIONS
from cc_pipeline.minicrawl.truth import MiniCrawlTruth
from cc_pipeline_tests.cli.conftest import Cli
from cc_pipeline_tests.faultserver import FaultServer
from cc_pipeline_tests.frontmanners import Manners

Bucket = tuple[Path, MiniCrawlTruth]


def test_it_prints_a_line_an_assumption_and_keeps_the_answers(cli: Cli, bucket: Bucket, tmp_path: Path) -> None:
    answers = tmp_path / "answers.json"
    with FaultServer(bucket[0]) as server:
        place = server.url.replace("//", "//somebody:secret@").rstrip("/")
        said = cli("doctor", "--live", "--source", place, "--home", tmp_path / "home", "--answers", answers)
        asked = len(server.hits)
    # the bucket has only one of the ARC years, and no index of another
    assert said.status == 0
    lines = re.findall(r"^(held|did not hold|not seen) +(\w+)", said.out, re.MULTILINE)
    assert [name for _, name in lines] == [one.name for one in ASSUMPTIONS]
    assert [name for held, name in lines if held == "did not hold"] == ["arc_listed", "arc_zipnum"]
    assert f"{asked} of at most 60 requests" in said.out
    kept = json.loads(answers.read_text())
    assert len(kept["answers"]) == asked
    assert [(one["held"], one["name"]) for one in kept["assumptions"]] == lines
    assert "secret" not in answers.read_text() + said.out + said.err


def test_what_could_not_be_done_is_status_1(cli: Cli, bucket: Bucket, tmp_path: Path) -> None:
    with FaultServer(bucket[0], manners=Manners(archives=False)) as server:
        said = cli("doctor", "--live", "--source", server.url, "--home", tmp_path / "home")
    assert said.status == 1
    assert re.search(r"bad +records .*not_found", said.shown)
    assert "did not hold records" in said.shown
    assert not list(tmp_path.glob("*.json"))


@pytest.mark.parametrize("other", [("--verify",), ("--repair",)], ids=" ".join)
def test_it_is_asked_alone(cli: Cli, tmp_path: Path, other: tuple[str, ...]) -> None:
    assert "take one of them" in cli("doctor", "--live", *other, "--home", tmp_path).told


def test_answers_are_those_of_a_look(cli: Cli, tmp_path: Path) -> None:
    assert "give both" in cli("doctor", "--answers", "x.json", "--home", tmp_path).told
