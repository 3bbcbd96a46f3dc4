"""Evaluates asset checks (``checks/check.py``): selects the partitions, stores a note, and makes the result for the UI.

In a run over partitions, a check examines these alone. In any other run it examines what changed since its last
evaluation, and what was wrong then. In a run with the tag ``cc_pipeline/look: everything`` (job ``check_everything``)
it examines the whole lake.
"""

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from types import MappingProxyType

import dagster as dg

from cc_pipeline.automation.due import MAX_FAILURES
from cc_pipeline.checks.check import Check, Unit
from cc_pipeline.checks.scope import (
    SEEN_LABEL,
    CheckResult,
    Note,
    Scope,
    abbreviate_keys,
    carry_over_note,
    changed_since,
    read_note,
    see,
)
from cc_pipeline.defs.checks.steps import LEFT_FAILED, check_key
from cc_pipeline.defs.declared.collected_parts import checks_of
from cc_pipeline.defs.home_namespace import OWN_HOME, HomeNamespace
from cc_pipeline.defs.internals import read_last_evaluation
from cc_pipeline.defs.metadata import as_table, escape_markdown, read_texts
from cc_pipeline.defs.partitions import CHECK_SCOPE_TAG, EVERYTHING, StepContext, partition_key, range_of, select_range
from cc_pipeline.defs.partitions_in_flight import (
    FAILURE_MEMORY,
    FailureHistory,
    find_in_flight,
    find_unresolved_failures,
)
from cc_pipeline.defs.run_failures import read_reasons
from cc_pipeline.defs.run_notes import Pair, run_partitions
from cc_pipeline.errors import CcPipelineError
from cc_pipeline.extraction.slice_selection import find_part_slices
from cc_pipeline.lake.slice import Slice
from cc_pipeline.workspace.workspace import Workspace


@dataclass(frozen=True, slots=True)
class CheckContext:
    """The evaluator of checks: a step of ``run``, or a command outside of any run (``None``)."""

    instance: dg.DagsterInstance
    log: logging.Logger
    run: dg.DagsterRun | None = None

    @property
    def run_id(self) -> str:
        """The run's id; empty without a run."""
        return "" if self.run is None else self.run.run_id

    @property
    def tags(self) -> Mapping[str, str]:
        """The run's tags; none without a run."""
        return {} if self.run is None else self.run.tags


@dataclass(frozen=True)
class _StepOutcome:
    """The keys of the partitions that a step has made, and the reasons of those that failed, by key."""

    made_keys: Collection[str]
    failed: Mapping[str, str]
    _slices: dict[Unit, list[Slice] | None] = field(default_factory=dict)

    def slices(self, workspace: Workspace, unit: Unit) -> list[Slice] | None:
        """Returns the slices of the made partitions, read once for all checks; ``None`` for a check that is not over
        partitions."""
        if unit not in self._slices:
            self._slices[unit] = _find_made_slices(workspace, unit, self.made_keys)
        return self._slices[unit]


def results(
    context: dg.AssetCheckExecutionContext, namespace: HomeNamespace, group: Iterable[Check]
) -> Iterator[dg.AssetCheckResult]:
    """Yields the results of the checks in ``group`` that the run has. Each table is read once for all of them."""
    memo: dict[object, dict[object, object]] = {}
    workspace = namespace.workspace(context)
    check_context = CheckContext(context.instance, context.log, context.run)
    evaluations = [
        _evaluate(check_context, workspace, namespace, check, memo)
        for check in group
        if check_key(namespace, check) in context.selected_asset_check_keys
    ]
    for evaluation in evaluations:
        yield dg.AssetCheckResult(
            passed=evaluation.passed,
            check_name=evaluation.check_name,
            asset_key=evaluation.asset_key,
            severity=evaluation.severity,
            description=evaluation.description,
            metadata=evaluation.metadata,
        )


