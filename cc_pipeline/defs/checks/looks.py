"""How an asset check (``checks/check.py``) looks: at which partitions, what it notes, what of it the UI shows.

A check in a run over partitions looks at these alone. Alone, it looks at what changed since it last did, and at what
was wrong then; in a run with the tag ``cc_pipeline/look: everything`` (job ``check_everything``) at the whole lake.
"""

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from types import MappingProxyType

import dagster as dg

from cc_pipeline.automation.due import MOST_FAILURES
from cc_pipeline.checks.check import Check, Unit
from cc_pipeline.checks.scope import CheckResult, Note, Scope, changed_since, noted, read_note, some, versions_of
from cc_pipeline.defs.checks.steps import LEFT_FAILED, check_key
from cc_pipeline.defs.declared.collected import checks_of
from cc_pipeline.defs.flight import REMEMBERED, Failed, flight, left_failed
from cc_pipeline.defs.internals import last_evaluation
from cc_pipeline.defs.metadata import as_table, plain
from cc_pipeline.defs.partitions import EVERYTHING, LOOK_TAG, StepContext, between, partition_key, range_of
from cc_pipeline.defs.placement import OURS, Placement
from cc_pipeline.defs.run_failures import reasons_in
from cc_pipeline.defs.run_notes import Pair, run_partitions
from cc_pipeline.errors import CcPipelineError
from cc_pipeline.extraction.target_slices import part_slices
from cc_pipeline.lake.digests.log import UNKNOWN
from cc_pipeline.lake.slice import Slice
from cc_pipeline.workspace.workspace import Workspace

#: Metadata of a result: the note for the next look.
_NOTE = "looked at"


@dataclass(frozen=True, slots=True)
class Looking:
    """Who looks at checks: a step of ``run``, or a command outside of any run (``None``)."""

    instance: dg.DagsterInstance
    log: logging.Logger
    run: dg.DagsterRun | None = None

    @property
    def run_id(self) -> str:
        """The run's id; empty where there is none."""
        return "" if self.run is None else self.run.run_id

    @property
    def tags(self) -> Mapping[str, str]:
        """The run's tags; none where there is no run."""
        return {} if self.run is None else self.run.tags


@dataclass(frozen=True)
class _Part:
    """What a step over partitions has made (keys of partitions), and what not, with the reason of each."""

    made: Collection[str]
    failed: Mapping[str, str]
    _slices: dict[Unit, list[Slice] | None] = field(default_factory=dict)

    def slices(self, workspace: Workspace, unit: Unit) -> list[Slice] | None:
        """The slices of what was made, read once for all checks; ``None`` for a check that is of no partitions."""
        if unit not in self._slices:
            self._slices[unit] = _made_slices(workspace, unit, self.made)
        return self._slices[unit]


def results(
    context: dg.AssetCheckExecutionContext, at: Placement, group: Iterable[Check]
) -> Iterator[dg.AssetCheckResult]:
    """The results of those of ``group`` that the run has. Each table is looked at once for all of them."""
    memo: dict[object, dict[object, object]] = {}
    workspace = at.workspace(context)
    looking = Looking(context.instance, context.log, context.run)
    with workspace.lake.still():
        evaluations = [
            _evaluation(looking, workspace, at, check, memo)
            for check in group
            if check_key(at, check) in context.selected_asset_check_keys
        ]
    for found in evaluations:
        yield dg.AssetCheckResult(
            passed=found.passed,
            check_name=found.check_name,
            asset_key=found.asset_key,
            severity=found.severity,
            description=found.description,
            metadata=found.metadata,
        )


def look_at_made(
    context: StepContext,
    workspace: Workspace,
    at: Placement,
    assets: Iterable[str],
    made: Collection[str],
    failed: Mapping[str, str],
) -> Iterator[dg.AssetCheckEvaluation]:
    """Evaluates the checks of ``assets`` for a step that has ``made`` some partitions (keys), while others ``failed``
    (why, by key). Dagster skips the steps of these checks, since the step has no outputs. Only checks that the run has.
    Each table is looked at once for all of them."""
    if not made:
        return
    selected, memo = context.run.asset_check_selection, dict[object, dict[object, object]]()
    checks = [
        check for asset in assets for check in checks_of(asset) if selected is None or check_key(at, check) in selected
    ]
    part, looking = _Part(made, failed), Looking(context.instance, context.log, context.run)
    with workspace.lake.still():
        evaluations = [_evaluation(looking, workspace, at, check, memo, part) for check in checks]
    yield from evaluations


