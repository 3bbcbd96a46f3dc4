"""What a run says when it is done: what this run did first, then what lacks and where to look; totals on request."""

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

#: Beyond this many (crawl, target) pairs a line counts those of a crawl together.
_SHOWN_PAIRS = 40
#: Targets that a summary of many crawls has a line for.
_SHOWN_TARGETS = 40
#: Notes on single crawls that it shows: most say the same of another crawl.
_SHOWN_NOTES = 2
#: Pairs that one note names.
_NAMED = 5
#: Members without captures that a set's report names, a line each.
_NAMED_MEMBERS = 20
#: Characters of a target's definition in a table or note.
_LONGEST_NAME = 120
_CHANGES = {"new": "new", "updated": "updated", "same": "same", "undone": "not done"}


def say_new_home(settings: Settings) -> None:
    """Says once, where a home begins, that this installation parses slower than it could."""
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
    """Prints what this run did with its partitions: new ones, the same as before, captures, those that lack.

    It names targets and members of sets without captures: without that, they look like success. ``done`` is in the
    order of the crawls; ``forgotten`` are new targets that were not kept. ``is_held_back``: some of it is not
    published.
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
        # members are counted with all subsets: the run that found their pages said it
        _say_absent(settings, done, by_slug)
    _say_shortfall(settings, done, is_held_back=is_held_back)


def say_crawl(part: Part) -> None:
    """Prints the line of one crawl of many, when it is done."""
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
    """Prints what a run did in many crawls: a line for each target that was found, with its totals, then what lacks.
    ``details`` adds a table of each crawl, the names of absent targets, and the notes on single crawls."""
    if details:
        for part in parts:
            columns = ["crawl", "target", "this run", "captures", "new", "failed"]
            show_table("", columns, _each_pair(part.done, {target.slug: target for target in part.targets}))
    # the crawls are asked by the same settings but for the subsets that a target names
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
    """Crawls with captures, captures, how many of them are new, pages, and captures that are not here."""
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
    """One line for targets that no crawl has, and what may have been meant by them."""
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
    """One line for each set with members that none of the crawls has."""
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
    """The definition of a target, cut where it is long."""
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
    """Captures, how many more than before the run, and those that are not here."""
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
    """What may have been meant by targets that are new and were found nowhere, and how to be rid of them."""
    from cc_pipeline.api.meaning import found_before, guesses

    before = found_before(settings, [target.slug for target in nowhere])
    nowhere = [target for target in nowhere if target.slug not in before]
    for target, guess in guesses(settings, nowhere) if nowhere else ():
        forget = "" if target.slug in forgotten else f" To forget it: cc-pipeline targets remove {target.definition}"
        note(f"{target.definition} has no captures; did you mean {guess}?{forget}")


def _say_absent(settings: Settings, done: Mapping[Slice, Done], by_slug: Mapping[str, Target]) -> None:
    """A line for each member without captures, of sets that have some: up to a bound, then where to look."""
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
    """Crawl, slug, members without captures, all members, and the first of those by name."""
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
    """Captures that were planned, are open, were lost, and came with another payload, each once."""

    planned: int
    unsettled: int
    lost: int
    odd: int


def _once(settings: Settings, done: Mapping[Slice, Done]) -> _Figures:
    """The figures of what was done, a capture that several of the targets have counted once."""
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
    # what publishing holds back is not in the ledger: then the sums say more
    return _Figures(*row) if row[0] and bool(row[1]) == bool(summed.unsettled) else summed


def _say_shortfall(settings: Settings, done: Mapping[Slice, Done], *, is_held_back: bool) -> None:
    from cc_pipeline.extraction.fetch_counts import share

    found = _once(settings, done)
    planned = found.planned
    if found.unsettled:
        figure = f"{found.unsettled:,} of {planned:,} captures ({share(found.unsettled, planned)})"
        text = f"{figure} did not come: run the command again, it asks for these alone"
        console.print(text, soft_wrap=True, style="bold red")
    if found.lost:
        doubted = any(one.after.doubted for one in done.values())
        said = "lost, says the source, which is doubted" if doubted else "missing or damaged in the source itself"
        note(
            f"{found.lost:,} of {planned:,} captures ({share(found.lost, planned)}) are {said}; "
            "each of them and why: "
            "cc-pipeline sql \"SELECT url, outcome, reason FROM ledger WHERE outcome <> 'fetched'\""
        )
    if found.odd:
        note(
            f"{found.odd:,} of {planned:,} captures ({share(found.odd, planned)}) came with another payload than the "
            "index names: cc-pipeline sql \"SELECT url, digest_check FROM ledger WHERE digest_check = 'mismatch'\""
        )
    if planned and not found.unsettled and not found.lost and not found.odd and not is_held_back:
        console.print(f"all {planned:,} captures are here", style="green")
