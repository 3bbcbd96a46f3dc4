"""A look at a source says in some ten requests what a run would meet there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from cc_pipeline.checks.source_probe import find_rate, probe_source
from cc_pipeline.errors import UserInputError
from cc_pipeline.settings import load_settings
from cc_pipeline_tests.faultserver import FaultServer, Rule
from cc_pipeline_tests.frontmanners import CLOUDFRONT
from cc_pipeline_tests.world import Bucket, closed_port

#: As the front, but for the time it takes.
FRONT = replace(CLOUDFRONT, latency=0.0)


def look(address: str, home: Path, **chosen: object) -> dict[str, tuple[str, str]]:
    """Level and text by topic."""
    found = list(probe_source(load_settings({}, source=address, home=str(home), **chosen)))
    return {finding.topic: (finding.level, finding.text) for finding in found}


def levels(found: dict[str, tuple[str, str]], level: str) -> list[str]:
    return [topic for topic, (said, _) in found.items() if said == level]


def test_a_sound_source_is_told_in_a_dozen_requests(bucket: Bucket, tmp_path: Path) -> None:
    home = tmp_path / "home"
    with FaultServer(bucket[0], manners=FRONT) as server:
        found = look(server.url, home)
        assert len(server.hits) <= 12
    assert levels(found, "ok") == ["crawls", "index", "footer", "record", "missing"]
    assert levels(found, "note") == []
    assert found["record"][1].endswith("its digest: match")
    assert not home.exists(), "without a limit on requests, not even a budget is kept"


@pytest.mark.parametrize(
    ("rules", "bad"),
    [
        ([Rule("empty", key="*collinfo.json", times=None)], ["crawls"]),
        ([Rule("404", key="*cc-index-table.paths.gz", times=None)], ["index"]),
        ([Rule("403", key="*.parquet", times=None)], ["footer"]),
        ([Rule("404", key="*cluster.idx", times=None)], ["record"]),
        ([Rule("404", key="*.warc.gz", times=None)], ["record"]),
        ([Rule("login_page", key="*.warc.gz", times=None)], ["record"]),
        ([Rule("other_url", key="*.warc.gz", times=None)], ["record"]),
        ([Rule("403", key="*no-such-key", times=None)], ["missing"]),
    ],
    ids=lambda given: "+".join(given) if isinstance(given[0], str) else given[0].key,
)
def test_what_a_run_would_meet_is_named_and_nothing_else(
    bucket: Bucket, tmp_path: Path, rules: Sequence[Rule], bad: list[str]
) -> None:
    with FaultServer(bucket[0], rules=rules) as server:
        assert levels(look(server.url, tmp_path), "bad") == bad


def test_a_public_source_is_asked_once_a_second_at_most(tmp_path: Path) -> None:
    public = load_settings({}, home=str(tmp_path))
    assert find_rate(public) == 1.0
    assert find_rate(replace(public, rate=50.0)) == 1.0
    assert find_rate(replace(public, rate=0.2)) == 0.2
    assert find_rate(replace(public, source="http://127.0.0.1:80")) is None


def test_a_source_that_is_not_there_is_told(tmp_path: Path) -> None:
    found = look(closed_port(), tmp_path)
    assert levels(found, "bad") == ["crawls", "missing"]
    assert levels(found, "ok") == []


def test_a_folder_is_no_source_to_look_at(bucket: Bucket, tmp_path: Path) -> None:
    with pytest.raises(UserInputError):
        look(str(bucket[0]), tmp_path)
