"""By which way a crawl that was not harvested is asked: the one with the fewest requests, or seconds.

A harvest of 300 footers answers everything from then on, a few targets are found in the URL index with some requests.
Belongs here: the choice, and what is said of it. Not here: what a way costs (``index/ways.py``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from cc_pipeline.addresses import scheme_of
from cc_pipeline.commoncrawl.crawls import has_subsets
from cc_pipeline.commoncrawl.target import Target
from cc_pipeline.extraction.plan import Why
from cc_pipeline.extraction.run import Look
from cc_pipeline.extraction.slice import LOCATE
from cc_pipeline.index.ways import ZIPNUM, cheapest, choice, harvest_way, zipnum_way
from cc_pipeline.stages.indexing.harvest import listed_files
from cc_pipeline.stages.workspace import Workspace

_WEB: Final = ("http", "https")
#: A harvest of so few files costs hardly more than a look-up, and answers everything from then on.
_FEW: Final = 32


def short_ways(
    workspace: Workspace, looks: Iterable[Look], targets: Sequence[Target], *, refused: bool = False
) -> dict[str, str]:
    """The crawls that need no harvest for what is planned of ``targets``, and why, in words for a person (empty where
    the columnar index is not needed at all). It costs two requests a crawl at most: for its path list, and to learn
    whether it has a URL index. ``refused``: the source refused the harvest, so that any way with fewer requests than
    that will do.

    Raises ``EnvironmentFault`` when the source does not say.
    """
    found: dict[str, str] = {}
    for look in looks:
        why = _without_harvest(workspace, look, targets) if refused else _short_way(workspace, look, targets)
        if why is not None:
            found[look.asked.crawl] = why
    return found


def _short_way(workspace: Workspace, look: Look, targets: Sequence[Target]) -> str | None:
    crawl, via = look.asked.crawl, workspace.settings.via
    harvested = {subset for (_, subset), index in look.indexes.items() if "parquet" in index.versions}
    lookups = look.plan.of(LOCATE, but=(Why.KEYS,))
    lacking = {slice_.subset for slice_ in lookups} - harvested
    if not has_subsets(crawl) or harvested >= {slice_.subset for slice_ in look.asked.slices}:
        return None
    if not lacking:
        # what was located another way needs no harvest now, nor does another spelling of its keys
        return ""
    if via != "auto":
        return None if via == "parquet" else ""
    wanted = _wanted(look, targets)
    files = sum(file.subset in lacking for file in listed_files(workspace, crawl)[0])
    if files <= _FEW:
        return None
    ways = [zipnum_way(wanted), harvest_way(wanted, files=files)]
    chosen = cheapest(ways, over_http=scheme_of(workspace.settings.source) in _WEB)
    if chosen.kind != ZIPNUM or workspace.clusters.find(workspace.transport, crawl) is None:
        return None
    return choice(chosen, ways)


def _without_harvest(workspace: Workspace, look: Look, targets: Sequence[Target]) -> str | None:
    crawl = look.asked.crawl
    wanted = _wanted(look, targets)
    if workspace.settings.via != "auto" or not has_subsets(crawl) or _is_harvested(look) or not wanted:
        return None
    chosen, dear = zipnum_way(wanted), harvest_way(wanted)
    if chosen.requests > dear.requests or workspace.clusters.find(workspace.transport, crawl) is None:
        return None
    return f"the source refused the harvest; {chosen.why}"


def lacking(looks: Iterable[Look], ways: Mapping[str, str]) -> set[str]:
    """The crawls of which something is to be located, and that neither were harvested nor are among ``ways``."""
    return {
        look.asked.crawl
        for look in looks
        if look.asked.crawl not in ways
        and has_subsets(look.asked.crawl)
        and look.plan.of(LOCATE, but=(Why.KEYS,))
        and not _is_harvested(look)
    }


def _is_harvested(look: Look) -> bool:
    return all("parquet" in index.versions for index in look.indexes.values())


def _wanted(look: Look, targets: Sequence[Target]) -> list[Target]:
    """Those of ``targets`` that have to be located."""
    slugs = {slice_.whole.target for slice_ in look.plan.of(LOCATE)}
    return [target for target in targets if target.slug in slugs]


def said(ways: Mapping[str, str]) -> list[str]:
    """A sentence for each crawl of which there is something to say."""
    return [f"{crawl}: {why}" for crawl, why in ways.items() if why]
