"""``dataset``: main texts by published rules, with a datasheet."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cc_pipeline.cli import options
from cc_pipeline.cli.command import FEATURES, Command
from cc_pipeline.cli.output import show_export
from cc_pipeline.python import handing
from cc_pipeline.python.export import Said
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
        said=Said(creator, url),
    )
    show_export("what each filter took", made)


COMMANDS = {
    "dataset": Command(dataset, FEATURES, 50),
}
