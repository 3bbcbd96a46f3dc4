"""``doctor`` on lost and damaged stored records: it names them, and fetches them again when asked."""

from __future__ import annotations

import shutil
from pathlib import Path

import duckdb
import pytest

from cc_pipeline_tests.cli.conftest import NEW, OLD, Cli, World

pytestmark = pytest.mark.xdist_group("cli homes")


@pytest.fixture
def home(world: World, tmp_path: Path) -> Path:
    return Path(shutil.copytree(world.untouched, tmp_path / "home", ignore=shutil.ignore_patterns("dagster")))


def stored(home: Path) -> list[Path]:
    return sorted((home / "lake" / "records" / NEW).glob("*.warc.gz"))


def fetched(home: Path) -> list[tuple[object, ...]]:
    with duckdb.connect(str(home / "cc.duckdb"), read_only=True) as connection:
        query = "SELECT url, failure_reason FROM page_metadata JOIN ledger USING (crawl, warc_filename,"
        query += " warc_record_offset, url) WHERE outcome = 'fetched' ORDER BY ALL"
        return connection.execute(query).fetchall()


@pytest.mark.process
def test_lost_files_are_named_and_repaired(cli: Cli, home: Path) -> None:
    before = fetched(home)
    for path in stored(home):
        path.unlink()
    said = cli("doctor", "--home", home)
    assert said.status == 1
    assert f"{NEW} has lost the bytes of" in " ".join(said.shown.split())
    assert "cc-pipeline doctor --repair" in said.shown
    said = cli("doctor", "--repair", "--home", home)
    assert said.status == 0, said.out
    assert "records were requested again, parsed and published" in said.shown
    assert "the bytes of all stored records are there" in said.shown
    assert fetched(home) == before
    assert "nothing to repair" in cli("doctor", "--repair", "--home", home).shown


@pytest.mark.process
def test_damaged_records_are_found_by_reading_them_and_repaired(cli: Cli, home: Path) -> None:
    [path, *_] = stored(home)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    said = cli("doctor", "--verify", "--all", "--home", home)
    assert said.status == 1
    assert "1 record is damaged" in said.shown
    assert "--all works only with --verify" in cli("doctor", "--all", "--home", home).told
    said = cli("doctor", "--verify", "--all", "--repair", "--home", home)
    assert said.status == 0, said.out
    said = cli("doctor", "--verify", "--all", "--home", home)
    assert said.status == 0
    assert "no digest contradicts the index" in said.shown


@pytest.mark.process
def test_a_torn_commit_is_said_by_every_command_and_taken_back(cli: Cli, home: Path) -> None:
    before = fetched(home)
    entry = max((home / "lake" / "tables" / "records" / "_delta_log").glob("*.json"))
    entry.write_bytes(b"")
    run = ("run", "--home", home, "example.com", "--crawl")
    for command in ((*run, OLD), (*run, NEW), ("export", "--home", home, "--out", home / "out.parquet")):
        said = cli(*command)
        assert said.status != 0, command
    said = cli("doctor", "--home", home)
    assert said.status == 1
    # long paths are broken where the terminal ends
    assert f"the last commit of records is incomplete: {entry} is empty".replace(" ", "") in said.shown.replace(" ", "")
    said = cli("doctor", "--repair", "--home", home)
    assert "1 slice must be rebuilt" in said.shown
    assert f"cc-pipeline run example.com --crawl {NEW}" in said.shown
    said = cli(*run, NEW)
    assert said.status == 0, said.err
    # what was damaged once has come whole meanwhile
    assert {*before} <= {*fetched(home)}
    assert cli("doctor", "--home", home).status == 0