def check_made_partitions(
    context: StepContext,
    workspace: Workspace,
    namespace: HomeNamespace,
    assets: Iterable[str],
    made_keys: Collection[str],
    failed: Mapping[str, str],
) -> Iterator[dg.AssetCheckEvaluation]:
    """Evaluates the checks of ``assets`` that the run has, for a step that made the partitions ``made_keys``.

    ``failed`` has the reasons of the other partitions by their keys. Dagster skips the steps of these checks, since the
    step has no outputs. Each table is read once for all checks.
    """
    if not made_keys:
        return
    selected, memo = context.run.asset_check_selection, dict[object, dict[object, object]]()
    checks = [
        check
        for asset in assets
        for check in checks_of(asset)
        if selected is None or check_key(namespace, check) in selected
    ]
    step_outcome, check_context = (
        _StepOutcome(made_keys, failed),
        CheckContext(context.instance, context.log, context.run),
    )
    yield from [_evaluate(check_context, workspace, namespace, check, memo, step_outcome) for check in checks]


def check_publication(
    check_context: CheckContext, workspace: Workspace, namespace: HomeNamespace, failed: Mapping[str, str]
) -> None:
    """Evaluates the checks of ``warehouse`` for a publication that no run of it made. ``failed`` has the reasons of the
    partitions that failed in the publishing run, by key."""
    instance, memo = check_context.instance, dict[object, dict[object, object]]()
    for check in checks_of("warehouse"):
        instance.report_runless_asset_event(_evaluate(check_context, workspace, namespace, check, memo))
    try:
        result = left_failed_result(instance, namespace, check_context.run_id, failed)
    except Exception as error:  # as for any other check
        reason = _report_broken_check(check_context, LEFT_FAILED, error)
        result = dg.AssetCheckResult(
            passed=False, severity=dg.AssetCheckSeverity.ERROR, description=escape_markdown(reason)
        )
    instance.report_runless_asset_event(
        dg.AssetCheckEvaluation(
            namespace.key("warehouse"),
            LEFT_FAILED,
            result.passed,
            result.metadata,
            severity=result.severity,
            description=result.description,
        )
    )


def _report_broken_check(check_context: CheckContext, check: str, error: Exception) -> str:
    """Logs the error of a check and returns a message for its result. A run's log gets the traceback, a terminal one
    line."""
    reason = str(error) if isinstance(error, CcPipelineError) else repr(error)
    if check_context.run is not None:
        check_context.log.error(f"the check {check} failed with an error", exc_info=error)
    else:
        check_context.log.warning(f"the check {check} failed with an error: {'. '.join(reason.splitlines())}")
    return f"the check failed with an error, so its result is not known: {reason}"


def _evaluate(
    check_context: CheckContext,
    workspace: Workspace,
    namespace: HomeNamespace,
    check: Check,
    memo: dict[object, dict[object, object]],
    step_outcome: _StepOutcome | None = None,
) -> dg.AssetCheckEvaluation:
    slices, is_of_run, previous_note = None, False, None
    try:
        if check.stages:
            key = check_key(namespace, check)
            previous_metadata = read_last_evaluation(check_context.instance, key, SEEN_LABEL)
            previous_note = read_note(read_texts(previous_metadata or {}))
        slices = (
            _find_run_slices(check_context, workspace, namespace, check.unit)
            if step_outcome is None
            else step_outcome.slices(workspace, check.unit)
        )
        is_of_run = slices is not None
        # a run over its own partitions alone does not examine the changes of others
        seen = None if is_of_run or not check.stages else see(workspace.lake)
        if seen is not None and previous_note is not None and check_context.tags.get(CHECK_SCOPE_TAG) != EVERYTHING:
            slices = _find_changed_slices(workspace, check, previous_note)
        shared = memo.setdefault(None if slices is None else tuple(slices), {})
        scope = Scope(slices, memo=shared)
        if check.verdict is not None:
            check_result = check.verdict(workspace, scope)
        else:
            check_result = no_failed_partitions(
                check_context.instance,
                namespace,
                check_context.run_id,
                step_outcome.failed if step_outcome is not None else {},
            )
        if slices == [] and not is_of_run and check_result.passed:
            check_result = replace(check_result, message="nothing was committed since the last check")
        verdict, note = carry_over_note(check_result, scope, previous_note, seen)
    except Exception as error:  # the partitions of the run are made, and a broken check does not undo that
        verdict = CheckResult(check.name, "error", _report_broken_check(check_context, check.name, error))
        note = previous_note or Note()
    if slices is None:
        scope_text, name_suffix = "everything", ""
    else:
        unit_text = check.unit if len(slices) == 1 else f"{check.unit}s"
        scope_text = f"{len(slices):,} {unit_text} of this run" if is_of_run else f"{len(slices):,} changed {unit_text}"
        # the UI draws a line through all numbers of a name, and a smaller scope would look like a drop
        name_suffix = f" ({'this run' if is_of_run else 'changes'})"
    return dg.AssetCheckEvaluation(
        asset_key=namespace.key(check.asset),
        check_name=check.name,
        passed=verdict.passed,
        severity=dg.AssetCheckSeverity.ERROR if verdict.severity == "error" else dg.AssetCheckSeverity.WARN,
        description=escape_markdown("\n".join(filter(None, (verdict.message, verdict.advice)))),
        metadata={
            **{f"{name}{name_suffix}": value for name, value in verdict.metrics.items()},
            "scope": scope_text,
            **(note.to_texts() if check.stages else {}),
        },
    )