def look_at_publication(looking: Looking, workspace: Workspace, at: Placement, failed: Mapping[str, str]) -> None:
    """Evaluates the checks of ``warehouse`` for a publication that no run of it made. ``failed`` are the partitions
    (keys) that failed in the run that publishes, with their reasons."""
    instance, memo = looking.instance, dict[object, dict[object, object]]()
    with workspace.lake.still():
        evaluations = [_evaluation(looking, workspace, at, check, memo) for check in checks_of("warehouse")]
    for evaluation in evaluations:
        instance.report_runless_asset_event(evaluation)
    try:
        result = left_failed_result(instance, at, looking.run_id, failed)
    except Exception as error:  # as of any other check
        why = _why_broken(looking, LEFT_FAILED, error)
        result = dg.AssetCheckResult(passed=False, severity=dg.AssetCheckSeverity.ERROR, description=plain(why))
    instance.report_runless_asset_event(
        dg.AssetCheckEvaluation(
            at.key("warehouse"),
            LEFT_FAILED,
            result.passed,
            result.metadata,
            severity=result.severity,
            description=result.description,
        )
    )


def _why_broken(looking: Looking, check: str, error: Exception) -> str:
    """What a check that broke says. A run's log has all of the error; a terminal gets one line."""
    why = str(error) if isinstance(error, CcPipelineError) else repr(error)
    if looking.run is not None:
        looking.log.error(f"{check} broke", exc_info=error)
    else:
        looking.log.warning(f"the check {check} broke: {'. '.join(why.splitlines())}")
    return f"this could not be looked at: {why}"


def _evaluation(
    looking: Looking,
    workspace: Workspace,
    at: Placement,
    check: Check,
    memo: dict[object, dict[object, object]],
    part: _Part | None = None,
) -> dg.AssetCheckEvaluation:
    slices, mine, before = None, False, None
    try:
        if check.watched:
            before = read_note(last_evaluation(looking.instance, check_key(at, check), _NOTE))
        slices = _of_run(looking, workspace, at, check.unit) if part is None else part.slices(workspace, check.unit)
        mine = slices is not None
        # of a run's own partitions alone, nothing says that the others were looked at
        now = {} if mine else versions_of(workspace.lake, check.watched)
        if not mine and before is not None and looking.tags.get(LOOK_TAG) != EVERYTHING:
            slices = _changed(workspace, check, before, now)
        shared = memo.setdefault(None if slices is None else tuple(slices), {})
        scope = Scope(slices, in_run=mine, memo=shared)
        if check.verdict is not None:
            found = check.verdict(workspace, scope)
        else:
            found = none_left_failed(looking.instance, at, looking.run_id, part.failed if part is not None else {})
        if slices == [] and not mine and found.passed:
            found = replace(found, message="nothing was committed since this last looked")
        verdict, note = noted(found, scope, before, now)
    except Exception as error:  # the run has made its partitions, and a check that breaks does not take that back
        verdict = CheckResult(check.name, "error", _why_broken(looking, check.name, error))
        note = before or Note()
    if slices is None:
        what, of_these = "everything", ""
    else:
        what = f"{len(slices):,} {check.unit}s, {'of this run' if mine else 'changed'}"
        # the UI draws a line through all figures of a name, and those of other scopes are no fall
        of_these = " of this run" if mine else " of what changed"
    return dg.AssetCheckEvaluation(
        asset_key=at.key(check.asset),
        check_name=check.name,
        passed=verdict.passed,
        severity=dg.AssetCheckSeverity.ERROR if verdict.severity == "error" else dg.AssetCheckSeverity.WARN,
        description=plain(verdict.message),
        metadata={
            **{f"{name}{of_these}": value for name, value in verdict.figures.items()},
            "scope": what,
            **({_NOTE: note.as_dict()} if check.watched else {}),
        },
    )


def _changed(workspace: Workspace, check: Check, before: Note, now: dict[str, int]) -> list[Slice] | None:
    changed = changed_since(workspace.lake, before, now, check.digests)
    if changed is UNKNOWN:
        return None
    wrong = [Slice(*key.split("|", 1)) for key in before.wrong]
    again = part_slices(workspace, wrong) if check.unit == "partition" else wrong
    return sorted({*changed, *again})


def _of_run(looking: Looking, workspace: Workspace, at: Placement, unit: Unit) -> list[Slice] | None:
    """The slices of the run's partitions; ``None`` for a run without any of this kind."""
    instance = looking.instance
    first, last = range_of(looking.tags)
    of_pairs = "|" in first
    if unit == "partition" and of_pairs and looking.run is not None:
        pairs = run_partitions(instance, [looking.run], at=at)[looking.run_id]
        return part_slices(workspace, [Slice(*pair) for pair in pairs])
    if unit == "crawl" and first and not of_pairs:
        return [Slice(crawl) for crawl in between(at.crawl_keys(instance), first, last)]
    if unit == "file" and first and not of_pairs:
        return [Slice("", slug) for slug in between(instance.get_dynamic_partitions(at.of("source_file")), first, last)]
    return None


def _made_slices(workspace: Workspace, unit: Unit, made: Collection[str]) -> list[Slice] | None:
    if unit == "partition":
        return part_slices(workspace, [Slice(*key.split("|", 1)) for key in made])
    if unit == "crawl":
        return [Slice(crawl) for crawl in made]
    return [Slice("", slug) for slug in made] if unit == "file" else None


#: Partitions that the check names.
_SHOWN = 50
_MINUTE = "%Y-%m-%d %H:%M"


