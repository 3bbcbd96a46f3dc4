"""Usage preferences of sites and pages for robots, from their captures, and data sets of texts that respect them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cc_pipeline.extension import Extension

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import dagster as dg

    from cc_pipeline.cli.command import Row
    from cc_pipeline.defs.home_namespace import HomeNamespace
    from cc_pipeline.lake.lake import TableSpec
    from cc_pipeline.lake.snapshot import MacroSpec, ViewSpec


def _tables() -> Sequence[TableSpec]:
    from cc_pipeline.extensions.policies.tables import TABLES

    return TABLES


def _views() -> Sequence[ViewSpec]:
    from cc_pipeline.extensions.policies.views import VIEWS

    return VIEWS


def _macros() -> Sequence[MacroSpec]:
    from cc_pipeline.extensions.policies.views import MACROS

    return MACROS


def _commands() -> Mapping[str, Row]:
    from cc_pipeline.extensions.policies.commands import COMMANDS

    return COMMANDS


def _definitions(namespace: HomeNamespace) -> dg.Definitions:
    from cc_pipeline.extensions.policies.definitions import define

    return define(namespace)


EXTENSION = Extension(
    name="policies",
    summary="usage preferences of sites and pages for robots, and data sets of texts that respect them",
    tables=_tables,
    views=_views,
    macros=_macros,
    commands=_commands,
    definitions=_definitions,
)
