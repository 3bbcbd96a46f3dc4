"""Checks that no capture is lost or doubled between the tables: by the rows of ``slices``, and by the number of rows
that are stored under each generation."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from cc_pipeline.checks.scope import CheckResult, Scope, Severity, abbreviate_keys, key_of
from cc_pipeline.extraction.plan import SliceRequest, options_of, plan
from cc_pipeline.extraction.slice_state import STAGES, SliceState, read_slice_states
from cc_pipeline.lake.lake import Lake
from cc_pipeline.lake.live_rows import LiveRows, find_live_rows
from cc_pipeline.lake.slice import FETCH, LOCATE, PARSE, READ_FILES, Metrics, Slice, Stage, group_targets_by_crawl
from cc_pipeline.lake.slices import current_rows
from cc_pipeline.lake.streaming import list_crawls
from cc_pipeline.progress import format_count
from cc_pipeline.workspace.workspace import Workspace

_NAME: Final = "ledger_balances"
#: Slices whose rows of ``slices`` are in memory together.
_SLICES_AT_ONCE: Final = 10_000
_REPAIR: Final = "Rebuild these partitions: cc-pipeline doctor --repair"
_RUN: Final = "The next run of these partitions updates them: materialize them, or cc-pipeline run"


@dataclass(frozen=True, slots=True)
class Imbalance:
    """The problem of a slice: the ``stage`` to run again, and the reason. ``is_due``: the next run does so anyway,
    since the input of the stage changed."""

    stage: Stage
    reason: str
    is_due: bool = False


@dataclass(slots=True)
class Balance:
    """The rows of some slices and their imbalances. Of partitions, some are ``only_located`` and some ``only_fetched``:
    their next stage was not made yet."""

    captures: int = 0
    records: int = 0
    pages: int = 0
    partitions: int = 0
    only_located: set[Slice] = field(default_factory=set)
    only_fetched: set[Slice] = field(default_factory=set)
    wrong: list[tuple[Slice, Imbalance]] = field(default_factory=list)


def count_live_rows(workspace: Workspace, slices: Collection[Slice] | None = None) -> LiveRows:
    """Counts the rows of each generation in all files, of which those counted before are known, and compares them with
    the committed numbers of ``slices`` (default: all). Raises ``EnvironmentFault``."""
    lake = workspace.lake
    specs = [lake.specs["slices"], *(spec for spec in lake.specs.values() if spec.has_slices)]
    crawls = None if slices is None else {slice_.crawl for slice_ in slices}
    pinned = [lake.pin(spec.name) for spec in specs]
    return find_live_rows(lake, pinned, workspace.settings.cache_path / "generations", crawls)


def count_balance(workspace: Workspace, slices: Collection[Slice] | None = None) -> Balance:
    """Counts ``slices`` (default: all), by the rows of ``slices``.

    A fetched slice has as many records as captures, and as many as were planned. A parsed slice has as many pages as
    records. Each table has the rows that the slice was committed with. Raises ``EnvironmentFault``.
    """
    totals = Balance()
    partitions: set[Slice] = set()
    for group in _list_groups(workspace.lake, slices):
        states = read_slice_states(workspace, group, STAGES, check_stored_files=False)
        made = {slice_: state for slice_, state in states.items() if any(map(state.made, STAGES))}
        partitions |= {slice_.partition for slice_ in made}
        _add_slices(workspace, made, totals)
    totals.partitions = len(partitions)
    stages = [READ_FILES, *(spec.stage for spec in workspace.lake.specs.values() if spec.stage is not None)]
    by_label = {stage.label: stage for stage in stages}
    for incomplete in count_live_rows(workspace, slices).incomplete:
        if slices is None or incomplete.slice_ in slices:
            reason = f"{incomplete.table} has another number of rows than was committed"
            totals.wrong.append((incomplete.slice_, Imbalance(by_label[incomplete.stage], reason)))
    return totals


def _list_groups(lake: Lake, slices: Collection[Slice] | None) -> Iterator[Sequence[Slice]]:
    """Slices of one crawl at a time, not too many."""
    by_crawl = None if slices is None else group_targets_by_crawl(slices)
    for crawl in list_crawls(lake.pin("slices")) if by_crawl is None else by_crawl:
        targets = _list_targets(lake, crawl) if by_crawl is None else by_crawl[crawl]
        for start in range(0, len(targets), _SLICES_AT_ONCE):
            yield [Slice(crawl, target) for target in targets[start : start + _SLICES_AT_ONCE]]


def _list_targets(lake: Lake, crawl: str) -> list[str]:
    return sorted({*current_rows(lake, {"crawl": crawl})["target"].to_pylist()} - {""})


def _add_slices(workspace: Workspace, states: Mapping[Slice, SliceState], totals: Balance) -> None:
    """Adds the rows and imbalances of slices to ``totals``."""
    wrong: dict[Slice, Imbalance] = {}
    for slice_, state in states.items():
        totals.captures += _count(state, "captures") or 0
        totals.records += _count(state, "records") or 0
        totals.pages += _count(state, PARSE.main_table) or 0
        if state.located is not None and state.fetched is None:
            totals.only_located.add(slice_.partition)
        elif state.fetched is not None and state.parsed is None:
            totals.only_fetched.add(slice_.partition)
        if (imbalance := _find_imbalance(state)) is not None:
            wrong[slice_] = imbalance
    requests = dict.fromkeys(wrong, SliceRequest(""))
    due = plan(requests, states, {}, options_of(workspace.settings), (FETCH, PARSE))
    for slice_, imbalance in wrong.items():
        is_due = imbalance.is_due and slice_ in due.reasons_for(imbalance.stage)
        totals.wrong.append((slice_, replace(imbalance, is_due=is_due)))


def _count(state: SliceState, table: str) -> int | None:
    """The committed rows of a table; ``None`` if its stage was never made."""
    return next((row.tables[table].rows for row in state.rows.values() if table in row.tables), None)


def _find_imbalance(state: SliceState) -> Imbalance | None:
    """The imbalance of a slice; ``is_due`` if a run that is due may explain it."""
    captures, records, pages = (_count(state, table) for table in ("captures", "records", PARSE.main_table))
    if state.lookup is not None and state.lookup.captures != captures:
        return Imbalance(LOCATE, "the table captures has another number of rows than the lookup found")
    if state.fetch is not None and state.fetch.planned != records:
        return Imbalance(FETCH, "the table records has another number of rows than the fetch planned")
    if records is not None and captures != records:
        return Imbalance(FETCH, "the tables captures and records differ in their number of rows", is_due=True)
    if pages is not None and pages != records:
        return Imbalance(PARSE, "the tables page_metadata and records differ in their number of rows", is_due=True)
    return None


def conservation_verdict(workspace: Workspace, scope: Scope) -> CheckResult:
    """Checks the result of :func:`count_balance`: an error for lost or doubled captures, a warning for slices that the
    next run makes."""
    totals = count_balance(workspace, scope.slices)
    metrics: Metrics = {
        "captures": totals.captures, "records": totals.records, "pages": totals.pages,
        "partitions": totals.partitions, "unfetched partitions": len(totals.only_located),
        "unparsed partitions": len(totals.only_fetched),
    }  # fmt: skip
    severity: Severity = "ok"
    lines: list[str] = []
    advice: list[str] = []
    for is_due in (False, True):
        by_reason: dict[str, set[str]] = {}
        for slice_, imbalance in totals.wrong:
            if imbalance.is_due is is_due:
                by_reason.setdefault(imbalance.reason, set()).add(key_of(slice_))
        for reason, keys in sorted(by_reason.items()):
            lines.append(f"{reason} in {format_count(len(keys), 'partition')} ({abbreviate_keys(keys)})")
        if by_reason:
            severity = max(severity, "warn" if is_due else "error", key=("ok", "warn", "error").index)
            advice.append(_RUN if is_due else _REPAIR)
    if lines:
        unbalanced = tuple(sorted({key_of(slice_) for slice_, _ in totals.wrong}))
        # asset checks show only the message
        message = "\n".join([*lines, *advice])
        return CheckResult(_NAME, severity, message, metrics | {"unbalanced": len(unbalanced)}, unbalanced)
    return CheckResult(_NAME, "ok", f"{_describe_balance(totals)}{_describe_unmade(totals)}", metrics)


def _describe_balance(totals: Balance) -> str:
    return (
        f"each of {totals.records:,} planned captures (counted once per target) has one outcome, and {totals.pages:,} "
        "have a page"
    )


def _describe_unmade(totals: Balance) -> str:
    """The partitions whose next stage was not made: on request, or since a run was killed."""
    unmade = (("located and not fetched yet", totals.only_located), ("fetched and not parsed yet", totals.only_fetched))
    return "".join(
        f"; {format_count(len(partitions), 'partition', 'are')} {state} ({abbreviate_keys({*map(key_of, partitions)})})"
        for state, partitions in unmade
        if partitions
    )


def find_slices_to_remake(totals: Balance) -> dict[Stage, list[Slice]]:
    """Returns the slices whose imbalance no run mends by itself, by the stages to run again: the wrong stage and the
    later ones, whose rows may be as many and still wrong."""
    by_stage: dict[Stage, set[Slice]] = {}
    for slice_, imbalance in totals.wrong:
        if not imbalance.is_due:
            stages = STAGES[STAGES.index(imbalance.stage) :] if imbalance.stage in STAGES else (imbalance.stage,)
            for stage in stages:
                by_stage.setdefault(stage, set()).add(slice_)
    return {stage: sorted(slices) for stage, slices in by_stage.items()}