def _find_changed_slices(workspace: Workspace, check: Check, previous_note: Note) -> list[Slice] | None:
    if previous_note.seen is None:
        return None
    changed = changed_since(workspace.lake, previous_note.seen, check.stages)
    wrong = [Slice(*key.split("|", 1)) for key in previous_note.wrong]
    wrong_slices = find_part_slices(workspace, wrong) if check.unit == "partition" else wrong
    return sorted({*changed, *wrong_slices})


def _find_run_slices(
    check_context: CheckContext, workspace: Workspace, namespace: HomeNamespace, unit: Unit
) -> list[Slice] | None:
    """Returns the slices of the run's partitions; ``None`` for a run without partitions of this kind."""
    instance = check_context.instance
    first, last = range_of(check_context.tags)
    of_pairs = "|" in first
    if unit == "partition" and of_pairs and check_context.run is not None:
        pairs = run_partitions(instance, [check_context.run], namespace=namespace)[check_context.run_id]
        return find_part_slices(workspace, [Slice(*pair) for pair in pairs])
    if unit == "crawl" and first and not of_pairs:
        return [Slice(crawl) for crawl in select_range(namespace.crawl_keys(instance), first, last)]
    return None


def _find_made_slices(workspace: Workspace, unit: Unit, made_keys: Collection[str]) -> list[Slice] | None:
    if unit == "partition":
        return find_part_slices(workspace, [Slice(*key.split("|", 1)) for key in made_keys])
    return [Slice(crawl) for crawl in made_keys] if unit == "crawl" else None


#: The most partitions in the result.
_MAX_SHOWN_PARTITIONS = 50
_MINUTE = "%Y-%m-%d %H:%M"


def no_failed_partitions(
    instance: dg.DagsterInstance,
    namespace: HomeNamespace,
    run_id: str,
    failing: Mapping[str, str] = MappingProxyType({}),
) -> CheckResult:
    """Warns of partitions that failed in any run. ``failing`` has the reasons of those that fail now, in the run
    ``run_id``, by key."""
    name = "no_failed_partitions"
    failed = {pair: failure for pair, failure in find_unresolved_failures(instance, namespace).items() if failure.times}
    for key in failing:
        _add_failure(failed, key, run_id)
    if not failed:
        return CheckResult(name, "ok", "no failed partitions")
    keys = ["|".join(pair) for pair in failed]
    pair, worst = max(failed.items(), key=lambda pair_failure: pair_failure[1].times)
    reason = _find_reasons(instance, failing, {partition_key(*pair): worst.run_id})[partition_key(*pair)]
    times_text = f" {worst.times:,} times in a row, last" if worst.times > 1 else ""
    message = (
        f"{_count_failed(len(keys))} not succeeded since: {abbreviate_keys(keys)}\n"
        f"{partition_key(*pair)} failed{times_text} in the run {worst.run_id}: {reason}\n"
        "Fix the reason, then materialize these partitions again"
    )
    return CheckResult(name, "warn", message, {"partitions": len(keys)})


def _add_failure(failed: dict[Pair, FailureHistory], key: str, run_id: str) -> None:
    """Adds a failure of the current run, which is not among the failed runs yet."""
    crawl, separator, domain = key.partition("|")
    if separator:
        now = datetime.now(UTC)
        previous = failed.get((crawl, domain), FailureHistory(0, now, now, run_id))
        failed[crawl, domain] = replace(previous, times=previous.times + 1, last=now, run_id=run_id)


