"""What data sets and exports say of their origin, read by the programs it is written for."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from cc_pipeline_tests.cli.conftest import ARC, NEW, Cli

pytestmark = pytest.mark.xdist_group("cli")


def read(folder: Path, cache: Path) -> dict[str, Any]:
    """As :func:`cc_pipeline_tests.cli.other_readers.read`, with no hub to ask."""
    command = [sys.executable, "-m", "cc_pipeline_tests.cli.other_readers", str(folder), str(cache)]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(cache)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout[done.stdout.index("{") :])
    return found


def test_a_data_set_is_read_by_croissant_by_hugging_face_and_by_a_reader_of_prov(
    cli: Cli, rich: Path, tmp_path: Path
) -> None:
    out = tmp_path / "corpus"
    said = cli("dataset", "--min-words", 5, "--rules", "none", "--creator", "A lab", "--out", out, "--home", rich)
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


def test_a_list_of_targets_is_told_of_by_what_it_names(cli: Cli, rich: Path, tmp_path: Path) -> None:
    listed = tmp_path / "sites.txt"
    listed.write_text("example.com\n", "utf-8")
    for command, *out in (
        ("export", "--out", tmp_path / "pages.csv", "-t", "page_text"),
        ("export", "--out", tmp_path / "site.wacz", "-c", ARC, "--allow-missing"),
        ("dataset", "--out", tmp_path / "corpus"),
    ):
        said = cli(command, "-d", f"@{listed}", *out, "--home", rich)
        assert said.status == 0, said.err
    papers = [*tmp_path.rglob("*provenance.json")]
    assert len(papers) == 3
    for path in papers:
        assert "targets: example.com" in json.loads(path.read_text("utf-8"))["asked"]
    for path in tmp_path.rglob("*"):
        assert path.is_dir() or str(tmp_path).encode() not in path.read_bytes(), path


def test_each_table_of_an_export_is_a_configuration_and_a_record_set(cli: Cli, rich: Path, tmp_path: Path) -> None:
    out = tmp_path / "handed"
    assert cli("export", "-d", "example.com", "--format", "parquet", "--out", out, "--home", rich).status == 0
    found = read(out, tmp_path / "cache")
    assert {"page_text", "records", "feed_items"} <= {*found["configurations"]}
    rows = {path.stem: pq.ParquetFile(path).metadata.num_rows for path in out.glob("*.parquet")}
    assert found["configurations"].items() <= rows.items()
    assert {name: len(read) for name, read in found["sets"].items()} == rows


def test_a_target_without_captures_is_told_of(cli: Cli, rich: Path, tmp_path: Path) -> None:
    out = tmp_path / "titles.csv"
    assert cli("export", "--query", "SELECT url, title FROM page_text", "--out", out, "--home", rich).status == 0
    assert (tmp_path / "titles.csv.croissant.json").exists()
    told = json.loads((tmp_path / "titles.csv.provenance.json").read_text("utf-8"))
    assert told["asked"] == ["query: `SELECT url, title FROM page_text`"]
    assert (
        sum(told["targets"].values()) == len((tmp_path / "titles.csv.targets.csv").read_text("utf-8").splitlines()) - 1
    )
