"""``catalog``: what is known of the crawls that were harvested, and the catalog as a file for others, and from them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cc_pipeline.addresses import scheme_of
from cc_pipeline.api.meaning import checked_format
from cc_pipeline.cli import options
from cc_pipeline.cli.command import FEATURES, Command
from cc_pipeline.cli.output import notice, progress_bars, write_rows
from cc_pipeline.errors import EnvironmentFault, UserInputError
from cc_pipeline.settings import Settings, load_settings
from cc_pipeline.workspace.claim import claim_home

if TYPE_CHECKING:
    from cc_pipeline.index.catalog.catalog import Catalog

_COVERAGE = ("crawl", "subset", "expected", "harvested", "failed", "missing", "row_groups", "rows",
             "without_statistics", "reason")  # fmt: skip

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="The row-group catalog: see what it covers, and hand it on.",
)
_Format = Annotated[str, typer.Option("--format", help="table, csv or jsonl.")]


def _opened(settings: Settings) -> Catalog:
    """The catalog of the home's lake. Raises ``EnvironmentFault`` where nothing was harvested."""
    from cc_pipeline.harvesting.catalog import open_catalog
    from cc_pipeline.workspace.workspace import open_lake

    catalog = open_catalog(open_lake(settings))
    if not catalog.crawls():
        raise EnvironmentFault(
            f"there is no catalog in {settings.home}", "Harvest a crawl first: cc-pipeline index harvest --crawl newest"
        )
    return catalog


def show_coverage(settings: Settings, crawls: Sequence[str] | None, output: str = "table") -> None:
    """Writes the catalog's coverage of ``crawls`` (``None``: all). Raises ``EnvironmentFault`` without a catalog."""
    with _opened(settings) as catalog:
        of = [None] if crawls is None else dict.fromkeys(crawls)
        rows = [row for crawl in of for row in catalog.coverage(crawl).to_pylist()]
    ordered = sorted(rows, key=lambda row: (row["crawl"], row["subset"]))
    write_rows("the catalog", _COVERAGE, [[row[name] for name in _COVERAGE] for row in ordered], output)


@app.command()
def coverage(
    crawl: options.CrawlsHere = None,
    output: _Format = "table",
    home: options.Home = None,
) -> None:
    """Show, by crawl and subset, how many index files are expected, harvested, failed and missing.

    It also shows how many row groups have no statistics; `cc-pipeline index repair` computes them.

    [bold]Examples[/]

      cc-pipeline catalog coverage

      cc-pipeline catalog coverage -c CC-MAIN-2018-05 --format jsonl
    """

    show_coverage(load_settings(home=home), crawl, checked_format(output))


def query_catalog(settings: Settings, sql: str, output: str, out: Path | None) -> None:
    """Answers queries on the files of all crawls, read-only."""
    from cc_pipeline.cli.sql_results import answer
    from cc_pipeline.lake.reading import explained

    with explained(settings.home), _opened(settings) as catalog:
        _refuse_orders(sql)
        answer(catalog.connection(), sql, output, out)


def _refuse_orders(sql: str) -> None:
    """Raises ``UserInputError`` for what would change a table: the tables here are views, so DuckDB would let it."""
    from duckdb import StatementType

    from cc_pipeline.duck import connect

    kinds = {one.type for one in connect().extract_statements(sql)}
    orders = {"CREATE", "DROP", "ALTER", "INSERT", "UPDATE", "DELETE"}
    if kinds & {getattr(StatementType, name) for name in orders}:
        raise UserInputError("the catalog is read-only: only queries are answered")


