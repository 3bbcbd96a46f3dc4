"""The report at the end of a run: what changed, then what is missing and where to look. Totals on request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cc_pipeline import describe_missing_modules
from cc_pipeline.advice import advise, option
from cc_pipeline.cli.output import console, notice, row_format, write_rows
from cc_pipeline.commoncrawl.target import Target
from cc_pipeline.home import read_note
from cc_pipeline.progress import format_count
from cc_pipeline.settings import Settings

if TYPE_CHECKING:
    import duckdb

    from cc_pipeline.api.target_runs import Part
    from cc_pipeline.extraction.crawl_plan import Change, PartitionChange
    from cc_pipeline.lake.slice import Slice

#: Above this many (crawl, target) pairs, the table has one line per crawl.
_MAX_PAIR_ROWS = 40
#: Maximum number of targets in the summary of many crawls.
_MAX_TARGET_ROWS = 40
#: Maximum number of notes on single crawls in that summary: most repeat for each crawl.
_MAX_NOTES = 2
#: Maximum number of pairs named in one note.
_MAX_NAMED_PAIRS = 5
#: Maximum number of set members without captures that are listed, one per line.
_MAX_NAMED_MEMBERS = 20
#: Maximum characters of a target's definition in a table or note.
_MAX_DEFINITION_CHARS = 120
_LOST_QUERY: Final = "SELECT url, reason, detail FROM ledger WHERE outcome = 'lost'"
_MISMATCH_QUERY: Final = "SELECT url, digest_check FROM ledger WHERE digest_check = 'mismatch'"
_CHANGES: Final[tuple[Change, ...]] = ("new", "updated", "same", "not run")
#: The columns of a row for each crawl and target.
PARTITION_COLUMNS: Final[tuple[str, ...]] = ("crawl", "target", "change", "captures", "new", "pending", "lost")


def warn_if_not_compiled(settings: Settings) -> None:
    """Warns once, before the first run of a home, if compiled modules are missing."""
    if read_note(settings.home) is None and (warning := describe_missing_modules()) is not None:
        notice(warning)


def print_run_summary(
    settings: Settings,
    changes: Mapping[Slice, PartitionChange],
    targets: Sequence[Target],
    forgotten: Collection[str] = (),
) -> None:
    """Prints a table of what this run did with each partition, then notes on empty targets and missing captures.

    Targets and set members without captures are named: an empty result looks like success. ``changes`` is ordered by
    crawl; ``forgotten`` are new targets that were not kept.
    """
    by_slug = {target.slug: target for target in targets}
    if len(changes) <= _MAX_PAIR_ROWS or row_format() != "table":
        columns, rows = PARTITION_COLUMNS, _partition_rows(changes, by_slug)
    else:
        columns = ("crawl", "targets", *_CHANGES, "empty", "captures", "new captures", "pending", "lost")
        rows = [
            (crawl, *_count_changes(crawl_changes), *_count_captures(crawl_changes))
            for crawl, crawl_changes in _group_by_crawl(changes).items()
        ]
    is_robots_run = settings.subsets == ("robotstxt",)
    write_rows(f"what this run did{' with robots.txt' if is_robots_run else ''}", columns, rows)
    _note_empty_targets(settings, changes, by_slug, forgotten)
    if not is_robots_run:
        # members are counted over all subsets: the run that fetched their pages has reported them
        _note_missing_members(settings, changes, by_slug)
    _print_missing_captures(settings, changes)


def print_crawl_line(part: Part) -> None:
    """Prints one line for a finished crawl, or for each crawl that has no index; for programs its partitions."""
    number, total = part.position
    for place, crawl in enumerate(part.unsearched, start=1):
        console.print(f"{place:>{len(str(total))}} of {total}  {crawl}: not searched: no index is published")
    if part.unsearched:
        return
    progress = f"{number:>{len(str(total))}} of {total}" if total > 1 else "robots.txt"
    found_slugs = {slice_.target for slice_, change in part.changes.items() if change.after.captures}
    captures, new, pending, lost = _count_captures(part.changes.values())
    crawl = next(iter(part.changes)).crawl if part.changes else "nothing to do"
    remainder = "".join(f", {count:,} {state}" for state, count in (("pending", pending), ("lost", lost)) if count)
    if unrun := sum(change.change == "not run" for change in part.changes.values()):
        remainder += f", {format_count(unrun, 'target')} not run"
    console.print(
        f"{progress}  {crawl}: {len(found_slugs):,} of {len(part.changes):,} targets, "
        f"{format_count(captures, 'capture')}, {new:,} new{remainder}, {part.seconds:.0f} s"
    )
    if row_format() != "table":
        write_partitions(part)


def write_partitions(part: Part) -> None:
    """Writes a row for each crawl and target of a part of a run."""
    rows = _partition_rows(part.changes, {target.slug: target for target in part.targets})
    write_rows("", PARTITION_COLUMNS, rows)


def print_summary_of_crawls(parts: Sequence[Part], *, details: bool) -> None:
    """Prints the summary of a run over many crawls: totals of each target found, then what is missing.
    ``details`` adds a table of each crawl, the names of absent targets, and the notes on single crawls."""
    searched = [part for part in parts if not part.unsearched]
    if details and row_format() == "table":
        for part in searched:
            write_partitions(part)
    # all parts have the same settings, except for the subsets that a target names
    for subsets in dict.fromkeys(part.settings.subsets for part in searched):
        _print_subset_summary([part for part in searched if part.settings.subsets == subsets], details=details)
    notes = [*dict.fromkeys(text for part in parts for text in part.notes)]
    for text in notes if details else notes[:_MAX_NOTES]:
        note(text)
    if len(notes) > _MAX_NOTES and not details:
        console.print(f"      and {len(notes) - _MAX_NOTES:,} more notes on single crawls: --details shows them")


def _print_subset_summary(parts: Sequence[Part], *, details: bool) -> None:
    settings = parts[0].settings
    by_slug = {target.slug: target for part in parts for target in part.targets}
    changes = {slice_: change for part in parts for slice_, change in part.changes.items()}
    by_target: dict[str, dict[Slice, PartitionChange]] = {}
    for slice_, change in changes.items():
        by_target.setdefault(slice_.target, {})[slice_] = change
    totals = {slug: _sum_changes(target_changes) for slug, target_changes in by_target.items()}
    found_slugs = sorted(
        (slug for slug, target_changes in totals.items() if target_changes[1]), key=lambda slug: -totals[slug][1]
    )
    shown_slugs = found_slugs if details else found_slugs[:_MAX_TARGET_ROWS]
    rows: list[Sequence[object]] = [(shorten_definition(by_slug[slug]), *totals[slug]) for slug in shown_slugs]
    if remaining_slugs := found_slugs[len(shown_slugs) :]:
        rows.append(
            (
                format_count(len(remaining_slugs), "more target"),
                *_sum_changes(
                    {slice_: change for slice_, change in changes.items() if slice_.target in remaining_slugs}
                ),
            )
        )
    if len(found_slugs) > 1:
        rows.append(("all of them", *_sum_changes(changes)))
    if row_format() == "table":
        columns = ["target", "crawls", "captures", "new", "fetched", "pending", "lost"]
        write_rows("what this run found", columns, rows)
    absent = [
        slug
        for slug, target_changes in by_target.items()
        if slug not in found_slugs and all(change.change != "not run" for change in target_changes.values())
    ]
    _note_absent_targets(
        settings, absent, by_slug, {slug for part in parts for slug in part.forgotten}, details=details
    )
    if sets := [slug for slug in found_slugs if by_slug[slug].members]:
        _note_absent_members(sets, {slice_.crawl for slice_ in changes}, settings, details=details)
    _print_missing_captures(settings, changes)


def _sum_changes(changes: Mapping[Slice, PartitionChange]) -> tuple[int, ...]:
    """Returns the numbers of crawls with captures, captures, and new, fetched, pending and lost ones."""
    captures, new, pending, lost = _count_captures(changes.values())
    return (
        len({slice_.crawl for slice_, change in changes.items() if change.after.captures}),
        captures,
        new,
        sum(change.after.fetched for change in changes.values()),
        pending,
        lost,
    )


def _note_absent_targets(
    settings: Settings,
    absent: Sequence[str],
    by_slug: Mapping[str, Target],
    forgotten: Collection[str],
    *,
    details: bool,
) -> None:
    """Prints one line for targets found in no crawl, and suggestions for mistyped ones."""
    if not absent:
        return
    definitions = [shorten_definition(by_slug[slug]) for slug in absent]
    names = "; ".join(definitions if details else definitions[:_MAX_NAMED_PAIRS])
    more_note = " …, --details names all" if len(definitions) > _MAX_NAMED_PAIRS and not details else ""
    new_count = sum(slug in forgotten for slug in absent)
    new = f"; this home does not keep {new_count:,} of them, which are new" if new_count else ""
    note(f"no crawl of this run has captures of {format_count(len(absent), 'target')}{new}: {names}{more_note}")
    _note_guesses(settings, [by_slug[slug] for slug in absent if by_slug[slug].place is not None], forgotten)


def _note_absent_members(slugs: Sequence[str], crawls: Collection[str], settings: Settings, *, details: bool) -> None:
    """Prints one line for each set with members found in none of the crawls."""
    from cc_pipeline.lake.published_file import open_home_publication

    with open_home_publication(settings) as connection:
        rows = connection.execute(
            "SELECT target, count(*) FILTER (captures = 0), count(*), min(member, $3) FILTER (captures = 0) FROM "
            "(SELECT target, member, sum(captures) AS captures FROM set_members WHERE list_contains($1, target) "
            "AND list_contains($2, crawl) GROUP BY ALL) GROUP BY ALL HAVING count(*) FILTER (captures = 0) > 0 "
            "ORDER BY ALL",
            [list(slugs), list(crawls), _MAX_NAMED_PAIRS if not details else 1_000],
        ).fetchall()
    for slug, count, total, members in rows:
        ellipsis = " …" if count > len(members) else ""
        note(
            f"no crawl of this run has captures of {count:,} of {total:,} members of {slug}: "
            f"{'; '.join(members)}{ellipsis}"
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


def shorten_definition(target: Target) -> str:
    """Returns the definition of a target, cut if it is long."""
    text = target.definition
    return (
        text
        if len(text) <= _MAX_DEFINITION_CHARS
        else f"{text[:_MAX_DEFINITION_CHARS]}… ({len(target.members):,} members)"
    )


def _partition_rows(changes: Mapping[Slice, PartitionChange], by_slug: Mapping[str, Target]) -> list[Sequence[object]]:
    return [
        (
            slice_.crawl,
            shorten_definition(by_slug[slice_.target]),
            change.change,
            *_count_captures([change]),
        )
        for slice_, change in changes.items()
    ]


def _group_by_crawl(changes: Mapping[Slice, PartitionChange]) -> dict[str, list[PartitionChange]]:
    changes_by_crawl: dict[str, list[PartitionChange]] = {}
    for slice_, change in changes.items():
        changes_by_crawl.setdefault(slice_.crawl, []).append(change)
    return changes_by_crawl


def _count_changes(partition_changes: Sequence[PartitionChange]) -> tuple[int, ...]:
    changes = Counter(partition_change.change for partition_change in partition_changes)
    empty = sum(
        1
        for partition_change in partition_changes
        if partition_change.change != "not run" and not partition_change.after.captures
    )
    return len(partition_changes), *(changes[change] for change in _CHANGES), empty


def _count_captures(changes: Iterable[PartitionChange]) -> tuple[int, int, int, int]:
    """Returns the numbers of captures, and of new, pending and lost ones. Captures without a plan are pending too."""
    all_changes = list(changes)
    return (
        sum(change.after.captures for change in all_changes),
        sum(change.after.captures - change.before.captures for change in all_changes),
        sum(change.after.captures - change.after.fetched - change.after.lost for change in all_changes),
        sum(change.after.lost for change in all_changes),
    )


def _note_empty_targets(
    settings: Settings,
    changes: Mapping[Slice, PartitionChange],
    by_slug: Mapping[str, Target],
    forgotten: Collection[str],
) -> None:
    empty_slices = [
        slice_ for slice_, change in changes.items() if change.change != "not run" and not change.after.captures
    ]
    kept_slices = [slice_ for slice_ in empty_slices if slice_.target not in forgotten]
    if kept_slices:
        definitions = [f"{shorten_definition(by_slug[slice_.target])} in {slice_.crawl}" for slice_ in kept_slices]
        more_note = (
            f" and {len(definitions) - _MAX_NAMED_PAIRS:,} more: see captures = 0 in the view lookups"
            if len(definitions) > _MAX_NAMED_PAIRS
            else ""
        )
        note(
            f"the index has no captures (subset {', '.join(settings.subsets)}) of "
            f"{'; '.join(definitions[:_MAX_NAMED_PAIRS])}{more_note}"
        )
    if forgotten:
        definitions = [shorten_definition(by_slug[slug]) for slug in sorted(forgotten)]
        more_note = (
            f" and {len(definitions) - _MAX_NAMED_MEMBERS:,} more" if len(definitions) > _MAX_NAMED_MEMBERS else ""
        )
        note(
            "no crawl of this run has captures of these new targets, so this home does not keep them: "
            f"{'; '.join(definitions[:_MAX_NAMED_MEMBERS])}{more_note}"
        )
    found_slugs = {
        slice_.target
        for slice_, change in changes.items()
        if change.after.captures or change.change in ("same", "not run")
    }
    absent_targets = [
        by_slug[slug] for slug in dict.fromkeys(slice_.target for slice_ in empty_slices) if slug not in found_slugs
    ]
    _note_guesses(settings, [target for target in absent_targets if target.place is not None], forgotten)


def _note_guesses(settings: Settings, absent_targets: Sequence[Target], forgotten: Collection[str]) -> None:
    """Prints suggestions for new targets without captures, and the command that removes each."""
    from cc_pipeline.api.user_input import find_captured_targets, guess_names

    earlier_found = find_captured_targets(settings, [target.slug for target in absent_targets])
    absent_targets = [target for target in absent_targets if target.slug not in earlier_found]
    for target, guess in guess_names(settings, absent_targets) if absent_targets else ():
        forget = (
            "" if target.slug in forgotten else f" To remove this target: {advise('targets remove', target.definition)}"
        )
        note(f"no crawl of this run has captures of {target.definition}; did you mean {guess}?{forget}")


def _note_missing_members(
    settings: Settings, changes: Mapping[Slice, PartitionChange], by_slug: Mapping[str, Target]
) -> None:
    """Prints the members without captures of each set that has some: the first ones, then a query for all."""
    set_slices = [
        slice_ for slice_, change in changes.items() if by_slug[slice_.target].members and change.after.captures
    ]
    if not set_slices:
        return
    from cc_pipeline.lake.published_file import open_home_publication

    with open_home_publication(settings) as connection:
        missing_members = _find_missing_members(connection, set_slices)
    for crawl, slug, count, total, members in missing_members:
        note(f"{count:,} of the {total:,} members of {by_slug[slug].definition} have no captures in {crawl}:")
        for member in members:
            console.print(f"      {member}", soft_wrap=True)
        if count > len(members):
            query = f"FROM set_members WHERE captures = 0 AND crawl = '{crawl}' AND target = '{slug}'"
            console.print(f"      and {count - len(members):,} more: {advise('sql', query)}")


def _find_missing_members(
    connection: duckdb.DuckDBPyConnection, set_slices: Sequence[Slice]
) -> list[tuple[str, str, int, int, list[str]]]:
    """Returns crawl, slug, numbers of members without captures and of all members, and the first missing names."""
    rows = connection.execute(
        f"SELECT crawl, target, count(*) FILTER (captures = 0), count(*), min(member, {_MAX_NAMED_MEMBERS}) "
        "FILTER (captures = 0) FROM set_members WHERE list_contains(?, crawl) AND list_contains(?, target) "
        "GROUP BY ALL HAVING count(*) FILTER (captures = 0) > 0 ORDER BY ALL",
        [list({slice_.crawl for slice_ in set_slices}), list({slice_.target for slice_ in set_slices})],
    ).fetchall()
    set_keys = {(slice_.crawl, slice_.target) for slice_ in set_slices}
    return [(crawl, slug, *member_counts) for crawl, slug, *member_counts in rows if (crawl, slug) in set_keys]


@dataclass(frozen=True, slots=True)
class _LedgerCounts:
    """Numbers of distinct captures: planned, pending, lost, and with another payload than indexed."""

    planned: int
    pending: int
    lost: int
    mismatched: int


def _count_ledger(settings: Settings, changes: Mapping[Slice, PartitionChange]) -> _LedgerCounts:
    """Counts the captures of the run. A capture that several targets have is counted once."""
    planned_slices = [slice_ for slice_, change in changes.items() if change.after.planned]
    totals = _LedgerCounts(
        sum(change.after.planned for change in changes.values()),
        sum(change.after.pending for change in changes.values()),
        sum(change.after.lost for change in changes.values()),
        sum(change.after.mismatched for change in changes.values()),
    )
    if len(planned_slices) == len({slice_.crawl for slice_ in planned_slices}):
        return totals
    from cc_pipeline.capture_columns import CAPTURE
    from cc_pipeline.commoncrawl.slice_slugs import subsets_in
    from cc_pipeline.lake.published_file import open_home_publication

    subsets = {subset for slice_ in planned_slices for subset in subsets_in(slice_.crawl, settings.subsets)}
    with open_home_publication(settings) as connection:
        key = ", ".join(CAPTURE)
        row = connection.execute(
            "SELECT count(*), count(*) FILTER (outcome = 'pending'), count(*) FILTER (outcome = 'lost'), "
            f"count(*) FILTER (outcome = 'fetched' AND digest_check = 'mismatch') FROM ledger SEMI JOIN "
            f"(SELECT {key} FROM capture_targets WHERE subset IN (SELECT unnest(?)) AND crawl IN (SELECT unnest(?)) "
            f"AND target IN (SELECT unnest(?))) USING ({key})",
            [
                list(subsets),
                list({slice_.crawl for slice_ in planned_slices}),
                list({slice_.target for slice_ in planned_slices}),
            ],
        ).fetchone()
    assert row is not None
    # rows that a publication leaves out are not in the ledger: then the sums are more complete
    return _LedgerCounts(*row) if row[0] and bool(row[1]) == bool(totals.pending) else totals


def _print_missing_captures(settings: Settings, changes: Mapping[Slice, PartitionChange]) -> None:
    from cc_pipeline.extraction.fetch_counts import describe_asks, share

    counts = _count_ledger(settings, changes)
    planned = counts.planned
    if counts.pending:
        times = [change.after.next_ask_at for change in changes.values() if change.after.next_ask_at is not None]
        asks = min(change.after.asks for change in changes.values() if change.after.pending)
        asked = describe_asks(asks, min(times, default=None))
        amount = f"{format_count(counts.pending, 'capture')} of {planned:,} ({share(counts.pending, planned)})"
        console.print(f"{amount} pending, {asked}", soft_wrap=True, style="bold yellow")
    if counts.lost:
        note(
            f"{counts.lost:,} of {planned:,} captures ({share(counts.lost, planned)}) are lost in the source itself; "
            f"to list them with reasons: {advise('sql', _LOST_QUERY)}"
        )
    if unlisted := sum(change.after.unlisted for change in changes.values()):
        note(
            f"the index no longer lists {format_count(unlisted, 'capture')} of {planned:,}; they are kept. To remove "
            f"them, run it again with {option(accept_removals=True)}"
        )
    if counts.mismatched:
        note(
            f"{counts.mismatched:,} of {planned:,} captures ({share(counts.mismatched, planned)}) have a body whose "
            "digest is not the one in the index. They are stored, but may not be exactly what the crawler received. "
            f"To list them: {advise('sql', _MISMATCH_QUERY)}"
        )
    if planned and not counts.pending and not counts.lost and not counts.mismatched:
        console.print(f"all {format_count(planned, 'capture', 'are')} fetched and stored", style="green")
