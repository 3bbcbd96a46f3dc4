"""What rows depend on belongs to a home: a run that forgets it does not undo it, and it is changed on purpose."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from cc_pipeline.home import read_note
from cc_pipeline.settings import load_settings
from cc_pipeline.workspace.workspace import open_lake
from cc_pipeline_tests.cli.conftest import NEW, Cli, World

pytestmark = pytest.mark.xdist_group("cli homes")

MARKDOWN = "CC_PIPELINE_MARKDOWN"


@pytest.fixture
def home(world: World, tmp_path: Path) -> Path:
    return shutil.copytree(world.untouched, tmp_path / "home")


def chosen(home: Path) -> dict[str, str | bool]:
    note = read_note(home)
    assert note is not None
    return dict(note.choices)


def run(cli: Cli, world: World, home: Path, *more: str) -> tuple[int, str, str]:
    said = cli("run", "-c", NEW, "example.com", "--source", world.bucket, "--home", home, *more)
    changes = [line.split()[2] for line in said.out.splitlines() if line.startswith(NEW)]
    return said.status, changes[0] if changes else "", said.err


@pytest.mark.process
def test_a_choice_is_noted_with_the_first_pages_and_stays(
    cli: Cli, world: World, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert chosen(home) == {"markdown": False, "digest_policy": "record"}
    pages = open_lake(load_settings({}, home=str(home))).pin("page_metadata").rows
    monkeypatch.setenv(MARKDOWN, "yes")
    before = (home / "home.json").read_bytes()
    status, _, err = run(cli, world, home)
    # nobody can be asked here, so nothing is parsed again by the way
    assert status == 1
    assert f"would parse its pages again ({pages:,} pages in all)" in " ".join(err.split())
    assert (home / "home.json").read_bytes() == before
    assert run(cli, world, home, "--yes")[:2] == (0, "updated")
    assert chosen(home)["markdown"] is True
    # a run that forgets the variable, or has another one, undoes nothing
    assert load_settings({}, home=str(home)).markdown
    # whatever starts a run, the UI too, reads its settings here
    assert load_settings({MARKDOWN: "no"}, home=str(home)).markdown
    assert not load_settings({}, home=str(home), markdown=False).markdown


def test_the_command_shows_settings_and_changes_what_the_home_has(
    cli: Cli, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC_PIPELINE_WORKERS", "2")
    monkeypatch.setenv("CC_PIPELINE_MARKDOWN", "yes")
    monkeypatch.setenv("CC_PIPELINE_WEBHOOK", "https://hook.example/s3cret")
    monkeypatch.delenv("CC_PIPELINE_SOURCE", raising=False)
    said = cli("settings", "--home", home)
    assert (said.status, "s3cret" in said.out + said.err) == (0, False)
    shown = {line.split()[0]: line for line in said.out.splitlines()}
    assert all(len(line.split()) > 2 for line in shown.values()), "what has no value is not shown"
    assert shown["home"].split() == ["home", str(home), "--home"]
    assert shown["source"].endswith("the home")
    assert shown["digest_policy"].split() == ["digest_policy", "record", "the", "home"]
    assert shown["markdown"].split() == ["markdown", "no", "the", "home"]
    assert shown["workers"].split() == ["workers", "2", "CC_PIPELINE_WORKERS"]
    assert not {"source_access", "collinfo_access", "webhook"} & set(shown)
    doctor = cli("doctor", "--home", home)
    assert "this home uses markdown=no, so CC_PIPELINE_MARKDOWN=yes is ignored" in " ".join(
        (doctor.out + doctor.err).split()
    )
    refused = cli("settings", "markdown=yes", "--home", home)
    assert (refused.status, "unset CC_PIPELINE_MARKDOWN" in refused.told) == (1, True)
    monkeypatch.delenv("CC_PIPELINE_MARKDOWN")
    assert "Confirm with --yes" in (told := cli("settings", "markdown=yes", "--home", home).told)
    assert "unset" not in told, "no variable is set"
    assert chosen(home)["markdown"] is False
    assert cli("settings", "markdown=yes", "--yes", "--home", home).status == 0
    assert chosen(home)["markdown"] is True
    assert "did you mean markdown" in cli("settings", "markdwon=yes", "--home", home).told
    for wrong in ("digest_policy=best", "rate=5", "markdown"):
        assert cli("settings", wrong, "--yes", "--home", home).status == 1
    assert chosen(home) == {"markdown": True, "digest_policy": "record"}


def test_a_home_whose_source_has_moved_is_told_its_new_address(cli: Cli, world: World, home: Path) -> None:
    moved = home.parent / "moved"
    shutil.copytree(world.bucket, moved)
    refused = cli("plan", "-c", NEW, "example.com", "--source", moved, "--home", home)
    assert refused.status == 1
    # long paths are wrapped
    assert "".join(f"cc-pipeline settings source={moved}".split()) in "".join(refused.told.split())
    assert cli("settings", f"source={moved}", "--home", home).status == 0
    assert read_note(home / "none", home / "lake") == read_note(home), "so does the copy in the lake"
    assert load_settings({}, home=str(home)).source == str(moved)
    plan = cli("plan", "-c", NEW, "example.com", "--home", home)
    assert (plan.status, "up to date" in plan.told) == (0, True)
    assert "no home yet" in cli("settings", f"source={moved}", "--home", home / "none").told
