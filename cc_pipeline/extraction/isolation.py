"""One target's failure is its own: a stage that fails for several targets is called for fewer, until it is known whose.

Halving finds one bad target of ``n`` in about ``2 log2(n)`` calls; what the others committed meanwhile is found by its
digest, so no call does it again. What is nobody's fault (a full disk, a source that is left alone for now) ends
everything. An object that is refused through all tries is its target's fault. Refusals of several objects are nobody's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from cc_pipeline.errors import PlaceFault, disk_is_full
from cc_pipeline.extraction.run_inputs import InputsChanged
from cc_pipeline.extraction.shortfall import NotGiven
from cc_pipeline.lake.slice import StageReport
from cc_pipeline.transport.faults import FaultKind, RangeFault


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one call of a stage came to for ``slugs``: its ``report`` (``None`` where it raised), and the error of each
    target that failed. A target may have both: what a source gave of it is committed and reported. ``stop`` is why no
    other target needs to be asked for: the source is left alone for now."""

    slugs: tuple[str, ...]
    report: StageReport | None
    errors: Mapping[str, Exception] = field(default_factory=dict)
    stop: Exception | None = None


class Throttling:
    """Objects that were refused ("throttled") through all tries since the source last gave something."""

    def __init__(self) -> None:
        self._objects: set[str] = set()

    def note_answers(self, report: StageReport) -> None:
        """Forgets the refusals where ``report`` has requests that were answered."""
        if report.requests:
            self._objects.clear()

    def is_of_all(self, error: BaseException) -> bool:
        """Notes the error of one target. Returns whether the source refuses every target by now."""
        key = throttled_object(error)
        if key is None:
            return False
        self._objects.add(key)
        return len(self._objects) > 1


def apart(
    stage: Callable[[Sequence[str]], StageReport], slugs: Sequence[str], throttling: Throttling | None = None
) -> Iterator[Outcome]:
    """Calls ``stage`` with ``slugs`` together, and with fewer where that fails. Each of them is in one outcome.

    Raises what is the fault of no target (:func:`is_nobodys`, ``throttling``), when the outcomes before it have been
    given.
    """
    if not slugs:
        return
    throttling = throttling or Throttling()
    try:
        outcome = Outcome(tuple(slugs), report := stage(slugs))
        throttling.note_answers(report)
    except NotGiven as refusal:
        stop = refusal if refusal.reasons == {FaultKind.BREAKER_OPEN} else None
        outcome = Outcome(tuple(slugs), refusal.report, refusal.each, stop)
    except InputsChanged as error:
        # all of them are planned again, together
        outcome = Outcome(tuple(slugs), None, dict.fromkeys(slugs, error))
    except Exception as error:
        if is_nobodys(error):
            raise
        if len(slugs) == 1:
            if throttling.is_of_all(error):
                raise
            outcome = Outcome(tuple(slugs), None, {slugs[0]: error})
        else:
            half = len(slugs) // 2
            yield from apart(stage, slugs[:half], throttling)
            yield from apart(stage, slugs[half:], throttling)
            return
    yield outcome


#: Other kinds may be about the one object that was asked for.
_OF_ALL: Final = frozenset({FaultKind.BREAKER_OPEN, FaultKind.UNREACHABLE})


def is_nobodys(error: BaseException) -> bool:
    """Whether an error would meet every target alike: the place that is written to fails, the circuit breaker of the
    source is open, or nobody can be reached at its address. Each call would find that out anew, in many seconds."""
    if isinstance(error, PlaceFault) or disk_is_full(error):
        return True
    if isinstance(error, RangeFault) and error.kind in _OF_ALL:
        return True
    return error.__cause__ is not None and is_nobodys(error.__cause__)


def throttled_object(error: BaseException) -> str | None:
    """The object that was refused ("throttled") through all tries, where that is what an error says."""
    if isinstance(error, RangeFault) and error.kind is FaultKind.THROTTLED:
        return error.key
    return None if error.__cause__ is None else throttled_object(error.__cause__)
