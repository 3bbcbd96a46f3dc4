"""``index``: footers and key bounds of published indexes, and indexes of crawls without a published one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cc_pipeline.advice import advise
from cc_pipeline.api.run_steps import (
    build_indexes,
    find_agreed_builds,
    harvest_crawls,
    harvest_despite_gaps,
    report_damage,
    resolve_crawls,
    run_step,
)
from cc_pipeline.api.user_input import resolve_home_crawls
from cc_pipeline.cli import options
from cc_pipeline.cli.command import FEATURES, Command, Group
from cc_pipeline.cli.output import notice, progress_bars, warn, write_rows
from cc_pipeline.errors import EnvironmentFault, IndexIncomplete, UserInputError
from cc_pipeline.progress import format_count
from cc_pipeline.settings import Settings
from cc_pipeline.workspace.claim import claim_existing_home

if TYPE_CHECKING:
    from cc_pipeline.index.catalog.catalog import Catalog

Coverage = list[Sequence[object]]
#: The columns of the coverage of the catalog.
COVERAGE_COLUMNS = ("crawl", "subset", "expected", "harvested", "failed", "missing", "row_groups", "rows",
             "without_statistics", "reason")  # fmt: skip


def open_catalog(settings: Settings) -> Catalog:
    """Opens the catalog of the home's lake. Raises ``EnvironmentFault`` if nothing was harvested."""
    from cc_pipeline.harvesting.catalog import open_catalog
    from cc_pipeline.workspace.workspace import open_lake

    catalog = open_catalog(open_lake(settings))
    if not catalog.crawls():
        raise EnvironmentFault(
            f"{settings.home} has no catalog: no crawl was harvested",
            advise("index harvest", crawl="newest", sentence="Harvest a crawl first: {}"),
        )
    return catalog


def read_coverage(settings: Settings, crawls: Sequence[str]) -> Coverage:
    """Returns the catalog's rows of ``crawls``, as a person names them. Raises ``EnvironmentFault`` without a catalog,
    ``UserInputError`` for a crawl that it does not have."""
    with open_catalog(settings) as catalog:
        shown_crawls = resolve_home_crawls(crawls, catalog.crawls())
        rows = [row for crawl in shown_crawls for row in catalog.coverage(crawl).to_pylist()]
    ordered = sorted(rows, key=lambda row: (row["crawl"], row["subset"]))
    return [[row[name] for name in COVERAGE_COLUMNS] for row in ordered]


def harvest(
    settings: Settings,
    crawl: options.Crawls,
    index_files: Annotated[
        Path | None,
        typer.Option(
            "--index-files",
            help="A file with the keys of the crawl's index files, one per line, for a crawl without a path list.",
        ),
    ] = None,
    refresh: Annotated[
        bool, typer.Option("--refresh", help="Check each file for a new version, with one request each.")
    ] = False,
) -> Coverage:
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

    claim_existing_home(settings)
    if index_files is not None:
        _store_index_list(settings, crawl, index_files)
    with open_workspace(settings) as workspace:
        crawl_ids = resolve_crawls(workspace, crawl)
        try:
            harvest_crawls(workspace, crawl_ids, refresh=refresh)
        except IndexIncomplete:
            write_rows("", COVERAGE_COLUMNS, read_coverage(settings, crawl_ids))
            raise
        gaps = catalog_gaps(workspace, crawl_ids)
    for gap in gaps:
        warn(f"{gap.summary} could not be read, so lookups miss their captures: {gap.file_summary}")
    return read_coverage(settings, crawl_ids)


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


def build(
    settings: Settings,
    crawl: Annotated[
        list[str], typer.Option("--crawl", "-c", help="CC-NEWS-YYYY-MM, or LOCAL-… of files add; may be repeated.")
    ],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for agreement to the cost.")] = False,
    max_files: Annotated[
        int | None,
        typer.Option("--max-files", min=1, help="Maximum archive files to read now; the next call continues."),
    ] = None,
) -> Coverage:
    """Build the index of a month of CC-NEWS, which has none: reads each of its WARC files once, some 350 GB a month.

    The cost is shown first. Indexed files are not read again, so a stopped build continues where it stopped, and a
    month that has grown costs only its new files. The index is stored in the lake: homes that share a lake share it.

    [bold]Examples[/]

      cc-pipeline index build --crawl CC-NEWS-2026-05

      cc-pipeline index build --crawl CC-NEWS-2026-05 --max-files 10 --yes
    """
    from cc_pipeline.defs.stage_runner import StageRunner
    from cc_pipeline.harvesting.archives import built_index
    from cc_pipeline.harvesting.build_index import refuse_published
    from cc_pipeline.workspace.workspace import open_workspace

    claim_existing_home(settings)
    with open_workspace(settings) as workspace:
        crawl_ids = resolve_crawls(workspace, crawl)
        for crawl_id in crawl_ids:
            refuse_published(crawl_id)
        to_build = find_agreed_builds(workspace, crawl_ids, yes, max_files)
        with StageRunner(workspace) as runner, progress_bars():
            build_indexes(runner, to_build, max_files)
            harvest_despite_gaps(lambda: run_step("index", lambda: runner.harvest_changed(crawl_ids)))
        report_damage(workspace, crawl_ids)
        may_lack_files = not to_build and settings.max_index_gaps
        missing = sum(len(built_index(workspace, crawl_id).missing) for crawl_id in crawl_ids) if may_lack_files else 0
    if missing:
        notice(
            f"nothing was built: {format_count(missing, 'archive file', 'are')} not in the index, no more than "
            "CC_PIPELINE_MAX_INDEX_GAPS allows; to index these files too: --yes"
        )
    elif not to_build:
        notice("nothing to build: every archive file is in the index already")
    return read_coverage(settings, crawl_ids)


def repair(settings: Settings, crawl: options.Crawls) -> Coverage:
    """Compute key bounds of row groups that were published without any, so that lookups can skip them.

    Thirteen crawls (CC-MAIN-2017-43 to 2018-43) have no bounds at all; some later crawls lack a few. The command reads
    the key column of each such row group once: about 23 MB each in the real index. A stopped repair continues where
    it stopped.

    [bold]Examples[/]

      cc-pipeline index repair --crawl CC-MAIN-2018-05

      cc-pipeline sql --catalog "SELECT crawl, without_statistics FROM coverage"
    """
    from cc_pipeline.defs.stage_runner import StageRunner
    from cc_pipeline.workspace.workspace import open_workspace

    claim_existing_home(settings)
    with open_workspace(settings) as workspace:
        crawl_ids = resolve_crawls(workspace, crawl)
        with StageRunner(workspace) as runner, progress_bars():
            for crawl_id in crawl_ids:
                run_step(f"repair {crawl_id}", partial(runner.repair, crawl_id))
    return read_coverage(settings, crawl_ids)


COMMANDS = {
    "index": Group("Indexes of crawls: footers of published indexes, and indexes that are built here.", FEATURES, 10),
    "index harvest": Command(
        harvest, options=(options.SUBSET, options.ALLOW_GAPS, options.WAIT, *options.REMOTE), columns=COVERAGE_COLUMNS
    ),
    "index build": Command(build, options=options.REMOTE, columns=COVERAGE_COLUMNS),
    "index repair": Command(repair, options=options.REMOTE, columns=COVERAGE_COLUMNS),
}
