"""``crawls`` and ``sql``: commands that only read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from cc_pipeline.advice import advise
from cc_pipeline.api import user_input
from cc_pipeline.cli import options
from cc_pipeline.cli.command import EVERYDAY, HOME, Command
from cc_pipeline.cli.commands.index import open_catalog
from cc_pipeline.cli.output import choose_format, console, notice, warn
from cc_pipeline.settings import Settings


def crawls(
    settings: Settings,
    limit: Annotated[int, typer.Option(help="The number of crawls to list, newest first; 0 lists all.")] = 20,
) -> Iterator[Sequence[object]]:
    """List the crawls of the source, newest first."""
    from cc_pipeline.harvesting.crawls import known_crawls
    from cc_pipeline.workspace.workspace import open_workspace

    with open_workspace(settings) as workspace:
        crawl_list = known_crawls(workspace)
    all_crawls = crawl_list.crawls
    if crawl_list.note is not None:
        warn(crawl_list.note)
    for crawl in all_crawls[: limit or None]:
        yield crawl.id, crawl.era, _format_time(crawl.started), _format_time(crawl.ended), crawl.name
    if limit and len(all_crawls) > limit:
        notice(f"{len(all_crawls) - limit:,} more: {advise('crawls', limit=0)}")


def _format_time(moment: datetime | None) -> str:
    """Only the day on a terminal, which has little room; else the full time. Empty for ``None``."""
    if moment is None:
        return ""
    return str(moment.date() if console.is_terminal else moment)


def sql(
    settings: Settings,
    query: Annotated[
        str,
        typer.Argument(help="Queries, @FILE with queries, or - for standard input, the default."),
    ] = user_input.STANDARD_INPUT,
    output: Annotated[
        str | None, typer.Option("--format", help="table, csv, json or parquet (default: by --out, or table).")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write the result to this file.")] = None,
    catalog: Annotated[
        bool,
        typer.Option("--catalog", help="Query the index catalog: row_groups, index_files, coverage."),
    ] = False,
) -> None:
    """Query cc.duckdb, or the index catalog: queries that end with ;. They read the tables only, and write nothing.

    All results are printed. On a terminal, cells are cut to fit; in pipes and other formats they are complete. For a
    prompt, and for statements that write, open the file with DuckDB: duckdb data/cc.duckdb

    [bold]Examples[/]

      cc-pipeline sql "SELECT crawl, count(*) FROM captures GROUP BY ALL"

      cc-pipeline sql --format csv "SELECT url FROM page_text" > urls.csv

      cc-pipeline sql "FROM page_metadata" --out pages.parquet

      cc-pipeline sql @questions.sql

      cc-pipeline sql --catalog "SELECT crawl, path, rows FROM row_groups"
    """
    from cc_pipeline.cli.sql_results import run_statements
    from cc_pipeline.lake.published_file import open_for_queries, translate_errors
    from cc_pipeline.lake.user_queries import restrict_reads

    output_format = choose_format(output, out)
    text = user_input.read_text_argument(query)
    if catalog:
        with translate_errors(settings.home), open_catalog(settings) as opened:
            restrict_reads(opened.connection, [f"{settings.lake}/tables/"])
            run_statements(opened.connection, text, output_format, out)
        return
    with open_for_queries(settings) as connection:
        run_statements(connection, text, output_format, out)


COMMANDS = {
    "sql": Command(sql, EVERYDAY, 50, options.LOCAL),
    "crawls": Command(crawls, HOME, 10, options.REMOTE, ("crawl", "era", "from", "to", "name")),
}
