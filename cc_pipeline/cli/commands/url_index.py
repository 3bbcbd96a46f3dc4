"""``index``: footers of published indexes, indexes of crawls without a published one, and B-trees over URLs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cc_pipeline.api.lookups import LookupRequest, find_index_sources, needs_harvest
from cc_pipeline.api.run_steps import (
    build_indexes,
    find_agreed_builds,
    harvest_crawls,
    harvest_despite_gaps,
    report_damage,
    resolve_crawls,
    run_step,
)
from cc_pipeline.api.user_input import check_format
from cc_pipeline.cli import options
from cc_pipeline.cli.command import FEATURES, Command
from cc_pipeline.cli.commands import harvest
from cc_pipeline.cli.commands.catalog import show_coverage
from cc_pipeline.cli.lookups import open_question
from cc_pipeline.cli.output import notice, progress_bars, write_rows
from cc_pipeline.errors import EnvironmentFault, UserInputError
from cc_pipeline.progress import format_count
from cc_pipeline.settings import Settings, load_settings
from cc_pipeline.workspace.claim import claim_existing_home

if TYPE_CHECKING:
    from cc_pipeline.commoncrawl.target import Target
    from cc_pipeline.index.btree.locator import BTreeLocator

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Indexes of crawls: footers of published indexes; indexes and B-trees that are built here.",
)
app.command("harvest")(harvest.harvest)
#: Maximum number of faults that are printed.
_MAX_SHOWN_FAULTS = 20
_Crawl = Annotated[str, typer.Option("--crawl", "-c", help="A crawl id; 'newest' works.")]


@app.command("build")
def build_index(
    crawl: Annotated[
        list[str], typer.Option("--crawl", "-c", help="CC-NEWS-YYYY-MM, or LOCAL-… of files add; may be repeated.")
    ],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for agreement to the cost.")] = False,
    max_files: Annotated[
        int | None,
        typer.Option("--max-files", min=1, help="Maximum archive files to read now; the next call continues."),
    ] = None,
    btree: Annotated[
        bool, typer.Option("--btree", help="Build a B-tree over the URLs of one crawl, in the format of 2012.")
    ] = False,
    arcs: Annotated[
        str | None,
        typer.Option(
            "--arcs",
            help="With --btree, for crawls of the ARC years: a list of ARC files, one key per line (plain "
            "or gzip). The home keeps it.",
        ),
    ] = None,
    subset: options.Subsets = None,
    source: options.Source = None,
    home: options.Home = None,
) -> None:
    """Build the index of a month of CC-NEWS, which has none: reads each of its WARC files once, some 350 GB a month.

    --btree builds a B-tree in the home instead. It reads four columns of the whole columnar index (tens of gigabytes
    of a real crawl), or all ARC files, and replaces an older B-tree of the crawl when the new one is complete.

    The cost is shown first. Indexed files are not read again, so a stopped build continues where it stopped, and a
    month that has grown costs only its new files. The index is stored in the lake: homes that share a lake share it.

    [bold]Examples[/]

      cc-pipeline index build --crawl CC-NEWS-2026-05

      cc-pipeline index build --crawl CC-NEWS-2026-05 --max-files 10 --yes

      cc-pipeline index build --btree --crawl CC-MAIN-2024-22

      cc-pipeline index build --btree -c CC-MAIN-2009-2010 --arcs arc-files.txt
    """
    if btree:
        if max_files is not None:
            raise UserInputError("--max-files cannot be combined with --btree: a B-tree always has all files")
        _build_btree(crawl, arcs, subset, source, home)
        return
    if arcs is not None or subset:
        raise UserInputError("--arcs and --subset need --btree")
    from cc_pipeline.commoncrawl.crawls import ARC_CRAWLS, index_is_built
    from cc_pipeline.defs.launcher import Launcher
    from cc_pipeline.harvesting.archives import built_index
    from cc_pipeline.index.locators import btree_way
    from cc_pipeline.workspace.workspace import open_workspace

    settings = load_settings(source=source, home=home)
    claim_existing_home(settings)
    with open_workspace(settings) as workspace:
        crawl_ids = resolve_crawls(workspace, crawl)
        published = [crawl_id for crawl_id in crawl_ids if not index_is_built(crawl_id)]
        if published and published[0] in ARC_CRAWLS:
            raise UserInputError(
                f"{published[0]} has no columnar index, and only a B-tree of it can be built: {btree_way(published[0])}"
            )
        if published:
            raise UserInputError(
                f"Common Crawl publishes an index of {published[0]}, so none is built. Harvest that index: cc-pipeline "
                f"index harvest --crawl {published[0]}"
            )
        to_build = find_agreed_builds(workspace, crawl_ids, yes, max_files)
        with Launcher(workspace) as launcher, progress_bars():
            build_indexes(launcher, to_build, max_files, is_notice=False)
            harvest_despite_gaps(
                lambda: run_step("index", lambda: launcher.harvest_changed(crawl_ids), is_notice=False)
            )
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
    show_coverage(settings, crawl_ids)


app.command("repair")(harvest.repair)


def _build_btree(
    crawl: Sequence[str], arcs: str | None, subset: Sequence[str] | None, source: str | None, home: str | None
) -> None:
    """Builds the URL index of a crawl in the home, from its columnar index or from its ARC files."""
    from cc_pipeline.commoncrawl.crawls import ARC_CRAWLS
    from cc_pipeline.defs.launcher import Launcher
    from cc_pipeline.harvesting.url_index import keep_arc_list

    with open_question([], crawl, source=source, home=home, subset=subset) as question:
        workspace, name = question.workspace, _single_crawl(question)
        if arcs is not None:
            if name not in ARC_CRAWLS:
                raise UserInputError(f"{name} has a columnar index; --arcs is for {', '.join(ARC_CRAWLS)}")
            notice(
                f"{keep_arc_list(workspace, name, _read_file(Path(arcs))):,} ARC files of {name} were read from {arcs}"
            )
        elif needs_harvest(workspace, name):
            harvest_crawls(workspace, [name])
        with Launcher(workspace) as launcher, progress_bars():
            run_step(f"url index of {name}", lambda: launcher.build_url_index(name))
    _describe(question.settings, name)


@app.command()
def search(
    targets: Annotated[list[str], typer.Argument(metavar="TARGET…", help="As for lookup.")],
    crawl: _Crawl,
    limit: Annotated[int, typer.Option("--limit", min=0, help="At most this many items; 0 for all.")] = 100,
    output: Annotated[str, typer.Option("--format", help="table, csv or jsonl.")] = "table",
    source: options.Source = None,
    home: options.Home = None,
) -> None:
    """Read a crawl's B-tree for targets and show its items as they come: URL, archive file, offset, length.

    Searches the index built here, or for CC-MAIN-2012 the published one. Stops reading at --limit.

    [bold]Examples[/]

      cc-pipeline index search rev:com.nytimes --crawl CC-MAIN-2012 --limit 20

      cc-pipeline index search url:example.com/ -c CC-MAIN-2024-22 --format jsonl
    """
    from cc_pipeline.index.lookup import open_locators

    check_format(output)
    with open_question(targets, [crawl], source=source, home=home) as question:
        name = _single_crawl(question)
        sources = find_index_sources(question.workspace, name, "btree")
        with open_locators(name, question.settings.subsets, sources, "btree") as available:
            locator = _btree(available["btree"]())
            rows = list(_items(locator, question.targets, limit))
            columns = ["url", "warc_filename", "warc_record_offset", "warc_record_length"]
            write_rows(f"items of {name}", columns, rows, output)
            reads = locator.tree.source
            notice(
                f"{format_count(len(rows), 'item')} found with {format_count(reads.reads, 'read')} of "
                f"{reads.bytes_read:,} bytes"
            )
            if limit and len(rows) == limit:
                notice(f"stopped after {format_count(limit, 'item')} (--limit); there may be more")


@app.command()
def verify(
    crawl: _Crawl,
    sample: Annotated[int, typer.Option("--sample", min=0, help="Records to read at the source and compare.")] = 20,
    source: options.Source = None,
    home: options.Home = None,
) -> None:
    """Check a URL index built here: read all of it, and a sample of the records it points to.

    It checks that all keys are in order, that there are as many items as were written, that every pointer names a
    listed file, and that the sampled records have the URLs they are listed under.

    [bold]Examples[/]

      cc-pipeline index verify --crawl CC-MAIN-2024-22 --sample 100
    """
    from cc_pipeline.harvesting.url_index import check_records, check_tree

    with open_question([], [crawl], source=source, home=home) as question, progress_bars():
        workspace, name = question.workspace, _single_crawl(question)
        tree_report = check_tree(workspace.settings.home / "url-index", name, sample)
        wrong = (*tree_report.faults, *check_records(name, tree_report.sample, workspace.transport))
    _describe(workspace.settings, name)
    scope = "all" if tree_report.is_complete else "the first"
    notice(
        f"read {scope} {format_count(tree_report.items, 'item')} of the URL index, and "
        f"{format_count(len(tree_report.sample), 'record')} at the source"
    )
    if wrong:
        for fault in wrong[:_MAX_SHOWN_FAULTS]:
            notice(str(fault))
        if len(wrong) > _MAX_SHOWN_FAULTS:
            notice(f"and {len(wrong) - _MAX_SHOWN_FAULTS:,} more")
        at_least = "" if tree_report.is_complete else "at least "
        raise EnvironmentFault(
            f"the URL index of {name} has {at_least}{len(wrong):,} faults, so lookups in it may be wrong",
            f"Build this index again: cc-pipeline index build --btree --crawl {name}",
        )
    notice("no faults found")


def _single_crawl(question: LookupRequest) -> str:
    """Returns the only crawl. Raises ``UserInputError`` for several."""
    if len(question.crawls) != 1:
        raise UserInputError(f"this command takes one crawl, not {len(question.crawls)}: {', '.join(question.crawls)}")
    return question.crawls[0]


def _describe(settings: Settings, crawl: str) -> None:
    from cc_pipeline.index.btree.files import index_folder, read_metadata

    folder = index_folder(settings.home / "url-index", crawl)
    metadata = read_metadata(folder)
    if metadata is None:
        raise EnvironmentFault(
            f"there is no URL index of {crawl} in {settings.home}",
            f"Build the URL index: cc-pipeline index build --btree --crawl {crawl}",
        )
    subsets = ", ".join(metadata.subsets)
    row = (crawl, subsets, metadata.items, metadata.files, metadata.size, metadata.skipped, str(folder))
    write_rows("URL index", ["crawl", "subsets", "items", "archive files", "bytes", "left out", "folder"], [row])


def _items(locator: BTreeLocator, targets: tuple[Target, ...], limit: int) -> Iterator[tuple[str, str, int, int]]:
    from cc_pipeline.commoncrawl.key_ranges import merge_ranges, url_of_btree_key
    from cc_pipeline.harvesting.url_index import read_item

    ranges = merge_ranges(keys for target in targets for keys in target.btree_ranges())
    count = 0
    for keys in ranges:
        for item in locator.tree.scan(keys):
            if any(target.matches(url_of_btree_key(item.key)) for target in targets):
                index_item = read_item(item, locator.names)
                yield index_item.url, index_item.file, index_item.offset, index_item.length
                count += 1
                if count == limit:
                    return


def _btree(locator: object) -> BTreeLocator:
    from cc_pipeline.index.btree.locator import BTreeLocator

    assert isinstance(locator, BTreeLocator)
    return locator


def _read_file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UserInputError(f"{path} cannot be read: {error.strerror}") from error


COMMANDS = {"index": Command(app, FEATURES, 10)}
