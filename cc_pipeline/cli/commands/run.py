"""``run``: materializes the graph through Dagster in this process, and prints what it found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

import typer

from cc_pipeline.advice import advise
from cc_pipeline.api.choices import confirm_choices
from cc_pipeline.api.reporter import use_reporter
from cc_pipeline.api.target_runs import PARTITION_COLUMNS, Part, run_targets, shorten_definition
from cc_pipeline.api.user_input import read_targets
from cc_pipeline.automation import watch_list
from cc_pipeline.cli import options
from cc_pipeline.cli.command import EVERYDAY, Command
from cc_pipeline.cli.output import ConsoleReporter
from cc_pipeline.cli.run_report import (
    CrawlLines,
    print_home_totals,
    print_summary,
    warn_if_not_compiled,
)
from cc_pipeline.commoncrawl.target import Target
from cc_pipeline.defs.engines import describe_engines, find_engine
from cc_pipeline.errors import UserInputError
from cc_pipeline.settings import Settings

#: Maximum number of targets named in an error.
_MAX_NAMED = 20


def run(
    settings: Settings,
    crawl: options.Crawls,
    targets: options.MaybeTargets = None,
    watched: Annotated[bool, typer.Option("--watched", help="Also run the targets of the watch list.")] = False,
    engine: Annotated[
        str | None,
        typer.Option("--engine", help=f"Where records are fetched and pages parsed: {describe_engines()}."),
    ] = None,
    yes: bool = False,
    accept_removals: Annotated[
        bool,
        typer.Option(
            "--accept-removals",
            help="Remove captures that the index no longer lists, with their records and pages.",
        ),
    ] = False,
    details: Annotated[
        bool,
        typer.Option("--details", help="Show all steps, partitions and notes of many crawls, and totals of the home."),
    ] = False,
    refetch: Annotated[
        bool,
        typer.Option("--refetch", help="Also fetch lost records again."),
    ] = False,
) -> None:
    r"""Get domains out of crawls, from the index to parsed pages, and publish cc.duckdb.

    Ends with status 3 if the source did not return everything: run the same command again, it fetches only the rest.
    If the source refuses requests, the command waits; Ctrl-C keeps everything fetched. New targets found in no crawl
    are not kept; if none was found, it ends with status 1. With several crawls it prints a line for each (of
    many, for each year), then totals.

    [bold]Examples[/]

      cc-pipeline run example.com --crawl CC-MAIN-2024-22

      cc-pipeline run example.com host:www.example.org -c newest \
        --subset warc --subset robotstxt

      cc-pipeline run prefix:http://www.example.com/blog/ -c CC-MAIN-2012

      cc-pipeline run example.com -c 2018..2024           (the newest first)

      cc-pipeline run example.com -c all

      cc-pipeline export example.com --table page_text --out example.jsonl

      cc-pipeline run "set:press = @press.txt" -c newest  (one member per line)

      cc-pipeline run @sites.txt -c newest --watched      (and the watch list)

      cc-pipeline run publisher.com -c CC-NEWS-2026-05    (prints the cost first)

      cc-pipeline run example.com -c newest --refetch
    """
    if not targets and not watched:
        raise typer.BadParameter(
            "name a target, such as example.com, or --watched for the watch list", param_hint="TARGET…"
        )
    settings = replace(
        settings,
        engine=engine or settings.engine,
        accept_removals=accept_removals or settings.accept_removals,
        refetch=refetch,
    )
    find_engine(settings.engine).check_ready(settings)
    requested = _requested_targets(settings, targets or (), watched)
    warn_if_not_compiled(settings)
    settings = confirm_choices(settings, yes=yes)
    parts: list[Part] = []
    lines = CrawlLines()

    def report_part(part: Part) -> None:
        parts.append(part)
        lines.add(part)

    try:
        with use_reporter(ConsoleReporter(details=details)):
            troubles = run_targets(settings, crawl, requested, yes=yes, on_part=report_part)
    finally:
        lines.print()
    print_summary(parts, details=details)
    if details:
        print_home_totals(settings)
    for trouble in troubles:
        raise trouble
    # with index gaps, it is unknown whether a target is in no crawl
    if not settings.max_index_gaps:
        _refuse_unfound(requested, parts)


def _refuse_unfound(targets: Sequence[Target], parts: Sequence[Part]) -> None:
    """Raises ``UserInputError`` if no target was found in any crawl."""
    changes = {slice_: change for part in parts for slice_, change in part.changes.items()}
    found_slugs = {slice_.target for slice_, change in changes.items() if change.after.captures}
    run_slugs = {slice_.target for slice_ in changes}
    unfound = [shorten_definition(target) for target in targets if target.slug in run_slugs - found_slugs]
    if unfound and not found_slugs:
        more_note = f" and {len(unfound) - _MAX_NAMED:,} more" if len(unfound) > _MAX_NAMED else ""
        raise UserInputError(f"found in none of the crawls: {'; '.join(unfound[:_MAX_NAMED])}{more_note}")


def _requested_targets(settings: Settings, texts: Sequence[str], watched: bool) -> tuple[Target, ...]:
    typed_targets = read_targets(texts)
    watched_targets = watch_list.read(settings.watch_list_path) if watched else ()
    if watched and not watched_targets and not typed_targets:
        raise UserInputError(f"the watch list is empty; add to it with: {advise('targets add', 'example.com')}")
    return tuple({target.slug: target for target in (*watched_targets, *typed_targets)}.values())


_OPTIONS = (options.SUBSET, options.INDEX, options.ALLOW_GAPS, options.WAIT, options.YES, *options.REMOTE)
COMMANDS = {"run": Command(run, EVERYDAY, 10, _OPTIONS, PARTITION_COLUMNS)}
