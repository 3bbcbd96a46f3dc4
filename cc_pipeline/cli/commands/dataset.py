"""``export`` and ``dataset``: what leaves the home in files: tables and records; main texts by published rules, with a
datasheet."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cc_pipeline.cli import options
from cc_pipeline.cli.command import EVERYDAY, FEATURES, Command
from cc_pipeline.cli.output import guarding, show_export
from cc_pipeline.errors import Incomplete
from cc_pipeline.python import handing
from cc_pipeline.settings import load_settings


def dataset(
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder to write.")],
    targets: Annotated[
        list[str] | None, typer.Argument(metavar="TARGET…", help="Pages of these targets (default: all there are).")
    ] = None,
    crawl: options.CrawlsHere = None,
    language: Annotated[
        list[str] | None, typer.Option("--language", "-l", help="en, de, eng …; may be repeated (default: all).")
    ] = None,
    words: Annotated[
        str, typer.Option("--words", metavar="MIN..MAX", help="Words of a main text: at least .. at most.")
    ] = handing.WORDS,
    rules: Annotated[
        str, typer.Option("--rules", help="gopher, fineweb, c4, c4-tfds, figures: some with commas, or none.")
    ] = "gopher,c4",
    near: Annotated[
        float, typer.Option("--near", help="Share of five-word runs in common of near copies; 0 keeps them.")
    ] = 0.8,
    keep_copies: Annotated[bool, typer.Option("--keep-copies", help="Keep exact copies too.")] = False,
    respect: Annotated[
        str,
        typer.Option("--respect", help="Leave out what is said no to: tdm, noai, ai-train, ai-input, search, gptbot …"),
    ] = "",
    as_of: Annotated[
        str, typer.Option("--as-of", help="By what was said at the fetch, or by the latest capture: fetch, latest.")
    ] = "fetch",
    known_only: Annotated[
        bool, typer.Option("--known-only", help="With --respect: leave out too what nothing is known of.")
    ] = False,
    output: Annotated[str, typer.Option("--format", help="parquet or jsonl.")] = "parquet",
    creator: options.Creator = "",
    url: options.Address = "",
    home: options.Home = None,
) -> None:
    """Make a data set of published pages' main texts: languages, length, the rules of Gopher and C4, no copies.

    The folder has the texts with where each came from, a datasheet of what each filter took, what became of each
    target (targets.csv), a Croissant document, and a README that is a card for Hugging Face. It appears whole or not at
    all.

    --respect asks robots.txt (read by cc-pipeline policies), headers and pages. A robot's name asks whether rules keep
    it from a page. Every page that is captured was allowed to Common Crawl's own robot, CCBot, and what is unknown
    stays, counted, unless --known-only.

    [bold]Examples[/]

      cc-pipeline dataset set:press --language en --language de --out corpus

      cc-pipeline dataset set:press --respect tdm,ai-train,gptbot --as-of latest --out corpus

      cc-pipeline dataset -l fra --words 200.. --rules gopher --near 0.7 --format jsonl --out francais
    """
    made = handing.dataset(
        load_settings(home=home),
        out,
        targets or (),
        crawl or (),
        languages=language or (),
        words=words,
        rules=rules,
        near=near,
        keep_copies=keep_copies,
        respect=respect,
        as_of=as_of,
        known_only=known_only,
        format=output,
        said=handing.Said(creator, url),
    )
    show_export("what each filter took", made)


def export(
    out: Annotated[Path, typer.Option("--out", "-o", help="The file or folder to write.")],
    targets: Annotated[
        list[str] | None, typer.Argument(metavar="TARGET…", help="Only rows of these targets (default: all).")
    ] = None,
    crawl: options.CrawlsHere = None,
    output: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="duckdb, parquet, jsonl, csv, wacz, sequencefile, metadata-json or metadata-json-2012 (default: by "
            "the name of --out).",
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
    [bold]metadata-json[/]: the metadata document of 2012 of each page, one a line (URL, tab, JSON);
    [bold]metadata-json-2012[/] has the bugs of the writer of 2012.

    [bold]Examples[/]

      cc-pipeline export example.com --out example.duckdb

      cc-pipeline export example.com --table page_text --out pages.parquet

      cc-pipeline export --query "SELECT url, title FROM page_text" --out titles.jsonl

      cc-pipeline export example.com -c CC-MAIN-2012 --out example.wacz

      cc-pipeline export example.com --format metadata-json --out example.tsv
    """
    try:
        done = handing.export(
            load_settings(home=home),
            out,
            targets or (),
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


COMMANDS = {
    "export": Command(export, EVERYDAY, 60),
    "dataset": Command(dataset, FEATURES, 50),
}
