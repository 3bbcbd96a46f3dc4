"""Whether the source can be asked now: the state of its host, and one request."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from cc_pipeline.addresses import scheme_of
from cc_pipeline.errors import CcPipelineError, EnvironmentFault
from cc_pipeline.harvesting.crawls import evidence
from cc_pipeline.transport.host_file import read_hosts
from cc_pipeline.transport.ranges import RetryPolicy
from cc_pipeline.workspace.workspace import Workspace, open_transport

#: A failed request is not repeated: the next tick asks again.
_SINGLE_ATTEMPT = RetryPolicy(attempts=1)


def find_source_trouble(workspace: Workspace, crawl: str) -> str | None:
    """Returns why the source cannot be asked for ``crawl`` now; ``None`` if it answers, whatever the answer is.

    Costs one request, and none while the host refuses. Raises nothing.
    """
    settings, host = workspace.settings, workspace.transport.host
    try:
        reports = [report for report in read_hosts(settings.budget_path) if report.host == host]
    except EnvironmentFault as fault:
        return str(fault)
    for report in reports:
        if report.refuses_until is not None:
            until = f"{report.refuses_until:%Y-%m-%d %H:%M} UTC"
            return f"{host} refuses requests ({report.last_refusal}): none is sent until {until}"
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
