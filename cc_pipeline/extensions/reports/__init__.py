"""Reports: a page about a target, and the changes between two crawls as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from cc_pipeline.extension import Extension

if TYPE_CHECKING:
    import dagster as dg

    from cc_pipeline.checks.check import Check
    from cc_pipeline.cli.command import Row
    from cc_pipeline.defs.home_namespace import HomeNamespace


def _commands() -> Mapping[str, Row]:
    from cc_pipeline.extensions.reports.commands import COMMANDS

    return COMMANDS


def _definitions(namespace: HomeNamespace) -> dg.Definitions:
    from cc_pipeline.extensions.reports.definitions import define

    return define(namespace)


def _checks() -> Sequence[Check]:
    from cc_pipeline.extensions.reports.checks import CHECKS

    return CHECKS


EXTENSION = Extension(
    name="reports",
    summary="a page about a target, and what changed between two crawls",
    commands=_commands,
    definitions=_definitions,
    checks=_checks,
)