@app.command("export")
def export_(
    crawl: options.Crawls,
    out: Annotated[Path, typer.Option("--out", help="A folder: each crawl becomes CRAWL.catalog.parquet in it.")],
    home: options.Home = None,
) -> None:
    """Write the catalog of crawls for others: a Parquet file a crawl, and its sha256, which names it.

    It sends no request. Whoever imports it needs no footers of the crawl.

    [bold]Examples[/]

      cc-pipeline catalog export --crawl CC-MAIN-2024-22 --out catalogs

      cc-pipeline catalog export -c CC-MAIN-2024-22 -c CC-MAIN-2018-05 --out catalogs
    """
    from cc_pipeline.api.running import resolve_crawls
    from cc_pipeline.errors import disk_trouble
    from cc_pipeline.harvesting.imported_catalog import export_catalog
    from cc_pipeline.workspace.workspace import open_workspace

    rows = []
    with open_workspace(load_settings(home=home)) as workspace:
        for one in resolve_crawls(workspace, crawl):
            to = out / f"{one}.catalog.parquet"
            with disk_trouble(out):
                made = export_catalog(workspace, one, to)
            rows.append([str(to), ", ".join(made.subsets), made.row_groups, made.bytes, made.sha256])
    write_rows("catalogs", ["file", "subsets", "row groups", "bytes", "sha256"], rows, "table")


@app.command("import")
def import_(
    file: Annotated[str, typer.Argument(help="A file of `catalog export`, or its https:// or s3:// address.")],
    sha256: Annotated[str, typer.Option("--digest", help="Refuse a file with another sha256.")] = "",
    believe_repaired: Annotated[
        bool,
        typer.Option("--believe-repaired", help="Take key bounds too that no footer confirms (of `index repair`)."),
    ] = False,
    source: options.Source = None,
    home: options.Home = None,
) -> None:
    """Use a catalog that somebody else harvested, in the place of some 300 footer requests a crawl.

    It asks the source for the path list and 20 footers, drawn anew each time, and refuses a catalog that says anything
    else. Subsets that this home harvested stay as they are. What was imported is named by its sha256 in
    `catalog coverage` and `plan`; `cc-pipeline index harvest` replaces it by a harvest of your own.

    [bold]Examples[/]

      cc-pipeline catalog import catalogs/CC-MAIN-2024-22.catalog.parquet

      cc-pipeline catalog import https://example.org/CC-MAIN-2024-22.catalog.parquet --digest 3f5a…
    """
    from cc_pipeline.harvesting.imported_catalog import FOOTERS, import_catalog
    from cc_pipeline.workspace.workspace import open_workspace

    settings = load_settings(source=source, home=home)
    claim_home(settings)
    with open_workspace(settings) as workspace, workspace.scratch_folder("fetched") as folder, progress_bars():
        here = _fetched(settings, file, folder)
        notice(f"comparing with the source: its path list, {FOOTERS} footers (about 1.3 MB)")
        done = import_catalog(workspace, here, sha256=sha256, believe_repaired=believe_repaired)
    if done.subsets:
        notice(f"{done.crawl}: {', '.join(done.subsets)} imported, sha256 {done.sha256}; {done.compared} footers agree")
        if done.unread:
            notice(
                f"{done.unread:,} of its {done.files:,} files were not harvested where it was made: look-ups lack "
                f"their captures, and say so. To harvest them here: cc-pipeline index harvest --crawl {done.crawl}"
            )
    else:
        notice(f"{done.crawl}: no subset was imported, since all subsets in it are here already")
    if done.unbounded:
        notice(
            f"{done.unbounded:,} row groups have key bounds that no footer confirms; they were left out, and look-ups "
            f"read these row groups. To take them: --believe-repaired; to make them: cc-pipeline index repair --crawl "
            f"{done.crawl}"
        )
    notice(f"{done.requests:,} requests, {done.bytes / 1e6:,.1f} MB")
    show_coverage(settings, [done.crawl])


#: A catalog has some 8 MB.
_MOST_FETCHED = 256 << 20


def _fetched(settings: Settings, address: str, folder: Path) -> Path:
    """The file itself, or a copy of what is at an address."""
    from cc_pipeline.errors import disk_trouble
    from cc_pipeline.workspace.workspace import fetched_whole

    if scheme_of(address):
        copy = folder / address.rpartition("/")[2]
        with disk_trouble(copy):
            copy.write_bytes(fetched_whole(settings, address, _MOST_FETCHED))
        return copy
    if not Path(address).is_file():
        raise UserInputError(f"there is no file {address}")
    return Path(address)


COMMANDS = {"catalog": Command(app, FEATURES, 20)}
