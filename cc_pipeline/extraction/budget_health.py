"""The request budget as ``cc-pipeline doctor`` shows it: who is slowed down, who refuses, until when."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from cc_pipeline.extraction.health import Finding
from cc_pipeline.settings import Settings
from cc_pipeline.transport.budget_state import HostState, budget_state


def budget_findings(settings: Settings) -> Iterator[Finding]:
    """A finding per host ever asked from this home, or one that says nothing was asked yet."""
    states = budget_state(settings.budget_path)
    if not states:
        yield Finding("ok", "budget", f"no shared budget in use; limits: {_limits(settings)}")
    for state in states:
        yield _finding(state)


def _finding(state: HostState) -> Finding:
    allowed = "unlimited" if state.full_rate is None else f"{state.full_rate:g} requests/s"
    text = f"{state.host}: {allowed}, {state.concurrency} under way at most, {state.processes} processes now"
    refused = ""
    if state.last_refusal is not None and state.last_refusal_at is not None:
        refused = f"; last refusal {state.last_refusal} at {_moment(state.last_refusal_at)}"
    if state.breaker_open_until is not None:
        return Finding(
            "bad",
            "breaker",
            f"{state.host} refuses: nothing is sent until {_moment(state.breaker_open_until)}{refused}",
            f"Wait; runs go on where they stopped. To try at once: cc-pipeline doctor --reset-breaker {state.host}",
        )
    if state.paused_until is not None:
        return Finding("note", "budget", f"{text}; paused until {_moment(state.paused_until)}{refused}")
    if state.rate is not None and state.full_rate is not None and state.rate < state.full_rate:
        return Finding("note", "budget", f"{text}; slowed down to {state.rate:.2g} requests/s{refused}")
    return Finding("ok", "budget", text + refused)


def _limits(settings: Settings) -> str:
    rate = "the source's own" if settings.rate is None else f"{settings.rate:g} requests/s"
    at_once = "" if settings.concurrency is None else f", {settings.concurrency} under way"
    return rate + at_once


def _moment(when: datetime) -> str:
    return when.strftime("%Y-%m-%d %H:%M:%S UTC")
