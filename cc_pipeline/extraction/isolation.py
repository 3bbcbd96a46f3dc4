"""One target's failure is its own: a stage that fails for several targets is called for fewer, until it is known whose.

Halving finds one bad target of ``n`` in about ``2 log2(n)`` calls; what the others committed meanwhile is found by its
digest, so no call does it again. What is nobody's fault (a full disk, a source that is left alone for now) ends
everything.
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


def apart(stage: Callable[[Sequence[str]], StageReport], slugs: Sequence[str]) -> Iterator[Outcome]:
    """Calls ``stage`` with ``slugs`` together, and with fewer where that fails. Each of them is in one outcome.

    Raises what is the fault of no target (:func:`is_nobodys`), when the outcomes before it have been given.
    """
    if not slugs:
        return
    try:
        outcome = Outcome(tuple(slugs), stage(slugs))
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
            outcome = Outcome(tuple(slugs), None, {slugs[0]: error})
        else:
            half = len(slugs) // 2
            yield from apart(stage, slugs[:half])
            yield from apart(stage, slugs[half:])
            return
    yield outcome


#: Other kinds may be about the one object that was asked for.
_OF_ALL: Final = frozenset({FaultKind.BREAKER_OPEN, FaultKind.UNREACHABLE, FaultKind.THROTTLED})


def is_nobodys(error: BaseException) -> bool:
    """Whether an error would meet every target alike: the place that is written to fails, the circuit breaker of the
    source is open, the source still asks for fewer requests after all tries, or nobody can be reached at its address.
    Each call would find that out anew, in many seconds."""
    if isinstance(error, PlaceFault) or disk_is_full(error):
        return True
    if isinstance(error, RangeFault) and error.kind in _OF_ALL:
        return True
    return error.__cause__ is not None and is_nobodys(error.__cause__)
