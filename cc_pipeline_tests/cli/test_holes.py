"""A harvest of which index files are missing, as a person meets it: statuses, notes, and the way out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from cc_pipeline.testing.mini_crawl.truth import MiniCrawlTruth
from cc_pipeline_tests.cli.conftest import NEW, Cli
from cc_pipeline_tests.faultserver import FaultServer, Rule

pytestmark = pytest.mark.xdist_group("cli homes")

Bucket = tuple[Path, MiniCrawlTruth]
SITE = "example.com"
HOLE = Rule("404", key="*subset=warc/part-00000*", times=None)
NO_ZIPNUM = Rule("404", key="*cluster.idx", times=None)


@pytest.fixture
def server(bucket: Bucket) -> Iterator[FaultServer]:
    with FaultServer(bucket[0]) as running:
        yield running


def captures(home: Path) -> int:
    with duckdb.connect(str(home / "cc.duckdb"), read_only=True) as connection:
        (count,) = connection.execute("SELECT count(*) FROM captures").fetchone() or (None,)
    return int(str(count))


@pytest.mark.process
def test_every_command_that_looks_up_refuses_holes_and_can_be_told_to_go_without(
    cli: Cli, bucket: Bucket, server: FaultServer, tmp_path: Path
) -> None:
    truth = bucket[1].captures_of(NEW, subset="warc", domain=SITE)
    place = ("-c", NEW, "--source", server.url, "--home", tmp_path / "home")
    server.set_rules([HOLE, NO_ZIPNUM])
    assert cli("index", "harvest", "--allow-gaps", *place).status == 0
    for command in (("lookup",), ("lookup", "--count"), ("plan",)):
        assert cli(*command, SITE, *place).status == 3
        assert cli(*command, SITE, "--allow-gaps", *place).status == 0
    said = cli("lookup", SITE, "--allow-gaps", "--format", "json", *place)
    assert len(said.out.splitlines()) < len(truth)
    assert "part-00000" in said.err
    said = cli("run", SITE, "--allow-gaps", *place)
    assert said.status == 0, said.err
    assert "captures in them are missing from 1 of 1 targets" in said.out
    assert captures(tmp_path / "home") < len(truth)
    server.set_rules([HOLE])
    assert cli("lookup", SITE, "--index", "parquet", *place).status == 3
