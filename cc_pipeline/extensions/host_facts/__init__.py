"""Data that others publish of hosts, joined to hosts and captures: datasets, ranks, filters on facts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from cc_pipeline.extension import Extension

if TYPE_CHECKING:
    from cc_pipeline.checks.check import Check
    from cc_pipeline.cli.command import Command
    from cc_pipeline.cli.known_hosts import KnownHosts
    from cc_pipeline.defs.declarations import HomeDefinitions
    from cc_pipeline.defs.home_namespace import HomeNamespace
    from cc_pipeline.lake.lake import TableSpec
    from cc_pipeline.lake.snapshot import ViewSpec
    from cc_pipeline.settings import Settings
    from cc_pipeline.workspace.workspace import Workspace


def _tables() -> Sequence[TableSpec]:
    from cc_pipeline.extensions.host_facts.tables import TABLES

    return TABLES


def _views() -> Sequence[ViewSpec]:
    from cc_pipeline.extensions.host_facts.views import VIEWS

    return VIEWS


def _commands() -> Mapping[str, Command]:
    from cc_pipeline.extensions.host_facts.commands import COMMANDS

    return COMMANDS


def _known_hosts() -> Mapping[str, KnownHosts]:
    from cc_pipeline.extensions.host_facts import host_predictions

    return {"host_facts": host_predictions}


def _definitions(placement: HomeNamespace) -> HomeDefinitions:
    from cc_pipeline.errors import CcPipelineError
    from cc_pipeline.extensions.host_facts.definitions import make_definitions
    from cc_pipeline.extensions.host_facts.folders import added_datasets

    try:
        settings = placement.load_settings()
    except CcPipelineError:  # the first run says what is wrong with them
        return make_definitions({})
    return make_definitions(added_datasets(settings))


def _checks(settings: Settings) -> Sequence[Check]:
    from cc_pipeline.extensions.host_facts.checks import dataset_checks
    from cc_pipeline.extensions.host_facts.folders import added_datasets

    return dataset_checks(added_datasets(settings))


def _sweep(workspace: Workspace) -> int:
    from cc_pipeline.extensions.host_facts.registered_datasets import sweep_datasets

    return sweep_datasets(workspace.settings)


EXTENSION = Extension(
    name="host_facts",
    summary="sizes, ranks and links of hosts, and your own data by host, domain or URL",
    tables=_tables,
    views=_views,
    commands=_commands,
    known_hosts=_known_hosts,
    definitions=_definitions,
    checks=_checks,
    maintenance=_sweep,
)
