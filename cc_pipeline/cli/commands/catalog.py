"""``catalog``: the coverage of harvested crawls; export and import of the catalog as a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cc_pipeline.addresses import scheme_of
from cc_pipeline.api.user_input import check_format
from cc_pipeline.cli import options
from cc_pipeline.cli.command import FEATURES, Command
from cc_pipeline.cli.output import notice, progress_bars, write_rows
from cc_pipeline.errors import EnvironmentFault, UserInputError
from cc_pipeline.progress import format_count
from cc_pipeline.settings import Settings, load_settings
from cc_pipeline.workspace.claim import claim_home

if TYPE_CHECKING:
    from cc_pipeline.index.catalog.catalog import Catalog

_COVERAGE = ("crawl", "subset", "expected", "harvested", "failed", "missing", "row_groups", "rows",
             "without_statistics", "reason")  # fmt: skip

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="The row-group catalog: show what it covers, export and import it.",
)
_Format = Annotated[str, typer.Option("--format", help="table, csv or jsonl.")]


def _open_catalog(settings: Settings) -> Catalog:
    """Opens the catalog of the home's lake. Raises ``EnvironmentFault`` if nothing was harvested."""
    from cc_pipeline.harvesting.catalog import open_catalog
    from cc_pipeline.workspace.workspace import open_lake

    catalog = open_catalog(open_lake(settings))
    if not catalog.crawls():
        raise EnvironmentFault(
            f"{settings.home} has no catalog: no crawl was harvested",
            "Harvest a crawl first: cc-pipeline index harvest --crawl newest",
        )
    return catalog


def show_coverage(settings: Settings, crawls: Sequence[str] | None, output: str = "table") -> None:
    """Writes the catalog's coverage of ``crawls`` (``None``: all). Raises ``EnvironmentFault`` without a catalog."""
    with _open_catalog(settings) as catalog:
        crawl_filters = [None] if crawls is None else dict.fromkeys(crawls)
        rows = [row for crawl in crawl_filters for row in catalog.coverage(crawl).to_pylist()]
    ordered = sorted(rows, key=lambda row: (row["crawl"], row["subset"]))
    write_rows("the catalog", _COVERAGE, [[row[name] for name in _COVERAGE] for row in ordered], output)


@app.command()
def coverage(
    crawl: options.HomeCrawls = None,
    output: _Format = "table",
    home: options.Home = None,
) -> None:
    """Show, by crawl and subset, how many index files are expected, harvested, failed and missing.

    It also shows how many row groups have no statistics; `cc-pipeline index repair` computes them.

    [bold]Examples[/]

      cc-pipeline catalog coverage

      cc-pipeline catalog coverage -c CC-MAIN-2018-05 --format jsonl
    """

    show_coverage(load_settings(home=home), crawl, check_format(output))


def query_catalog(settings: Settings, sql: str, output: str, out: Path | None) -> None:
    """Runs queries on the catalog of all crawls, which read its files and no others."""
    from cc_pipeline.cli.sql_results import run_statements
    from cc_pipeline.lake.published_file import translate_errors
    from cc_pipeline.lake.user_queries import restrict_reads

    with translate_errors(settings.home), _open_catalog(settings) as catalog:
        restrict_reads(catalog.connection(), [f"{settings.lake}/tables/"])
        run_statements(catalog.connection(), sql, output, out)


@app.command("export")
def export_(
    crawl: options.Crawls,
    out: Annotated[Path, typer.Option("--out", help="Folder for the files, one CRAWL.catalog.parquet per crawl.")],
    home: options.Home = None,
) -> None:
    """Export the catalog of crawls for others: one Parquet file per crawl, which its sha256 identifies.

    It sends no requests. A home that imports the file need not harvest the crawl.

    [bold]Examples[/]

      cc-pipeline catalog export --crawl CC-MAIN-2024-22 --out catalogs

      cc-pipeline catalog export -c CC-MAIN-2024-22 -c CC-MAIN-2018-05 --out here
    """
    from cc_pipeline.api.run_steps import resolve_crawls
    from cc_pipeline.errors import disk_trouble
    from cc_pipeline.harvesting.imported_catalog import export_catalog
    from cc_pipeline.workspace.workspace import open_workspace

    rows = []
    with open_workspace(load_settings(home=home)) as workspace:
        for crawl_id in resolve_crawls(workspace, crawl):
            catalog_path = out / f"{crawl_id}.catalog.parquet"
            with disk_trouble(out):
                catalog_file = export_catalog(workspace, crawl_id, catalog_path)
            rows.append(
                [
                    str(catalog_path),
                    ", ".join(catalog_file.subsets),
                    catalog_file.row_groups,
                    catalog_file.bytes,
                    catalog_file.sha256,
                ]
            )
    write_rows("catalogs", ["file", "subsets", "row groups", "bytes", "sha256"], rows, "table")


