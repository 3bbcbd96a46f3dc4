"""``export``: what a home has, handed on in files that open elsewhere: tables, queries, data sets, records."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cc_pipeline.cli import options
from cc_pipeline.cli.guarding import guarding
from cc_pipeline.cli.output import show_export
from cc_pipeline.errors import Incomplete
from cc_pipeline.python import handing
from cc_pipeline.settings import load_settings


def export(
    out: Annotated[Path, typer.Option("--out", "-o", help="The file or folder to write.")],
    domain: Annotated[
        list[str] | None, typer.Option("--domain", "-d", help="Only rows of these targets; may be repeated.")
    ] = None,
    crawl: Annotated[list[str] | None, typer.Option("--crawl", "-c", help="Only rows of these crawls.")] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "--format", help="duckdb, parquet, jsonl, csv, wacz or sequencefile (default: by the name of --out)."
        ),
    ] = None,
    table: Annotated[
        list[str] | None, typer.Option("--table", "-t", help="A published table; may be repeated.")
    ] = None,
    query: Annotated[str | None, typer.Option("--query", "-q", help="One query, as in sql.")] = None,
    dataset: Annotated[Path | None, typer.Option("--dataset", help="A folder that the command dataset wrote.")] = None,
    allow_missing: Annotated[
        bool, typer.Option("--allow-missing", help="End with status 0 although planned captures are not in a wacz.")
    ] = False,
    creator: options.Creator = "",
    url: options.Address = "",
    home: options.Home = None,
) -> None:
    """Hand on what this home has: a file (or folder) that needs neither the home nor this pipeline.

    It appears whole or not at all, with a README of where its rows came from (source, crawls with the digests of their
    indexes, what was asked, counts), the same as JSON, what became of each target as CSV, and a Croissant document of
    tables. A file that is there is replaced, a folder only if an export wrote it.

    [bold]duckdb[/]: one file with the rows inside, comments included. [bold]parquet, jsonl, csv[/]: a file for one
    table or query, a folder for several. [bold]wacz[/]: the stored records with an index and a list of pages, for
    ReplayWeb.page and other archive tools. [bold]sequencefile[/]: the text and metadata files of 2012.

    [bold]Examples[/]

      cc-pipeline export -d example.com --out example.duckdb

      cc-pipeline export -d example.com --table page_text --out pages.parquet

      cc-pipeline export --query "SELECT url, title FROM page_text" --out titles.jsonl

      cc-pipeline export -d example.com -c CC-MAIN-2012 --out example.wacz
    """
    try:
        done = handing.export(
            load_settings(home=home),
            out,
            domain or (),
            crawl or (),
            format=output,
            tables=table or (),
            query=query,
            dataset=dataset,
            allow_missing=allow_missing,
            guard_formulas=guarding(),
            said=handing.Said(creator, url),
        )
    except Incomplete as lacking:
        if lacking.report is not None:
            show_export(f"handed on in {out}", lacking.report)
        raise
    show_export(f"handed on in {out}", done)
