"""``extensions``: which features are installed, and what each adds."""

from __future__ import annotations

from typing import Annotated

import typer

from cc_pipeline.api.user_input import check_format
from cc_pipeline.cli.command import HOME, Command
from cc_pipeline.cli.output import console, notice, write_rows
from cc_pipeline.errors import CcPipelineError
from cc_pipeline.settings import Settings, load_settings


def extensions(
    output: Annotated[str, typer.Option("--format", help="table, csv or jsonl.")] = "table",
) -> None:
    """List the installed extensions: where each is from, what it adds, and what to do if one is broken.

    An extension is a feature that can be left out: CC_PIPELINE_WITHOUT=NAME,NAME. Other extensions are installed as
    separate packages. Tables of an extension that is left out stay in the home.

    [bold]Examples[/]

      cc-pipeline extensions

      cc-pipeline extensions --format jsonl
    """
    from cc_pipeline.api.extensions import installed_extensions

    check_format(output)
    installed = installed_extensions(_settings())
    if output == "table" and not installed:
        console.print("no extensions are installed")
        return
    columns = ["extension", "state", "from", "adds", "problem", "to_do"]
    rows = [
        (
            extension.name,
            extension.state,
            extension.origin,
            "; ".join(extension.adds) or extension.summary,
            extension.problem or None,
            extension.advice or None,
        )
        for extension in installed
    ]
    write_rows("extensions", columns, rows, output)


def _settings() -> Settings:
    """Returns the settings, or the defaults if they are refused: a value may need an extension that is not in use, and
    this command says why it is not."""
    try:
        return load_settings()
    except CcPipelineError as error:
        notice(f"settings are invalid, so the list uses the defaults: {error}")
        return load_settings({})


COMMANDS = {"extensions": Command(extensions, HOME, 30)}
