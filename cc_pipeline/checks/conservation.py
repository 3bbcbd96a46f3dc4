"""Checks that no capture is lost or doubled between the tables: one check over all slices that have rows in any
table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from cc_pipeline.checks.scope import CheckResult, Scope, Severity, abbreviate_keys, key_of
from cc_pipeline.extraction.plan import SliceRequest, options_of, plan
from cc_pipeline.extraction.slice_state import STAGES, SliceState, read_slice_states
from cc_pipeline.lake.lake import Lake
from cc_pipeline.lake.repeats import PER_CAPTURE
from cc_pipeline.lake.row_counts import count_in_files, read_committed_counts
from cc_pipeline.lake.slice import FETCH, LOCATE, PAGE_TABLES, PARSE, Metrics, Slice, Stage, group_targets_by_crawl
from cc_pipeline.lake.streaming import list_crawls
from cc_pipeline.progress import format_count
from cc_pipeline.publish.publish import find_repeating_slices
from cc_pipeline.workspace.source_files import read_source_files
from cc_pipeline.workspace.workspace import Workspace

_NAME: Final = "ledger_balances"
_PAGES: Final = PARSE.main_table
#: Tables with a note for each slice, and the column of the note that counts captures.
_NOTES: Final = {"lookups": "captures", "fetches": "planned"}
_STAGE_OF: Final = {"captures": LOCATE, "records": FETCH, **dict.fromkeys(PAGE_TABLES, PARSE)}


@dataclass(frozen=True, slots=True)
class Imbalance:
    """The problem of a slice: the ``stage`` to run again, and the reason. ``is_due``: the next run does so anyway,
    since the input of the stage changed."""

    stage: Stage
    reason: str
    is_due: bool = False


@dataclass(slots=True)
class Balance:
    """The counts of some slices and their imbalances."""

    captures: int = 0
    records: int = 0
    pages: int = 0
    slices: int = 0
    only_located: int = 0
    wrong: dict[Slice, Imbalance] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Counts:
    """Rows of the slices of one crawl, by table, and the counts in their notes."""

    rows: Mapping[str, Counter[Slice]]
    notes: Mapping[str, Mapping[Slice, int]]

    @property
    def slices(self) -> list[Slice]:
        """All slices that have a row in any table."""
        return sorted({slice_ for counts in (*self.rows.values(), *self.notes.values()) for slice_ in counts})


def count_balance(workspace: Workspace, slices: Collection[Slice] | None = None) -> Balance:
    """Counts ``slices`` (default: all) in every table, crawl by crawl.

    A fetched slice has as many records as captures, and as many as were planned. A parsed slice has as many pages as
    records. Each table has the rows that the slice was committed with, and no capture twice. Slices of files that were
    read whole are skipped. Rows are counted by the log and the footers; locations are read only of commits since the
    last check. Raises ``EnvironmentFault``.
    """
    totals = Balance()
    files = set(read_source_files(workspace))
    with workspace.lake.hold_versions():
        for crawl, targets in _group_by_crawl(workspace.lake, slices):
            _add_crawl(workspace, _count_crawl(workspace.lake, crawl, targets, files), totals)
        twice = find_repeating_slices(workspace)
    for slice_, tables in twice.items():
        if slices is None or slice_ in slices:
            # making the first table again also makes the later ones, which depend on it
            totals.wrong[slice_] = Imbalance(_STAGE_OF[tables[0]], f"captures are repeated in {', '.join(tables)}")
    return totals


def conservation_verdict(workspace: Workspace, scope: Scope) -> CheckResult:
    """Checks the result of :func:`count_balance`: an error for lost or doubled captures, a warning for slices that the
    next run makes."""
    totals = count_balance(workspace, scope.slices)
    metrics: Metrics = {
        "captures": totals.captures, "records": totals.records, "pages": totals.pages,
        "partitions": totals.slices, "unfetched partitions": totals.only_located,
    }  # fmt: skip
    severity: Severity = "ok"
    lines: list[str] = []
    advice: list[str] = []
    for is_due in (False, True):
        by_reason: dict[str, set[str]] = {}
        for slice_, imbalance in totals.wrong.items():
            if imbalance.is_due is is_due:
                by_reason.setdefault(imbalance.reason, set()).add(key_of(slice_))
        for reason, keys in sorted(by_reason.items()):
            lines.append(f"{reason} in {format_count(len(keys), 'partition')} ({abbreviate_keys(keys)})")
        if by_reason:
            severity = max(severity, "warn" if is_due else "error", key=("ok", "warn", "error").index)
            advice.append(_RUN if is_due else _REPAIR)
    if lines:
        unbalanced = tuple(sorted({*map(key_of, totals.wrong)}))
        # asset checks show only the message
        message = "\n".join([*lines, *advice])
        return CheckResult(_NAME, severity, message, metrics | {"unbalanced": len(unbalanced)}, unbalanced)
    located = (
        f"; {format_count(totals.only_located, 'partition', 'are')} located and not fetched yet"
        if totals.only_located
        else ""
    )
    message = (
        f"each of {totals.records:,} planned captures (counted once per target) has one outcome, and {totals.pages:,} "
        f"have a page{located}"
    )
    return CheckResult(_NAME, "ok", message, metrics)


_REPAIR: Final = "Rebuild these partitions: cc-pipeline doctor --repair"
_RUN: Final = "The next run of these partitions updates them: the job extract_domain, or cc-pipeline run"


def _group_by_crawl(lake: Lake, slices: Collection[Slice] | None) -> Iterator[tuple[str, frozenset[str] | None]]:
    if slices is not None:
        yield from ((crawl, frozenset(targets)) for crawl, targets in group_targets_by_crawl(slices).items())
        return
    tables = (*PER_CAPTURE, *_NOTES)
    for crawl in sorted({crawl for table in tables for crawl in list_crawls(lake.pin(table))}):
        yield crawl, None


def _count_crawl(lake: Lake, crawl: str, targets: Collection[str] | None, files: Collection[str]) -> _Counts:
    """Counts the rows of all tables; only of ``targets`` if they are given."""
    rows: dict[str, Counter[Slice]] = {}
    for table in PER_CAPTURE:
        spec, stored = lake.specs[table], lake.pin(table).stored_files([crawl])
        first, last = (min(targets), max(targets)) if targets else ("", "")
        overlapping_files = [
            file
            for file in stored
            if not targets or file.first is None or file.last is None or (file.first <= last and first <= file.last)
        ]
        counts_by_key = count_in_files(lake, spec, overlapping_files)
        rows[table] = Counter(
            {
                Slice(*key): count
                for key, count in counts_by_key.items()
                if key[-1] not in files and (targets is None or key[-1] in targets)
            }
        )
    where: dict[str, str | list[str]] = {"crawl": crawl} | ({} if targets is None else {"target": [*targets]})
    notes = {
        table: {
            Slice(crawl, row["target"]): int(row[column] or 0)
            for row in lake.read(table, where, ["target", column]).to_pylist()
        }
        for table, column in _NOTES.items()
    }
    return _Counts(rows, notes)


def _add_crawl(workspace: Workspace, counts: _Counts, totals: Balance) -> None:
    """Adds the counts and imbalances of one crawl's slices to ``totals``."""
    lake, rows = workspace.lake, counts.rows
    totals.captures += rows["captures"].total()
    totals.records += rows["records"].total()
    totals.pages += rows[_PAGES].total()
    slices = counts.slices
    totals.slices += len({slice_.partition for slice_ in slices})
    _compare_with_commits(lake, counts, totals)
    unequal_slices = [slice_ for slice_ in slices if slice_ not in totals.wrong and _is_unequal(slice_, counts)]
    # slices are planned only if their counts differ, since planning costs more
    slice_states = read_slice_states(workspace, unequal_slices, STAGES, check_stored_files=False)
    due = plan(
        dict.fromkeys(unequal_slices, SliceRequest("")),
        slice_states,
        {},
        options_of(workspace.settings),
        (FETCH, PARSE),
    )
    fetch_due, parse_due = due.reasons_for(FETCH), due.reasons_for(PARSE)
    only_located = set()
    for slice_, slice_state in slice_states.items():
        imbalance = (
            _find_location_imbalance(slice_, counts, slice_state)
            or _find_fetch_imbalance(slice_, counts, slice_state, slice_ in fetch_due)
            or _find_parse_imbalance(slice_, counts, slice_state, slice_ in parse_due or slice_ in fetch_due)
        )
        if imbalance is not None:
            totals.wrong[slice_] = imbalance
        elif slice_state.fetched is None and rows["captures"][slice_]:
            only_located.add(slice_.partition)
    totals.only_located += len(only_located)


