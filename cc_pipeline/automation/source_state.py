"""Whether the source can be asked now: the state of its circuit breaker, and one request."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from cc_pipeline.addresses import Access, scheme_of
from cc_pipeline.errors import CcPipelineError, EnvironmentFault
from cc_pipeline.harvesting.crawls import evidence
from cc_pipeline.settings import Settings
from cc_pipeline.transport.ranges import RetryPolicy
from cc_pipeline.transport.states import HostState, budget_state
from cc_pipeline.workspace.workspace import Workspace, open_transport

#: A failed request is not repeated: the next tick asks again.
_SINGLE_ATTEMPT = RetryPolicy(attempts=1)


def find_open_breaker(workspace: Workspace) -> HostState | None:
    """Returns the state of the source's host if its breaker and those of all mirrors are open, so that no request is
    sent. Returns ``None`` otherwise.

    Costs no request. Raises ``EnvironmentFault`` for a damaged budget file.
    """
    states = {state.host: state for state in budget_state(workspace.settings.budget_path) if state.breaker_open}
    breaker_states = [states.get(host) for host in workspace.transport.hosts]
    # one available mirror is enough
    return breaker_states[0] if None not in breaker_states else None


def find_source_trouble(workspace: Workspace, crawl: str) -> str | None:
    """Returns why the source cannot be asked for ``crawl`` now; ``None`` if it answers, whatever the answer is.

    Costs one request for each mirror until one answers, and none while the breaker is open. Raises nothing.
    """
    settings = workspace.settings
    try:
        open_breaker = find_open_breaker(workspace)
    except EnvironmentFault as fault:
        return str(fault)
    if open_breaker is not None:
        until = f"{open_breaker.breaker_open_until:%Y-%m-%d %H:%M} UTC"
        return f"{open_breaker.host} refuses requests ({open_breaker.last_refusal}): none is sent until {until}"
    addresses = ((settings.source, settings.source_access), *settings.further_places)
    first_trouble = None
    for address, access in addresses:
        trouble = find_address_trouble(settings, address, access, crawl)
        if trouble is None:
            return None
        first_trouble = first_trouble or trouble
    return first_trouble


def find_address_trouble(settings: Settings, address: str, access: Access, crawl: str) -> str | None:
    """Returns why one address cannot be asked for ``crawl`` now; ``None`` if it answers. Costs one request, raises
    nothing."""
    if not scheme_of(address):
        return None if Path(address).is_dir() else f"the folder {address} does not exist"
    try:
        with open_transport(replace(settings, wait=0.0), address, access, _SINGLE_ATTEMPT) as transport:
            key = evidence(settings, crawl)
            if key is not None:
                transport.exists(key)
    except CcPipelineError as fault:
        return f"{address} does not answer ({fault})"
    return None
