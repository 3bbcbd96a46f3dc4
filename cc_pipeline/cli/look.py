"""``crawls`` and ``sql``: looking at what there is."""

from __future__ import annotations

from typing import Annotated

import typer

from cc_pipeline.cli import options
from cc_pipeline.cli.answers import answer_query
from cc_pipeline.cli.plain import checked_format
from cc_pipeline.cli.screen import console, console_err, show_table
from cc_pipeline.errors import UserInputError
from cc_pipeline.settings import Settings, load_settings


def crawls(
    source: options.Source = None,
    home: options.Home = None,
    limit: Annotated[int, typer.Option(help="How many, newest first; 0 for all.")] = 20,
) -> None:
    """List the crawls of the source, newest first."""
    from cc_pipeline.extraction.crawls import list_crawls
    from cc_pipeline.extraction.workspace import Workspace

    settings = load_settings(source=source, home=home)
    found = list_crawls(Workspace(settings))
    rows = [(c.id, c.era, str(c.started or ""), str(c.ended or ""), c.name) for c in found[: limit or None]]
    show_table(f"crawls of {settings.source}", ["crawl", "era", "from", "to", "name"], rows)
    if limit and len(found) > limit:
        console.print(f"{len(found) - limit:,} more: cc-pipeline crawls --limit 0")


def sql(
    query: Annotated[
        str | None, typer.Argument(help="One query; without it a prompt opens.", show_default=False)
    ] = None,
    home: options.Home = None,
    output: Annotated[str, typer.Option("--format", help="table, csv or jsonl.")] = "table",
) -> None:
    """Ask cc.duckdb, read-only: one query, or a prompt.

    [bold]Examples[/]

      cc-pipeline sql "SELECT crawl, count(*) FROM captures GROUP BY ALL ORDER BY ALL"

      cc-pipeline sql --format csv "SELECT url, title FROM page_text" > titles.csv
    """
    checked_format(output)
    settings = load_settings(home=home)
    if query is not None:
        _answer(settings, query, output)
        return
    console_err.print("One statement a line, ended by Enter. Tables: SHOW TABLES. Leave with Ctrl-D.")
    while True:
        try:
            line = input("cc> ").strip().rstrip(";")
        except EOFError:
            return
        if line.lower() in ("exit", "quit", ".quit"):
            return
        if line:
            try:
                _answer(settings, line, output)
            except UserInputError as error:
                console_err.print(f"[red]{error}[/]", highlight=False, markup=True)


def _answer(settings: Settings, query: str, output: str) -> None:
    advice = "Publish it first: cc-pipeline run --crawl … --domain …, or make demo."
    answer_query(settings.published_path, query, output, advice=advice)
