"""The crawls that exist: those of the list, which is committed as a table, and unlisted ones, which are found by
requesting their files at the source."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, Literal

from cc_pipeline.addresses import scheme_of
from cc_pipeline.advice import advise
from cc_pipeline.atomic import write_whole
from cc_pipeline.commoncrawl.crawls import ARC_CRAWLS, Crawl, age, crawl_of, unlisted_crawl, validate_crawl_id
from cc_pipeline.commoncrawl.paths import is_path_list, published_key, segments_key
from cc_pipeline.errors import EnvironmentFault, SourceRefuses, UserInputError
from cc_pipeline.harvesting.archives import first_user_key, has_archives
from cc_pipeline.harvesting.path_lists import path_list_exists
from cc_pipeline.lake.keyed import Row, update_rows
from cc_pipeline.lake.slice import HARVEST, Slice, StageReport
from cc_pipeline.lake.slices import read_slice_rows
from cc_pipeline.settings import Settings
from cc_pipeline.transport.faults import FaultKind, RangeFault
from cc_pipeline.workspace.claim import is_home_of
from cc_pipeline.workspace.crawl_list import CrawlList, ago
from cc_pipeline.workspace.workspace import Workspace

State = Literal["there", "absent", "unknown"]

#: The folder of the home's cache with answers about crawls.
_CRAWLS: Final = "crawls"
#: The time for which an answer is used.
_ANSWER_LIFE: Final = {"there": timedelta(days=1), "absent": timedelta(days=1), "unknown": timedelta(hours=1)}
#: Refusals are cached for a while, to spare the source. A network failure is not cached: it may end at once.
_REFUSALS: Final = frozenset({FaultKind.FORBIDDEN, FaultKind.THROTTLED, FaultKind.SERVER_ERROR, FaultKind.CLIENT_ERROR})


def known_crawls(workspace: Workspace) -> CrawlList:
    """Returns the list of crawls, newest first, with its date; Common Crawl's own list is read once a day.

    If the list cannot be read, this is the last good copy, or else the list at release, with a sentence that says so:
    the index server with the list is down more often than the bucket with the data. Raises ``EnvironmentFault`` if
    there is none of these.
    """
    crawl_list = workspace.crawl_list
    if crawl_list.origin == "none" and crawl_list.fault is not None:
        raise crawl_list.fault
    return crawl_list


def find_crawl(workspace: Workspace, crawl_id: str) -> Crawl:
    """Returns the crawl named ``crawl_id``, if it is in the list, this home has harvested it, or the source has its
    path list, which is requested at most once a day. Months of CC-NEWS and collections of named files are in no list
    and need no request: ``harvest.is_published`` says whether they exist.

    Raises ``UserInputError`` with the newest crawls if the source has no such crawl, ``EnvironmentFault`` if it does
    not answer.
    """
    wanted_id = validate_crawl_id(crawl_id)
    unlisted_match = unlisted_crawl(wanted_id)
    if unlisted_match is not None:
        return unlisted_match
    crawl_list = workspace.crawl_list
    for crawl in crawl_list.crawls:
        if crawl.id == wanted_id:
            return crawl
    if _is_harvested(workspace, wanted_id):
        return crawl_of(wanted_id)
    answer = probe(workspace, wanted_id)
    if answer.state == "there":
        return crawl_of(wanted_id)
    if answer.state == "unknown" and not (wanted_id in ARC_CRAWLS and crawl_list.origin in ("list", "copy")):
        raise unknown_crawl_error(workspace, answer)
    settings = workspace.settings
    if (
        crawl_list.fault is not None
        and not crawl_list.crawls
        and settings.collinfo.rpartition("/")[0] == settings.source
    ):
        # neither the list nor the crawl exists: probably the source is wrong, and not the id
        raise crawl_list.fault
    asked_hint = f" (checked {ago(answer.answered_at)})" if answer.remembered else ""
    problem = f"{crawl_id!r} is not a crawl of {workspace.settings.source}{asked_hint}"
    if not crawl_list.crawls:
        raise UserInputError(f"{problem}; its list of crawls is not known")
    newest = ", ".join(crawl.id for crawl in crawl_list.crawls[:5])
    raise UserInputError(f"{problem}; the newest are {newest}. All of them: {advise('crawls')}")


def _is_harvested(workspace: Workspace, crawl: str) -> bool:
    """Whether the home has harvested a crawl. A home that belongs to no source yet is not opened."""
    settings = workspace.settings
    return is_home_of(settings) and bool(read_slice_rows(workspace.lake, [Slice(crawl)], (HARVEST,)))


def commit_crawls(workspace: Workspace) -> StageReport:
    """Writes the ``crawls`` table: one row per crawl that is listed, or that was found by its name.

    Raises ``EnvironmentFault`` if no list of the source's crawls is known.
    """
    started = time.monotonic()
    crawl_list = workspace.crawl_list
    rows = _rows(_to_commit(workspace, crawl_list))
    if not rows:
        known_crawls(workspace)
    written: list[Row] = []

    def build(stored: list[Row]) -> list[Row]:
        written[:] = _find_changes(stored, rows)
        return written

    update_rows(workspace.lake, "crawls", {}, build)
    notes = (crawl_list.note,) if crawl_list.note else ()
    return StageReport("crawls", rows=len(rows), written=len(written), seconds=time.monotonic() - started, notes=notes)


def crawls_are_listed(workspace: Workspace) -> bool:
    """Whether the ``crawls`` table has the current list, so that writing it again would change nothing."""
    rows = _rows(_to_commit(workspace, workspace.crawl_list))
    return bool(rows) and not _find_changes(workspace.lake.read("crawls").to_pylist(), rows)


def _find_changes(stored: Sequence[Row], rows: Sequence[Row]) -> list[Row]:
    """The rows that the table does not have so, and the rows that it has too many, as removed ones."""
    before, after = ({row["crawl"]: row for row in some} for some in (stored, rows))
    names = [*rows[0]] if rows else []
    changed = [
        row for crawl, row in after.items() if crawl not in before or any(before[crawl][n] != row[n] for n in names)
    ]
    return changed + [before[crawl] | {"is_removed": True} for crawl in before.keys() - after.keys()]


def _to_commit(workspace: Workspace, crawl_list: CrawlList) -> list[Crawl]:
    """Returns the crawls of the list, and those that were found by their names. If the list is the one at release, the
    table's rows are used, since they are newer."""
    crawls = {crawl.id: crawl for crawl in crawl_list.crawls}
    if crawl_list.origin in ("release", "none"):
        crawls = {crawl.id: crawl for crawl in _committed(workspace)} or crawls
    probed_crawls = [crawl_of(crawl) for crawl in crawls_found_by_name(workspace.settings) if crawl not in crawls]
    return sorted((*crawls.values(), *probed_crawls), key=age, reverse=True)


