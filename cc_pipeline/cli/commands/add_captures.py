"""``add-captures``: captures that a person names one by one become a target."""

from __future__ import annotations

from typing import Annotated

import typer

from cc_pipeline.cli import options
from cc_pipeline.cli.output import console, notice, warn
from cc_pipeline.errors import Incomplete, UserInputError
from cc_pipeline.settings import load_settings


def add_captures(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Parquet, CSV, JSON or CDXJ lines; - is standard input.")],
    name: Annotated[str | None, typer.Option("--name", help="The name of the captures (default: the file's).")] = None,
    column: Annotated[
        list[str] | None,
        typer.Option("--column", metavar="COLUMN=NAME", help="What the file calls a column; may be repeated."),
    ] = None,
    extend: Annotated[bool, typer.Option("--add", help="Add to captures that have the name already.")] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="Make them what the file says: corrected, and without others.")
    ] = False,
    via: options.Via = None,
    subset: options.Subsets = None,
    harvest: Annotated[
        bool, typer.Option("--harvest", help="First harvest crawls that URLs are looked up in.")
    ] = False,
    yes: options.Yes = False,
    source: options.Source = None,
    home: options.Home = None,
) -> None:
    """Make captures that you name one by one a target: captures:NAME.

    A row names a place (warc_filename, warc_record_offset, and warc_record_length where it is known), or a URL with the
    time or the crawl of its capture, which is looked up in the index first. Columns may have the names of Athena, of
    CDX servers and clients, of FineWeb or C4; say others with --column warc_filename=path.

    Nothing of the captures is fetched yet: run them like any target. Rows that cannot be used are named with their
    numbers, and the command ends with status 3. The same file given again adds nothing.

    [bold]Examples[/]

      cc-pipeline add-captures rows.parquet

      cc-pipeline add-captures athena.csv --name swiss-pdf

      cdxt --cc --from 2024 iter 'example.com/*' --jsonl | cc-pipeline add-captures - --name example

      cc-pipeline add-captures mine.csv --column warc_filename=path --column warc_record_offset=start

      cc-pipeline run -c CC-MAIN-2024-22 -d captures:rows
    """
    from cc_pipeline.given.reading import NAMES
    from cc_pipeline.python.giving import add_captures as add

    columns = dict(one.partition("=")[::2] for one in column or ())
    if unknown := [one for one, own in columns.items() if one not in NAMES or not own]:
        raise UserInputError(f"--column {unknown[0]}: write COLUMN=NAME; columns are {', '.join(NAMES)}")
    settings = load_settings(source=source, home=home, via=via, subsets=tuple(subset) if subset else None)
    done = add(settings, file, name, columns=columns, extend=extend, replace=replace, harvest=harvest, yes=yes)
    for row, why in sorted(done.wrong.first):
        warn(f"row {row:,}: {why}")
    counts = done.counts
    console.print(
        f"{done.target.definition}: {sum(done.held.values()):,} captures in {len(done.held):,} crawls, {counts.new:,} "
        f"new, {counts.changed if replace else 0:,} changed, {counts.gone if replace else 0:,} taken away"
    )
    if counts.changed and not replace:
        notice(f"{file} says other things of {counts.changed:,} that were there, which stay as they are: --replace")
    if counts.repeats:
        notice(f"{counts.repeats:,} rows name a place once more")
    if done.blocked:
        notice(f"{done.blocked:,} captures are of blocked sites, or nobody knows of which: a run leaves them out")
    console.print(done.run, soft_wrap=True)
    if done.wrong.count:
        raise Incomplete(
            f"{done.wrong.count:,} rows of {file} could not be used",
            f"The first {len(done.wrong.first)} are named above; all others were added.",
        )
