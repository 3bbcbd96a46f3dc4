"""What a budget is told of requests that came or failed, as of now."""

from __future__ import annotations

import time

from cc_pipeline.transport.circuit_breaker import Failed, Gave

from cc_pipeline.transport.faults import FaultKind, Refusal


def forbidden(
    sent: float | None = None, retry_after: float | None = None, *, at_once: bool = False, why: str = "status 403"
) -> Failed:
    """A 403 to a request sent at ``sent`` (now), known now."""
    now = time.time()
    at = now if sent is None else sent
    return Failed(now, at, FaultKind.FORBIDDEN, why, Refusal.ADDRESS, retry_after, probes_at_once=at_once)


def asked_for_less(retry_after: float | None = None, sent: float | None = None) -> Failed:
    """A 429."""
    now = time.time()
    return Failed(now, now if sent is None else sent, FaultKind.THROTTLED, "status 429", Refusal.RATE, retry_after)


def busy() -> Failed:
    """A 503."""
    now = time.time()
    return Failed(now, now, FaultKind.THROTTLED, "status 503, SlowDown", Refusal.CHANCE)


def gave(sent: float | None = None) -> Gave:
    """A request sent at ``sent`` (now) that got what it asked for."""
    now = time.time()
    return Gave(now, 1, now if sent is None else sent)
