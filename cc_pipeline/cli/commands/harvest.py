"""``harvest``, ``repair`` and ``catalog``: footers and key bounds of the crawls a person names, and what is known of
them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cc_pipeline.cli import options
from cc_pipeline.cli.output import checked_format, notice, progress_bars, warn, write_rows
from cc_pipeline.commoncrawl.crawls import SUBSETS, WITHOUT_KEY_STATISTICS, validate_crawl_id
from cc_pipeline.errors import EnvironmentFault, IndexIncomplete, UserInputError
from cc_pipeline.python.running import harvest_crawls, resolve_crawls, step
from cc_pipeline.settings import Settings, claim_home, load_settings

if TYPE_CHECKING:
    from cc_pipeline.workspace.workspace import Workspace

_COVERAGE = ("crawl", "subset", "expected", "harvested", "failed", "missing", "row_groups", "rows",
             "without_statistics", "reason")  # fmt: skip

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="The row-group catalog: see what it covers, query it, or print a query for Athena.",
)
_Format = Annotated[str, typer.Option("--format", help="table, csv or jsonl.")]


def harvest(
    crawl: Annotated[
        list[str] | None, typer.Option("--crawl", "-c", help="A crawl id; may be repeated. 'newest' works.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Every published crawl of the source.")] = False,
    index_files: Annotated[
        Path | None,
        typer.Option(
            "--index-files",
            help="A file with the keys of the crawl's index files, one a line, for a crawl without a path list.",
        ),
    ] = None,
    subset: options.Subsets = None,
    refresh: Annotated[
        bool, typer.Option("--refresh", help="Ask each file whether it was published anew, a request each.")
    ] = False,
    allow_gaps: options.AllowGaps = False,
    wait: options.Wait = None,
    source: options.Source = None,
    home: options.Home = None,
) -> None:
    """Fetch the footers of crawls' index files, and put their row groups into the catalog.

    It sends one request per index file of the wanted subsets (300 per subset and crawl today); what was harvested of
    other subsets stays. It does not fetch footers again that the home already has, so a stopped harvest goes on where
    it stopped. Each harvest asks again for files that could not be read. When
    some are left, the others are in the catalog, and the command ends with status 3. --refresh is for index files that
    were published anew, which look-ups refuse to read.

    [bold]Examples[/]

      cc-pipeline harvest --crawl CC-MAIN-2024-22

      cc-pipeline harvest -c newest -c CC-MAIN-2018-05

      cc-pipeline harvest -c CC-MAIN-2024-22 --subset robotstxt

      cc-pipeline harvest --all

      cc-pipeline harvest -c CC-SUPPLEMENTAL-2026-22 --index-files files.txt
    """
    from cc_pipeline.indexing.catalog import catalog_gaps
    from cc_pipeline.workspace.workspace import open_workspace

    subsets = tuple(subset) if subset else None
    settings = load_settings(
        source=source,
        home=home,
        subsets=subsets,
        max_index_gaps=options.most_gaps(allow_gaps),
        wait=options.patience(wait),
    )
    if every == bool(crawl):
        raise UserInputError("name crawls with --crawl, or take all of them with --all")
    claim_home(settings)
    if index_files is not None:
        _keep_list(settings, crawl or [], index_files)
    with open_workspace(settings) as workspace:
        chosen = _published(workspace) if every else resolve_crawls(workspace, crawl or [])
        try:
            harvest_crawls(workspace, chosen, refresh=refresh)
        except IndexIncomplete:
            show_coverage(settings, chosen)
            raise
        gaps = catalog_gaps(workspace, chosen)
    show_coverage(settings, chosen)
    for one in gaps:
        warn(f"{one.what} could not be read: {one.named}")


def _keep_list(settings: Settings, crawls: Sequence[str], file: Path) -> None:
    from cc_pipeline.indexing.archives import keep_own_list
    from cc_pipeline.indexing.crawl_index import MOST_INDEX_FILES

    if len(crawls) != 1:
        raise UserInputError("--index-files lists the files of one crawl: name it with --crawl")
    try:
        data = file.read_bytes()
    except OSError as error:
        raise UserInputError(f"{file} cannot be read: {error.strerror}") from error
    count = keep_own_list(settings, crawls[0], data, str(file), MOST_INDEX_FILES)
    notice(f"{count:,} index files of {crawls[0]} are kept in this home, in the place of a path list of the source")


def show_coverage(settings: Settings, crawls: Sequence[str] | None, output: str = "table") -> None:
    """Writes the catalog's coverage of ``crawls`` (``None``: all). Raises ``EnvironmentFault`` without a catalog."""
    from cc_pipeline.index.catalog.catalog import open_catalog
    from cc_pipeline.index.catalog.contents import catalog_exists

    if not catalog_exists(settings.catalog_path):
        raise EnvironmentFault(
            f"there is no catalog in {settings.home}", "Harvest a crawl first: cc-pipeline harvest --crawl newest"
        )
    with open_catalog(settings.catalog_path) as catalog:
        shown = catalog.crawls() if crawls is None else dict.fromkeys(crawls)
        rows = [row for crawl in shown for row in catalog.coverage(crawl).to_pylist()]
    ordered = sorted(rows, key=lambda row: (row["crawl"], row["subset"]))
    write_rows("the catalog", _COVERAGE, [[row[name] for name in _COVERAGE] for row in ordered], output)


