"""The report at the end of a run: what changed, then what is missing and where to look. Totals on request."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from cc_pipeline import describe_missing_modules
from cc_pipeline.advice import advise, option
from cc_pipeline.api.target_runs import PARTITION_COLUMNS, count_captures, list_partitions, shorten_definition
from cc_pipeline.api.user_input import names_with_captures
from cc_pipeline.automation import watch_list
from cc_pipeline.cli.output import MAX_CRAWL_LINES, YEAR, console, notice, row_format, write_rows
from cc_pipeline.commoncrawl.domains import suggest_names
from cc_pipeline.commoncrawl.target import Target
from cc_pipeline.errors import CcPipelineError
from cc_pipeline.home import read_note
from cc_pipeline.progress import format_count
from cc_pipeline.settings import Settings

if TYPE_CHECKING:
    from cc_pipeline.api.target_runs import Part
    from cc_pipeline.extraction.crawl_plan import PartitionChange
    from cc_pipeline.lake.slice import Slice

    Changes = Mapping[Slice, PartitionChange]

#: The most rows of the table; the other targets are counted in one. Up to as many partitions have a row each.
_MAX_ROWS = 40
#: The most notes on single crawls of a run over many: most repeat for each crawl.
_MAX_NOTES = 2
#: The most targets, or members of a set, that a note names.
_MAX_NAMED = 20
_LOST_QUERY: Final = "SELECT url, reason, detail FROM ledger WHERE outcome = 'lost'"
_MISMATCH_QUERY: Final = "SELECT url, digest_check FROM ledger WHERE digest_check = 'mismatch'"
_TARGET_COLUMNS: Final = ("target", "crawls", "captures", "new", "pending", "lost")


def warn_if_not_compiled(settings: Settings) -> None:
    """Warns once, before the first run of a home, if compiled modules are missing."""
    if read_note(settings.home) is None and (warning := describe_missing_modules()) is not None:
        notice(warning)


class CrawlLines:
    """Prints a line for each finished crawl of a run over several: of many crawls a line for each year. For programs
    prints the partitions of each crawl."""

    def __init__(self) -> None:
        self._parts: list[Part] = []

    def add(self, part: Part) -> None:
        """Adds the result of a crawl. Prints the line before it if that is complete."""
        if part.position[1] == 1 or not part.targets:
            return
        if row_format() != "table":
            _write_partitions(part.changes, part.targets)
            return
        if self._parts and _name_line(part) != _name_line(self._parts[0]):
            self.print()
        self._parts.append(part)

    def print(self) -> None:
        """Prints the line of the crawls that have none yet."""
        if not self._parts:
            return
        number, total = self._parts[-1].position
        changes = {slice_: change for part in self._parts for slice_, change in part.changes.items()}
        found_slugs = {slice_.target for slice_, change in changes.items() if change.after.captures}
        captures, new, pending, lost = count_captures(changes.values())
        remainder = "".join(f", {count:,} {state}" for state, count in (("pending", pending), ("lost", lost)) if count)
        if unrun := sum(change.change == "not run" for change in changes.values()):
            remainder += f", {format_count(unrun, 'target')} not run"
        console.print(
            f"{number:>{len(str(total))}} of {total}  {_name_line(self._parts[0])}: {len(found_slugs):,} of "
            f"{len({slice_.target for slice_ in changes}):,} targets, {format_count(captures, 'capture')}, {new:,} new"
            f"{remainder}, {sum(part.seconds for part in self._parts):.0f} s",
            soft_wrap=True,
        )
        self._parts.clear()


def _name_line(part: Part) -> str:
    """Returns the crawl of a result; of a run over many crawls its year."""
    crawl = next((slice_.crawl for slice_ in part.changes), "nothing to do")
    year = YEAR.search(crawl)
    return year[0] if year is not None and part.position[1] > MAX_CRAWL_LINES else crawl


def print_summary(parts: Sequence[Part], *, details: bool = False) -> None:
    """Prints what a run did: a row for each crawl and target, or for each target if these are many; then what is
    missing. Targets and members of sets without captures are named, since an empty result looks like success.
    ``details`` names all of them, and adds the partitions and all notes of many crawls."""
    # crawls without an index have a note only
    searched = [part for part in parts if part.targets]
    # all parts have the same settings, except for the subsets that a target names
    for subsets in dict.fromkeys(part.settings.subsets for part in searched):
        _print_subset([part for part in searched if part.settings.subsets == subsets], details=details)
    notes = [*dict.fromkeys(text for part in parts for text in part.notes)]
    shown = notes if details or not _is_of_many_crawls(parts) else notes[:_MAX_NOTES]
    for text in shown:
        note(text)
    if len(notes) > len(shown):
        console.print(f"      and {len(notes) - len(shown):,} more notes on single crawls: --details shows them")


def _is_of_many_crawls(parts: Sequence[Part]) -> bool:
    return any(part.position[1] > 1 for part in parts)


def _print_subset(parts: Sequence[Part], *, details: bool) -> None:
    settings, is_many = parts[0].settings, _is_of_many_crawls(parts)
    by_slug = {target.slug: target for part in parts for target in part.targets}
    changes = {slice_: change for part in parts for slice_, change in part.changes.items()}
    is_table = row_format() == "table"
    if is_table and (is_many or len(changes) > _MAX_ROWS):
        if details:
            _write_partitions(changes, by_slug.values())
        _write_targets(changes, by_slug, details=details)
    elif not is_many:
        _write_partitions(changes, by_slug.values())
    forgotten = {slug for part in parts for slug in part.forgotten}
    _note_absent_targets(settings, changes, by_slug, forgotten, details=details)
    # members are counted over all subsets: the run that fetched their pages has reported them
    if settings.subsets != ("robotstxt",):
        _note_absent_members(settings, changes, by_slug, details=details)
    _print_missing_captures(settings, changes)


def _write_partitions(changes: Changes, targets: Iterable[Target]) -> None:
    write_rows("what this run did", PARTITION_COLUMNS, list_partitions(changes, targets))


def _write_targets(changes: Changes, by_slug: Mapping[str, Target], *, details: bool) -> None:
    """Writes the totals of each target that was found, those with the most captures first."""
    by_target: dict[str, dict[Slice, PartitionChange]] = {}
    for slice_, change in changes.items():
        by_target.setdefault(slice_.target, {})[slice_] = change
    totals = {slug: _sum_changes(target_changes) for slug, target_changes in by_target.items()}
    found_slugs = sorted((slug for slug, total in totals.items() if total[1]), key=lambda slug: -totals[slug][1])
    shown_slugs = found_slugs if details else found_slugs[:_MAX_ROWS]
    rows: list[Sequence[object]] = [(shorten_definition(by_slug[slug]), *totals[slug]) for slug in shown_slugs]
    if others := {*found_slugs[len(shown_slugs) :]}:
        other_changes = {slice_: change for slice_, change in changes.items() if slice_.target in others}
        rows.append((format_count(len(others), "more target"), *_sum_changes(other_changes)))
    if len(found_slugs) > 1:
        rows.append(("all of them", *_sum_changes(changes)))
    write_rows("what this run found", _TARGET_COLUMNS, rows)


def _sum_changes(changes: Changes) -> tuple[int, ...]:
    """Returns the numbers of crawls with captures, captures, and new, pending and lost ones."""
    crawls = {slice_.crawl for slice_, change in changes.items() if change.after.captures}
    return len(crawls), *count_captures(changes.values())


def _note_absent_targets(
    settings: Settings,
    changes: Changes,
    by_slug: Mapping[str, Target],
    forgotten: Collection[str],
    *,
    details: bool,
) -> None:
    """Prints the targets found in no crawl, what a mistyped one may mean, and whether the home keeps them."""
    present = {
        slice_.target for slice_, change in changes.items() if change.after.captures or change.change == "not run"
    }
    absent = [slug for slug in dict.fromkeys(slice_.target for slice_ in changes) if slug not in present]
    known = _find_known_names(settings, {by_slug[slug].definition for slug in absent}) if absent else []
    for slugs, consequence in (
        ([slug for slug in absent if slug not in forgotten], ""),
        ([slug for slug in absent if slug in forgotten], ", so this home does not keep them"),
    ):
        if slugs:
            targets = f"{format_count(len(slugs), 'new target' if consequence else 'target')}{consequence}"
            definitions = [shorten_definition(by_slug[slug]) for slug in slugs]
            names = _list_names(suggest_names(definitions, known), details=details)
            subsets = ", ".join(settings.subsets)
            note(f"no crawl of this run has captures (subset {subsets}) of {targets}: {names}")


def _find_known_names(settings: Settings, absent_names: Collection[str]) -> list[str]:
    """Returns the names with captures in this home, and those of a valid watch list that are not absent."""
    names = names_with_captures(settings)
    with suppress(CcPipelineError):
        watched_names = [target.definition for target in watch_list.read(settings.watch_list_path)]
        names += [name for name in watched_names if name not in absent_names]
    return names


def _list_names(names: Sequence[str], *, details: bool) -> str:
    shown = names if details else names[:_MAX_NAMED]
    return "; ".join(shown) + (
        f" and {len(names) - len(shown):,} more, which --details names" if shown != names else ""
    )


def _note_absent_members(settings: Settings, changes: Changes, by_slug: Mapping[str, Target], *, details: bool) -> None:
    """Prints one line for each set with members found in none of the crawls."""
    found = [slice_ for slice_, change in changes.items() if by_slug[slice_.target].members and change.after.captures]
    if not found:
        return
    from cc_pipeline.lake.published_file import open_home_publication

    with open_home_publication(settings) as connection:
        rows = connection.execute(
            "SELECT target, count(*), list(member ORDER BY member) FILTER (captures = 0) FROM "
            "(SELECT target, member, sum(captures) AS captures FROM set_members WHERE list_contains($1, target) "
            "AND list_contains($2, crawl) GROUP BY ALL) GROUP BY ALL HAVING count(*) FILTER (captures = 0) > 0 "
            "ORDER BY ALL",
            [sorted({slice_.target for slice_ in found}), sorted({slice_.crawl for slice_ in changes})],
        ).fetchall()
    for slug, total, members in rows:
        query = advise("sql", f"FROM set_members WHERE captures = 0 AND target = '{slug}'")
        more = f" All of them: {query}" if len(members) > _MAX_NAMED and not details else ""
        note(
            f"no crawl of this run has captures of {len(members):,} of {total:,} members of {slug}: "
            f"{_list_names(members, details=details)}.{more}"
        )


def print_home_totals(settings: Settings) -> None:
    """Prints the rows of each table of the home, and its ledger."""
    from cc_pipeline.lake.published_file import open_home_publication

    with open_home_publication(settings) as connection:
        rows = connection.execute("SELECT table_name, lake_rows FROM publication WHERE lake_rows > 0").fetchall()
        outcomes = connection.execute(
            "SELECT crawl, count(*), count(*) FILTER (outcome = 'fetched'), count(*) FILTER (outcome = 'pending'), "
            "count(*) FILTER (outcome = 'lost') FROM ledger GROUP BY crawl ORDER BY crawl DESC"
        ).fetchall()
    write_rows("all of this home: rows by table", ["table", "rows"], rows)
    write_rows("all of this home: the ledger", ["crawl", "planned", "fetched", "pending", "lost"], outcomes)


def note(text: str) -> None:
    """Prints a note under a report."""
    console.print(f"note: {text}", soft_wrap=True, style="yellow")


def _count_ledger(settings: Settings, changes: Changes) -> tuple[int, int, int, int]:
    """Returns the numbers of planned, pending, lost captures, and of those with another payload than indexed. A capture
    that several targets have is counted once."""
    planned_slices = [slice_ for slice_, change in changes.items() if change.after.planned]
    states = [change.after for change in changes.values()]
    totals = (
        sum(state.planned for state in states),
        sum(state.pending for state in states),
        sum(state.lost for state in states),
        sum(state.mismatched for state in states),
    )
    crawls, slugs = ({getattr(slice_, name) for slice_ in planned_slices} for name in ("crawl", "target"))
    if len(planned_slices) == len(crawls):
        return totals
    from cc_pipeline.capture_columns import CAPTURE
    from cc_pipeline.commoncrawl.slice_slugs import subsets_in
    from cc_pipeline.lake.published_file import open_home_publication

    subsets = {subset for crawl in crawls for subset in subsets_in(crawl, settings.subsets)}
    key = ", ".join(CAPTURE)
    with open_home_publication(settings) as connection:
        [row] = connection.execute(
            "SELECT count(*), count(*) FILTER (outcome = 'pending'), count(*) FILTER (outcome = 'lost'), "
            f"count(*) FILTER (outcome = 'fetched' AND digest_check = 'mismatch') FROM ledger SEMI JOIN "
            f"(SELECT {key} FROM capture_targets WHERE list_contains($1, subset) AND list_contains($2, crawl) "
            f"AND list_contains($3, target)) USING ({key})",
            [[*subsets], [*crawls], [*slugs]],
        ).fetchall()
    # rows that a publication leaves out are not in the ledger: then the sums are more complete
    return row if row[0] and bool(row[1]) == bool(totals[1]) else totals


def _print_missing_captures(settings: Settings, changes: Changes) -> None:
    from cc_pipeline.extraction.fetch_counts import describe_asks, share

    planned, pending, lost, mismatched = _count_ledger(settings, changes)
    if pending:
        times = [change.after.next_ask_at for change in changes.values() if change.after.next_ask_at is not None]
        asks = min(change.after.asks for change in changes.values() if change.after.pending)
        asked = describe_asks(asks, min(times, default=None))
        amount = f"{format_count(pending, 'capture')} of {planned:,} ({share(pending, planned)})"
        console.print(f"{amount} pending, {asked}", soft_wrap=True, style="bold yellow")
    if lost:
        note(
            f"{lost:,} of {planned:,} captures ({share(lost, planned)}) are lost in the source itself; "
            f"to list them with reasons: {advise('sql', _LOST_QUERY)}"
        )
    if unlisted := sum(change.after.unlisted for change in changes.values()):
        note(
            f"the index no longer lists {format_count(unlisted, 'capture')} of {planned:,}; they are kept. To remove "
            f"them, run it again with {option(accept_removals=True)}"
        )
    if mismatched:
        note(
            f"{mismatched:,} of {planned:,} captures ({share(mismatched, planned)}) have a body whose digest is not "
            "the one in the index. They are stored, but may not be exactly what the crawler received. To list them: "
            f"{advise('sql', _MISMATCH_QUERY)}"
        )
    if planned and not pending and not lost and not mismatched:
        console.print(f"all {format_count(planned, 'capture', 'are')} fetched and stored", style="green")
