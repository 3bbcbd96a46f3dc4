"""``cc-pipeline facts ranks``: the price before, the question, what it says afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest

from cc_pipeline.extensions.host_facts.rank_text import parse_release
from cc_pipeline_tests.cli.conftest import Cli
from cc_pipeline_tests.extensions.host_facts.graph import GraphSpec, write_graph

RELEASE = "cc-main-2026-may-jun-jul"


def test_ranks_are_read_after_a_yes_to_their_price(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket, home = tmp_path / "bucket", tmp_path / "home"
    write_graph(bucket, GraphSpec(parse_release(RELEASE), ("example.com", "www.example.com", "a.org"), lines=("what",)))
    place = ("--source", bucket, "--home", home)
    with monkeypatch.context() as patched:
        patched.setattr("typer.confirm", lambda _: False)
        refused = cli("facts", "ranks", RELEASE, *place)
    assert refused.status == 1
    assert " B to read in 1 request," in refused.err
    assert cli("facts", "ranks", *place).out == ""
    said = cli("facts", "ranks", RELEASE, "--yes", *place)
    assert said.status == 1
    assert "has 1 line without a rank, but only 3 with one: 'what'" in said.err
    write_graph(bucket, GraphSpec(parse_release(RELEASE), ("example.com", "www.example.com", "a.org")))
    said = cli("facts", "ranks", RELEASE, "--yes", *place)
    assert (said.status, said.out.startswith(f"{RELEASE} host: 2 hosts of 3 nodes, converted 20")) == (0, True)
    again = cli("facts", "ranks", RELEASE, *place)
    assert (again.status, again.out, again.err) == (0, said.out, "")
    assert cli("facts", "ranks", RELEASE, "--level", "domain", "--yes", *place).status == 0
    assert len(cli("facts", "ranks", *place).out.splitlines()) == 2
    assert "no release" in cli("facts", "ranks", "2026", *place).err
    assert "host or domain" in cli("facts", "ranks", RELEASE, "--level", "page", *place).err
