"""``settings``, also those that belong to a home; ``init``, files that tell Dagster's programs where the state is."""

from __future__ import annotations

import os
import re
from collections.abc import Container
from pathlib import Path
from typing import Annotated

import typer

from cc_pipeline.cli import options
from cc_pipeline.cli.command import HOME, Command
from cc_pipeline.cli.output import console, write_rows
from cc_pipeline.errors import EnvironmentFault, UserInputError
from cc_pipeline.home import read_note
from cc_pipeline.python.choices import choose_anew, read_choices
from cc_pipeline.settings import CHOICES, PREFIX, choices_of, in_environment, load_settings, normalise_root
from cc_pipeline.settings.declaration import as_text
from cc_pipeline.settings.reading import process_values, values_by_declaration


def settings(
    choice: Annotated[
        list[str] | None, typer.Argument(metavar="NAME=VALUE…", help=f"A new choice: {', '.join(CHOICES)}.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    home: options.Home = None,
) -> None:
    """Show the settings and where each comes from, or change one that belongs to the home.

    What rows depend on belongs to a home once pages were parsed with it: a variable does not change it by itself.

    [bold]Examples[/]

      cc-pipeline settings

      cc-pipeline settings extractor=quality
    """
    found = load_settings(home=home)
    if choice:
        choose_anew(found, read_choices(found, dict(_pair(text) for text in choice)), yes=yes)
        return
    note = read_note(found.home)
    chosen = choices_of(note) if note is not None else {}
    rows = [
        (one.name, as_text(value), _origin(one.name, chosen, noted=note is not None, told=home is not None))
        for one, value in (*values_by_declaration(found), *process_values())
        if not one.facts.is_secret
    ]
    write_rows(f"settings of {found.home}", ["setting", "value", "from"], rows)


def _origin(name: str, chosen: Container[str], *, noted: bool, told: bool) -> str:
    """Where the value of a setting comes from, of a home that is ``noted`` and was ``told`` on the command line."""
    variable = PREFIX + name.upper()
    if name == "home" and told:
        return "--home"
    if name in chosen:
        return "the home"
    if in_environment(name):
        return variable
    return "the home" if noted and name == "source" else f"default ({variable})"


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not value:
        raise UserInputError(f"{text!r} is no choice; write it like extractor=quality")
    return name.strip().lower().removeprefix(PREFIX.lower()), value.strip()


_PRIVATE = 0o600
#: Who containers run as where root writes their files.
_NOBODY = "10001:10001"
_HOST_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?")


def init(
    folder: Annotated[Path | None, typer.Argument(help="Folder of the files (default: the current one).")] = None,
    team: Annotated[
        bool,
        typer.Option(
            "--team", help="For several people: state in PostgreSQL, lake and compute logs on S3, Docker files."
        ),
    ] = False,
    lake: Annotated[
        str | None, typer.Option(metavar="S3", help="With --team: s3://bucket/prefix of tables and records.")
    ] = None,
    logs: Annotated[
        str | None, typer.Option(metavar="S3", help="With --team: s3://bucket/prefix of what runs print.")
    ] = None,
    endpoint: Annotated[
        str | None, typer.Option(metavar="URL", help="With --team: the S3 server of both, if it is not AWS.")
    ] = None,
    hosts: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="With --team: hosts that fetch, as NAME or NAME:PORT with commas; the first publishes.",
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Do not name the files that were written.")] = False,
) -> None:
    """Write the files that Dagster's own programs read. Files that are there stay as they are.

    Without [bold]--team[/]: a .env in the folder and a dagster.yaml in the home, so that plain `dagster dev` and
    `dg dev` open the state that `cc-pipeline ui` opens.

    With [bold]--team[/]: the folder of an instance for several people, which is its home too. It has a dagster.yaml
    (PostgreSQL, queued runs, compute logs on S3), a workspace.yaml, a .env for settings and secrets, and an example
    for Docker. docs/deployment.md goes on from there. Source, contact and region are taken from CC_PIPELINE_SOURCE,
    CC_PIPELINE_CONTACT and CC_PIPELINE_S3_REGION.

    [bold]Examples[/]

      cc-pipeline automation init

      cc-pipeline automation init --team /srv/cc_pipeline --lake s3://our-lake/cc --logs s3://our-logs/cc

      cc-pipeline automation init --team . --lake s3://lake/cc --logs s3://logs/cc --endpoint http://minio:9000

      cc-pipeline automation init --team . --lake s3://lake/cc --logs s3://logs/cc --hosts one.internal,two.internal
    """
    place = Path.cwd() if folder is None else folder.expanduser().resolve()
    if team:
        _say(_write_team(place, lake, logs, endpoint or "", _servers(hosts)), quiet)
        return
    if lake or logs or endpoint or hosts:
        raise UserInputError(
            "--lake, --logs, --endpoint and --hosts are for --team; for your own home set CC_PIPELINE_LAKE"
        )
    from cc_pipeline.defs.instance import prepare_files

    place.mkdir(parents=True, exist_ok=True)
    _say(prepare_files(load_settings(), place), quiet)


def _servers(hosts: str | None) -> tuple[tuple[str, int], ...]:
    """Name and port of each host's code server."""
    found = []
    for text in (hosts or "").split(","):
        name, _, port = text.strip().partition(":")
        if not name and hosts is None:
            continue
        if not _HOST_NAME.fullmatch(name) or not (port or "4000").isdecimal():
            raise UserInputError(f"--hosts has {text!r}; give names of hosts with commas: one.internal,two.internal")
        if name == "localhost" or name.startswith("127."):
            raise UserInputError(
                f"--hosts has {text!r}, which is another machine on each host; give names that all know"
            )
        found.append((name, int(port or 4000)))
    if len(found) == 1 or len({*found}) < len(found):
        raise UserInputError("--hosts names one host, or one twice; leave it out where one host fetches")
    return tuple(found)


def _write_team(
    folder: Path, lake: str | None, logs: str | None, endpoint: str, hosts: tuple[tuple[str, int], ...]
) -> list[Path]:
    """Writes what is missing of the folder's files, and gives the paths of these."""
    from cc_pipeline.defs.team import Team, team_files

    # the checks of all settings, among them credentials that stand in an address
    settings = load_settings(home=str(folder), lake=_on_s3("--lake", lake), lake_endpoint=endpoint or None)
    team = Team(
        settings.source_text,
        settings.lake,
        _on_s3("--logs", logs),
        endpoint,
        settings.s3_region,
        settings.contact,
        f"{os.getuid()}:{os.getgid()}" if os.getuid() else _NOBODY,
        hosts,
    )
    missing = {folder / name: text for name, text in team_files(team).items() if not (folder / name).exists()}
    try:
        for path, text in missing.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            # private from its first byte on: secrets are written into one of them
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE), "w", encoding="utf-8") as file:
                file.write(text)
            if path.name != ".env":
                path.chmod(0o644)
    except OSError as error:
        raise EnvironmentFault(
            f"{folder} cannot be written: {error.strerror or error}", "Check the disk and its permissions."
        ) from error
    return list(missing)


def _on_s3(flag: str, place: str | None) -> str:
    if place is None:
        raise UserInputError(f"--team needs {flag} s3://bucket/prefix")
    root = normalise_root(place)
    if not root.startswith("s3://"):
        raise UserInputError(
            f"{flag} is {place!r}; a team's place is s3://bucket/prefix, which all of its hosts can reach"
        )
    return root


def _say(written: list[Path], quiet: bool) -> None:
    if quiet:
        return
    for path in written:
        console.print(f"wrote {path}", soft_wrap=True)
    if not written:
        console.print("every file is there already; none was changed")


COMMANDS = {"settings": Command(settings, HOME, 20)}
