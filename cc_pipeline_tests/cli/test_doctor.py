"""``doctor``: it names what is lost or refused, and mends it when asked."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from cc_pipeline.settings import load_settings
from cc_pipeline.transport.limits import SourceLimits
from cc_pipeline_tests.cli.conftest import NEW, Cli, World
from cc_pipeline_tests.refusing_hosts import make_refuse

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


def test_doctor_shows_who_refuses_and_lets_a_person_try_again(cli: Cli, world: World, tmp_path: Path) -> None:
    settings = load_settings({}, source=str(world.bucket), home=str(tmp_path))
    make_refuse(settings.budget_path, "data.example.org", SourceLimits(10.0, 8))
    said = cli("doctor", "--source", world.bucket, "--home", tmp_path)
    assert said.status == 1
    assert "data.example.org refuses" in said.out
    assert "--reset-host data.example.org" in " ".join(said.out.split())
    said = cli("doctor", "--source", world.bucket, "--home", tmp_path, "--reset-host", "data.example.org")
    assert said.status == 0
    assert cli("doctor", "--home", tmp_path, "--reset-host", "elsewhere").status == 1