def left_failed_result(
    instance: dg.DagsterInstance,
    namespace: HomeNamespace = OWN_HOME,
    run_id: str = "",
    failing: Mapping[str, str] = MappingProxyType({}),
) -> dg.AssetCheckResult:
    """Warns of partitions that failed or were not tried, and will be. It is an error if partitions failed too often to
    be tried again.

    Partitions in flight are left out, except those in ``failing`` (reasons by key), which the run ``run_id`` has tried.
    """
    in_flight_keys = {partition_key(*pair) for pair in find_in_flight(instance, namespace).pairs}.difference(failing)
    failures = find_unresolved_failures(instance, namespace)
    for key in failing:
        _add_failure(failures, key, run_id)
    unresolved = {pair: failure for pair, failure in failures.items() if partition_key(*pair) not in in_flight_keys}
    failed = {pair: failure for pair, failure in unresolved.items() if failure.times}
    waiting = {pair: failure for pair, failure in unresolved.items() if not failure.times}
    untried = len(waiting)
    abandoned = [pair for pair, failure in failed.items() if failure.times >= MAX_FAILURES]
    worst = sorted(failed.items(), key=lambda pair_failure: (-pair_failure[1].times, pair_failure[0]))[
        :_MAX_SHOWN_PARTITIONS
    ]
    longest = sorted(waiting.items(), key=lambda pair_failure: (-pair_failure[1].unreached, pair_failure[0]))[
        :_MAX_SHOWN_PARTITIONS
    ]
    return dg.AssetCheckResult(
        passed=not unresolved,
        severity=dg.AssetCheckSeverity.ERROR if abandoned else dg.AssetCheckSeverity.WARN,
        description=_describe_failures(len(failed), len(abandoned), untried),
        metadata={
            "failed partitions": len(failed),
            "left out by the schedule": len(abandoned),
            "never tried": untried,
            **(
                {
                    "partitions": _partition_table(
                        instance, failing, [(pair, failure.times, failure) for pair, failure in worst]
                    )
                }
                if failed
                else {}
            ),
            **(
                {
                    "not tried": _partition_table(
                        instance, {}, [(pair, failure.unreached, failure) for pair, failure in longest]
                    )
                }
                if waiting
                else {}
            ),
            "checked at": f"{datetime.now(UTC):{_MINUTE}} UTC",
        },
    )


def _partition_table(
    instance: dg.DagsterInstance, failing: Mapping[str, str], rows: Sequence[tuple[Pair, int, FailureHistory]]
) -> dg.MetadataValue:
    reasons = _find_reasons(instance, failing, {partition_key(*pair): failure.run_id for pair, _, failure in rows})
    cells = (
        (key, reasons[key], times, f"{failure.since:{_MINUTE}}", f"{failure.last:{_MINUTE}}", failure.run_id)
        for key, times, failure in ((partition_key(*pair), times, failure) for pair, times, failure in rows)
    )
    return as_table(["partition", "why", "times", "first", "last", "run"], cells)


def _find_reasons(instance: dg.DagsterInstance, failing: Mapping[str, str], runs: Mapping[str, str]) -> dict[str, str]:
    """Returns the reason of each partition of ``runs``, which has the id of the run that it failed in last. ``failing``
    has the reasons of a run that has not ended."""
    reasons_by_run = {
        run_id: read_reasons(instance, run_id) for run_id in {runs[key] for key in runs.keys() - failing.keys()}
    }
    run_reasons = {
        key: reasons_by_run[run_id].get(key) or reasons_by_run[run_id].get("")
        for key, run_id in runs.items()
        if run_id in reasons_by_run
    }
    return {
        key: failing.get(key) or run_reasons.get(key) or "the run was stopped before it gave a reason" for key in runs
    }


def _count_failed(count: int, when: str = "") -> str:
    return f"1 partition failed{when} and has" if count == 1 else f"{count:,} partitions failed{when} and have"


def _describe_failures(failed: int, abandoned_count: int, untried: int) -> str:
    text = f"{_count_failed(failed, f' in the last {FAILURE_MEMORY.days} days')} not succeeded since"
    if not failed:
        text = f"each partition that failed in the last {FAILURE_MEMORY.days} days has succeeded since"
    if abandoned_count:
        text += (
            f"; {abandoned_count:,} of them failed {MAX_FAILURES} times or more in a row, so the schedule no longer "
            "tries them: their runs show the reason; then run these partitions by hand"
        )
    if untried:
        text += f"; {untried:,} others were never tried, since their runs ended early: the schedule tries them again"
    return text
