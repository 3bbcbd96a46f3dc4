"""A server of the Model Context Protocol: a program may look up captures, read pages, and query a home."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from cc_pipeline.extension import Extension

if TYPE_CHECKING:
    from cc_pipeline.cli.command import Row


def _commands() -> Mapping[str, Row]:
    from cc_pipeline.extensions.mcp.commands import COMMANDS

    return COMMANDS


EXTENSION = Extension(name="mcp", summary="lookups, pages and queries for programs that speak MCP", commands=_commands)
