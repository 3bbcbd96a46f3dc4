"""The command ``team init``: writes the folder of an instance for several users, on one or several hosts."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated

import typer

from cc_pipeline.cli.commands.settings import print_written
from cc_pipeline.errors import EnvironmentFault, UserInputError
from cc_pipeline.settings import load_settings, normalise_root

team = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="An instance of Dagster for several people, on one host or several (docs/extensions/several_machines.md).",
)
_PRIVATE_MODE = 0o600
#: The user of containers if root writes their files.
_CONTAINER_USER = "10001:10001"
_HOST_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?")


@team.callback()
def group() -> None:
    """Keeps ``init`` a subcommand."""


@team.command()
def init(
    folder: Annotated[Path | None, typer.Argument(help="Folder of the files (default: the current one).")] = None,
    lake: Annotated[str | None, typer.Option(metavar="S3", help="s3://bucket/prefix of tables and records.")] = None,
    logs: Annotated[str | None, typer.Option(metavar="S3", help="s3://bucket/prefix of the logs of runs.")] = None,
    endpoint: Annotated[str | None, typer.Option(metavar="URL", help="S3 endpoint of both, if it is not AWS.")] = None,
    hosts: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES", help="Hosts that fetch, comma-separated, as NAME or NAME:PORT; the first publishes."
        ),
    ] = None,
) -> None:
    r"""Write the folder of an instance for several people, which is also its home. Existing files are kept.

    The folder has a dagster.yaml (PostgreSQL, queued runs, compute logs on S3), a workspace.yaml, a .env for settings
    and secrets, and an example for Docker. docs/extensions/several_machines.md has the next steps. Source, contact and
    region are taken from CC_PIPELINE_SOURCE, CC_PIPELINE_CONTACT and CC_PIPELINE_S3_REGION.

    [bold]Examples[/]

      cc-pipeline team init /srv/cc --lake s3://lake/cc --logs s3://logs/cc

      cc-pipeline team init . --lake s3://lake/cc --logs s3://logs/cc \
        --endpoint http://minio:9000

      cc-pipeline team init . --lake s3://lake/cc --logs s3://logs/cc \
        --hosts one.internal,two.internal
    """
    place = Path.cwd() if folder is None else folder.expanduser().resolve()
    print_written(_write_team(place, lake, logs, endpoint or "", _parse_hosts(hosts)))


def _parse_hosts(hosts: str | None) -> tuple[tuple[str, int], ...]:
    """Parses name and port of each host's code server."""
    servers = []
    for text in (hosts or "").split(","):
        name, _, port = text.strip().partition(":")
        if not name and hosts is None:
            continue
        if not _HOST_NAME.fullmatch(name) or not (port or "4000").isdecimal():
            raise UserInputError(f"--hosts has {text!r}; give names of hosts with commas: one.internal,two.internal")
        if name.lower() == "localhost" or name.startswith("127.") or name == "0.0.0.0":
            raise UserInputError(
                f"--hosts has {text!r}, which means another host on each host; give names that all hosts can resolve"
            )
        servers.append((name, int(port or 4000)))
    if len(servers) == 1 or len({*servers}) < len(servers):
        raise UserInputError("--hosts names one host only, or one host twice; leave it out if only one host fetches")
    return tuple(servers)


def _write_team(
    folder: Path, lake: str | None, logs: str | None, endpoint: str, hosts: tuple[tuple[str, int], ...]
) -> list[Path]:
    """Writes the missing files of the folder, and returns their paths."""
    from cc_pipeline.extensions.several_machines.team import Team, team_files  # it imports dagster

    # Loading the settings validates them, including credentials in an address.
    settings = load_settings(home=str(folder), lake=_require_s3("--lake", lake), lake_endpoint=endpoint or None)
    team = Team(
        settings.source,
        settings.lake,
        _require_s3("--logs", logs),
        endpoint,
        settings.s3_region,
        settings.contact,
        f"{os.getuid()}:{os.getgid()}" if os.getuid() else _CONTAINER_USER,
        hosts,
    )
    missing = {folder / name: text for name, text in team_files(team).items() if not (folder / name).exists()}
    try:
        for path, text in missing.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            # Files are private from the start, because one of them will have secrets.
            with open(
                os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE_MODE), "w", encoding="utf-8"
            ) as file:
                file.write(text)
            if path.name != ".env":
                path.chmod(0o644)
    except OSError as error:
        raise EnvironmentFault(
            f"{folder} cannot be written: {error.strerror or error}", "Check the disk and its permissions."
        ) from error
    return list(missing)


def _require_s3(flag: str, place: str | None) -> str:
    if place is None:
        raise UserInputError(f"the team's folder needs {flag} s3://bucket/prefix")
    root = normalise_root(place)
    if not root.startswith("s3://"):
        raise UserInputError(f"{flag} is {place!r}; a team needs s3://bucket/prefix, which all of its hosts can reach")
    return root
