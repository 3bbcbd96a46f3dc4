"""Path lists of the source: read once to find out both whether a crawl is published and which files it has."""

from __future__ import annotations

from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.transport.faults import FaultKind, RangeFault, advice
from cc_pipeline.workspace.workspace import Workspace


class _PathListCache(dict[str, bytes]):
    """Path lists by key, as received: one command reads each only once."""


def path_list_exists(workspace: Workspace, key: str) -> bool:
    """Whether the source has the path list ``key``. The list itself is requested, which costs no more than a HEAD, and
    cached for :func:`read_path_list`. Raises ``RangeFault`` if the source does not answer."""
    try:
        data = workspace.transport.read_all(key).data
    except RangeFault as fault:
        if fault.kind is FaultKind.NOT_FOUND:
            return False
        raise
    workspace.command_value(_PathListCache)[key] = data
    return True


def path_list_fault(crawl: str, key: str, fault: RangeFault) -> EnvironmentFault:
    """Returns the error for a path list ``key`` that the source does not have, or does not return."""
    if fault.kind is FaultKind.NOT_FOUND:
        return EnvironmentFault(
            f"the source has no {key}, the list of the files of {crawl}: the crawl is not published yet, or the source "
            "does not have it",
            "Run it once it is published, or check that CC_PIPELINE_SOURCE is the source you mean: cc-pipeline doctor.",
        )
    remedy = advice(fault.kind, "Check the network and the source (cc-pipeline doctor), or run it again later")
    return EnvironmentFault(f"the path list of {crawl} at {key} could not be read ({fault.kind.value})", f"{remedy}.")


def read_path_list(workspace: Workspace, key: str) -> bytes:
    """Returns the path list ``key`` as received; a command requests it once. Raises ``RangeFault``."""
    cache = workspace.command_value(_PathListCache)
    data = cache.pop(key, None) or workspace.transport.read_all(key).data
    if workspace.one_command:
        cache[key] = data
    return data
