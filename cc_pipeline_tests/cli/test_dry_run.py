"""``--dry-run`` of any command changes no file of a home, its lake or its instance."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
import typer

from cc_pipeline.cli.app import app
from cc_pipeline.settings import load_settings
from cc_pipeline.workspace.workspace import open_workspace
from cc_pipeline_tests.cli.conftest import Cli, World
from cc_pipeline_tests.world import extract, harvest

pytestmark = pytest.mark.xdist_group("cli homes")

#: Arguments of every command with ``--dry-run``.
ARGUMENTS: dict[tuple[str, ...], tuple[str, ...]] = {("targets", "remove"): ("example.com", "--purge")}


def commands_with_dry_run(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            subcommand = command.get_command(context, name)
            assert subcommand is not None
            yield from commands_with_dry_run(subcommand, (*path, name))
    elif any("--dry-run" in option.opts for option in command.params):
        yield path


def contents(folder: Path) -> dict[str, tuple[int, int, str]]:
    """All files and folders below ``folder``: size, time of the last change, and a digest of what is in them."""
    found = {}
    for path in [folder, *folder.rglob("*")]:
        stat = path.stat()
        digest = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        found[str(path.relative_to(folder))] = stat.st_size, stat.st_mtime_ns, digest
    return found


def differing(before: dict[str, tuple[int, int, str]], after: dict[str, tuple[int, int, str]]) -> list[str]:
    return sorted(name for name in {*before, *after} if before.get(name) != after.get(name))


def used(home: Path) -> None:
    (home / "domains.txt").write_text("# mine\nexample.com\n", "utf-8")


def without_notes(home: Path) -> None:
    used(home)
    (home / "home.json").unlink()


def test_every_command_with_a_dry_run_is_tested() -> None:
    assert {*commands_with_dry_run(typer.main.get_command(app))} == {*ARGUMENTS}


@pytest.mark.parametrize("prepare", [used, without_notes])
@pytest.mark.parametrize("command", ARGUMENTS, ids=" ".join)
def test_a_dry_run_changes_nothing(
    command: tuple[str, ...], prepare: Callable[[Path], None], world: World, cli: Cli, tmp_path: Path
) -> None:
    home = shutil.copytree(world.untouched, tmp_path / "home")
    prepare(home)
    before = contents(tmp_path)
    for flags in ((), ("--yes",), ("--now",)):
        said = cli(*command, *ARGUMENTS[command], "--dry-run", *flags, "--home", home)
        assert (said.status, "nothing was changed" in said.out) == (0, True), said.err
        assert not differing(before, contents(tmp_path))


def test_a_dry_run_changes_nothing_of_a_lake_outside_the_home(
    world: World, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, home = tmp_path / "lake", tmp_path / "home"
    settings = load_settings({"CC_PIPELINE_LAKE": str(lake)}, source=str(world.bucket), home=str(home))
    with open_workspace(settings) as workspace:
        harvest(workspace)
        extract(workspace, "example.com")
    monkeypatch.setenv("CC_PIPELINE_LAKE", str(lake))
    before = contents(tmp_path)
    said = cli("targets", "remove", "example.com", "--purge", "--dry-run", "--home", tmp_path / "other home")
    assert (said.status, "example.com  captures " in said.out) == (0, True), said.err
    assert not differing(before, contents(tmp_path))


@pytest.mark.parametrize(("prepare", "lake"), [("nothing", ""), ("list", "lake"), ("add", "")])
def test_a_dry_run_before_the_first_run_changes_nothing(
    prepare: str, lake: str, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    if prepare == "add":
        assert cli("targets", "add", "example.com", "--home", home).status == 0
    elif prepare == "list":
        home.mkdir()
        (home / "domains.txt").write_text("example.com\n", "utf-8")
    if lake:
        monkeypatch.setenv("CC_PIPELINE_LAKE", str(tmp_path / lake))
    before = contents(tmp_path)
    said = cli("targets", "remove", "example.com", "--purge", "--dry-run", "--home", home)
    told = "no target 'example.com'" in said.told if prepare == "nothing" else "nothing was changed" in said.out
    assert (said.status, told) == (int(prepare == "nothing"), True), said.err
    assert not differing(before, contents(tmp_path))
