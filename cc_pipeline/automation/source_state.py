"""Whether the source can be asked now: the state of its circuit breaker, and one request."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from cc_pipeline.addresses import scheme_of
from cc_pipeline.errors import CcPipelineError, EnvironmentFault
from cc_pipeline.harvesting.crawls import evidence
from cc_pipeline.transport.ranges import RetryPolicy
from cc_pipeline.transport.states import HostState, budget_state
from cc_pipeline.workspace.workspace import Workspace, open_transport

#: A failed request is not repeated: the next tick asks again.
_SINGLE_ATTEMPT = RetryPolicy(attempts=1)


def find_open_breaker(workspace: Workspace) -> HostState | None:
    """Returns the state of the source's host if its breaker is open, so that no request is sent; else ``None``.

    Costs no request. Raises ``EnvironmentFault`` for a damaged budget file.
    """
    states = budget_state(workspace.settings.budget_path)
    host = workspace.transport.host
    return next((state for state in states if state.host == host and state.breaker_open), None)


def find_source_trouble(workspace: Workspace, crawl: str) -> str | None:
    """Returns why the source cannot be asked for ``crawl`` now; ``None`` if it answers, whatever the answer is.

    Costs one request, and none while the breaker is open. Raises nothing.
    """
    settings = workspace.settings
    try:
        open_breaker = find_open_breaker(workspace)
    except EnvironmentFault as fault:
        return str(fault)
    if open_breaker is not None:
        until = f"{open_breaker.breaker_open_until:%Y-%m-%d %H:%M} UTC"
        return f"{open_breaker.host} refuses requests ({open_breaker.last_refusal}): none is sent until {until}"
    address = settings.source
    if not scheme_of(address):
        return None if Path(address).is_dir() else f"the folder {address} does not exist"
    try:
        with open_transport(replace(settings, wait=0.0), address, settings.source_access, _SINGLE_ATTEMPT) as transport:
            key = evidence(settings, crawl)
            if key is not None:
                transport.exists(key)
    except CcPipelineError as fault:
        return f"{address} does not answer ({fault})"
    return None