def _committed(workspace: Workspace) -> Iterator[Crawl]:
    for row in workspace.lake.read("crawls").to_pylist():
        # as collinfo.json gives them: equal rows have equal digests
        started, ended = (moment and moment.astimezone(UTC) for moment in (row["started"], row["ended"]))
        yield Crawl(row["crawl"], row["name"], started, ended, row["cdx_api"])


def _rows(crawls: Sequence[Crawl]) -> list[Row]:
    """Returns the rows of the table."""
    return [
        {
            "crawl": crawl.id,
            "name": crawl.name,
            "era": crawl.era,
            "started": crawl.started,
            "ended": crawl.ended,
            "cdx_api": crawl.cdx_api,
        }
        for crawl in crawls
    ]


@dataclass(frozen=True, slots=True)
class Probe:
    """The source's answer at ``answered_at`` (aware UTC) about an object of a crawl. ``reason`` is the reason of
    ``unknown``, ``remembered``: the answer is cached, ``not_now``: the source refused everything."""

    crawl: str
    state: State
    answered_at: datetime
    reason: str = ""
    remembered: bool = False
    not_now: bool = False


def probe(workspace: Workspace, crawl: str, *, believe: tuple[State, ...] = ("there", "absent", "unknown")) -> Probe:
    """Finds out whether the source has ``crawl`` (a valid id): ``there``, ``absent`` (404), or ``unknown`` for any
    other answer, since a refusal is no evidence that a crawl does not exist.

    For most crawls the whole path list is requested, and the next reader in this workspace sends no request
    (``path_lists.py``). A cached answer of a kind in ``believe`` is used while it is recent; a folder is always read.
    """
    settings = workspace.settings
    key = evidence(settings, crawl)
    if key is None:
        return Probe(crawl, "unknown", datetime.now(UTC), "it has no list of files that could be checked")
    cached_answer = _remembered(settings, crawl)
    if cached_answer is not None and cached_answer.state in believe:
        return cached_answer
    try:
        exists = path_list_exists(workspace, key) if is_path_list(key) else workspace.transport.exists(key)
        answer = Probe(crawl, "there" if exists else "absent", datetime.now(UTC))
    except RangeFault as fault:
        reason, not_now = f"{fault.kind.value}, {fault.detail}", isinstance(fault, SourceRefuses)
        answer = Probe(crawl, "unknown", datetime.now(UTC), reason, not_now=not_now)
        if fault.kind not in _REFUSALS:
            return answer
    _remember(settings, answer)
    return answer


