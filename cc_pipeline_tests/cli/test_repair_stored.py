"""``doctor`` on lost and damaged stored records: it names them, and fetches them again when asked."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from cc_pipeline_tests.cli.conftest import NEW, Cli, World

pytestmark = pytest.mark.xdist_group("cli homes")


@pytest.fixture
def home(world: World, tmp_path: Path) -> Path:
    return Path(shutil.copytree(world.untouched, tmp_path / "home", ignore=shutil.ignore_patterns("dagster")))


def stored(home: Path) -> list[Path]:
    return sorted((home / "lake" / "records" / NEW).glob("*.warc.gz"))


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
    for path in stored(home):
        path.unlink()
    assert "records were requested again, parsed and published" in cli("doctor", "--repair", "--home", home).shown
    assert "nothing to repair" in cli("doctor", "--repair", "--home", home).shown
