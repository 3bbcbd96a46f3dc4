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
    columns: Annotated[
        str, typer.Option("--columns", help="Comma-separated columns of the table or query (default: all).")
    ] = "",
    where: Annotated[
        str, typer.Option("--where", metavar="CONDITION", help="Only rows that meet this condition in SQL.")
    ] = "",
    limit: Annotated[int, typer.Option("--limit", min=0, help="At most this many rows; 0 for all.")] = 0,
    new: Annotated[
        bool,
        typer.Option(
            "--new",
            help="Only rows committed since the export of the same file, which its provenance.json describes: those of "
            "each crawl and target that is new or changed. They replace the file: move the earlier rows away first.",
        ),
    ] = False,
    allow_missing: Annotated[
        bool,
        typer.Option("--allow-missing", help="End with status 0 even if a file of records lacks planned captures."),
    ] = False,
    creator: options.Creator = "",
    url: options.Address = "",
    guard_formulas: Annotated[
        bool,
        typer.Option(
            "--guard-formulas",
            help="In CSV, put ' before text that begins with =, +, -, @, a tab or the end of a line, so that no "
            "spreadsheet runs it. Without it the text is exact.",
        ),
    ] = False,
) -> None:
    """Export tables, queries or records of this home to a file (or folder) that needs neither home nor cc_pipeline.

    A failed export leaves no file. A README says where the rows came from (source, crawls with the digests of their
    indexes, selection, counts). The same is written as JSON, the outcome of each target as CSV, and a Croissant
    document of tables. An existing file is replaced, an existing folder only if an export wrote it.

    The table page_html has the decoded markup of each page. It is read from the stored records when it is exported.

    FORMATS

    [bold]Examples[/]

      cc-pipeline export example.com --out example.duckdb

      cc-pipeline export example.com --table page_text --out pages.parquet

      cc-pipeline export example.com --table page_html --out html.parquet

      cc-pipeline export -t page_text --where "fetch_status = 200" --out good.csv

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
            columns=[name.strip() for name in columns.split(",") if name.strip()],
            where=where,
            limit=limit,
            new=new,
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
