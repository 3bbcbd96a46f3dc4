"""Several hosts that share a PostgreSQL: a common rate, runs distributed among them, and the files of a team."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from cc_pipeline.extension import Extension

if TYPE_CHECKING:
    from cc_pipeline.checks.finding import Finding
    from cc_pipeline.cli.command import Command
    from cc_pipeline.transport.rate_source import RateSourceOpener
    from cc_pipeline.workspace.workspace import Workspace

# each --help finds extensions


def _rate_sources() -> Mapping[str, RateSourceOpener]:
    from cc_pipeline.extensions.several_machines.rate_leases import RATE_SOURCE, open_leases

    return {RATE_SOURCE: open_leases}


def _launchers() -> Mapping[str, type]:
    from cc_pipeline.extensions.several_machines.run_launcher import SpreadingRunLauncher

    return {"SpreadingRunLauncher": SpreadingRunLauncher}


def _commands() -> Mapping[str, Command]:
    from cc_pipeline.cli.command import FEATURES, Command
    from cc_pipeline.extensions.several_machines.commands import team

    return {"team": Command(team, FEATURES, 90)}


def _doctor(workspace: Workspace) -> Iterator[Finding]:
    from cc_pipeline.extensions.several_machines.findings import examine_leases

    return examine_leases(workspace)


EXTENSION = Extension(
    name="several_machines",
    summary="several hosts with PostgreSQL: a shared rate, runs spread over the hosts, files for a team",
    needs={"dagster_postgres": "several-machines", "psycopg2": "several-machines"},
    rate_sources=_rate_sources,
    launchers=_launchers,
    commands=_commands,
    doctor=_doctor,
)
