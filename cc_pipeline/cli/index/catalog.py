"""``catalog``: coverage of the row-group catalog, queries to it, and SQL that computes the same bounds on Athena."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from cc_pipeline.cli import options
from cc_pipeline.cli.output import checked_format
from cc_pipeline.commoncrawl.crawl_quirks import WITHOUT_KEY_STATISTICS
from cc_pipeline.commoncrawl.crawls import SUBSETS, validate_crawl_id
from cc_pipeline.errors import EnvironmentFault, UserInputError
from cc_pipeline.settings import load_settings


def athena_sql(
    crawls: Sequence[str],
    *,
    subset: str = "warc",
    column: str = "url_surtkey",
    table: str = "ccindex.ccindex",
) -> str:
    """A query for Athena (or Trino) that reads a column's smallest and largest value in every index file.

    It scans the whole column of the crawls named (about 23 MB a row group, billed by the byte) and knows files, not
    row groups. ``table`` is the one of Common Crawl's set-up guide. Raises ``UserInputError`` for odd names.
    """
    if subset not in SUBSETS:
        raise UserInputError(f"{subset!r} is not a subset; choose one of {', '.join(SUBSETS)}")
    for name in (column, *table.split(".")):
        if not name.isidentifier():
            raise UserInputError(f"{name!r} is not a valid name in SQL")
    if not crawls:
        raise UserInputError("name at least one crawl")
    listed = ",\n                ".join(f"'{validate_crawl_id(crawl)}'" for crawl in crawls)
    return f"""SELECT crawl,
       subset,
       "$path" AS path,
       count(*) AS row_count,
       min({column}) AS {column}_min,
       max({column}) AS {column}_max
FROM {table}
WHERE crawl IN ({listed})
  AND subset = '{subset}'
GROUP BY crawl, subset, "$path"
ORDER BY crawl, {column}_min;
"""


app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="The row-group catalog: see what it covers, query it, or print a query for Athena.",
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
    """Show, by crawl and subset, how many index files are expected, harvested, failed and missing.

    It also shows how many row groups have no statistics; `cc-pipeline repair` computes them.

    [bold]Examples[/]

      cc-pipeline catalog coverage

      cc-pipeline catalog coverage -c CC-MAIN-2018-05 --format jsonl
    """
    from cc_pipeline.cli.index.harvest import show_coverage

    show_coverage(load_settings(home=home), crawl, checked_format(output))


@app.command()
def query(
    sql: Annotated[str, typer.Argument(show_default=False, help="One SQL query.")],
    output: _Format = "table",
    home: options.Home = None,
) -> None:
    """Run a query on the catalog, read-only. Tables: row_groups, index_files, column_chunks, coverage.

    It opens the files of all crawls. Those lie in the home, as catalog/CRAWL.duckdb, and DuckDB opens them as well.

    [bold]Examples[/]

      cc-pipeline catalog query "SELECT crawl, count(*), sum(rows) FROM row_groups GROUP BY crawl ORDER BY crawl"

      cc-pipeline catalog query --format csv "FROM index_files WHERE outcome = 'failed'" > failed.csv
    """
    from cc_pipeline.cli.asking.answers import answer, explained
    from cc_pipeline.index.catalog.catalog import open_catalog
    from cc_pipeline.index.catalog.contents import catalog_exists

    path = load_settings(home=home).catalog_path
    checked_format(output)
    if not catalog_exists(path):
        raise EnvironmentFault(
            f"{path} does not exist yet", "Harvest a crawl first: cc-pipeline harvest --crawl newest"
        )
    with explained(path), open_catalog(path) as catalog:
        _refuse_orders(sql)
        answer(catalog.connection(), sql, output)


def _refuse_orders(sql: str) -> None:
    """Raises ``UserInputError`` for what would change a table: the tables here are views, so DuckDB would let it."""
    import duckdb
    from duckdb import StatementType

    kinds = {one.type for one in duckdb.connect().extract_statements(sql)}
    orders = {"CREATE", "DROP", "ALTER", "INSERT", "UPDATE", "DELETE"}
    if kinds & {getattr(StatementType, name) for name in orders}:
        raise UserInputError("the catalog is read-only: only queries are answered")


@app.command("sql")
def sql_(
    crawls: Annotated[
        list[str] | None,
        typer.Option(
            "--crawls",
            "--crawl",
            "-c",
            show_default=False,
            help="Crawls to query, comma-separated or repeated (default: the 13 that have no statistics).",
        ),
    ] = None,
    subset: Annotated[str, typer.Option("--subset", help="warc, crawldiagnostics or robotstxt.")] = "warc",
    column: Annotated[str, typer.Option("--column", help="The column whose bounds to compute.")] = "url_surtkey",
    table: Annotated[
        str, typer.Option("--table", help="Name of the table; the default is that of Common Crawl's set-up guide.")
    ] = "ccindex.ccindex",
) -> None:
    """Print a query for Athena (or Trino) that computes the key bounds of every index file.

    This command only prints the query. You can run it if you have Athena over Common Crawl's table. It scans the
    whole column, and Athena bills by the byte. `cc-pipeline repair` needs no account and costs nothing, and it
    computes bounds by row group instead of by file.

    [bold]Examples[/]

      cc-pipeline catalog sql > bounds.sql

      cc-pipeline catalog sql --crawls CC-MAIN-2018-05,CC-MAIN-2018-09 --subset robotstxt
    """

    named = [name.strip() for text in crawls or [] for name in text.split(",") if name.strip()]
    sys.stdout.write(athena_sql(named or sorted(WITHOUT_KEY_STATISTICS), subset=subset, column=column, table=table))
