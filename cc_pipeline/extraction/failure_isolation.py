"""Isolates failures: if a stage fails for several targets, it is called for fewer of them until the failing target is
known.

Halving finds one bad target of ``n`` in about ``2 log2(n)`` calls. Slices that the others committed meanwhile are up
to date then, so no call makes them again. An error that affects all targets (a full disk, a source that refuses) ends
everything. An object that is refused through all tries is an error of its targets: whether its host refuses is known by
the host's state (``transport/host_state.py``).
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


def run_isolated(stage: Callable[[Sequence[str]], StageReport], slugs: Sequence[str]) -> Iterator[Outcome]:
    """Calls ``stage`` with ``slugs`` together, and with fewer if that fails. Yields each slug in one outcome.

    Raises errors that affect all targets (:func:`affects_all_targets`), after it yielded the outcomes
    before them."""
    if not slugs:
        return
    try:
        outcome = Outcome(tuple(slugs), stage(slugs))
    except FetchIncomplete as incomplete:
        stop = incomplete if incomplete.reasons == {FaultKind.REFUSED} else None
        outcome = Outcome(tuple(slugs), incomplete.report, incomplete.errors_by_target, stop)
    except SlicesChanged as error:
        # all slugs are planned again together
        outcome = Outcome(tuple(slugs), None, dict.fromkeys(slugs, error))
    except Exception as error:
        if affects_all_targets(error):
            raise
        if len(slugs) > 1:
            half = len(slugs) // 2
            yield from run_isolated(stage, slugs[:half])
            yield from run_isolated(stage, slugs[half:])
            return
        outcome = Outcome(tuple(slugs), None, {slugs[0]: error})
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