def unknown_crawl_error(workspace: Workspace, answer: Probe) -> EnvironmentFault:
    """Returns the error for a crawl whose existence the source does not tell."""
    retry_hint = ""
    if answer.remembered:
        next_attempt = answer.answered_at + _ANSWER_LIFE["unknown"]
        retry_hint = f" The next check is possible after {next_attempt:%H:%M} UTC."
    return (SourceRefuses if answer.not_now else EnvironmentFault)(
        f"it is not known whether {workspace.settings.source} has {answer.crawl}: {answer.reason} (checked "
        f"{ago(answer.answered_at)})",
        "The crawl may exist. Check CC_PIPELINE_SOURCE and the network (cc-pipeline doctor), or run it again "
        f"later.{retry_hint}",
    )


def crawls_found_by_name(settings: Settings) -> list[str]:
    """Returns all crawls that were ever found at the source by their names."""
    folder = _folder(settings)
    files = sorted(folder.glob("*.json")) if folder.is_dir() else []
    return [answer.crawl for file in files if (answer := _read(settings, file.stem)) and answer.state == "there"]


def evidence(settings: Settings, crawl: str) -> str | None:
    """Returns the key of an object that every existing crawl has; ``None`` if none is known."""
    if crawl in ARC_CRAWLS:
        return segments_key(crawl) if ARC_CRAWLS[crawl] == "parse-output" else None
    return first_user_key(settings, crawl) or published_key(crawl)


def _folder(settings: Settings) -> Path:
    return settings.cache_path / _CRAWLS


def _remembered(settings: Settings, crawl: str) -> Probe | None:
    if not scheme_of(settings.source):
        return None
    answer = _read(settings, crawl)
    young = answer is not None and timedelta(0) <= datetime.now(UTC) - answer.answered_at < _ANSWER_LIFE[answer.state]
    return answer if young else None


def _read(settings: Settings, crawl: str) -> Probe | None:
    try:
        document = json.loads((_folder(settings) / f"{crawl}.json").read_bytes())
        if document["source"] != settings.source or document["state"] not in _ANSWER_LIFE:
            return None
        return Probe(
            crawl, document["state"], datetime.fromisoformat(document["at"]), str(document["why"]), remembered=True
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _remember(settings: Settings, answer: Probe) -> None:
    path = _folder(settings) / f"{answer.crawl}.json"
    document = {
        "source": settings.source,
        "state": answer.state,
        "at": answer.answered_at.isoformat(),
        "why": answer.reason,
    }
    # if it cannot be written, the next command sends the request again
    with suppress(OSError):
        write_whole(path, json.dumps(document))


def is_published(workspace: Workspace, crawl: str) -> bool:
    """Whether a crawl can be run: its path list exists, or it is of the ARC years, whose data never changes.

    For a harvested crawl no request is sent, and for a crawl that was found at the source none for a day. A collection
    is published once it has files. Raises ``EnvironmentFault`` if the source does not answer.
    """
    if find_crawl(workspace, crawl).era == "arc":
        return True
    if _is_harvested(workspace, crawl):
        return True
    if evidence(workspace.settings, crawl) is None:
        return has_archives(workspace, crawl)
    # an announced crawl may appear at any time, so only its presence is cached
    answer = probe(workspace, crawl, believe=("there",))
    if answer.state == "unknown":
        raise unknown_crawl_error(workspace, answer)
    return answer.state == "there"