def none_left_failed(
    instance: dg.DagsterInstance, at: Placement, run_id: str, failing: Mapping[str, str] = MappingProxyType({})
) -> CheckResult:
    """Warns of partitions that failed in whoever's run; those ``failing`` (why, by key) do it now, in the run
    ``run_id``."""
    name = "none_left_failed"
    failed = {pair: one for pair, one in left_failed(instance, at).items() if one.times}
    for key in failing:
        _add(failed, key, run_id)
    if not failed:
        return CheckResult(name, "ok", "no partition was left failed")
    keys = ["|".join(pair) for pair in failed]
    pair, worst = max(failed.items(), key=lambda one: one[1].times)
    why = _why(instance, failing, {partition_key(*pair): worst.run_id})[partition_key(*pair)]
    message = (
        f"{len(keys):,} partitions failed and were not made since ({some(keys)}), {partition_key(*pair)} "
        f"{worst.times:,} times, last in the run {worst.run_id}: {why}. Mend that, then materialize them again"
    )
    return CheckResult(name, "warn", message, {"partitions": len(keys)})


def _add(failed: dict[Pair, Failed], key: str, run_id: str) -> None:
    """The run that fails now is not yet among those that have."""
    crawl, found, domain = key.partition("|")
    if found:
        now = datetime.now(UTC)
        before = failed.get((crawl, domain), Failed(0, now, now, run_id))
        failed[crawl, domain] = replace(before, times=before.times + 1, last=now, run_id=run_id)


def left_failed_result(
    instance: dg.DagsterInstance,
    at: Placement = OURS,
    run_id: str = "",
    failing: Mapping[str, str] = MappingProxyType({}),
) -> dg.AssetCheckResult:
    """Warns of partitions that failed or were not tried, and will be, and fails for those that were tried often enough.
    Those that are in flight now are being tried, but for those ``failing`` (why, by key), which the run ``run_id``
    tried."""
    going_on = {partition_key(*pair) for pair in flight(instance, at).pairs}.difference(failing)
    every = left_failed(instance, at)
    for key in failing:
        _add(every, key, run_id)
    left = {pair: one for pair, one in every.items() if partition_key(*pair) not in going_on}
    failed = {pair: one for pair, one in left.items() if one.times}
    waiting = {pair: one for pair, one in left.items() if not one.times}
    untried = len(waiting)
    given_up = [pair for pair, one in failed.items() if one.times >= MOST_FAILURES]
    worst = sorted(failed.items(), key=lambda one: (-one[1].times, one[0]))[:_SHOWN]
    longest = sorted(waiting.items(), key=lambda one: (-one[1].unreached, one[0]))[:_SHOWN]
    return dg.AssetCheckResult(
        passed=not left,
        severity=dg.AssetCheckSeverity.ERROR if given_up else dg.AssetCheckSeverity.WARN,
        description=_said(len(failed), len(given_up), untried),
        metadata={
            "partitions left failed": len(failed),
            "tried often enough": len(given_up),
            "never tried": untried,
            **(
                {"partitions": _partitions(instance, failing, [(pair, one.times, one) for pair, one in worst])}
                if failed
                else {}
            ),
            **(
                {"not tried": _partitions(instance, {}, [(pair, one.unreached, one) for pair, one in longest])}
                if waiting
                else {}
            ),
            "looked at": f"{datetime.now(UTC):{_MINUTE}} UTC",
        },
    )


def _partitions(
    instance: dg.DagsterInstance, failing: Mapping[str, str], rows: Sequence[tuple[Pair, int, Failed]]
) -> dg.MetadataValue:
    why = _why(instance, failing, {partition_key(*pair): one.run_id for pair, _, one in rows})
    cells = (
        (key, why[key], times, f"{one.since:{_MINUTE}}", f"{one.last:{_MINUTE}}", one.run_id)
        for key, times, one in ((partition_key(*pair), times, one) for pair, times, one in rows)
    )
    return as_table(["partition", "why", "times", "first", "last", "run"], cells)


def _why(instance: dg.DagsterInstance, failing: Mapping[str, str], runs: Mapping[str, str]) -> dict[str, str]:
    """The reason of each partition of ``runs``, which has the id of the run that it failed in last. Of a run that has
    not ended, ``failing`` has the reasons."""
    told = {run_id: reasons_in(instance, run_id) for run_id in {runs[key] for key in runs.keys() - failing.keys()}}
    own = {key: told[run_id].get(key) or told[run_id].get("") for key, run_id in runs.items() if run_id in told}
    return {key: failing.get(key) or own.get(key) or "its run was ended before it could say why" for key in runs}


def _said(failed: int, given_up: int, untried: int) -> str:
    words = f"{failed:,} partitions failed and were not made since"
    if not failed:
        words = f"no partition failed in {REMEMBERED.days} days without being made since"
    if given_up:
        words += (
            f"; {given_up:,} of them failed {MOST_FAILURES} times in a row, so the schedule leaves them alone: see why "
            "in their runs, and run them by hand"
        )
    if untried:
        words += (
            f"; {untried:,} others were never tried, since their runs ended early: the schedule asks for them again"
        )
    return words