def _is_unequal(slice_: Slice, counts: _Counts) -> bool:
    captures, records, pages = (counts.rows[table][slice_] for table in ("captures", "records", _PAGES))
    noted_counts = [counts.notes[table].get(slice_) for table in _NOTES]
    return any(count != captures for count in (records, pages, *noted_counts))


def _compare_with_commits(lake: Lake, counts: _Counts, totals: Balance) -> None:
    """Adds slices whose rows in a table differ from those that were committed."""
    slices = counts.slices
    for table in PER_CAPTURE:
        committed_rows = read_committed_counts(
            lake, table, [(counted_slice.crawl, counted_slice.target) for counted_slice in slices]
        )
        for slice_ in slices:
            count = committed_rows[slice_.crawl, slice_.target]
            if count is not None and count != counts.rows[table][slice_]:
                totals.wrong.setdefault(
                    slice_, Imbalance(_STAGE_OF[table], f"{table} has another number of rows than was committed")
                )


def _find_location_imbalance(slice_: Slice, counts: _Counts, slice_state: SliceState) -> Imbalance | None:
    captures = counts.rows["captures"][slice_]
    if slice_state.located is None:
        # a slice that was never located must have no rows at all
        unlocated_rows = captures or counts.rows["records"][slice_] or counts.rows[_PAGES][slice_]
        return (
            Imbalance(LOCATE, "there are rows, but no lookup that found their captures")
            if unlocated_rows or counts.notes["lookups"].get(slice_)
            else None
        )
    if slice_state.lookup is not None and slice_state.lookup.captures != captures:
        return Imbalance(LOCATE, "the table captures has another number of rows than the lookup found")
    return None


