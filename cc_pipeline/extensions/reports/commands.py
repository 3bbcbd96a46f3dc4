"""The command ``report``: a page about a target, or the changes between two crawls as text."""

from __future__ import annotations

import sys
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from cc_pipeline.advice import advise
from cc_pipeline.api.user_input import check_format
from cc_pipeline.cli import options
from cc_pipeline.cli.command import EVERYDAY, Command
from cc_pipeline.cli.output import console, notice, whole_file
from cc_pipeline.commoncrawl.target_text import parse_slug, to_run
from cc_pipeline.errors import EnvironmentFault, UserInputError
from cc_pipeline.settings import Settings


def report(
    settings: Settings,
    targets: options.Targets,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The file to write (default: reports/ in the home).")
    ] = None,
    before: Annotated[
        str | None,
        typer.Option("--from", help="With --to: the earlier of two compared crawls (default: the last two)."),
    ] = None,
    after: Annotated[str | None, typer.Option("--to", help="With --from: the later of two compared crawls.")] = None,
    output: Annotated[
        str, typer.Option("--format", help="html, or text: only the changes from --from to --to.")
    ] = "html",
    details: Annotated[
        bool, typer.Option("--details", help="With --format text: list every page, with the paragraphs that differ.")
    ] = False,
) -> None:
    r"""Write a page about a target: one HTML file with everything in it, from what was published last.

    Captures over time, what changed, languages, link neighbours, feeds, what is missing and why. The file needs nothing
    beside it and no network, and prints.

    With --format text it says what changed between two crawls: how many pages are new, gone, moved (the same payload
    or main text at another URL) or changed, and the first of each kind; with --details all of them, and of changed ones
    the paragraphs that differ. That goes to standard output, or to --out.

    [bold]Examples[/]

      cc-pipeline report example.com

      cc-pipeline report example.com --out example.html

      cc-pipeline report set:press --from CC-MAIN-2018-05 --to CC-MAIN-2024-22

      cc-pipeline report @sites.txt          (a page for each line)

      cc-pipeline report example.com --from CC-MAIN-2018-05 --to CC-MAIN-2024-22 \
        --format text
    """
    from cc_pipeline.extensions.reports.api import reports

    check_format(output, ("html", "text"))
    if (before is None) != (after is None):
        raise UserInputError("--from and --to name two crawls to compare: give both, or none for the last two")
    crawl_pair = (before, after) if before is not None and after is not None else None
    if output == "text":
        if crawl_pair is None or len(targets) != 1:
            raise UserInputError("--format text compares two crawls of one target: name it, --from and --to")
        _changes(settings, targets[0], *crawl_pair, out, details=details)
        return
    for path in reports(settings, targets, out, crawl_pair):
        console.print(f"{path}", soft_wrap=True)
        if path.suffix.lower() not in (".html", ".htm"):
            notice(f"{path} contains an HTML page; a browser shows it only if its name ends in .html")


def _changes(settings: Settings, target: str, before: str, after: str, out: Path | None, *, details: bool) -> None:
    """Writes the changes between two crawls of a target as text: a summary, or with ``details`` all of them."""
    from cc_pipeline.extensions.reports.changes import describe_changes, summarize_changes

    slug = parse_slug(target)
    if before.startswith("CC-MAIN-") and after.startswith("CC-MAIN-") and before > after:
        raise UserInputError(f"--from {before} is the later crawl; write --from {after} --to {before}")
    if not settings.published_path.exists():
        raise EnvironmentFault(
            f"{settings.home} has no published tables yet (cc.duckdb)",
            advise("run", to_run(slug, target), crawl=[before, after], sentence="Get both crawls: {}"),
        )
    lines = summarize_changes(settings, slug, before, after, target_text=target)
    if details:
        lines = chain(lines, ("",), describe_changes(settings, slug, before, after, target_text=target))
    if out is None:
        sys.stdout.writelines(f"{line}\n" for line in lines)
        return
    with whole_file(out) as path, path.open("w", encoding="utf-8") as stream:
        stream.writelines(f"{line}\n" for line in lines)
    console.print(f"{out}", soft_wrap=True)


COMMANDS = {"report": Command(report, EVERYDAY, 70, options.LOCAL)}
