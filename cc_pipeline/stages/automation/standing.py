"""Whether the source can be asked just now: its circuit breaker, and one request."""

from __future__ import annotations

from pathlib import Path

from cc_pipeline.addresses import host_of, scheme_of
from cc_pipeline.commoncrawl.paths import path_list_key
from cc_pipeline.errors import CcPipelineError
from cc_pipeline.stages.workspace import Workspace, open_transport
from cc_pipeline.transport.ranges import RetryPolicy
from cc_pipeline.transport.states import HostState, budget_state

#: The next tick asks again.
_ONCE = RetryPolicy(attempts=1)


def breaker(workspace: Workspace) -> HostState | None:
    """How the source's host stands while its breaker is open: nothing is sent to it then. Costs no request."""
    host = host_of(workspace.settings.source)
    states = budget_state(workspace.settings.budget_path)
    return next((state for state in states if state.host == host and state.breaker_open), None)


def trouble_of_source(workspace: Workspace, crawl: str) -> str | None:
    """Why the source cannot be asked for ``crawl`` now, for a person; ``None`` where it answers, whatever it says.

    It costs one request, and none while the breaker is open. Raises nothing.
    """
    settings = workspace.settings
    stopped = breaker(workspace)
    if stopped is not None:
        until = f"{stopped.breaker_open_until:%Y-%m-%d %H:%M} UTC"
        return f"{stopped.host} refuses ({stopped.last_refusal}): no request is sent until {until}"
    if not scheme_of(settings.source):
        return None if Path(settings.source).is_dir() else f"the folder {settings.source} is not there"
    try:
        with open_transport(settings, settings.source, settings.source_access, _ONCE) as transport:
            transport.exists(path_list_key(crawl, "cc-index-table"))
    except CcPipelineError as fault:
        return f"{settings.source} does not answer ({fault})"
    return None
