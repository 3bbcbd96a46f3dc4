"""The command ``mcp``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cc_pipeline.cli import options
from cc_pipeline.cli.command import FEATURES, Command
from cc_pipeline.errors import EnvironmentFault


def mcp(overrides: Mapping[str, Any]) -> None:
    """Serve lookup, get, sql and plan to a program that speaks the Model Context Protocol, over stdin and stdout.

    Such a program starts this command itself. sql reads the published tables and nothing else. get fetches a record
    only if it is called with yes; nothing is stored.

    [bold]Examples[/]

      claude mcp add cc-pipeline -- cc-pipeline mcp --home /data/cc
    """
    from cc_pipeline.api.home import open_home

    try:
        from cc_pipeline.extensions.mcp.server import build_server
    except ModuleNotFoundError as error:
        raise EnvironmentFault(
            f"the package {error.name} is not installed", "Install it with: pip install 'cc-pipeline[mcp]'"
        ) from error
    build_server(open_home(**overrides, quiet=True)).run("stdio")


COMMANDS = {"mcp": Command(mcp, FEATURES, 60, options.REMOTE)}
