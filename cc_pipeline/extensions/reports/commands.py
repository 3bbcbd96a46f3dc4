"""The command ``report``: a page about a target."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cc_pipeline.cli import options
from cc_pipeline.cli.command import EVERYDAY, Command
from cc_pipeline.cli.output import console, notice
from cc_pipeline.errors import UserInputError
from cc_pipeline.settings import Settings


def report(
    settings: Settings,
    targets: options.Targets,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The file to write (default: reports/ in the home).")
    ] = None,
    before: Annotated[
        str | None,
        typer.Option("--from", help="With --to: the earlier of compared crawls (default: the last two with pages)."),
    ] = None,
    after: Annotated[str | None, typer.Option("--to", help="With --from: the later of two compared crawls.")] = None,
) -> None:
    """Write a page about a target: one HTML file with everything in it, from what was published last.

    Captures over time, what changed, languages, link neighbours, feeds, what is missing and why. The file needs nothing
    beside it and no network, and prints.

    [bold]Examples[/]

      cc-pipeline report example.com

      cc-pipeline report example.com --out example.html

      cc-pipeline report set:press --from CC-MAIN-2018-05 --to CC-MAIN-2024-22

      cc-pipeline report @sites.txt          (a page for each line)
    """
    from cc_pipeline.extensions.reports.api import reports

    if (before is None) != (after is None):
        raise UserInputError("--from and --to name two crawls to compare: give both, or none for the last two")
    crawl_pair = (before, after) if before is not None and after is not None else None
    for path in reports(settings, targets, out, crawl_pair):
        console.print(f"{path}", soft_wrap=True)
        if path.suffix.lower() not in (".html", ".htm"):
            notice(f"{path} contains an HTML page; a browser shows it only if its name ends in .html")


COMMANDS = {"report": Command(report, EVERYDAY, 70, options.LOCAL)}
