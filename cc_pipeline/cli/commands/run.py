"""``run``: materializes the graph through Dagster in this process, and prints what it found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from cc_pipeline.api import meaning
from cc_pipeline.api.choices import as_the_home_has_it
from cc_pipeline.api.materializing import Part, run_targets
from cc_pipeline.api.running import all_runs, resolve_crawls, step
from cc_pipeline.api.voice import told_to
from cc_pipeline.automation import watch_list
from cc_pipeline.cli import options
from cc_pipeline.cli.command import EVERYDAY, Command
from cc_pipeline.cli.lookups import open_question
from cc_pipeline.cli.output import Spoken, notice, progress_bars, write_rows
from cc_pipeline.cli.run_report import (
    named_shortly,
    note,
    say_crawl,
    say_new_home,
    say_summary,
    say_totals,
    say_what_was_done,
)
from cc_pipeline.commoncrawl.target import Target
from cc_pipeline.defs.engines import describe_engines, find_engine
from cc_pipeline.errors import Incomplete, UserInputError
from cc_pipeline.settings import Settings, load_settings
from cc_pipeline.workspace.claim import claim_home

if TYPE_CHECKING:
    from cc_pipeline.extraction.crawl_plan import Done
    from cc_pipeline.extraction.replay import Replay
    from cc_pipeline.lake.slice import Slice

#: Targets that an error names.
_NAMED = 20


def run(
    crawl: options.Crawls,
    targets: options.MaybeTargets = None,
    watched: Annotated[bool, typer.Option("--watched", help="The targets of the watch list too.")] = False,
    source: options.Source = None,
    home: options.Home = None,
    subset: options.Subsets = None,
    via: options.Via = None,
    engine: Annotated[
        str | None,
        typer.Option("--engine", help=f"Where records are fetched and pages parsed: {describe_engines()}."),
    ] = None,
    hosts: options.Hosts = None,
    allow_gaps: options.AllowGaps = False,
    wait: options.Wait = None,
    yes: options.Yes = False,
    accept_losses: options.AcceptLosses = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="End with status 1 where any target was found in none of the crawls.")
    ] = False,
    details: Annotated[
        bool,
        typer.Option("--details", help="Every step, pair and note of many crawls, and the totals of the whole home."),
    ] = False,
    refetch: Annotated[
        bool,
        typer.Option(
            "--refetch", help="Only fetch quarantined and missing records again, also those settled as gone or damaged."
        ),
    ] = False,
) -> None:
    """Get domains out of crawls, from the index to parsed pages, and publish cc.duckdb.

    Ends with status 3 when the source did not give everything: run the same command again, it asks only for the rest.
    A source that refuses is waited for: Ctrl-C keeps everything. New targets that were found in no crawl are not kept;
    where none was found in any, it ends with status 1. Of many crawls there is a line each, then a table of totals.

    [bold]Examples[/]

      cc-pipeline run example.com --crawl CC-MAIN-2024-22

      cc-pipeline run example.com host:www.example.org -c newest --subset warc --subset robotstxt

      cc-pipeline run prefix:http://www.example.com/blog/ -c CC-MAIN-2012

      cc-pipeline run example.com -c 2018..2024                  (crawl by crawl, the newest first)

      cc-pipeline run example.com -c all                         (then: cc-pipeline export example.com --table page_text
                                                                  --out example.jsonl, all its texts in one file)

      cc-pipeline run "set:press = @press.txt" -c newest         (a member a line)

      cc-pipeline run @sites.txt -c newest --watched             (a target a line, and the watch list)

      cc-pipeline run suffix:gov.uk -c newest --hosts "prank10 > 5 and fetch_200 > 100"

      cc-pipeline run publisher.com -c CC-NEWS-2026-05           (says first what its index costs to build)

      cc-pipeline run example.com -c newest --refetch
    """
    if not targets and not watched:
        raise typer.BadParameter("name some targets, or --watched for the watch list", param_hint="TARGET…")
    if refetch:
        _refetch(targets or (), crawl, source=source, home=home, wait=wait)
        return
    settings = load_settings(
        source=source,
        home=home,
        subsets=tuple(subset) if subset else None,
        via=via,
        engine=engine,
        max_index_gaps=options.most_gaps(allow_gaps),
        max_bytes=options.at_any_price(yes),
        max_requests=options.at_any_price(yes),
        accept_losses=tuple(accept_losses) if accept_losses else None,
        wait=options.patience(wait),
    )
    find_engine(settings.engine).check_ready(settings)
    meant = _asked_for(settings, targets or (), watched)
    say_new_home(settings)
    settings = as_the_home_has_it(settings, yes=yes)
    if accept_losses:
        _refuse_unknown(settings, accept_losses)
    done: dict[Slice, Done] = {}

    parts: list[Part] = []

    def say(part: Part) -> None:
        done.update(part.done)
        if part.turn[1] > 1 or parts:
            parts.append(part)
            say_crawl(part)
            return
        say_what_was_done(part.settings, part.done, part.targets, part.forgotten, is_held_back=part.is_held_back)
        for each in part.notes:
            note(each)

    narrowed = None if hosts is None else partial(_chosen, settings, targets=meant, where=hosts)
    with told_to(Spoken(details=details)):
        troubles = run_targets(settings, crawl, meant, narrowed=narrowed, yes=yes, told=say)
    if parts:
        say_summary(parts, details=details)
    if details:
        say_totals(settings)
    for trouble in troubles:
        raise trouble
    # where an index may lack files, nobody knows that a target is in none
    if strict or not settings.max_index_gaps:
        _refuse_unfound(meant, done, strict=strict)


def _refuse_unknown(settings: Settings, numbers: Sequence[str]) -> None:
    """Raises ``UserInputError`` for numbers that no losses have: what was mistyped would accept nothing."""
    from cc_pipeline.extraction.removals import numbers_of_losses
    from cc_pipeline.workspace.workspace import open_workspace

    claim_home(settings)
    with open_workspace(settings) as workspace:
        known, doubted = numbers_of_losses(workspace.lake)
    if unknown := [one for one in numbers if one not in known]:
        said = f"Those that are doubted: {', '.join(doubted[:_NAMED])}" if doubted else "None are doubted here"
        raise UserInputError(f"--accept-losses: no losses have the number {', '.join(unknown)}. {said}")


def _refuse_unfound(targets: Sequence[Target], done: Mapping[Slice, Done], *, strict: bool) -> None:
    """Raises ``UserInputError`` where no target was found in any of the crawls; with ``strict`` where any was not."""
    found = {at.target for at, one in done.items() if one.after.captures}
    asked = {at.target for at in done}
    unfound = [named_shortly(target) for target in targets if target.slug in asked - found]
    if unfound and (strict or not found):
        more = f" and {len(unfound) - _NAMED:,} more" if len(unfound) > _NAMED else ""
        raise UserInputError(f"found in none of the crawls: {'; '.join(unfound[:_NAMED])}{more}")


def _chosen(
    settings: Settings, crawl: Sequence[str], *, targets: Sequence[Target], where: str
) -> list[tuple[tuple[str, ...], tuple[Target, ...]]]:
    """The crawls, each with those of the targets that lie on hosts that match in it; crawls that have the same
    hosts are together, and those without any are left out."""
    from cc_pipeline.cli.known_hosts import NothingKnown, required_known_hosts
    from cc_pipeline.workspace.workspace import open_workspace

    known_hosts = required_known_hosts()
    found: dict[tuple[Target, ...], list[str]] = {}
    silent = 0
    claim_home(settings)
    with open_workspace(settings) as workspace, progress_bars():
        crawls = resolve_crawls(workspace, crawl)
        for number, one in enumerate(crawls):
            try:
                left = known_hosts.choose_hosts(workspace, one, targets, where)
            except NothingKnown as fault:
                # one crawl of many without facts is told of and passed over; where none has any, nothing was decided
                if not found and number == len(crawls) - 1 and silent == number:
                    raise
                silent += 1
                note(fault.what)
                continue
            if left:
                found.setdefault(left, []).append(one)
            else:
                note(f"{one}: no host matches, so nothing is fetched")
    return [(tuple(crawls), left) for left, crawls in found.items()]


def _asked_for(settings: Settings, texts: Sequence[str], watched: bool) -> tuple[Target, ...]:
    named = meaning.read_targets(texts, settings)
    listed = watch_list.read(settings.watch_list_path) if watched else ()
    if watched and not listed and not named:
        raise UserInputError("the watch list is empty; add to it with: cc-pipeline targets add example.com")
    return tuple({target.slug: target for target in (*listed, *named)}.values())


def _refetch(
    targets: Sequence[str], crawl: Sequence[str], *, source: str | None, home: str | None, wait: bool | None
) -> None:
    """Fetches quarantined and missing records again, then parses and publishes those that were fetched. Raises
    ``Incomplete`` when the source gives none of them, or too few."""
    from cc_pipeline.defs.launch import Launcher
    from cc_pipeline.extraction.replay import replay_records

    rows: list[Sequence[object]] = []
    replays: list[Replay] = []
    settings = load_settings(source=source, home=home)
    # it parses what was fetched again
    find_engine(settings.engine).check_ready(settings)
    with (
        open_question(targets, crawl, source=source, home=home, wait=wait) as question,
        Launcher(question.workspace) as launcher,
        progress_bars(),
    ):
        slugs = [target.slug for target in question.targets]
        launcher.add_targets(question.targets)
        for one in question.crawls:
            done = replay_records(question.workspace, one, slugs)
            replays.append(done)
            for slug, figures in done.after.items():
                launcher.record_outside_run("records", one, slug, figures)
                before = done.before[slug]
                rows.append((one, slug, *(text for name in figures for text in (before[name], figures[name]))))
            if done.again:
                step(f"pages {one}", partial(all_runs, launcher.parse(one, done.again)))
        step("cc.duckdb", launcher.publish)
    columns = ["crawl", "target", "fetched", "now", "quarantined", "now", "missing", "now", "other payload", "now"]
    write_rows("what was fetched again", columns, rows)
    if any(row[5] or row[7] or row[9] for row in rows):
        query = "SELECT url, outcome, reason, settled FROM ledger WHERE outcome <> 'fetched'"
        notice(f'some records are still not fetched; to see why: cc-pipeline sql "{query}"')
    for done in replays:
        if done.trouble is not None:
            raise done.trouble
    if any(done.again for done in replays) and not any(done.recovered for done in replays):
        raise Incomplete(
            "none of the records that were missing, in quarantine or other than indexed came back as indexed",
            "The source has them as before. What it says of each is in the view ledger.",
        )


COMMANDS = {
    "run": Command(run, EVERYDAY, 10),
}
