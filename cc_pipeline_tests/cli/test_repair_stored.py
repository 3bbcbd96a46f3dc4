"""``doctor`` on lost and damaged stored records: it names them, and fetches them again when asked."""

from __future__ import annotations

import shutil
from pathlib import Path

import duckdb
import pytest

from cc_pipeline_tests.cli.conftest import NEW, Cli, Said, World

pytestmark = pytest.mark.xdist_group("cli")


@pytest.fixture
def home(world: World, tmp_path: Path) -> Path:
    return Path(shutil.copytree(world.home, tmp_path / "home", ignore=shutil.ignore_patterns("dagster")))


def stored(home: Path) -> list[Path]:
    return sorted((home / "lake" / "records" / NEW).glob("*.warc.gz"))


def words(said: Said) -> str:
    """What was printed, however wide the screen was."""
    return " ".join(said.out.split())


def published(home: Path) -> list[tuple[object, ...]]:
    with duckdb.connect(str(home / "cc.duckdb"), read_only=True) as connection:
        query = "SELECT url, disposition, failure_reason FROM page_metadata ORDER BY ALL"
        return connection.execute(query).fetchall()


@pytest.mark.process
def test_lost_files_are_named_and_repaired(cli: Cli, world: World, home: Path) -> None:
    place = ("--source", world.bucket, "--home", home)
    assert cli("run", "-c", NEW, "-d", "example.com", *place).status == 0
    before = published(home)
    assert cli("doctor", *place).status == 0
    for path in stored(home):
        path.unlink()
    said = cli("doctor", *place)
    assert said.status == 1
    assert f"records of example.com in {NEW} are gone" in words(said)
    assert "cc-pipeline doctor --repair" in words(said)
    said = cli("doctor", "--repair", *place)
    assert said.status == 0, said.out
    assert "records were asked for again, parsed and published" in words(said)
    assert "the bytes of all stored records are there" in words(said)
    assert stored(home)
    assert published(home) == before
    assert "nothing was to be repaired" in words(cli("doctor", "--repair", *place))


def test_damaged_records_are_found_by_reading_them_and_repaired(cli: Cli, world: World, home: Path) -> None:
    place = ("--source", world.bucket, "--home", home)
    [path, *_] = stored(home)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    said = cli("doctor", "--verify", "--all", *place)
    assert said.status == 1
    assert "1 are damaged" in words(said)
    assert "give both" in " ".join(cli("doctor", "--all", *place).err.split())
    said = cli("doctor", "--verify", "--all", "--repair", *place)
    assert said.status == 0, said.out
    said = cli("doctor", "--verify", "--all", *place)
    assert said.status == 0
    assert "the digests are those of the index" in words(said)
