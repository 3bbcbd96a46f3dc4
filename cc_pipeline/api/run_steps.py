"""Parts that all commands with runs share: the named crawls, a harvest, and timing a step."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from cc_pipeline.advice import advise, option
from cc_pipeline.api.reporter import get_reporter
from cc_pipeline.errors import (
    CrawlUnpublished,
    EnvironmentFault,
    Incomplete,
    IndexIncomplete,
    SourceRefuses,
    UserInputError,
)
from cc_pipeline.progress import format_count

if TYPE_CHECKING:
    from cc_pipeline.defs.stage_runner import StageRunner
    from cc_pipeline.workspace.workspace import Workspace

#: The newest crawls that are checked for publication; one or two of them are only announced.
_NEWEST_CRAWLS = 10
#: The most crawls whose publication may be unknown. A source that does not answer for more of them answers nothing.
_MAX_UNKNOWN_CRAWLS = 2
_REPEAT = "Run the command again: committed work is kept. If it fails again, see cc-pipeline doctor."


def run_step(name: str, work: Callable[[], object]) -> None:
    """Calls ``work`` and reports how many seconds it took, as a detail.

    Raises ``EnvironmentFault`` with the reason if partitions fail, ``Incomplete`` if the source did not return
    everything; all other errors of ``work`` that stop it, as ``EnvironmentFault`` if they are of other classes.
    """
    from sqlalchemy.exc import SQLAlchemyError

    from cc_pipeline.defs.recording import PartitionsFailed, describe_error

    started = time.monotonic()
    try:
        work()
    except (EnvironmentFault, UserInputError, OSError, SQLAlchemyError):
        raise
    except PartitionsFailed as failed:
        problem, _, advice = str(failed).partition("\n")
        raise failed.family(problem, advice or _REPEAT) from failed
    except Exception as error:
        problem, _, advice = describe_error(error).partition("\n")
        raise EnvironmentFault(problem, advice or _REPEAT) from error
    get_reporter().detail(f"      {name:<10} {time.monotonic() - started:6.1f} s")


def is_partial_failure(error: EnvironmentFault) -> bool:
    """Whether an error of :func:`run_step` is about single partitions, while all others were done."""
    from cc_pipeline.defs.recording import PartitionsFailed

    return isinstance(error.__cause__, PartitionsFailed)


def harvest_despite_gaps(harvest: Callable[[], object]) -> bool:
    """Harvests, and continues if index files could not be read: the lookup uses another index or reports the missing
    files. Returns whether all files could be read."""
    try:
        harvest()
    except IndexIncomplete:
        get_reporter().note(
            "the harvest is incomplete: some index files could not be read, so lookups may miss captures"
        )
        return False
    return True


def resolve_crawls(workspace: Workspace, crawls: Iterable[str]) -> list[str]:
    """Returns crawl ids. ``newest`` becomes the newest published crawl; ``all``, years and ranges (``2018..2024``)
    become their crawls, newest first, without those that are only announced.

    Raises ``UserInputError`` for a crawl that the source does not have or has only announced.
    """
    from cc_pipeline.commoncrawl.crawls import index_is_built, is_selection, select
    from cc_pipeline.harvesting.crawls import find_crawl, is_published, known_crawls

    source = workspace.settings.source
    crawl_ids: list[str] = []
    for text in crawls:
        if text == "newest":
            newest_crawls = known_crawls(workspace).crawls[:_NEWEST_CRAWLS]
            newest = next((crawl.id for crawl in newest_crawls if is_published(workspace, crawl.id)), None)
            if newest is None:
                raise UserInputError(
                    f"{source} has path lists for none of its {len(newest_crawls)} newest crawls: they are not "
                    f"published yet. Name an older crawl (to list crawls: {advise('crawls')})"
                )
            crawl_ids.append(newest)
        elif is_selection(text, workspace.crawl_list.crawls):
            selected_ids = [crawl.id for crawl in select(text, known_crawls(workspace).crawls)]
            crawl_ids += _drop_unpublished(workspace, selected_ids)
        else:
            crawl_id = find_crawl(workspace, text).id
            if not is_published(workspace, crawl_id):
                if index_is_built(crawl_id):
                    raise UserInputError(_describe_missing(crawl_id, source))
                raise CrawlUnpublished(
                    f"{crawl_id} is announced, but its path list is not at {source} yet. Run it once {crawl_id} is "
                    f"published, or take the newest published crawl: {option(crawl='newest')}"
                )
            crawl_ids.append(crawl_id)
    note = workspace.crawl_list.note if crawl_ids else None
    if note is not None:
        get_reporter().note(note)
    return list(dict.fromkeys(crawl_ids))


def _describe_missing(crawl: str, source: str) -> str:
    from cc_pipeline.commoncrawl.paths import published_key

    list_key = published_key(crawl)
    if list_key is None:
        add = advise("files add", "FILE", kind="warc", crawl=crawl)
        return f"no archive file was added to {crawl} yet; add one: {add}"
    return (
        f"{source} has no {list_key}, the list of the files of {crawl}: the month is not published yet, or this source "
        "has no CC-NEWS. Name another month or source"
    )


def _drop_unpublished(workspace: Workspace, crawls: Sequence[str]) -> Sequence[str]:
    """Returns ``crawls`` (newest first) without those that are only announced. Crawls older than the first published
    one are not checked: that would cost a request for each. A crawl whose state the source does not tell is kept."""
    from cc_pipeline.harvesting.crawls import is_published

    unknown_crawls: list[str] = []
    for place, crawl in enumerate(crawls):
        try:
            if is_published(workspace, crawl):
                return (*unknown_crawls, *crawls[place:])
        except EnvironmentFault as fault:
            if isinstance(fault, SourceRefuses) or len(unknown_crawls) == _MAX_UNKNOWN_CRAWLS or crawl == crawls[-1]:
                raise
            unknown_crawls.append(crawl)
            continue
        get_reporter().note(f"{crawl} is announced but not published yet, so it is skipped")
    return unknown_crawls


def find_agreed_builds(
    workspace: Workspace, crawls: Iterable[str], yes: bool, max_files: int | None = None
) -> list[str]:
    """Returns the crawls whose index has to be built in this home first, if a person agreed to the cost.

    Asks if somebody can be asked. Words that are no ids of such crawls are skipped. If the settings allow the missing
    part of an index, nothing is built unasked. Raises ``UserInputError`` with the cost if nobody agreed.
    """
    from cc_pipeline.commoncrawl.crawls import index_is_built, is_selection, validate_crawl_id

    crawl_ids = dict.fromkeys(
        validate_crawl_id(text) for text in crawls if text != "newest" and not is_selection(text, ())
    )
    return [crawl for crawl in crawl_ids if index_is_built(crawl) and _confirm_build(workspace, crawl, yes, max_files)]


def _confirm_build(workspace: Workspace, crawl: str, yes: bool, max_files: int | None) -> bool:
    from cc_pipeline.harvesting.archives import built_index
    from cc_pipeline.harvesting.build_index import estimate_build, needs_yes, refuse_unpriced

    index = built_index(workspace, crawl)
    if not index.missing or yes:
        return bool(index.missing)
    indexed_count = len(index.shards) - len(index.missing)
    if indexed_count and len(index.missing) <= workspace.settings.max_index_gaps * len(index.shards):
        return False
    price = estimate_build(workspace, index, max_files)
    if needs_yes(workspace, price) and not get_reporter().agrees(f"{price.summary}. Read them?"):
        refuse_unpriced(price)
    return True


def build_indexes(runner: StageRunner, crawls: Iterable[str], max_files: int | None = None) -> None:
    """Builds the indexes of crawls whose cost was agreed to. Files that the source does not return now become index
    gaps."""
    for crawl in crawls:
        try:
            run_step("build", partial(runner.build_index, crawl, max_files))
        except Incomplete as fault:
            get_reporter().note(f"{fault.problem}. {fault.advice}")


def report_damage(workspace: Workspace, crawls: Iterable[str]) -> None:
    """Reports how many byte ranges of archive files could not be read while their index was built in this home.

    At most ``MAX_FAULT_ROWS`` ranges of a file are counted.
    """
    from cc_pipeline.workspace.source_files import ARCHIVE, MAX_FAULT_ROWS

    for crawl in crawls:
        rows = workspace.lake.read("source_faults", {"crawl": crawl}, ["source_kind", "source_file"]).to_pylist()
        counts = Counter(row["source_file"] for row in rows if row["source_kind"] == ARCHIVE)
        if counts:
            at_least = "at least " if max(counts.values()) >= MAX_FAULT_ROWS else ""
            query = advise("sql", f"SELECT * FROM source_faults WHERE crawl = '{crawl}'")
            get_reporter().note(
                f"{crawl}: {at_least}{format_count(counts.total(), 'byte range')} of "
                f"{format_count(len(counts), 'archive file')} could not be read, so their records are missing. To list "
                f"them, after the next run that publishes: {query}"
            )


def harvest_crawls(workspace: Workspace, crawls: Sequence[str], *, refresh: bool = False) -> None:
    """Materializes the index assets of ``crawls``; ``refresh`` is as for ``StageRunner.harvest``. Raises
    ``EnvironmentFault``; ``IndexIncomplete`` if index files could not be read."""
    from cc_pipeline.defs.stage_runner import StageRunner

    with StageRunner(workspace) as runner, get_reporter().bars():
        run_step("index", lambda: runner.harvest(crawls, refresh=refresh))
