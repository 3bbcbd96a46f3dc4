"""What the sensors of failed runs, of a source that refuses and of a publication that is behind do in a tick."""

import http.client
import json
import logging
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import IO, Final

import dagster as dg

from cc_pipeline.addresses import host_of
from cc_pipeline.automation.source_state import breaker
from cc_pipeline.defs.automation.flight import UNFINISHED, flight
from cc_pipeline.defs.partitions import KIND_TAG, STATE_TAG, range_of
from cc_pipeline.defs.placement import Placement
from cc_pipeline.defs.run_notes import keys_in
from cc_pipeline.errors import CcPipelineError
from cc_pipeline.publish.publish import behind
from cc_pipeline.settings import Settings
from cc_pipeline.workspace.workspace import Workspace

#: Seconds until a listener that does not answer is left alone.
_PATIENCE: Final = 10.0

#: Characters of a run's error that are told.
_REASON = 2_000
#: Partitions of a run that are named.
_NAMED = 10
#: Publications of one state of the tables that may fail.
_MOST_FAILURES = 3


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """The address is the person's own choice; no other place gets what is told."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> None:
        return None


def tell(address: str, what: Mapping[str, object]) -> str | None:
    """Posts ``what`` as JSON to ``address``; nothing without one. Gives why it was not taken, without the address,
    which may hold a secret of its own. Raises nothing, asks once, and waits for ``_PATIENCE`` at most.
    """
    if not address:
        return None
    said: list[str | None] = []
    # the patience of a connection begins anew with every byte, and there is none for finding a host's address
    asking = threading.Thread(target=lambda: said.append(_ask(address, what)), name="cc-pipeline-webhook", daemon=True)
    asking.start()
    asking.join(_PATIENCE)
    return said[0] if said else f"{host_of(address)} did not answer in {_PATIENCE:g} seconds"


def _ask(address: str, what: Mapping[str, object]) -> str | None:
    host = host_of(address)
    try:
        request = urllib.request.Request(
            address, json.dumps(what).encode(), {"Content-Type": "application/json"}, method="POST"
        )
        with urllib.request.build_opener(_NoRedirects).open(request, timeout=_PATIENCE):
            return None
    except urllib.error.HTTPError as answer:
        answer.close()
        return f"{host} answered {answer.code}"
    except (OSError, http.client.HTTPException, ValueError) as error:
        return f"{host} could not be told ({type(error).__name__})"


def failed_runs(context: dg.RunFailureSensorContext, workspace: Workspace, at: Placement) -> None:
    """One failed run of any job of this home, whoever launched it."""
    run = context.dagster_run
    if not at.owns(run):
        return
    partitions = partitions_named(context.instance, run.tags)
    said = {
        "event": "run failed",
        "job": run.job_name,
        "run_id": run.run_id,
        "kind": run.tags.get(KIND_TAG, ""),
        "partitions": partitions,
        "reason": (context.failure_event.message or "")[:_REASON],
    }
    named = f" ({', '.join(partitions)})" if partitions else ""
    context.log.error(f"run {run.run_id} of {run.job_name}{named} failed: {said['reason']}")
    _tell(context.log, workspace.settings, said)


def partitions_named(instance: dg.DagsterInstance, tags: Mapping[str, str]) -> list[str]:
    """The first partitions of a run with these tags; of a range its two ends."""
    try:
        listed = keys_in(instance, tags)
    except ValueError:
        listed = []
    if listed is None:
        return [key for key in dict.fromkeys(range_of(tags)) if key]
    more = [f"{len(listed) - _NAMED:,} more"] if len(listed) > _NAMED else []
    return listed[:_NAMED] + more


def source_breaker(
    context: dg.SensorEvaluationContext, workspace: Workspace, at: Placement
) -> dg.SensorResult | dg.SkipReason:
    """One tick: how the circuit breaker of the source stands. What has changed is told once."""
    stopped = breaker(workspace)
    before = context.cursor or "closed"
    if stopped is None:
        words, now = f"{workspace.settings.source} is asked as usual", "closed"
    else:
        words = (
            f"{stopped.host} refuses ({stopped.last_refusal}): no request is sent until "
            f"{stopped.breaker_open_until:%Y-%m-%d %H:%M} UTC. To try at once: "
            f"cc-pipeline doctor --reset-breaker {stopped.host}"
        )
        now = "open"
    if now != before:
        context.log.warning(words)
        _tell(context.log, workspace.settings, {"event": f"circuit breaker {now}", "reason": words})
    return dg.SensorResult(skip_reason=words, cursor=now)


def publication(
    context: dg.SensorEvaluationContext, workspace: Workspace, at: Placement
) -> dg.RunRequest | dg.SkipReason:
    """One tick: compares the tables with what the published file says that it shows."""
    try:
        found = behind(workspace)
    except CcPipelineError as fault:
        return dg.SkipReason(str(fault))
    if found is None:
        return dg.SkipReason("cc.duckdb shows all there is")
    instance, minutes, publish = context.instance, workspace.settings.publish_every, at.of("publish")
    if instance.get_runs(dg.RunsFilter(job_name=publish, statuses=list(UNFINISHED)), limit=1):
        return dg.SkipReason("cc.duckdb is being published")
    if not found.longer_than(minutes) and flight(instance, at).is_any:
        return dg.SkipReason(f"runs go on, and cc.duckdb is not {minutes:g} minutes old")
    # the same state of the tables is asked for again only after it failed, and not for ever
    state = {STATE_TAG: found.state}
    failed = instance.get_runs_count(
        dg.RunsFilter(job_name=publish, tags=state, statuses=[dg.DagsterRunStatus.FAILURE])
    )
    if failed >= _MOST_FAILURES:
        return dg.SkipReason(f"publishing failed {failed} times; see why in its runs, then launch {publish} by hand")
    return dg.RunRequest(run_key=f"{found.state}:{failed}", tags=state)


def _tell(log: logging.Logger, settings: Settings, what: Mapping[str, object]) -> None:
    why = tell(settings.webhook, what)
    if why is not None:
        log.warning(f"the webhook was not told: {why}")
