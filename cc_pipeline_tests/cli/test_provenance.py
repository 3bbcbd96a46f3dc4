"""What exports say of their origin, read by the programs it is written for."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest

from cc_pipeline_tests.cli.conftest import ARC, Cli, World

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


@pytest.mark.process
def test_each_table_of_an_export_is_a_configuration_and_a_record_set(cli: Cli, rich: Path, tmp_path: Path) -> None:
    out = tmp_path / "handed"
    assert cli("export", "example.com", "--format", "parquet", "--out", out, "--home", rich).status == 0
    found = read(out, tmp_path / "cache")
    assert {"page_text", "records", "feed_items"} <= {*found["configurations"]}
    rows = {path.stem: pq.ParquetFile(path).metadata.num_rows for path in out.glob("*.parquet")}
    assert found["configurations"].items() <= rows.items()
    assert {name: len(read) for name, read in found["sets"].items()} == rows


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
        elif path.suffix == ".wacz":
            with zipfile.ZipFile(path) as archive:
                yield from ((path, archive.read(name)) for name in archive.namelist())
        elif path.suffix == ".duckdb":
            with duckdb.connect(str(path), read_only=True) as connection:
                for (name,) in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall():
                    yield path, repr(connection.sql(f'FROM "{name}"').fetchall()).encode()
                for what in ("views", "functions", "tables", "columns"):
                    yield path, repr(connection.sql(f"FROM duckdb_{what}()").fetchall()).replace(str(path), "").encode()


@pytest.mark.process
def test_nothing_that_is_handed_on_names_a_path_of_the_home(cli: Cli, rich: Path, world: World, tmp_path: Path) -> None:
    site, out = "example.com", tmp_path / "handed"
    out.mkdir()
    wide = ("--home", rich, "--creator", "A lab")
    said = [
        cli("export", site, "-t", "page_text", "--format", "parquet", "--out", out / "corpus", *wide),
        cli("export", site, "--format", "parquet", "--out", out / "tables", *wide),
        cli("export", site, "--out", out / "all.duckdb", *wide),
        cli("export", site, "-t", "captures", "--out", out / "captures.csv", *wide),
        cli("export", "-q", "SELECT url, outcome, stored_file FROM records", "--out", out / "records.jsonl", *wide),
        cli("export", site, "-c", ARC, "--out", out / "records.wacz", *wide),
    ]
    assert [one.status for one in said] == [0] * 6, said
    papers = {path.name for path in out.rglob("*")}
    for made in ("all.duckdb", "captures.csv", "records.jsonl", "records.wacz"):
        assert {f"{made}.targets.csv", f"{made}.provenance.json"} <= papers
    assert all((out / made / "targets.csv").exists() for made in ("corpus", "tables"))
    seen = 0
    for path, data in everything_in(out):
        seen += 1
        for place in (rich, tmp_path, world.bucket):
            assert str(place).encode() not in data, path
    assert seen > 30
