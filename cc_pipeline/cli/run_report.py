"""The report at the end of a run: what changed, then what is missing and where to look. Totals on request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cc_pipeline import lacks_compiled
from cc_pipeline.cli.output import console, notice, show_table
from cc_pipeline.commoncrawl.target import Target
from cc_pipeline.home import read_note
from cc_pipeline.settings import Settings

if TYPE_CHECKING:
    import duckdb

    from cc_pipeline.api.materializing import Part
    from cc_pipeline.extraction.crawl_plan import Done
    from cc_pipeline.lake.slice import Slice

#: Above this many (crawl, target) pairs, the table has one line per crawl.
_SHOWN_PAIRS = 40
#: Maximum number of targets in the summary of many crawls.
_SHOWN_TARGETS = 40
#: Maximum number of notes on single crawls in that summary: most repeat for each crawl.
_SHOWN_NOTES = 2
#: Maximum number of pairs named in one note.
_NAMED = 5
#: Maximum number of set members without captures that are listed, one per line.
_NAMED_MEMBERS = 20
#: Maximum characters of a target's definition in a table or note.
_LONGEST_NAME = 120
_CHANGES = {"new": "new", "updated": "updated", "same": "same", "undone": "not done"}


def say_new_home(settings: Settings) -> None:
    """Warns once, before the first run of a home, if compiled modules are missing."""
    if read_note(settings.home) is None and (lacks := lacks_compiled()) is not None:
        notice(lacks)


def say_what_was_done(
    settings: Settings,
    done: Mapping[Slice, Done],
    targets: Sequence[Target],
    forgotten: Collection[str] = (),
    *,
    is_held_back: bool = False,
) -> None:
    """Prints a table of what this run did with each partition, then notes on empty targets and missing captures.

    Targets and set members without captures are named: an empty result looks like success. ``done`` is ordered by
    crawl; ``forgotten`` are new targets that were not kept. ``is_held_back``: some rows are not published.
    """
    by_slug = {target.slug: target for target in targets}
    if len(done) <= _SHOWN_PAIRS:
        columns = ["crawl", "target", "this run", "captures", "new", "not here"]
        rows = _each_pair(done, by_slug)
    else:
        columns = ["crawl", "targets", *_CHANGES.values(), "empty", "captures", "new captures", "not here"]
        rows = [(crawl, *_counted(own), *_figures(own)) for crawl, own in _by_crawl(done).items()]
    of_robots = settings.subsets == ("robotstxt",)
    show_table(f"what this run did{' with robots.txt' if of_robots else ''}", columns, rows)
    _say_empty(settings, done, by_slug, forgotten)
    if not of_robots:
        # members are counted over all subsets: the run that fetched their pages has reported them
        _say_absent(settings, done, by_slug)
    _say_shortfall(settings, done, is_held_back=is_held_back)


def say_crawl(part: Part) -> None:
    """Prints one line for a finished crawl."""
    number, total = part.turn
    place = f"{number:>{len(str(total))}} of {total}" if total > 1 else "robots.txt"
    found = {at.target for at, one in part.done.items() if one.after.captures}
    captures, new, lacking = _figures(part.done.values())
    crawl = next(iter(part.done)).crawl if part.done else "nothing to do"
    failed = f", {lacking:,} failed" if lacking else ""
    console.print(
        f"{place}  {crawl}: {len(found):,} of {len(part.done):,} targets, "
        f"{captures:,} captures, {new:,} new{failed}, {part.seconds:.0f} s"
    )


def say_summary(parts: Sequence[Part], *, details: bool) -> None:
    """Prints the summary of a run over many crawls: totals of each target found, then what is missing.
    ``details`` adds a table of each crawl, the names of absent targets, and the notes on single crawls."""
    if details:
        for part in parts:
            columns = ["crawl", "target", "this run", "captures", "new", "failed"]
            show_table("", columns, _each_pair(part.done, {target.slug: target for target in part.targets}))
    # all parts have the same settings, except for the subsets that a target names
    for subsets in dict.fromkeys(part.settings.subsets for part in parts):
        _say_summary([part for part in parts if part.settings.subsets == subsets], details=details)
    notes = [*dict.fromkeys(text for part in parts for text in part.notes)]
    for text in notes if details else notes[:_SHOWN_NOTES]:
        note(text)
    if len(notes) > _SHOWN_NOTES and not details:
        console.print(f"      and {len(notes) - _SHOWN_NOTES:,} more notes on single crawls: --details shows them")


def _say_summary(parts: Sequence[Part], *, details: bool) -> None:
    settings = parts[0].settings
    by_slug = {target.slug: target for part in parts for target in part.targets}
    done = {at: one for part in parts for at, one in part.done.items()}
    by_target: dict[str, list[Done]] = {}
    for at, one in done.items():
        by_target.setdefault(at.target, []).append(one)
    totals = {slug: _totals(own) for slug, own in by_target.items()}
    found = sorted((slug for slug, own in totals.items() if own[1]), key=lambda slug: -totals[slug][1])
    shown = found if details else found[:_SHOWN_TARGETS]
    rows: list[Sequence[object]] = [(named_shortly(by_slug[slug]), *totals[slug]) for slug in shown]
    if rest := found[len(shown) :]:
        rows.append((f"{len(rest):,} more targets", *_totals(one for slug in rest for one in by_target[slug])))
    if len(found) > 1:
        rows.append(("all of them", *_totals(done.values())))
    show_table("what this run found", ["target", "crawls", "captures", "new", "pages", "failed"], rows)
    absent = [
        slug for slug, own in by_target.items() if slug not in found and all(one.change != "undone" for one in own)
    ]
    _say_absent_targets(settings, absent, by_slug, {slug for part in parts for slug in part.forgotten}, details=details)
    if sets := [slug for slug in found if by_slug[slug].members]:
        _say_absent_members(sets, {at.crawl for at in done}, settings, details=details)
    _say_shortfall(settings, done, is_held_back=any(part.is_held_back for part in parts))


def _totals(done: Iterable[Done]) -> tuple[int, int, int, int, int]:
    """Returns the numbers of crawls with captures, captures, new captures, pages, and captures not fetched."""
    each = list(done)
    captures, new, lacking = _figures(each)
    return sum(1 for one in each if one.after.captures), captures, new, sum(one.after.fetched for one in each), lacking


def _say_absent_targets(
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
    named = [named_shortly(by_slug[slug]) for slug in absent]
    names = "; ".join(named if details else named[:_NAMED])
    more = " …, --details names all" if len(named) > _NAMED and not details else ""
    unkept = sum(slug in forgotten for slug in absent)
    new = f"; {unkept:,} of them new, so not kept" if unkept else ""
    note(
        f"absent: {len(absent):,} {'target' if len(absent) == 1 else 'targets'}, found in no crawl{new}: {names}{more}"
    )
    _guess(settings, [by_slug[slug] for slug in absent if by_slug[slug].place is not None], forgotten)


def _say_absent_members(slugs: Sequence[str], crawls: Collection[str], settings: Settings, *, details: bool) -> None:
    """Prints one line for each set with members found in none of the crawls."""
    from cc_pipeline.lake.reading import open_settled

    with open_settled(settings) as connection:
        rows = connection.execute(
            "SELECT target, count(*) FILTER (captures = 0), count(*), min(member, $3) FILTER (captures = 0) FROM "
            "(SELECT target, member, sum(captures) AS captures FROM set_members WHERE list_contains($1, target) "
            "AND list_contains($2, crawl) GROUP BY ALL) GROUP BY ALL HAVING count(*) FILTER (captures = 0) > 0 "
            "ORDER BY ALL",
            [list(slugs), list(crawls), _NAMED if not details else 1_000],
        ).fetchall()
    for slug, count, total, named in rows:
        more = " …" if count > len(named) else ""
        note(f"absent: {count:,} of {total:,} members of {slug}, in no crawl of this run: {'; '.join(named)}{more}")


def say_totals(settings: Settings) -> None:
    """Prints the rows of each table of the home, and its ledger."""
    from cc_pipeline.lake.reading import open_settled

    with open_settled(settings) as connection:
        rows = connection.execute(
            "SELECT table_name, lake_rows, coalesce(published_rows, lake_rows) FROM publication WHERE lake_rows > 0"
        ).fetchall()
        outcomes = connection.execute(
            "SELECT crawl, count(*), count(*) FILTER (outcome = 'fetched'), count(*) FILTER (outcome = 'quarantined'), "
            "count(*) FILTER (outcome = 'missing') FROM ledger GROUP BY crawl ORDER BY crawl DESC"
        ).fetchall()
    show_table("all of this home: rows by table", ["table", "rows in the lake", "published"], rows)
    show_table("all of this home: the ledger", ["crawl", "planned", "fetched", "quarantined", "missing"], outcomes)


def note(text: str) -> None:
    """Prints a note under a report."""
    console.print(f"note: {text}", soft_wrap=True, style="yellow")


def named_shortly(target: Target) -> str:
    """Returns the definition of a target, cut if it is long."""
    text = target.definition
    return text if len(text) <= _LONGEST_NAME else f"{text[:_LONGEST_NAME]}… ({len(target.members):,} members)"


def _each_pair(done: Mapping[Slice, Done], by_slug: Mapping[str, Target]) -> list[Sequence[object]]:
    return [
        (at.crawl, named_shortly(by_slug[at.target]), _CHANGES[one.change], *_figures([one]))
        for at, one in done.items()
    ]


def _by_crawl(done: Mapping[Slice, Done]) -> dict[str, list[Done]]:
    found: dict[str, list[Done]] = {}
    for at, one in done.items():
        found.setdefault(at.crawl, []).append(one)
    return found


def _counted(done: Sequence[Done]) -> tuple[int, ...]:
    changes = Counter(one.change for one in done)
    empty = sum(1 for one in done if one.change != "undone" and not one.after.captures)
    return len(done), *(changes[change] for change in ("new", "updated", "same", "undone")), empty


def _figures(done: Iterable[Done]) -> tuple[int, int, int]:
    """Returns the numbers of captures, of new captures, and of captures not fetched."""
    each = list(done)
    return (
        sum(one.after.captures for one in each),
        sum(one.after.captures - one.before.captures for one in each),
        sum(one.after.unsettled + one.after.lost for one in each),
    )


def _say_empty(
    settings: Settings, done: Mapping[Slice, Done], by_slug: Mapping[str, Target], forgotten: Collection[str]
) -> None:
    empty = [at for at, one in done.items() if one.change != "undone" and not one.after.captures]
    kept = [at for at in empty if at.target not in forgotten]
    if kept:
        named = [f"{named_shortly(by_slug[at.target])} in {at.crawl}" for at in kept]
        more = f" and {len(named) - _NAMED:,} more: see captures = 0 in the view lookups" if len(named) > _NAMED else ""
        note(f"no captures (subset {', '.join(settings.subsets)}) of {'; '.join(named[:_NAMED])}{more}")
    if forgotten:
        named = [named_shortly(by_slug[slug]) for slug in sorted(forgotten)]
        more = f" and {len(named) - _NAMED_MEMBERS:,} more" if len(named) > _NAMED_MEMBERS else ""
        note(f"found in no crawl of this run, so not kept: {'; '.join(named[:_NAMED_MEMBERS])}{more}")
    found = {at.target for at, one in done.items() if one.after.captures or one.change in ("same", "undone")}
    nowhere = [by_slug[slug] for slug in dict.fromkeys(at.target for at in empty) if slug not in found]
    _guess(settings, [target for target in nowhere if target.place is not None], forgotten)


def _guess(settings: Settings, nowhere: Sequence[Target], forgotten: Collection[str]) -> None:
    """Prints suggestions for new targets without captures, and the command that removes each."""
    from cc_pipeline.api.meaning import found_before, guesses

    before = found_before(settings, [target.slug for target in nowhere])
    nowhere = [target for target in nowhere if target.slug not in before]
    for target, guess in guesses(settings, nowhere) if nowhere else ():
        forget = "" if target.slug in forgotten else f" To remove it: cc-pipeline targets remove {target.definition}"
        note(f"{target.definition} has no captures; did you mean {guess}?{forget}")


def _say_absent(settings: Settings, done: Mapping[Slice, Done], by_slug: Mapping[str, Target]) -> None:
    """Prints the members without captures of each set that has some: the first ones, then a query for all."""
    sets = [at for at, one in done.items() if by_slug[at.target].members and one.after.captures]
    if not sets:
        return
    from cc_pipeline.lake.reading import open_settled

    with open_settled(settings) as connection:
        absent = _absent(connection, sets)
    for crawl, slug, count, total, named in absent:
        note(f"{count:,} of {total:,} members of {slug} have no captures in {crawl}:")
        for member in named:
            console.print(f"      {member}", soft_wrap=True)
        if count > len(named):
            query = f"FROM set_members WHERE captures = 0 AND crawl = '{crawl}' AND target = '{slug}'"
            console.print(f'      and {count - len(named):,} more: cc-pipeline sql "{query}"')


def _absent(connection: duckdb.DuckDBPyConnection, sets: Sequence[Slice]) -> list[tuple[str, str, int, int, list[str]]]:
    """Returns crawl, slug, numbers of members without captures and of all members, and the first missing names."""
    rows = connection.execute(
        f"SELECT crawl, target, count(*) FILTER (captures = 0), count(*), min(member, {_NAMED_MEMBERS}) "
        "FILTER (captures = 0) FROM set_members WHERE list_contains(?, crawl) AND list_contains(?, target) "
        "GROUP BY ALL HAVING count(*) FILTER (captures = 0) > 0 ORDER BY ALL",
        [list({at.crawl for at in sets}), list({at.target for at in sets})],
    ).fetchall()
    wanted = {(at.crawl, at.target) for at in sets}
    return [(crawl, slug, *figures) for crawl, slug, *figures in rows if (crawl, slug) in wanted]


@dataclass(frozen=True, slots=True)
class _Figures:
    """Numbers of distinct captures: planned, pending, lost, and with another payload than indexed."""

    planned: int
    unsettled: int
    lost: int
    odd: int


def _once(settings: Settings, done: Mapping[Slice, Done]) -> _Figures:
    """Counts the captures of the run. A capture that several targets have is counted once."""
    with_any = [at for at, one in done.items() if one.after.planned]
    summed = _Figures(
        sum(one.after.planned for one in done.values()),
        sum(one.after.unsettled for one in done.values()),
        sum(one.after.lost for one in done.values()),
        sum(one.after.mismatched for one in done.values()),
    )
    if len(with_any) == len({at.crawl for at in with_any}):
        return summed
    from cc_pipeline.capture_columns import CAPTURE
    from cc_pipeline.commoncrawl.slice_slugs import subsets_in
    from cc_pipeline.lake.reading import open_settled

    subsets = {subset for at in with_any for subset in subsets_in(at.crawl, settings.subsets)}
    with open_settled(settings) as connection:
        key, open_ = ", ".join(CAPTURE), "outcome <> 'fetched' AND settled IS NOT true"
        row = connection.execute(
            f"SELECT count(*), count(*) FILTER ({open_}), count(*) FILTER (outcome <> 'fetched' AND settled), "
            f"count(*) FILTER (outcome = 'fetched' AND digest_check = 'mismatch') FROM ledger SEMI JOIN "
            f"(SELECT {key} FROM capture_targets WHERE subset IN (SELECT unnest(?)) AND crawl IN (SELECT unnest(?)) "
            f"AND target IN (SELECT unnest(?))) USING ({key})",
            [list(subsets), list({at.crawl for at in with_any}), list({at.target for at in with_any})],
        ).fetchone()
    assert row is not None
    # withheld rows are not in the ledger: then the sums are more complete
    return _Figures(*row) if row[0] and bool(row[1]) == bool(summed.unsettled) else summed


def _say_shortfall(settings: Settings, done: Mapping[Slice, Done], *, is_held_back: bool) -> None:
    from cc_pipeline.extraction.fetch_counts import share

    found = _once(settings, done)
    planned = found.planned
    if found.unsettled:
        figure = f"{found.unsettled:,} of {planned:,} captures ({share(found.unsettled, planned)})"
        text = f"{figure} were not fetched: run the command again, it fetches only these"
        console.print(text, soft_wrap=True, style="bold red")
    if found.lost:
        doubted = any(one.after.doubted for one in done.values())
        said = (
            "lost according to the source, not confirmed yet" if doubted else "missing or damaged in the source itself"
        )
        note(
            f"{found.lost:,} of {planned:,} captures ({share(found.lost, planned)}) are {said}; "
            "to list them with reasons: "
            "cc-pipeline sql \"SELECT url, outcome, reason FROM ledger WHERE outcome <> 'fetched'\""
        )
    if found.odd:
        note(
            f"{found.odd:,} of {planned:,} captures ({share(found.odd, planned)}) have another payload than the "
            "index names: cc-pipeline sql \"SELECT url, digest_check FROM ledger WHERE digest_check = 'mismatch'\""
        )
    if planned and not found.unsettled and not found.lost and not found.odd and not is_held_back:
        console.print(f"all {planned:,} captures are here", style="green")
