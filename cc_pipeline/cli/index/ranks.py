"""``ranks``: the web graph's ranks of hosts or domains, read into the home once, after a yes to their price."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cc_pipeline.cli import options
from cc_pipeline.cli.output import console, notice, progress_bars, warn
from cc_pipeline.commoncrawl.web_graph import LEVELS, parse_release
from cc_pipeline.errors import UserInputError
from cc_pipeline.progress import human_bytes
from cc_pipeline.settings import claim_home, load_settings

if TYPE_CHECKING:
    from cc_pipeline.stages.facts.ranks import Ranks, RanksPrice


def ranks(
    release: Annotated[
        str | None,
        typer.Argument(
            metavar="RELEASE",
            show_default=False,
            help="A release, such as cc-main-2026-may-jun-jul; none: what is here.",
        ),
    ] = None,
    level: Annotated[str, typer.Option("--level", help="host or domain.")] = "host",
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    source: options.Source = None,
    home: options.Home = None,
) -> None:
    """Read the ranks of a release of Common Crawl's web graph into this home.

    They are published as one file of gigabytes, in the order of rank. This command shows what reading it costs, asks,
    and keeps the ranks by host. Look-ups then take a few kilobytes. The datasets host-ranks and domain-ranks answer
    from them, for the crawls that the release spans. A stopped conversion leaves nothing behind.

    [bold]Examples[/]

      cc-pipeline ranks cc-main-2026-may-jun-jul

      cc-pipeline ranks cc-main-2025-26-nov-dec-jan --level domain --yes

      cc-pipeline ranks
    """
    from cc_pipeline.stages.facts.ranks import all_ranks, convert_ranks, find_ranks, price_ranks
    from cc_pipeline.stages.workspace import open_workspace

    wanted = next((one for one in LEVELS if one == level), None)
    if wanted is None:
        raise UserInputError(f"--level is {' or '.join(LEVELS)}, not {level}")
    named = None if release is None else parse_release(release)
    settings = load_settings(source=source, home=home)
    if named is not None:
        claim_home(settings)
    with open_workspace(settings) as workspace:
        if named is None:
            here_now = all_ranks(settings)
            for one in here_now:
                _show(one)
            if not here_now:
                notice(
                    "no ranks were read into this home. To read those of a release: cc-pipeline ranks RELEASE "
                    "(https://commoncrawl.org/web-graphs lists them)"
                )
            return
        here = find_ranks(settings, named, wanted)
        if here is None:
            price = price_ranks(workspace, named, wanted)
            _show_price(price)
            if not yes and not typer.confirm("Go on?"):
                raise typer.Exit(1)
            with progress_bars():
                here = convert_ranks(workspace, named, wanted, price)
        _show(here)
        if here.skipped:
            warn(f"{here.skipped:,} lines of {here.key} say no rank of a host; they were left out")


def _show_price(price: RanksPrice) -> None:
    notice(
        f"{price.key}: {human_bytes(price.bytes)} to read in {price.requests:,} requests, about {price.rows:,} rows; "
        f"{human_bytes(price.disk)} of disk for good, {human_bytes(price.scratch)} more while it is sorted, and "
        f"about {max(price.seconds / 60, 1):,.0f} min of work where the source keeps up"
    )


def _show(one: Ranks) -> None:
    console.print(
        f"{one.release} {one.level}: {one.rows:,} {one.level}s of {one.nodes:,} nodes, converted {one.converted_at}",
        soft_wrap=True,
    )
