"""Whether the source has a crawl that no list names, and whether one of the ARC years has a ZipNum index: one request
for the head of an object that it has then, remembered for a day.

Ids are only asked for that a person or a setting names; none is ever made up here.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, Literal

from cc_pipeline.addresses import scheme_of
from cc_pipeline.atomic import write_whole
from cc_pipeline.commoncrawl.crawls import ARC_CRAWLS
from cc_pipeline.commoncrawl.paths import cluster_key, published_key, segments_key
from cc_pipeline.errors import EnvironmentFault, NotNow
from cc_pipeline.settings import Settings
from cc_pipeline.stages.indexing.collinfo import ago
from cc_pipeline.stages.indexing.own_lists import first_own_key
from cc_pipeline.stages.workspace import Workspace
from cc_pipeline.transport.faults import FaultKind, RangeFault

State = Literal["there", "absent", "unknown"]

#: The folders of the home's cache that keep answers about crawls, and about their ZipNum indexes.
_CRAWLS: Final = "crawls"
_CLUSTERS: Final = "clusters"
#: How long an answer is believed.
_BELIEVED: Final = {"there": timedelta(days=1), "absent": timedelta(days=1), "unknown": timedelta(hours=1)}
#: A source that refuses is left in peace for a while. A network that fails is not remembered: it may be back at once.
_REFUSALS: Final = frozenset({FaultKind.FORBIDDEN, FaultKind.THROTTLED, FaultKind.SERVER_ERROR, FaultKind.CLIENT_ERROR})


@dataclass(frozen=True, slots=True)
class Probe:
    """What the source answered at ``at`` (aware UTC) about an object of a crawl. ``why`` is the refusal behind
    ``unknown``, ``remembered`` whether it was asked before, ``not_now`` whether the source refused everything."""

    crawl: str
    state: State
    at: datetime
    why: str = ""
    remembered: bool = False
    not_now: bool = False


def probe(workspace: Workspace, crawl: str, *, believe: tuple[State, ...] = ("there", "absent", "unknown")) -> Probe:
    """Whether the source has ``crawl`` (a valid id): ``there``, ``absent`` (it said 404), or ``unknown``, which is
    everything else: a refusal is no evidence that a crawl does not exist.

    An answer of before of a kind in ``believe`` is given again while it is young; a folder is always looked at.
    """
    settings = workspace.settings
    key = evidence(settings, crawl)
    if key is None:
        return Probe(crawl, "unknown", datetime.now(UTC), "it has no path list by which it could be found")
    known = _remembered(settings, crawl)
    if known is not None and known.state in believe:
        return known
    try:
        found = Probe(crawl, "there" if workspace.transport.exists(key, tries=1) else "absent", datetime.now(UTC))
    except RangeFault as fault:
        why, not_now = f"{fault.kind.value}, {fault.detail}", isinstance(fault, NotNow)
        found = Probe(crawl, "unknown", datetime.now(UTC), why, not_now=not_now)
        if fault.kind not in _REFUSALS:
            return found
    _remember(settings, found)
    return found


def has_cluster(workspace: Workspace, crawl: str) -> bool | None:
    """Whether the source has the ZipNum index of ``crawl``; ``None`` where it refuses this object, and answers others.
    Raises ``RangeFault`` where it does not say, which is remembered by nobody: who asks then is not to go by another
    index alone."""
    known = _remembered(workspace.settings, crawl, _CLUSTERS)
    if known is None:
        try:
            there = workspace.transport.exists(cluster_key(crawl))
            known = Probe(crawl, "there" if there else "absent", datetime.now(UTC))
        except RangeFault as fault:
            if fault.kind is not FaultKind.FORBIDDEN:
                raise
            known = Probe(crawl, "unknown", datetime.now(UTC), fault.detail)
        _remember(workspace.settings, known, _CLUSTERS)
    return None if known.state == "unknown" else known.state == "there"


def unknown(workspace: Workspace, found: Probe) -> EnvironmentFault:
    """The error for a crawl of which the source does not say whether it is there."""
    again = ""
    if found.remembered:
        after = found.at + _BELIEVED["unknown"]
        again = f" The source is asked again after {after:%H:%M} UTC."
    return (NotNow if found.not_now else EnvironmentFault)(
        f"whether {workspace.settings.source} has {found.crawl} is unknown: {found.why} (asked {ago(found.at)})",
        "The crawl may well exist. Check CC_PIPELINE_SOURCE and the network (cc-pipeline doctor), or run it again "
        f"later.{again}",
    )


def found_by_name(settings: Settings) -> list[str]:
    """The crawls that were found at the source by their names, ever."""
    folder = _folder(settings)
    files = sorted(folder.glob("*.json")) if folder.is_dir() else []
    return [found.crawl for file in files if (found := _read(settings, file.stem)) and found.state == "there"]


def evidence(settings: Settings, crawl: str) -> str | None:
    """The key of an object that a crawl has if it is there; ``None`` where none is known."""
    if crawl in ARC_CRAWLS:
        return segments_key(crawl) if ARC_CRAWLS[crawl] == "parse-output" else None
    return first_own_key(settings, crawl) or published_key(crawl)


def _folder(settings: Settings, of: str = _CRAWLS) -> Path:
    return settings.cache_path / of


def _remembered(settings: Settings, crawl: str, of: str = _CRAWLS) -> Probe | None:
    if not scheme_of(settings.source):
        return None
    found = _read(settings, crawl, of)
    young = found is not None and timedelta(0) <= datetime.now(UTC) - found.at < _BELIEVED[found.state]
    return found if young else None


def _read(settings: Settings, crawl: str, of: str = _CRAWLS) -> Probe | None:
    try:
        noted = json.loads((_folder(settings, of) / f"{crawl}.json").read_bytes())
        if noted["source"] != settings.source_text or noted["state"] not in _BELIEVED:
            return None
        return Probe(crawl, noted["state"], datetime.fromisoformat(noted["at"]), str(noted["why"]), remembered=True)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _remember(settings: Settings, found: Probe, of: str = _CRAWLS) -> None:
    path = _folder(settings, of) / f"{found.crawl}.json"
    noted = {"source": settings.source_text, "state": found.state, "at": found.at.isoformat(), "why": found.why}
    # where it cannot be kept, the next command asks again
    with suppress(OSError):
        write_whole(path, json.dumps(noted))
