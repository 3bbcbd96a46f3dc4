"""The doctor's findings about rate leases: whether the database answers, and whether other homes lease and this one
does not.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Final

from cc_pipeline.checks.doctor import format_limits
from cc_pipeline.checks.finding import Finding
from cc_pipeline.errors import CcPipelineError
from cc_pipeline.extensions.several_machines.rate_leases import (
    RATE_SOURCE,
    PostgresLedger,
    has_server_variable,
    server_text,
)
from cc_pipeline.progress import format_count
from cc_pipeline.settings import PREFIX, Settings
from cc_pipeline.transport.rate_source import RateSourceDown
from cc_pipeline.workspace.workspace import Workspace, limits_of

#: Seconds: a home that leased within a day counts as leasing.
_LEASED_LATELY: Final = 86_400.0


def examine_leases(workspace: Workspace) -> Iterator[Finding]:
    """Yields a finding if this home leases its requests, or if other homes do and this one does not."""
    settings = workspace.settings
    if settings.rate_source == RATE_SOURCE:
        yield _lease_finding(settings)
    elif settings.has_own_rate:
        yield from _leased_by_others()


def _leased_by_others() -> Iterator[Finding]:
    """Other homes lease the whole rate of the source, and this home sends its own share in addition."""
    seconds_ago = None
    if has_server_variable():
        with closing(PostgresLedger(creates_tables=False)) as ledger, suppress(RateSourceDown, CcPipelineError):
            seconds_ago = ledger.last_used()
    if seconds_ago is not None and seconds_ago < _LEASED_LATELY:
        yield Finding(
            "bad",
            "budget",
            f"other hosts share their request rate through {server_text()} (last {seconds_ago / 60:,.0f} minutes ago), "
            "but this home does not: together they send more than the source allows",
            f"Set {PREFIX}RATE_SOURCE to the same on all hosts.",
        )


def _lease_finding(settings: Settings) -> Finding:
    text = f"request rate from {server_text()}: {format_limits(limits_of(settings))}, for all hosts together"
    # The doctor changes nothing: a fetch creates the tables.
    with closing(PostgresLedger(creates_tables=False)) as ledger:
        try:
            return Finding("ok", "budget", f"{text}; {format_count(ledger.holders(), 'process', 'are')} fetching now")
        except RateSourceDown as unreachable:
            reason = f"the database does not answer: {unreachable}"
            advice = "Start the database. Nothing is fetched until it answers."
        except CcPipelineError as error:
            reason, advice = str(error), ""
    return Finding("bad", "budget", f"{text}; {reason}", advice)