def _find_fetch_imbalance(slice_: Slice, counts: _Counts, slice_state: SliceState, is_due: bool) -> Imbalance | None:
    captures, records = counts.rows["captures"][slice_], counts.rows["records"][slice_]
    if slice_state.fetched is None:
        if (
            records
            or slice_state.last_fetch is not None
            or slice_state.parsed is not None
            or counts.rows[_PAGES][slice_]
        ):
            return Imbalance(FETCH, "there are results of a fetch, but no committed fetch")
        return None
    if slice_state.fetch is None and slice_state.last_fetch is not None and slice_state.last_fetch.fetched:
        # the note is of a later fetch, whose records were not written, or were lost
        return Imbalance(FETCH, "the table records does not have the records of the last fetch")
    if slice_state.fetch is not None and slice_state.fetch.planned != records:
        return Imbalance(FETCH, "the table records has another number of rows than the fetch planned")
    if captures != records:
        return Imbalance(FETCH, "the tables captures and records differ in their number of rows", is_due)
    return None


def _find_parse_imbalance(slice_: Slice, counts: _Counts, slice_state: SliceState, is_due: bool) -> Imbalance | None:
    records, pages = counts.rows["records"][slice_], counts.rows[_PAGES][slice_]
    if slice_state.partially_committed or slice_state.parsed is None:
        # a partially committed parse has a check of its own
        has_strays = pages and not slice_state.partially_committed
        return Imbalance(PARSE, "there are pages, but no committed parse made them") if has_strays else None
    text = "the tables page_metadata and records differ in their number of rows"
    return None if records == pages else Imbalance(PARSE, text, is_due)


def find_slices_to_remake(totals: Balance) -> dict[Stage, list[Slice]]:
    """Returns the slices whose imbalance no run mends by itself, by the stages to run again: the wrong stage and the
    later ones, whose rows may be as many and still wrong."""
    by_stage: dict[Stage, list[Slice]] = {}
    for slice_, imbalance in sorted(totals.wrong.items(), key=lambda item: item[0]):
        if not imbalance.is_due:
            for stage in STAGES[STAGES.index(imbalance.stage) :]:
                by_stage.setdefault(stage, []).append(slice_)
    return by_stage
