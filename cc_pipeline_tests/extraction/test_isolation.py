"""A stage over several targets, of which some fail: the others are done, and what is nobody's fault ends all."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence

import pytest

from cc_pipeline.errors import EnvironmentFault, Incomplete, PlaceFault, UserInputError
from cc_pipeline.extraction.failure_isolation import Outcome, affects_all_targets, run_isolated
from cc_pipeline.extraction.loss_policy import FetchIncomplete
from cc_pipeline.lake.slice import StageReport
from cc_pipeline.transport.faults import FaultKind, range_fault


def stage(bad: dict[str, Exception], calls: list[list[str]]) -> Callable[[Sequence[str]], StageReport]:
    def run(slugs: Sequence[str]) -> StageReport:
        calls.append(list(slugs))
        for slug in slugs:
            if slug in bad:
                raise bad[slug]
        return StageReport("stage", rows=len(slugs), per_target={slug: {} for slug in slugs})

    return run


SLUGS = [f"t{number:02d}" for number in range(64)]


def test_each_target_is_in_one_outcome_and_only_the_bad_ones_fail() -> None:
    calls: list[list[str]] = []
    bad: dict[str, Exception] = {"t07": UserInputError("no host name"), "t40": KeyError("a bug")}
    outcomes = list(run_isolated(stage(bad, calls), SLUGS))
    assert [slug for one in outcomes for slug in one.slugs] == SLUGS
    assert {slug: error for one in outcomes for slug, error in one.errors.items()} == bad
    reported = {slug for one in outcomes if one.report for slug in one.report.per_target}
    assert reported == set(SLUGS) - set(bad)
    assert len(calls) <= 1 + 2 * 2 * 6, "halved, not one by one"
    assert list(run_isolated(stage({}, calls), [])) == []
    calls.clear()
    assert [len(one.slugs) for one in run_isolated(stage({}, calls), SLUGS)] == [64]
    assert calls == [SLUGS], "a group without trouble is one call"


def refusal(slugs: Sequence[str], reason: str) -> FetchIncomplete:
    error = FetchIncomplete("too little came", "run it again")
    error.errors_by_target = {slug: Incomplete(f"too little of {slug}", "") for slug in slugs}
    error.reasons = {reason}
    error.report = StageReport("fetch", rows=1, per_target={slug: {} for slug in SLUGS})
    return error


def test_who_was_not_given_enough_is_told_by_the_error_and_nobody_is_asked_again() -> None:
    calls: list[list[str]] = []
    [outcome] = run_isolated(stage({"t03": refusal(["t03", "t05"], FaultKind.SERVER_ERROR)}, calls), SLUGS)
    assert calls == [SLUGS]
    assert set(outcome.errors) == {"t03", "t05"}
    assert outcome.report is not None
    assert outcome.stop is None


CLOSED = range_fault(FaultKind.REFUSED, "cc-index/x.parquet", 0, 10, "until noon", 0)
DOWN = range_fault(FaultKind.UNREACHABLE, "cc-index/x.parquet", 0, 10, "cannot connect", 6)
FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("error", [PlaceFault("no room", ""), FULL, CLOSED, DOWN])
def test_what_is_nobodys_fault_ends_everything(error: Exception) -> None:
    outcomes: list[Outcome] = []
    calls: list[list[str]] = []
    with pytest.raises(type(error)):
        for one in run_isolated(stage({"t07": error}, calls), SLUGS):
            outcomes.append(one)
    assert calls == [SLUGS], "no other target is tried"
    assert outcomes == []


def test_a_cause_counts_and_a_fault_of_one_object_does_not() -> None:
    wrapped = EnvironmentFault("the index cannot be read", "")
    wrapped.__cause__ = CLOSED
    assert affects_all_targets(wrapped)
    gone = range_fault(FaultKind.SERVER_ERROR, "cc-index/x.parquet", 0, 10, "status 500", 5)
    assert not affects_all_targets(gone)
    assert not affects_all_targets(KeyError("a bug"))


def throttled(key: str) -> Exception:
    error = EnvironmentFault("the index cannot be read", "")
    error.__cause__ = range_fault(FaultKind.THROTTLED, key, 0, 10, "status 503", 6)
    return error


@pytest.mark.parametrize("count", [1, 20])
def test_an_object_that_stays_refused_fails_the_targets_that_need_it_and_not_the_others(count: int) -> None:
    bad = dict.fromkeys(SLUGS[:count], throttled("cc-index/x.parquet"))
    outcomes = list(run_isolated(stage(bad, []), SLUGS))
    assert {slug: error for one in outcomes for slug, error in one.errors.items()} == bad
    assert {slug for one in outcomes if one.report for slug in one.report.per_target} == set(SLUGS[count:])
