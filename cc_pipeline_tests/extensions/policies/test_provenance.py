"""Where the rows of a data set came from, as other programs read it."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from cc_pipeline_tests.cli.conftest import NEW, Cli
from cc_pipeline_tests.cli.test_provenance import read

pytestmark = pytest.mark.xdist_group("cli homes")


def test_a_data_set_is_read_by_croissant_by_hugging_face_and_by_a_reader_of_prov(
    cli: Cli, rich: Path, tmp_path: Path
) -> None:
    out = tmp_path / "corpus"
    said = cli("dataset", "--words", "5..", "--rules", "none", "--creator", "A lab", "--out", out, "--home", rich)
    assert said.status == 0, said.err
    rows = pq.read_table(out / "texts.parquet").to_pylist()
    found = read(out, tmp_path / "cache")
    assert not found["errors"]
    assert found["sets"]["texts"] == [str(row["url"].encode()) for row in rows] != []
    assert found["texts"] == [row["text"] for row in rows]
    assert {row["crawl"] for row in rows} <= {one.split("/")[-2] for one in found["derived"]}
    assert found["agents"]
    for file in out.rglob("*"):
        if file.suffix in (".json", ".md", ".csv"):
            assert str(rich) not in file.read_text("utf-8"), file.name
    provenance = json.loads((out / "provenance.json").read_text("utf-8"))
    with (out / "targets.csv").open(encoding="utf-8") as stream:
        targets = list(csv.DictReader(stream))
    # every page is of a target that is named, and every target is told of
    assert sum(int(one["pages"]) for one in targets) == len(rows)
    assert provenance["targets"]["found"] == len([one for one in targets if one["outcome"] == "found"]) > 1
    assert all(one["path_list"] and one["indexes"] for one in provenance["crawls"] if one["crawl"] == NEW)
    assert {one["name"] for one in provenance["files"]} == {"texts.parquet", "datasheet.json", "targets.csv"}


def test_of_a_list_those_that_are_not_here_are_told_of(cli: Cli, rich: Path, tmp_path: Path) -> None:
    sites, out = tmp_path / "sites.txt", tmp_path / "corpus"
    sites.write_text("example.com\nnowhere-example.net\n")
    words = ("dataset", "--words", "5..", "--rules", "none", "--out", out, "--home", rich)
    said = cli(*words, f"@{sites}")
    assert (said.status, "this home has no captures of 1 of 2 targets" in said.err) == (0, True), said.err
    with (out / "targets.csv").open(encoding="utf-8") as stream:
        told = {row["definition"]: row["outcome"] for row in csv.DictReader(stream)}
    assert told == {"example.com": "found", "nowhere-example.net": "not looked up"}
    # the command to make it again has what the list names, and not where the list was
    card = (out / "README.md").read_text("utf-8")
    assert "\ncc-pipeline dataset example.com nowhere-example.net --words" in card
    for path in out.iterdir():
        assert str(tmp_path).encode() not in path.read_bytes(), path
    for alone in (["nowhere-example.net", f"@{sites}"], [f"@{tmp_path / 'none.txt'}"]):
        (tmp_path / "none.txt").write_text("nowhere-example.net\n")
        said = cli(*words, *alone)
        assert (
            said.status,
            "do not have nowhere-example.net: it was not run in this home" in " ".join(said.err.split()),
        ) == (1, True)