@app.command("import")
def import_(
    file: Annotated[str, typer.Argument(help="A file of `catalog export`, or its https:// or s3:// address.")],
    sha256: Annotated[str, typer.Option("--digest", help="Refuse a file with another sha256.")] = "",
    believe_repaired: Annotated[
        bool,
        typer.Option(
            "--trust-repaired-bounds", help="Also import the key bounds of `index repair`, which no footer confirms."
        ),
    ] = False,
    source: options.Source = None,
    home: options.Home = None,
) -> None:
    """Import a catalog that somebody else harvested, instead of some 300 footer requests per crawl.

    It compares the catalog with the path list and 20 random footers of the source, and refuses a catalog that differs.
    Subsets that this home harvested are kept. `catalog coverage` and `plan` show the sha256 of an imported catalog;
    `cc-pipeline index harvest` replaces it with a harvest of your own.

    [bold]Examples[/]

      cc-pipeline catalog import catalogs/CC-MAIN-2024-22.catalog.parquet

      cc-pipeline catalog import https://example.org/22.catalog.parquet
    """
    from cc_pipeline.harvesting.imported_catalog import FOOTERS, import_catalog
    from cc_pipeline.workspace.workspace import open_workspace

    settings = load_settings(source=source, home=home)
    claim_home(settings)
    with open_workspace(settings) as workspace, workspace.scratch_folder("fetched") as folder, progress_bars():
        local_file = _fetch_catalog(settings, file, folder)
        notice(f"comparing the file with the source: its path list and {FOOTERS} footers of index files (about 1.3 MB)")
        imported = import_catalog(workspace, local_file, sha256=sha256, believe_repaired=believe_repaired)
    if imported.subsets:
        notice(
            f"{imported.crawl}: the catalog of {', '.join(imported.subsets)} was imported, sha256 {imported.sha256}; "
            f"{imported.compared} footers are the same as at the source"
        )
        if imported.unread:
            notice(
                f"{imported.unread:,} of {imported.files:,} index files are not in the imported catalog: lookups miss "
                "their captures, and report that. To harvest these files here: "
                f"cc-pipeline index harvest --crawl {imported.crawl}"
            )
    else:
        notice(f"{imported.crawl}: nothing was imported: this home has all subsets of the file already")
    if imported.unbounded:
        notice(
            f"{format_count(imported.unbounded, 'row group', 'have')} key bounds that no footer confirms. These "
            "bounds were not imported, so every lookup reads these row groups. To compute the bounds: cc-pipeline "
            f"index harvest --crawl {imported.crawl}, then cc-pipeline index repair --crawl {imported.crawl}. Another "
            "home can import them with --trust-repaired-bounds"
        )
    notice(f"{format_count(imported.requests, 'request')}, {imported.bytes / 1e6:,.1f} MB")
    show_coverage(settings, [imported.crawl])


#: Maximum bytes of a catalog file; most have 8 MB.
_MAX_CATALOG_BYTES = 256 << 20


def _fetch_catalog(settings: Settings, address: str, folder: Path) -> Path:
    """Returns the local file, or downloads an address into ``folder``."""
    from cc_pipeline.errors import disk_trouble
    from cc_pipeline.workspace.workspace import fetch_object

    if scheme_of(address):
        copy = folder / address.rpartition("/")[2]
        with disk_trouble(copy):
            copy.write_bytes(fetch_object(settings, address, _MAX_CATALOG_BYTES))
        return copy
    if not Path(address).is_file():
        raise UserInputError(f"there is no file {address}")
    return Path(address)


COMMANDS = {"catalog": Command(app, FEATURES, 20)}
