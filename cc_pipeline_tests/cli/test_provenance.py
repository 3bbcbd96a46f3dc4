"""What data sets and exports say of their origin, read by the programs it is written for."""

from __future__ import annotations

import csv
import gzip
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest

from cc_pipeline_tests.cli.conftest import ARC, NEW, Cli, World

pytestmark = pytest.mark.xdist_group("cli published")


def read(folder: Path, cache: Path) -> dict[str, Any]:
    """As :func:`cc_pipeline_tests.cli.other_readers.read`, with no hub to ask."""
    command = [sys.executable, "-m", "cc_pipeline_tests.cli.other_readers", str(folder), str(cache)]
    # a command that ran in this process isolates its children, which then would not find the tests
    environment = {**os.environ, "PYTHONSAFEPATH": "", "HF_HUB_OFFLINE": "1", "HF_HOME": str(cache)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout[done.stdout.index("{") :])
    return found


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


def test_a_list_of_targets_is_told_of_by_what_it_names(cli: Cli, rich: Path, tmp_path: Path) -> None:
    listed = tmp_path / "sites.txt"
    listed.write_text("example.com\n", "utf-8")
    for command, *out in (
        ("export", "--out", tmp_path / "pages.csv", "-t", "page_text"),
        ("dataset", "--out", tmp_path / "corpus"),
    ):
        said = cli(command, f"@{listed}", *out, "--home", rich)
        assert said.status == 0, said.err
    papers = [*tmp_path.rglob("*provenance.json")]
    assert len(papers) == 2
    for path in papers:
        assert "targets: example.com" in json.loads(path.read_text("utf-8"))["asked"]
    for path in tmp_path.rglob("*"):
        assert path.is_dir() or str(tmp_path).encode() not in path.read_bytes(), path


def test_each_table_of_an_export_is_a_configuration_and_a_record_set(cli: Cli, rich: Path, tmp_path: Path) -> None:
    out = tmp_path / "handed"
    assert cli("export", "example.com", "--format", "parquet", "--out", out, "--home", rich).status == 0
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


def everything_in(place: Path) -> Iterator[tuple[Path, bytes]]:
    """The bytes of files as a reader sees them: unpacked, and of tables the text of all rows and of their schema."""
    for path in sorted(one for one in ([place] if place.is_file() else place.rglob("*")) if one.is_file()):
        data = path.read_bytes()
        yield path, path.name.encode() + data
        if path.suffix == ".parquet":
            table = pq.read_table(path)
            yield path, f"{table.schema} {table.schema.metadata} {table.to_pylist()}".encode()
        elif path.suffix == ".gz":
            yield path, gzip.decompress(data)
        elif path.suffix == ".duckdb":
            with duckdb.connect(str(path), read_only=True) as connection:
                for (name,) in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall():
                    yield path, repr(connection.sql(f'FROM "{name}"').fetchall()).encode()
                for what in ("views", "functions", "tables", "columns"):
                    yield path, repr(connection.sql(f"FROM duckdb_{what}()").fetchall()).replace(str(path), "").encode()


def test_nothing_that_is_handed_on_names_a_path_of_the_home(cli: Cli, rich: Path, world: World, tmp_path: Path) -> None:
    site, out = "example.com", tmp_path / "handed"
    out.mkdir()
    wide = ("--home", rich, "--creator", "A lab")
    said = [
        cli("dataset", "--words", "5..", "--rules", "none", "--out", out / "corpus", *wide),
        cli("export", "--dataset", out / "corpus", "--out", out / "again.jsonl", *wide),
        cli("export", site, "--format", "parquet", "--out", out / "tables", *wide),
        cli("export", site, "--out", out / "all.duckdb", *wide),
        cli("export", site, "-t", "captures", "--out", out / "captures.csv", *wide),
        cli("export", "-q", "SELECT url, outcome, stored_file FROM records", "--out", out / "records.jsonl", *wide),
        cli("export", site, "-c", ARC, "--format", "sequencefile", "--out", out / "files", *wide),
    ]
    assert [one.status for one in said] == [0] * 7, said
    papers = {path.name for path in out.rglob("*")}
    for made in ("all.duckdb", "captures.csv", "records.jsonl", "again.jsonl"):
        assert {f"{made}.targets.csv", f"{made}.provenance.json"} <= papers
    assert all((out / made / "targets.csv").exists() for made in ("corpus", "tables", "files"))
    seen = 0
    for path, data in everything_in(out):
        seen += 1
        for place in (rich, tmp_path, world.bucket):
            assert str(place).encode() not in data, path
    assert seen > 30
    # what is made of a data set says what that was made of
    first, again = (
        json.loads((out / name).read_text("utf-8"))
        for name in ("corpus/provenance.json", "again.jsonl.provenance.json")
    )
    for name in ("sources", "crawls", "targets", "tables", "published_at"):
        assert first[name] == again[name] and first[name]
    assert again["asked"] == [*first["asked"], "data set: corpus"]


def test_of_a_list_those_that_are_not_here_are_told_of(cli: Cli, rich: Path, tmp_path: Path) -> None:
    sites, out = tmp_path / "sites.txt", tmp_path / "corpus"
    sites.write_text("example.com\nnowhere-example.net\n")
    words = ("dataset", "--words", "5..", "--rules", "none", "--out", out, "--home", rich)
    said = cli(*words, f"@{sites}")
    assert (said.status, "nothing of 1 of 2 targets is in this home" in said.err) == (0, True), said.err
    with (out / "targets.csv").open(encoding="utf-8") as stream:
        told = {row["definition"]: row["outcome"] for row in csv.DictReader(stream)}
    assert told == {"example.com": "found", "nowhere-example.net": "not here"}
    for alone in (["nowhere-example.net", f"@{sites}"], [f"@{tmp_path / 'none.txt'}"]):
        (tmp_path / "none.txt").write_text("nowhere-example.net\n")
        said = cli(*words, *alone)
        assert (said.status, "nowhere-example.net was not run in this home" in " ".join(said.err.split())) == (1, True)