def repair(crawl: options.Crawls, source: options.Source = None, home: options.Home = None) -> None:
    """Compute key bounds of row groups that were published without any, so that look-ups can skip them.

    Thirteen crawls (CC-MAIN-2017-43 to 2018-43) have no bounds at all; some later crawls lack a few. The command reads
    the key column of each such row group once: about 23 MB each in the real index. A stopped repair goes on where it
    stopped.

    [bold]Examples[/]

      cc-pipeline repair --crawl CC-MAIN-2018-05

      cc-pipeline catalog coverage        (shows which crawls need it: without_statistics)
    """
    from cc_pipeline.defs.launch import Launcher
    from cc_pipeline.workspace.workspace import open_workspace

    settings = load_settings(source=source, home=home)
    claim_home(settings)
    with open_workspace(settings) as workspace, Launcher(workspace) as launcher, progress_bars():
        chosen = resolve_crawls(workspace, crawl)
        for one in chosen:
            step(f"repair {one}", partial(launcher.repair, one))
    show_coverage(settings, chosen)


def _published(workspace: Workspace) -> list[str]:
    from cc_pipeline.indexing.crawl_index import is_published
    from cc_pipeline.indexing.crawls import known_crawls

    return [crawl.id for crawl in known_crawls(workspace).crawls if is_published(workspace, crawl.id)]


@app.command()
def coverage(
    crawl: Annotated[
        list[str] | None, typer.Option("--crawl", "-c", help="Only this crawl; may be repeated. Default: all.")
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

    show_coverage(load_settings(home=home), crawl, checked_format(output))


@app.command()
def query(
    sql: Annotated[str, typer.Argument(help="One SQL query.")], output: _Format = "table", home: options.Home = None
) -> None:
    """Run a query on the catalog, read-only. Tables: row_groups, index_files, column_chunks, coverage.

    It opens the files of all crawls. Those lie in the home, as catalog/CRAWL.duckdb, and DuckDB opens them as well.

    [bold]Examples[/]

      cc-pipeline catalog query "SELECT crawl, count(*), sum(rows) FROM row_groups GROUP BY crawl ORDER BY crawl"

      cc-pipeline catalog query --format csv "FROM index_files WHERE outcome = 'failed'" > failed.csv
    """
    from cc_pipeline.cli.sql_results import answer
    from cc_pipeline.index.catalog.catalog import open_catalog
    from cc_pipeline.index.catalog.contents import catalog_exists
    from cc_pipeline.lake.reading import explained

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
    from duckdb import StatementType

    from cc_pipeline.duck import connect

    kinds = {one.type for one in connect().extract_statements(sql)}
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


def athena_sql(
    crawls: Sequence[str], *, subset: str = "warc", column: str = "url_surtkey", table: str = "ccindex.ccindex"
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
