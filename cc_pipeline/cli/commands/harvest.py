"""``index harvest`` and ``index repair``: footers and key bounds of the crawls a person names."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cc_pipeline.api.run_steps import harvest_crawls, resolve_crawls, run_step
from cc_pipeline.cli import options
from cc_pipeline.cli.commands.catalog import show_coverage
from cc_pipeline.cli.output import notice, progress_bars, warn
from cc_pipeline.errors import IndexIncomplete, UserInputError
from cc_pipeline.progress import format_count
from cc_pipeline.settings import Settings, load_settings
from cc_pipeline.workspace.claim import claim_existing_home

if TYPE_CHECKING:
    pass


def harvest(
    crawl: options.Crawls,
    index_files: Annotated[
        Path | None,
        typer.Option(
            "--index-files",
            help="A file with the keys of the crawl's index files, one per line, for a crawl without a path list.",
        ),
    ] = None,
    subset: options.Subsets = None,
    refresh: Annotated[
        bool, typer.Option("--refresh", help="Check each file for a new version, with one request each.")
    ] = False,
    allow_gaps: options.AllowGaps = False,
    wait: options.Wait = None,
    source: options.Source = None,
    home: options.Home = None,
) -> None:
    """Fetch the footers of crawls' index files, and put their row groups into the catalog.

    It sends one request per index file of the selected subsets (300 per subset and crawl today); other subsets are
    kept. Footers that the home has are not fetched again, so a stopped harvest continues where it stopped. Each
    harvest retries files that could not be read. If some remain unread, the others are in the catalog, and the command
    ends with status 3. --refresh is for index files that were published again: lookups refuse to read them.

    [bold]Examples[/]

      cc-pipeline index harvest --crawl CC-MAIN-2024-22

      cc-pipeline index harvest -c newest -c CC-MAIN-2018-05

      cc-pipeline index harvest -c CC-MAIN-2024-22 --subset robotstxt

      cc-pipeline index harvest -c all

      cc-pipeline index harvest -c CC-SUPPLEMENTAL-2026-22 --index-files files.txt
    """
    from cc_pipeline.harvesting.catalog import catalog_gaps
    from cc_pipeline.workspace.workspace import open_workspace

    subsets = tuple(subset) if subset else None
    settings = load_settings(
        source=source,
        home=home,
        subsets=subsets,
        max_index_gaps=options.index_gap_limit(allow_gaps),
        wait=options.wait_seconds(wait),
    )
    claim_existing_home(settings)
    if index_files is not None:
        _store_index_list(settings, crawl, index_files)
    with open_workspace(settings) as workspace:
        crawl_ids = resolve_crawls(workspace, crawl)
        try:
            harvest_crawls(workspace, crawl_ids, refresh=refresh)
        except IndexIncomplete:
            show_coverage(settings, crawl_ids)
            raise
        gaps = catalog_gaps(workspace, crawl_ids)
    show_coverage(settings, crawl_ids)
    for gap in gaps:
        warn(f"{gap.summary} could not be read, so lookups miss their captures: {gap.file_summary}")


def _store_index_list(settings: Settings, crawls: Sequence[str], file: Path) -> None:
    from cc_pipeline.harvesting.archives import store_user_list
    from cc_pipeline.harvesting.listed_files import MAX_INDEX_FILES

    if len(crawls) != 1:
        raise UserInputError("--index-files lists the files of one crawl: name it with --crawl")
    try:
        data = file.read_bytes()
    except OSError as error:
        raise UserInputError(f"{file} cannot be read: {error.strerror}") from error
    count = store_user_list(settings, crawls[0], data, str(file), MAX_INDEX_FILES)
    notice(
        f"read {format_count(count, 'index file')} of {crawls[0]} from {file}; this home uses them instead of a path "
        "list"
    )


def repair(crawl: options.Crawls, source: options.Source = None, home: options.Home = None) -> None:
    """Compute key bounds of row groups that were published without any, so that lookups can skip them.

    Thirteen crawls (CC-MAIN-2017-43 to 2018-43) have no bounds at all; some later crawls lack a few. The command reads
    the key column of each such row group once: about 23 MB each in the real index. A stopped repair continues where
    it stopped.

    [bold]Examples[/]

      cc-pipeline index repair --crawl CC-MAIN-2018-05

      cc-pipeline catalog coverage    (without_statistics: which crawls need it)
    """
    from cc_pipeline.defs.launcher import Launcher
    from cc_pipeline.workspace.workspace import open_workspace

    settings = load_settings(source=source, home=home)
    claim_existing_home(settings)
    with open_workspace(settings) as workspace:
        crawl_ids = resolve_crawls(workspace, crawl)
        with Launcher(workspace) as launcher, progress_bars():
            for crawl_id in crawl_ids:
                run_step(f"repair {crawl_id}", partial(launcher.repair, crawl_id))
    show_coverage(settings, crawl_ids)
