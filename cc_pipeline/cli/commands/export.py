"""``export``: tables, queries and records of the home in files of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cc_pipeline.api.export import Attribution
from cc_pipeline.api.export import export as export_home
from cc_pipeline.cli import options
from cc_pipeline.cli.command import EVERYDAY, Command
from cc_pipeline.cli.output import show_export
from cc_pipeline.errors import Incomplete
from cc_pipeline.export.formats import FORMATS, describe_formats
from cc_pipeline.settings import Settings


def export(
    settings: Settings,
    out: Annotated[Path, typer.Option("--out", "-o", help="The file or folder to write.")],
    targets: Annotated[
        list[str] | None, typer.Argument(metavar="TARGET…", help="Only rows of these targets (default: all).")
    ] = None,
    crawl: options.MaybeCrawls = None,
    output: Annotated[
        str | None,
        typer.Option(
            "--format",
            help=f"{', '.join(FORMATS)} (default: by the suffix of --out).",
        ),
    ] = None,
    table: Annotated[
        list[str] | None, typer.Option("--table", "-t", help="A published table; may be repeated.")
    ] = None,
    query: Annotated[str | None, typer.Option("--query", "-q", help="One query, as in sql.")] = None,
    folder: Annotated[
        Path | None, typer.Option("--folder", help="A folder of Parquet files from an earlier export.")
    ] = None,
    allow_missing: Annotated[
        bool,
        typer.Option("--allow-missing", help="End with status 0 even if a file of records lacks planned captures."),
    ] = False,
    creator: options.Creator = "",
    url: options.Address = "",
    guard_formulas: options.GuardFormulas = False,
) -> None:
    """Export tables, queries or records of this home to a file (or folder) that needs neither the home nor cc_pipeline.

    A failed export leaves no file. A README says where the rows came from (source, crawls with the digests of their
    indexes, selection, counts). The same is written as JSON, the outcome of each target as CSV, and a Croissant
    document of tables. An existing file is replaced, an existing folder only if an export wrote it.

    FORMATS

    [bold]Examples[/]

      cc-pipeline export example.com --out example.duckdb

      cc-pipeline export example.com --table page_text --out pages.parquet

      cc-pipeline export --query "SELECT url, title FROM page_text" --out some.csv

      cc-pipeline export example.com --format metadata-json --out example.tsv
    """
    try:
        export_report = export_home(
            settings,
            out,
            targets or (),
            crawl or (),
            format=output,
            tables=table or (),
            query=query,
            folder=folder,
            allow_missing=allow_missing,
            guard_formulas=guard_formulas,
            attribution=Attribution(creator, url),
        )
    except Incomplete as incomplete:
        if incomplete.report is not None:
            show_export(f"exported to {out}", incomplete.report)
        raise
    show_export(f"exported to {out}", export_report)


_HELP = (export.__doc__ or "").replace("FORMATS", describe_formats())
COMMANDS = {"export": Command(export, EVERYDAY, 60, options.LOCAL, help=_HELP)}
