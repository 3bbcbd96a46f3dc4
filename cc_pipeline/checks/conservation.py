"""Checks that no capture is lost or doubled between the tables: by the rows of ``slices``, and by the number of rows
that are stored under each generation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from cc_pipeline.checks.scope import CheckResult, Scope, Severity, abbreviate_keys, key_of
from cc_pipeline.extraction.plan import SliceRequest, options_of, plan
from cc_pipeline.extraction.slice_state import STAGES, SliceState, read_slice_states
from cc_pipeline.lake.lake import Lake
from cc_pipeline.lake.live_rows import LiveRows, find_live_rows
from cc_pipeline.lake.slice import FETCH, LOCATE, PARSE, READ_FILES, Metrics, Slice, Stage, group_targets_by_crawl
from cc_pipeline.lake.slices import current_rows
from cc_pipeline.progress import format_count
from cc_pipeline.workspace.workspace import Workspace

_NAME: Final = "ledger_balances"
#: Slices whose rows of ``slices`` are in memory together.
_SLICES_AT_ONCE: Final = 10_000
_REPAIR: Final = "Rebuild these partitions: cc-pipeline doctor --repair"
_CONTINUE: Final = "A run may have been killed: run these targets again with cc-pipeline run."
_RUN: Final = "The next run of these partitions updates them: materialize them, or cc-pipeline run"


@dataclass(frozen=True, slots=True)
class Imbalance:
    """The problem of a slice: the ``stage`` to make again, and the reason."""

    slice_: Slice
    stage: Stage
    reason: str


@dataclass(slots=True)
class Balance:
    """The ``rows`` of some slices by table, and their ``partitions``, of which some are ``only_located`` and some
    ``only_fetched``: their next stage was not made yet. Imbalances are ``wrong``, or ``due``: the next run makes the
    stage again anyway, since its input changed."""

    rows: Counter[str] = field(default_factory=Counter)
    partitions: set[Slice] = field(default_factory=set)
    only_located: set[Slice] = field(default_factory=set)
    only_fetched: set[Slice] = field(default_factory=set)
    wrong: list[Imbalance] = field(default_factory=list)
    due: list[Imbalance] = field(default_factory=list)


def count_live_rows(workspace: Workspace, slices: Collection[Slice] | None = None) -> LiveRows:
    """Counts the rows of each generation in all files, of which those counted before are known, and compares them with
    the committed numbers of ``slices`` (default: all). Raises ``EnvironmentFault``."""
    lake = workspace.lake
    specs = [lake.specs["slices"], *(spec for spec in lake.specs.values() if spec.has_slices)]
    crawls = None if slices is None else {slice_.crawl for slice_ in slices}
    pinned = [lake.pin(spec.name) for spec in specs]
    return find_live_rows(lake, pinned, workspace.settings.cache_path / "generations", crawls)


def count_balance(workspace: Workspace, slices: Collection[Slice] | None = None) -> Balance:
    """Counts ``slices`` (default: all): a fetched slice has as many records as captures, a parsed one as many pages as
    records, and each table has the rows that the slice was committed with. Raises ``EnvironmentFault``."""
    balance = Balance()
    for group in _list_groups(workspace.lake, slices):
        _add_slices(workspace, read_slice_states(workspace, group, STAGES, check_stored_files=False), balance)
    stages = [READ_FILES, *(spec.stage for spec in workspace.lake.specs.values() if spec.stage is not None)]
    by_label = {stage.label: stage for stage in stages}
    for miscount in count_live_rows(workspace, slices).miscounts:
        if slices is None or miscount.slice_ in slices:
            reason = f"{miscount.table} has another number of rows than was committed"
            balance.wrong.append(Imbalance(miscount.slice_, by_label[miscount.stage], reason))
    return balance


def _list_groups(lake: Lake, slices: Collection[Slice] | None) -> Iterator[Sequence[Slice]]:
    """Slices of one crawl at a time, not too many."""
    by_crawl = None if slices is None else group_targets_by_crawl(slices)
    for crawl in lake.pin("slices").crawls if by_crawl is None else by_crawl:
        targets = _list_targets(lake, crawl) if by_crawl is None else by_crawl[crawl]
        for start in range(0, len(targets), _SLICES_AT_ONCE):
            yield [Slice(crawl, target) for target in targets[start : start + _SLICES_AT_ONCE]]


def _list_targets(lake: Lake, crawl: str) -> list[str]:
    return sorted({*current_rows(lake, {"crawl": crawl})["target"].to_pylist()} - {""})


def _add_slices(workspace: Workspace, states: Mapping[Slice, SliceState], balance: Balance) -> None:
    """Adds the committed rows of slices to ``balance``, and where two stages differ."""
    differing: list[Imbalance] = []
    for slice_, state in states.items():
        counts = {
            stage: row.tables[stage.main_table].rows for stage in STAGES if (row := state.made(stage)) is not None
        }
        if not counts:
            continue
        balance.partitions.add(slice_.partition)
        balance.rows.update({stage.main_table: count for stage, count in counts.items()})
        if LOCATE in counts and FETCH not in counts:
            balance.only_located.add(slice_.partition)
        elif FETCH in counts and PARSE not in counts:
            balance.only_fetched.add(slice_.partition)
        differing += [
            Imbalance(
                slice_, later, f"the tables {later.main_table} and {first.main_table} differ in their number of rows"
            )
            for first, later in pairwise(STAGES)
            if first in counts and later in counts and counts[first] != counts[later]
        ]
    requests = {imbalance.slice_: SliceRequest("") for imbalance in differing}
    due = plan(requests, states, {}, options_of(workspace.settings), (FETCH, PARSE))
    for imbalance in differing:
        is_due = imbalance.slice_ in due.reasons_for(imbalance.stage)
        (balance.due if is_due else balance.wrong).append(imbalance)


def conservation_verdict(workspace: Workspace, scope: Scope) -> CheckResult:
    """Checks the result of :func:`count_balance`: an error for lost or doubled captures, a warning for slices that the
    next run makes."""
    balance = count_balance(workspace, scope.slices)
    metrics: Metrics = {
        "captures": balance.rows["captures"], "records": balance.rows["records"],
        "pages": balance.rows[PARSE.main_table], "partitions": len(balance.partitions),
        "unfetched partitions": len(balance.only_located), "unparsed partitions": len(balance.only_fetched),
    }  # fmt: skip
    if not balance.wrong and not balance.due:
        message = (
            f"each of {balance.rows['records']:,} planned captures (counted once per target) has one outcome, and "
            f"{balance.rows[PARSE.main_table]:,} have a page{_describe_unmade(balance)}"
        )
        has_unmade = balance.only_located or balance.only_fetched
        return CheckResult(_NAME, "ok", message, metrics, advice=_CONTINUE if has_unmade else "")
    lines, unbalanced = [], set[str]()
    for imbalances, advice in ((balance.wrong, _REPAIR), (balance.due, _RUN)):
        by_reason: dict[str, set[str]] = {}
        for imbalance in imbalances:
            by_reason.setdefault(imbalance.reason, set()).add(key_of(imbalance.slice_))
        for reason, keys in sorted(by_reason.items()):
            lines.append(f"{reason} in {format_count(len(keys), 'partition')} ({abbreviate_keys(keys)}). {advice}")
            unbalanced |= keys
    metrics["unbalanced"] = len(unbalanced)
    severity: Severity = "error" if balance.wrong else "warn"
    return CheckResult(_NAME, severity, "\n".join(lines), metrics, tuple(sorted(unbalanced)))


def _describe_unmade(balance: Balance) -> str:
    """The partitions whose next stage was not made: on request, or since a run was killed."""
    unmade = (
        ("located and not fetched yet", balance.only_located),
        ("fetched and not parsed yet", balance.only_fetched),
    )
    return "".join(
        f"; {format_count(len(partitions), 'partition', 'are')} {state} ({abbreviate_keys({*map(key_of, partitions)})})"
        for state, partitions in unmade
        if partitions
    )


def find_slices_to_remake(balance: Balance) -> dict[Stage, list[Slice]]:
    """Returns the slices whose imbalance no run mends by itself, by the stages to run again: the wrong stage and the
    later ones, whose rows may be as many and still wrong."""
    by_stage: dict[Stage, set[Slice]] = {}
    for imbalance in balance.wrong:
        stage = imbalance.stage
        for later in STAGES[STAGES.index(stage) :] if stage in STAGES else (stage,):
            by_stage.setdefault(later, set()).add(imbalance.slice_)
    return {stage: sorted(slices) for stage, slices in by_stage.items()}
