"""``build-index``: the columnar index of a crawl that nobody publishes one of."""

from __future__ import annotations

from typing import Annotated

import typer

from cc_pipeline.cli import options
from cc_pipeline.cli.index.harvest import show_coverage
from cc_pipeline.cli.output import console, notice, progress_bars
from cc_pipeline.cli.running import agreed_builds, build_indexes, despite_gaps, resolve_crawls, say_damage, step
from cc_pipeline.errors import UserInputError
from cc_pipeline.settings import claim_home, load_settings


def build_index(
    crawl: Annotated[
        list[str],
        typer.Option("--crawl", "-c", help="CC-NEWS-YYYY-MM, or LOCAL-… of add-source; may be repeated."),
    ],
    yes: Annotated[bool, typer.Option("--yes", help="Agree to the price without being asked.")] = False,
    most: Annotated[
        int | None,
        typer.Option("--most", min=1, show_default=False, help="Archive files to read now; the next call goes on."),
    ] = None,
    source: options.Source = None,
    home: options.Home = None,
) -> None:
    """Build the index of a month of CC-NEWS, which has none: reads each of its WARC files once, some 350 GB a month.

    The price is told first. Files that are indexed already are not read again, so a stopped build goes on where it
    stopped, and a month that grew costs its new files. The index lies in the lake: homes that share it share the index.

    [bold]Examples[/]

      cc-pipeline build-index --crawl CC-NEWS-2026-05

      cc-pipeline build-index --crawl CC-NEWS-2026-05 --most 10 --yes
    """
    from cc_pipeline.commoncrawl.crawls import index_is_built
    from cc_pipeline.defs.launch import Launcher
    from cc_pipeline.stages.workspace import open_workspace

    settings = load_settings(source=source, home=home)
    claim_home(settings)
    with open_workspace(settings) as workspace:
        chosen = resolve_crawls(workspace, crawl)
        published = [one for one in chosen if not index_is_built(one)]
        if published:
            raise UserInputError(f"{published[0]} has an index: cc-pipeline harvest --crawl {published[0]}")
        to_build = agreed_builds(workspace, chosen, yes, most)
        with Launcher(workspace) as launcher, progress_bars():
            build_indexes(launcher, to_build, console, most)
            despite_gaps(lambda: step("index", lambda: launcher.harvest_what_is_new(chosen), console))
        say_damage(workspace, chosen)
    if not to_build:
        notice("every archive file is indexed")
    show_coverage(settings, chosen)
