"""Isolates failures: if a stage fails for several targets, it is called for fewer of them until the failing target is
known.

Halving finds one bad target of ``n`` in about ``2 log2(n)`` calls. Slices that the others committed meanwhile are up
to date then, so no call makes them again. An error that affects all targets (a full disk, a source that is left alone
for now) ends everything. An object that is refused through all tries is an error of its target. Refusals of
several objects affect all targets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from cc_pipeline.errors import PlaceFault, disk_is_full
from cc_pipeline.extraction.loss_policy import FetchIncomplete
from cc_pipeline.lake.slice import StageReport
from cc_pipeline.lake.slices import SlicesChanged
from cc_pipeline.transport.faults import FaultKind, RangeFault


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one call of a stage for ``slugs``: its ``report`` (``None`` if it raised), and the error of each
    failed target. A target may have both: its fetched records are committed and reported. ``stop`` is the reason why no
    other target needs to be asked for: the source is left alone for now."""

    slugs: tuple[str, ...]
    report: StageReport | None
    errors: Mapping[str, Exception] = field(default_factory=dict)
    stop: Exception | None = None


class Throttling:
    """The objects that were refused ("throttled") through all tries since the source last gave something."""

    def __init__(self) -> None:
        self._objects: set[str] = set()

    def note_answers(self, report: StageReport) -> None:
        """Forgets the refusals if ``report`` has answered requests."""
        if report.requests:
            self._objects.clear()

    def note_error(self, error: BaseException) -> bool:
        """Notes the error of one target. Returns whether the source refuses every target by now."""
        key = find_throttled_object(error)
        if key is None:
            return False
        self._objects.add(key)
        return len(self._objects) > 1


def run_isolated(
    stage: Callable[[Sequence[str]], StageReport], slugs: Sequence[str], throttling: Throttling | None = None
) -> Iterator[Outcome]:
    """Calls ``stage`` with ``slugs`` together, and with fewer if that fails. Yields each slug in one outcome.

    Raises errors that affect all targets (:func:`affects_all_targets`, ``throttling``), after it yielded the outcomes
    before them."""
    if not slugs:
        return
    throttling = throttling or Throttling()
    try:
        outcome = Outcome(tuple(slugs), report := stage(slugs))
        throttling.note_answers(report)
    except FetchIncomplete as incomplete:
        stop = incomplete if incomplete.reasons == {FaultKind.REFUSED} else None
        outcome = Outcome(tuple(slugs), incomplete.report, incomplete.errors_by_target, stop)
    except SlicesChanged as error:
        # all slugs are planned again together
        outcome = Outcome(tuple(slugs), None, dict.fromkeys(slugs, error))
    except Exception as error:
        if affects_all_targets(error):
            raise
        if len(slugs) == 1:
            if throttling.note_error(error):
                raise
            outcome = Outcome(tuple(slugs), None, {slugs[0]: error})
        else:
            half = len(slugs) // 2
            yield from run_isolated(stage, slugs[:half], throttling)
            yield from run_isolated(stage, slugs[half:], throttling)
            return
    yield outcome


#: Kinds that affect all objects; other kinds may be about the one object that was asked for.
_GENERAL_KINDS: Final = frozenset(
    {FaultKind.REFUSED, FaultKind.PROXY, FaultKind.NO_SUCH_HOST, FaultKind.LOGIN_PAGE, FaultKind.UNREACHABLE}
)


def affects_all_targets(error: BaseException) -> bool:
    """Whether an error would affect every target alike: the place of the lake cannot be written, the source refuses, or
    its address cannot be reached. Each call would take many seconds to fail again."""
    if isinstance(error, PlaceFault) or disk_is_full(error):
        return True
    if isinstance(error, RangeFault) and error.kind in _GENERAL_KINDS:
        return True
    return error.__cause__ is not None and affects_all_targets(error.__cause__)


def find_throttled_object(error: BaseException) -> str | None:
    """The key of the object that was refused ("throttled") through all tries, if that is the error; else ``None``."""
    if isinstance(error, RangeFault) and error.kind is FaultKind.THROTTLED:
        return error.key
    return None if error.__cause__ is None else find_throttled_object(error.__cause__)
