"""Reports: a page about a target."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from cc_pipeline.extension import Extension

if TYPE_CHECKING:
    import dagster as dg

    from cc_pipeline.cli.command import Row
    from cc_pipeline.defs.home_namespace import HomeNamespace


def _commands() -> Mapping[str, Row]:
    from cc_pipeline.extensions.reports.commands import COMMANDS

    return COMMANDS


def _definitions(namespace: HomeNamespace) -> dg.Definitions:
    from cc_pipeline.extensions.reports.definitions import define

    return define(namespace)


EXTENSION = Extension(
    name="reports",
    summary="a page about a target, with what changed between two crawls",
    commands=_commands,
    definitions=_definitions,
)
