"""``extensions``: which features are installed, and what each adds."""

from __future__ import annotations

from typing import Annotated

import typer

from cc_pipeline.cli.command import HOME, Command
from cc_pipeline.cli.output import console, write_rows
from cc_pipeline.python.meaning import checked_format
from cc_pipeline.settings import load_settings


def extensions(
    output: Annotated[str, typer.Option("--format", help="table, csv or jsonl.")] = "table",
) -> None:
    """List the installed extensions: where each is from, what it adds, and what is to be done where one lacks
    something or is broken.

    An extension is a feature that can be left out: CC_PIPELINE_WITHOUT=NAME,NAME. Extensions of other people come with
    their own packages. Tables of an extension that is left out stay in the home.

    [bold]Examples[/]

      cc-pipeline extensions

      cc-pipeline extensions --format jsonl
    """
    from cc_pipeline.python.extensions import installed_extensions

    checked_format(output)
    listed = installed_extensions(load_settings())
    if output == "table" and not listed:
        console.print("no extensions are installed")
        return
    columns = ["extension", "state", "from", "adds", "problem", "to_do"]
    rows = [
        (
            each.name,
            each.state,
            each.origin,
            "; ".join(each.adds) or each.summary,
            each.problem or None,
            each.advice or None,
        )
        for each in listed
    ]
    write_rows("extensions", columns, rows, output)


COMMANDS = {"extensions": Command(extensions, HOME, 30)}
