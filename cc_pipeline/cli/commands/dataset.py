"""``export``, ``dataset`` and ``report``: what leaves the home in files: tables and records; main texts by
published rules, with a datasheet; the page about a target, or what changed, in words."""

from __future__ import annotations

import sys
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from cc_pipeline.cli import options
from cc_pipeline.cli.command import EVERYDAY, FEATURES, Command
from cc_pipeline.cli.output import console, notice, show_export, whole_file
from cc_pipeline.commoncrawl.target_text import slug_meant, to_run
from cc_pipeline.errors import EnvironmentFault, UserInputError
from cc_pipeline.python import handing
from cc_pipeline.python.export import Said
from cc_pipeline.python.meaning import checked_format
from cc_pipeline.settings import Settings, load_settings


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


def report(
    targets: options.Targets,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The file to write (default: reports/ in the home).")
    ] = None,
    before: Annotated[
        str | None, typer.Option("--from", help="With --to: the earlier crawl of what changed (default: the last two).")
    ] = None,
    after: Annotated[str | None, typer.Option("--to", help="With --from: the later crawl.")] = None,
    output: Annotated[
        str, typer.Option("--format", help="html, or text: only what changed from --from to --to, in words.")
    ] = "html",
    details: Annotated[
        bool, typer.Option("--details", help="With --format text: every page, with the paragraphs that differ.")
    ] = False,
    home: options.Home = None,
) -> None:
    """Write a page about a target: one HTML file with everything in it, from what was published last.

    Captures over time, what changed, languages, link neighbours, feeds, what is missing and why. The file needs nothing
    beside it and no network, and prints.

    With --format text it says what changed between two crawls: how many pages are new, gone, moved (the same payload
    or main text at another URL) or changed, and the first of each kind; with --details all of them, and of changed ones
    the paragraphs that differ. That goes to standard output, or to --out.

    [bold]Examples[/]

      cc-pipeline report example.com

      cc-pipeline report example.com --out example.html

      cc-pipeline report set:press --from CC-MAIN-2018-05 --to CC-MAIN-2024-22

      cc-pipeline report @sites.txt          (a page for each line)

      cc-pipeline report example.com --from CC-MAIN-2018-05 --to CC-MAIN-2024-22 --format text
    """
    checked_format(output, ("html", "text"))
    if (before is None) != (after is None):
        raise UserInputError("--from and --to name two crawls to compare: give both, or none for the last two")
    between = (before, after) if before is not None and after is not None else None
    if output == "text":
        if between is None or len(targets) != 1:
            raise UserInputError("--format text compares two crawls of one target: name it, --from and --to")
        _changes(load_settings(home=home), targets[0], *between, out, details=details)
        return
    for path in handing.reports(load_settings(home=home), targets, out, between):
        console.print(f"{path}", soft_wrap=True)
        if path.suffix.lower() not in (".html", ".htm"):
            notice(f"{path} is an HTML page, whatever its name says; a browser shows it under a name in .html")


def _changes(settings: Settings, target: str, before: str, after: str, out: Path | None, *, details: bool) -> None:
    """Writes what changed between two crawls of a target, in words: in short, or with ``details`` all of it."""
    from cc_pipeline.publish.changes import in_words, summarize

    slug = slug_meant(target)
    if before.startswith("CC-MAIN-") and after.startswith("CC-MAIN-") and before > after:
        raise UserInputError(f"--from {before} is the later crawl; write --from {after} --to {before}")
    if not settings.published_path.exists():
        raise EnvironmentFault(
            f"{settings.home} has published nothing yet",
            f"Get both crawls: cc-pipeline run {to_run(slug, target)} --crawl {before} --crawl {after}",
        )
    lines = summarize(settings, slug, before, after, named=target)
    if details:
        lines = chain(lines, ("",), in_words(settings, slug, before, after, named=target))
    if out is None:
        sys.stdout.writelines(f"{line}\n" for line in lines)
        return
    with whole_file(out) as path, path.open("w", encoding="utf-8") as stream:
        stream.writelines(f"{line}\n" for line in lines)
    console.print(f"{out}", soft_wrap=True)


COMMANDS = {
    "report": Command(report, EVERYDAY, 70),
    "dataset": Command(dataset, FEATURES, 50),
}
