"""What exports say of their origin, read by the programs it is written for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from cc_pipeline_tests.cli.conftest import ARC, Cli, World
from cc_pipeline_tests.cli.written import everything_in

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
        # a record that became WARC says by an address from where (WARC-Source-URI)
        for place in (rich, tmp_path, *(() if path.suffix == ".wacz" else (world.bucket,))):
            assert str(place).encode() not in data, path
    assert seen > 30
