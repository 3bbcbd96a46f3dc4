"""``catalog``: the row-group catalog asked directly."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from cc_pipeline.cli import options
from cc_pipeline.cli.plain import checked_format
from cc_pipeline.settings import load_settings

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="The row-group catalog (catalog.duckdb): what is in it, questions to it, and the same by Athena.",
)

_Format = Annotated[str, typer.Option("--format", help="table, csv or jsonl.")]


@app.command()
def coverage(
    crawl: Annotated[
        list[str] | None,
        typer.Option("--crawl", "-c", show_default=False, help="Only this crawl; may be repeated. Default: all."),
    ] = None,
    output: _Format = "table",
    home: options.Home = None,
) -> None:
    """Show by crawl and subset how many index files there are, are harvested, failed, and lack statistics.

    [bold]Examples[/]

      cc-pipeline catalog coverage

      cc-pipeline catalog coverage -c CC-MAIN-2018-05 --format jsonl
    """
    from cc_pipeline.cli.graph import show_coverage

    show_coverage(load_settings(home=home), crawl, checked_format(output))


@app.command()
def query(
    sql: Annotated[str, typer.Argument(show_default=False, help="One query.")],
    output: _Format = "table",
    home: options.Home = None,
) -> None:
    """Ask catalog.duckdb, read-only. Tables: row_groups, index_files, column_chunks, coverage.

    [bold]Examples[/]

      cc-pipeline catalog query "SELECT crawl, count(*), sum(rows) FROM row_groups GROUP BY crawl ORDER BY crawl"

      cc-pipeline catalog query --format csv "FROM index_files WHERE outcome = 'failed'" > failed.csv
    """
    from cc_pipeline.cli.answers import answer_query

    settings = load_settings(home=home)
    advice = "Harvest a crawl first: cc-pipeline harvest --crawl newest"
    answer_query(settings.catalog_path, sql, checked_format(output), advice=advice)


@app.command("sql")
def sql_(
    crawls: Annotated[
        list[str] | None,
        typer.Option(
            "--crawls",
            "--crawl",
            "-c",
            show_default=False,
            help="Crawls of the query, comma-separated or repeated (default: the 13 that have no statistics).",
        ),
    ] = None,
    subset: Annotated[str, typer.Option("--subset", help="warc, crawldiagnostics or robotstxt.")] = "warc",
    column: Annotated[str, typer.Option("--column", help="The column whose bounds to compute.")] = "url_surtkey",
    table: Annotated[
        str, typer.Option("--table", help="The table of Common Crawl's set-up guide.")
    ] = "ccindex.ccindex",
) -> None:
    """Print a query for Athena (or Trino) that computes the key bounds of every index file. Nothing is run.

    For those who have Athena over Common Crawl's table: it scans the whole column, and Athena bills by the byte. What
    `cc-pipeline repair` does needs neither account nor money, and knows row groups instead of files.

    [bold]Examples[/]

      cc-pipeline catalog sql > bounds.sql

      cc-pipeline catalog sql --crawls CC-MAIN-2018-05,CC-MAIN-2018-09 --subset robotstxt
    """
    from cc_pipeline.index.catalog_sql import WITHOUT_STATISTICS, athena_sql

    named = [name.strip() for text in crawls or [] for name in text.split(",") if name.strip()]
    sys.stdout.write(athena_sql(named or WITHOUT_STATISTICS, subset=subset, column=column, table=table))
