"""``report``: what is known of a target, as a page to show."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cc_pipeline.cli import options
from cc_pipeline.cli.output import console
from cc_pipeline.commoncrawl.target_text import slug_meant
from cc_pipeline.errors import UserInputError
from cc_pipeline.settings import load_settings


def report(
    targets: options.Targets,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="The file to write (default: reports/ in the home).", show_default=False),
    ] = None,
    home: options.Home = None,
) -> None:
    """Write a page about a target: one HTML file with everything in it, from what was published last.

    Captures over time, what changed, languages, link neighbours, feeds, what is missing and why. The file needs nothing
    beside it and no network, and prints.

    [bold]Examples[/]

      cc-pipeline report -d example.com

      cc-pipeline report -d example.com --out example.html

      cc-pipeline report -d set:press

      cc-pipeline report -d @sites.txt          (a page for each line)
    """
    from cc_pipeline.stages.questions.report import report_path, write_report

    slugs = list(dict.fromkeys(map(slug_meant, options.lines_meant(targets))))
    if out is not None and len(slugs) > 1:
        raise UserInputError("--out names one file, and there are several targets; leave it out, or name one target")
    settings = load_settings(home=home)
    for slug in slugs:
        path = out or report_path(settings, slug)
        write_report(settings, slug, path)
        console.print(f"{path}", soft_wrap=True)
