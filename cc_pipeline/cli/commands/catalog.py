"""``catalog``: the coverage of harvested crawls, and queries on the row-group catalog."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from cc_pipeline.advice import advise
from cc_pipeline.cli import options
from cc_pipeline.cli.command import FEATURES, Command
from cc_pipeline.cli.output import write_rows
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.settings import Settings, load_settings

if TYPE_CHECKING:
    from cc_pipeline.index.catalog.catalog import Catalog

_COVERAGE = ("crawl", "subset", "expected", "harvested", "failed", "missing", "row_groups", "rows",
             "without_statistics", "reason")  # fmt: skip

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="The row-group catalog of harvested crawls.",
)


def _open_catalog(settings: Settings) -> Catalog:
    """Opens the catalog of the home's lake. Raises ``EnvironmentFault`` if nothing was harvested."""
    from cc_pipeline.harvesting.catalog import open_catalog
    from cc_pipeline.workspace.workspace import open_lake

    catalog = open_catalog(open_lake(settings))
    if not catalog.crawls():
        raise EnvironmentFault(
            f"{settings.home} has no catalog: no crawl was harvested",
            advise("index harvest", crawl="newest", sentence="Harvest a crawl first: {}"),
        )
    return catalog


def show_coverage(settings: Settings, crawls: Sequence[str]) -> None:
    """Writes the catalog's coverage of ``crawls``, as a person names them. Raises ``EnvironmentFault`` without a
    catalog, ``UserInputError`` for a crawl that it does not have."""
    from cc_pipeline.api.user_input import resolve_home_crawls

    with _open_catalog(settings) as catalog:
        shown_crawls = resolve_home_crawls(crawls, catalog.crawls())
        rows = [row for crawl in shown_crawls for row in catalog.coverage(crawl).to_pylist()]
    ordered = sorted(rows, key=lambda row: (row["crawl"], row["subset"]))
    write_rows("the catalog", _COVERAGE, [[row[name] for name in _COVERAGE] for row in ordered])


@app.command()
def coverage(
    crawl: options.MaybeCrawls = None,
    home: options.Home = None,
) -> None:
    """Show, by crawl and subset, how many index files are expected, harvested, failed and missing.

    It also shows how many row groups have no statistics; `cc-pipeline index repair` computes them.

    [bold]Examples[/]

      cc-pipeline catalog coverage

      cc-pipeline catalog coverage -c CC-MAIN-2018-05 --format json
    """

    show_coverage(load_settings(home=home), crawl or ["all"])


def query_catalog(settings: Settings, sql: str, output: str, out: Path | None) -> None:
    """Runs queries on the catalog of all crawls, which read its files and no others."""
    from cc_pipeline.cli.sql_results import run_statements
    from cc_pipeline.lake.published_file import translate_errors
    from cc_pipeline.lake.user_queries import restrict_reads

    with translate_errors(settings.home), _open_catalog(settings) as catalog:
        restrict_reads(catalog.connection, [f"{settings.lake}/tables/"])
        run_statements(catalog.connection, sql, output, out)


COMMANDS = {"catalog": Command(app, FEATURES, 20)}
