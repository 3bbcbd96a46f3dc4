"""Where the rows of a data set came from, as other programs read it."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from cc_pipeline_tests.cli.conftest import Cli

pytestmark = pytest.mark.xdist_group("cli homes")


def test_of_a_list_those_that_are_not_here_are_told_of(cli: Cli, rich: Path, tmp_path: Path) -> None:
    sites, out = tmp_path / "sites.txt", tmp_path / "corpus"
    sites.write_text("example.com\nnowhere-example.net\n")
    words = ("dataset", "--words", "5..", "--rules", "none", "--out", out, "--home", rich)
    said = cli(*words, f"@{sites}")
    assert (said.status, "this home has no captures of 1 of 2 targets" in said.err) == (0, True), said.err
    with (out / "targets.csv").open(encoding="utf-8") as stream:
        told = {row["definition"]: row["outcome"] for row in csv.DictReader(stream)}
    assert told == {"example.com": "found", "nowhere-example.net": "not here"}
    for path in out.iterdir():
        assert str(tmp_path).encode() not in path.read_bytes(), path
    for alone in (["nowhere-example.net", f"@{sites}"], [f"@{tmp_path / 'none.txt'}"]):
        (tmp_path / "none.txt").write_text("nowhere-example.net\n")
        said = cli(*words, *alone)
        assert (
            said.status,
            "do not have nowhere-example.net: it was not run in this home" in " ".join(said.err.split()),
        ) == (1, True)
