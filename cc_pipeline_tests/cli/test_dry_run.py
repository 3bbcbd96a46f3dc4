"""``--dry-run`` of any command changes no file of a home, its lake or its instance."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import typer

from cc_pipeline.cli.app import app
from cc_pipeline_tests.cli.conftest import Cli, World

pytestmark = pytest.mark.xdist_group("cli homes")

#: Arguments of every command with ``--dry-run``.
ARGUMENTS: dict[tuple[str, ...], tuple[str, ...]] = {("targets", "remove"): ("example.com", "--purge")}


def commands_with_dry_run(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if isinstance(command, click.Group):
        for name, subcommand in command.commands.items():
            yield from commands_with_dry_run(subcommand, (*path, name))
    elif any("--dry-run" in option.opts for option in command.params):
        yield path


def contents(folder: Path) -> dict[Path, tuple[int, int, str]]:
    """All files and folders below ``folder``: size, time of the last change, and a digest of what is in them."""
    return {
        path: (path.stat().st_size, path.stat().st_mtime_ns, digest_of(path)) for path in [folder, *folder.rglob("*")]
    }


def digest_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


def test_every_command_with_a_dry_run_is_tested() -> None:
    assert {*commands_with_dry_run(typer.main.get_command(app))} == {*ARGUMENTS}


@pytest.mark.parametrize("state", ["used", "without its note", "a lake elsewhere", "only a list"])
@pytest.mark.parametrize("command", ARGUMENTS, ids=" ".join)
def test_a_dry_run_changes_nothing(
    command: tuple[str, ...], state: str, world: World, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    if state == "only a list":
        home.mkdir()
    else:
        shutil.copytree(world.untouched, home)
    (home / "domains.txt").write_text("# mine\nexample.com\n", "utf-8")
    if state == "without its note":
        (home / "home.json").unlink()
    if state == "a lake elsewhere":
        monkeypatch.setenv("CC_PIPELINE_LAKE", str(home / "lake"))
        home = tmp_path / "other home"
    before = contents(tmp_path)
    for flags in ((), ("--yes",), ("--now",)):
        said = cli(*command, *ARGUMENTS[command], "--dry-run", *flags, "--home", home)
        assert (said.status, "nothing was changed" in said.out) == (0, True), said.err
        assert contents(tmp_path) == before
