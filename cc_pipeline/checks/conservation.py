"""No capture is lost or doubled between the tables: one check over the union of the slices that any of them has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from cc_pipeline.checks.scope import CheckResult, Scope, Severity, key_of, some
from cc_pipeline.extraction.plan import Wanted, options_of, plan
from cc_pipeline.extraction.standing import STAGES, Standing, stand
from cc_pipeline.lake.lake import Lake
from cc_pipeline.lake.repeats import PER_CAPTURE
from cc_pipeline.lake.row_counts import committed_counts, count_in_files
from cc_pipeline.lake.slice import FETCH, LOCATE, PAGE_TABLES, PARSE, Figures, Slice, Stage, targets_by_crawl
from cc_pipeline.lake.streaming import crawls_of
from cc_pipeline.publish.publish import repeating_slices
from cc_pipeline.workspace.source_files import registered
from cc_pipeline.workspace.workspace import Workspace

_NAME: Final = "ledger_balances"
_PAGES: Final = PARSE.main_table
#: Tables with a note for each slice, and the columns of it that count.
_NOTES: Final = {"lookups": "captures", "fetches": "planned"}
_STAGE_OF: Final = {"captures": LOCATE, "records": FETCH, **dict.fromkeys(PAGE_TABLES, PARSE)}


@dataclass(frozen=True, slots=True)
class Imbalance:
    """What is wrong with a slice: the ``stage`` to make again, and why. ``is_due``: the next run does so anyway, since
    what the stage was made from changed."""

    stage: Stage
    why: str
    is_due: bool = False


@dataclass(slots=True)
class Balance:
    """What a look at some slices counted, and the imbalances that it found."""

    captures: int = 0
    records: int = 0
    pages: int = 0
    slices: int = 0
    only_located: int = 0
    wrong: dict[Slice, Imbalance] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Counts:
    """Rows of the slices of one crawl, by table; and their notes, a count each."""

    rows: Mapping[str, Counter[Slice]]
    notes: Mapping[str, Mapping[Slice, int]]

    @property
    def slices(self) -> list[Slice]:
        """The union of all that have a row anywhere."""
        return sorted({slice_ for counts in (*self.rows.values(), *self.notes.values()) for slice_ in counts})


def balance(workspace: Workspace, slices: Collection[Slice] | None = None) -> Balance:
    """Counts ``slices`` (default: all there are) in every table, crawl by crawl.

    Where fetching stands a slice has as many records as captures, and as many as were planned; where parsing stands, as
    many pages as records. Each table has the rows that the slice was committed with, and no capture twice. Slices of
    files that were read whole are passed over. Rows are counted by the log and the footers; places are read of what was
    committed since they were read last. Raises ``EnvironmentFault``.
    """
    found = Balance()
    files = set(registered(workspace))
    with workspace.lake.still():
        for crawl, targets in _by_crawl(workspace.lake, slices):
            _look(workspace, _counted(workspace.lake, crawl, targets, files), found)
        twice = repeating_slices(workspace)
    for slice_, tables in twice.items():
        if slices is None or slice_ in slices:
            # what the first of them is made of makes the others anew
            found.wrong[slice_] = Imbalance(_STAGE_OF[tables[0]], f"captures are there twice in {', '.join(tables)}")
    return found


def conservation_verdict(workspace: Workspace, scope: Scope) -> CheckResult:
    """The verdict of :func:`balance`: an error for what is lost or doubled, a warning for what the next run makes."""
    found = balance(workspace, scope.slices)
    figures: Figures = {
        "captures": found.captures, "records": found.records, "pages": found.pages,
        "partitions": found.slices, "only located": found.only_located,
    }  # fmt: skip
    severity: Severity = "ok"
    lines: list[str] = []
    advice: list[str] = []
    for is_due in (False, True):
        by_reason: dict[str, set[str]] = {}
        for slice_, one in found.wrong.items():
            if one.is_due is is_due:
                by_reason.setdefault(one.why, set()).add(key_of(slice_))
        for why, keys in sorted(by_reason.items()):
            lines.append(f"{why} in {len(keys):,} partitions ({some(keys)})")
        if by_reason:
            severity = max(severity, "warn" if is_due else "error", key=("ok", "warn", "error").index)
            advice.append(_RUN if is_due else _REPAIR)
    if lines:
        unbalanced = tuple(sorted({*map(key_of, found.wrong)}))
        # asset checks show the message alone
        message = "\n".join([*lines, *advice])
        return CheckResult(_NAME, severity, message, figures | {"unbalanced": len(unbalanced)}, unbalanced)
    located = f"; {found.only_located:,} partitions are only located" if found.only_located else ""
    message = (
        f"all {found.records:,} planned captures, counted for each target, have one outcome, and {found.pages:,} of "
        f"them a page{located}"
    )
    return CheckResult(_NAME, "ok", message, figures)


_REPAIR: Final = "Make them again: cc-pipeline doctor --repair"
_RUN: Final = "What changed since is made by the next run: extract_domain, or cc-pipeline run"


def _by_crawl(lake: Lake, slices: Collection[Slice] | None) -> Iterator[tuple[str, frozenset[str] | None]]:
    if slices is not None:
        yield from ((crawl, frozenset(targets)) for crawl, targets in targets_by_crawl(slices).items())
        return
    tables = (*PER_CAPTURE, *_NOTES)
    for crawl in sorted({crawl for table in tables for crawl in crawls_of(lake.pin(table))}):
        yield crawl, None


def _counted(lake: Lake, crawl: str, targets: Collection[str] | None, files: Collection[str]) -> _Counts:
    """The rows of all tables; of ``targets`` alone where they are named."""
    rows: dict[str, Counter[Slice]] = {}
    for table in PER_CAPTURE:
        spec, stored = lake.specs[table], lake.pin(table).stored_files([crawl])
        first, last = (min(targets), max(targets)) if targets else ("", "")
        mine = [
            file
            for file in stored
            if not targets or file.first is None or file.last is None or (file.first <= last and first <= file.last)
        ]
        found = count_in_files(lake, spec, mine)
        rows[table] = Counter(
            {
                Slice(*key): count
                for key, count in found.items()
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


def _look(workspace: Workspace, counts: _Counts, found: Balance) -> None:
    """Adds what the slices of one crawl have to ``found``."""
    lake, rows = workspace.lake, counts.rows
    found.captures += rows["captures"].total()
    found.records += rows["records"].total()
    found.pages += rows[_PAGES].total()
    slices = counts.slices
    found.slices += len({slice_.whole for slice_ in slices})
    _compare_with_commits(lake, counts, found)
    doubtful = [slice_ for slice_ in slices if slice_ not in found.wrong and _is_doubtful(slice_, counts)]
    # what is planned of a slice is asked only where its counts differ
    stands = stand(workspace, doubtful, STAGES, look_for_bytes=False)
    due = plan(dict.fromkeys(doubtful, Wanted("")), stands, {}, options_of(workspace.settings), (FETCH, PARSE))
    fetch_due, parse_due = due.of(FETCH), due.of(PARSE)
    only_located = set()
    for slice_, one in stands.items():
        wrong = (
            _located_otherwise(slice_, counts, one)
            or _fetched_otherwise(slice_, counts, one, slice_ in fetch_due)
            or _parsed_otherwise(slice_, counts, one, slice_ in parse_due or slice_ in fetch_due)
        )
        if wrong is not None:
            found.wrong[slice_] = wrong
        elif one.fetched is None and rows["captures"][slice_]:
            only_located.add(slice_.whole)
    found.only_located += len(only_located)


def _is_doubtful(slice_: Slice, counts: _Counts) -> bool:
    captures, records, pages = (counts.rows[table][slice_] for table in ("captures", "records", _PAGES))
    noted = [counts.notes[table].get(slice_) for table in _NOTES]
    return any(count != captures for count in (records, pages, *noted))


def _compare_with_commits(lake: Lake, counts: _Counts, found: Balance) -> None:
    """Slices that have other rows in a table than they were committed with."""
    slices = counts.slices
    for table in PER_CAPTURE:
        said = committed_counts(lake, table, [(one.crawl, one.target) for one in slices])
        for slice_ in slices:
            count = said[slice_.crawl, slice_.target]
            if count is not None and count != counts.rows[table][slice_]:
                found.wrong.setdefault(
                    slice_, Imbalance(_STAGE_OF[table], f"{table} has other rows than were committed")
                )


def _located_otherwise(slice_: Slice, counts: _Counts, stands: Standing) -> Imbalance | None:
    captures = counts.rows["captures"][slice_]
    if stands.located is None:
        # it was never located: then it has nothing at all
        there = captures or counts.rows["records"][slice_] or counts.rows[_PAGES][slice_]
        return Imbalance(LOCATE, "rows are of no look-up") if there or counts.notes["lookups"].get(slice_) else None
    if stands.lookup is not None and stands.lookup.captures != captures:
        return Imbalance(LOCATE, "captures are not as many as were found")
    return None


def _fetched_otherwise(slice_: Slice, counts: _Counts, stands: Standing, is_due: bool) -> Imbalance | None:
    captures, records = counts.rows["captures"][slice_], counts.rows["records"][slice_]
    if stands.fetched is None:
        if records or stands.asked is not None or stands.parsed is not None or counts.rows[_PAGES][slice_]:
            return Imbalance(FETCH, "captures have no records")
        return None
    if stands.fetch is None and stands.asked is not None and stands.asked.fetched:
        # the note is of a later fetch than the records, which that one did not get to write, or which were lost
        return Imbalance(FETCH, "records are not those of the last fetch")
    if stands.fetch is not None and stands.fetch.planned != records:
        return Imbalance(FETCH, "records are not as many as were planned")
    if captures != records:
        return Imbalance(FETCH, "captures and records are not as many", is_due)
    return None


def _parsed_otherwise(slice_: Slice, counts: _Counts, stands: Standing, is_due: bool) -> Imbalance | None:
    records, pages = counts.rows["records"][slice_], counts.rows[_PAGES][slice_]
    if stands.torn or stands.parsed is None:
        # a parse that was killed has a check of its own
        return Imbalance(PARSE, "pages are of no parse") if pages and not stands.torn else None
    return None if records == pages else Imbalance(PARSE, "pages and records are not as many", is_due)


def to_make_again(found: Balance) -> dict[Stage, list[Slice]]:
    """The slices whose imbalance no run mends by itself, by stages that are to be made again: the one that is wrong,
    and those behind it, whose rows may be as many and wrong too."""
    by_stage: dict[Stage, list[Slice]] = {}
    for slice_, one in sorted(found.wrong.items(), key=lambda item: item[0]):
        if not one.is_due:
            for stage in STAGES[STAGES.index(one.stage) :]:
                by_stage.setdefault(stage, []).append(slice_)
    return by_stage
