"""Chooses the index for a crawl that was not harvested: the one with the fewest requests.

A harvest of 300 footers answers all later lookups; a few targets are found in the URL index with some requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final

from cc_pipeline.commoncrawl.crawls import has_subsets
from cc_pipeline.commoncrawl.domains import is_ip, registered_domain
from cc_pipeline.commoncrawl.slice_slugs import is_named_captures
from cc_pipeline.commoncrawl.target import Target
from cc_pipeline.extraction.crawl_plan import CrawlPlan
from cc_pipeline.harvesting.listed_files import listed_files
from cc_pipeline.index.locator import REQUEST_BYTES
from cc_pipeline.index.parquet.fetch import SPAN
from cc_pipeline.index.zipnum.cluster import PROBE, WHOLE_READ_BYTES
from cc_pipeline.lake.slice import LOCATE, Slice
from cc_pipeline.progress import format_count
from cc_pipeline.workspace.workspace import Workspace

ZIPNUM: Final = "zipnum"
HARVEST: Final = "harvest"

#: Bytes read of an index file for its footer.
_FOOTER_BYTES: Final = 64 << 10
#: Requests and bytes of a target in the columnar index (docs/finding.md), and the most of a file: then all is read.
_PAGES_OF_TARGET: Final = (8, 1_400_000)
_MAX_PAGES_OF_FILE: Final = (40, 100_000_000)
#: Reads of a cluster.idx for a place that is not known, and its bytes, of which all may be read.
_PROBES: Final = 7
_CLUSTER_BYTES: Final = 110_000_000
#: A ZipNum index has some million members of so many bytes; a narrow target lies in two of them.
_MEMBER_BYTES: Final = 200_000
_MEMBERS: Final = 2
#: Targets that are not one host's or domain's, and the share of a crawl that such a target has.
_WIDE_KINDS: Final = ("tld", "suffix")
_WIDE_SHARE: Final = 0.01
#: Letters of a label that match few of a suffix's domains; a label of one letter, which may go on, matches many.
_MIN_LABEL_LETTERS: Final = 2
_ALL_MEMBERS: Final = 1_000_000
#: A harvest of so few files costs hardly more than a lookup, and answers everything from then on.
_FEW_FILES: Final = 32


@dataclass(frozen=True, slots=True)
class IndexOption:
    """An index option: ``kind`` is ``zipnum`` or ``harvest`` (of the footers of the wanted subsets, then the columnar
    index). ``requests`` and ``bytes`` are estimates. ``description`` describes it as a part of a sentence."""

    kind: str
    requests: int
    bytes: int
    description: str


def estimate_zipnum(targets: Sequence[Target]) -> IndexOption:
    """The cost through ``cluster.idx``, which is searched for each target."""
    narrow, wide = _count_by_width(targets)
    probes = min(_PROBES * (narrow + wide), ceil(_CLUSTER_BYTES / WHOLE_READ_BYTES))
    size = wide * int(_WIDE_SHARE * _ALL_MEMBERS) * _MEMBER_BYTES
    requests = 1 + probes + narrow + ceil(size / SPAN)
    size += probes * PROBE + narrow * _MEMBERS * _MEMBER_BYTES
    return IndexOption(ZIPNUM, requests, size, f"{format_count(requests, 'request')} through the URL index")


def estimate_harvest(targets: Sequence[Target], files: int) -> IndexOption:
    """The cost of the footers of the ``files`` of the wanted subsets and of the columnar index."""
    requests, size = _estimate_pages(targets, files)
    description = f"{files:,} footers and {format_count(requests, 'request')} in the columnar index"
    return IndexOption(HARVEST, requests + files + 1, size + files * _FOOTER_BYTES, description)


def choose_cheapest(options: Iterable[IndexOption]) -> IndexOption:
    """The option with the fewest requests, where ``REQUEST_BYTES`` count as one more. Raises ``ValueError`` if there is
    no option."""
    return min(options, key=lambda option: option.requests + option.bytes / REQUEST_BYTES)


def _count_by_width(targets: Sequence[Target]) -> tuple[int, int]:
    """The numbers of targets of one host or domain, and of wider ones; members of sets are targets."""
    all_targets = [member for target in targets for member in target.members or (target,)]
    wide = sum(map(_is_wide, all_targets))
    return len(all_targets) - wide, wide


def _is_wide(target: Target) -> bool:
    """Whether a target has hosts of many domains: a public suffix, or the beginning of one's reversed name."""
    if target.kind != "rev":
        return target.kind in _WIDE_KINDS
    *labels, last = target.value.partition("/")[0].split(".")
    if "/" not in target.value and len(last) < _MIN_LABEL_LETTERS:
        return registered_domain(".".join(reversed(labels))) is None
    host = ".".join(reversed([*labels, last]))
    return not is_ip(host) and registered_domain(host) is None


def _estimate_pages(targets: Sequence[Target], files: int) -> tuple[int, int]:
    narrow, wide = _count_by_width(targets)
    touched_files = ceil(wide * _WIDE_SHARE * files)
    requests, size = (
        min(narrow * per_target + touched_files * per_file, files * per_file)
        for per_target, per_file in zip(_PAGES_OF_TARGET, _MAX_PAGES_OF_FILE, strict=True)
    )
    return requests, size


def choose_indexes(workspace: Workspace, crawl_plans: Iterable[CrawlPlan], targets: Sequence[Target]) -> dict[str, str]:
    """The crawls that need no harvest for the planned ``targets``, each with the explanation for a person (empty if the
    columnar index is not needed at all). It costs at most two requests a crawl: for its path list, and to learn whether
    it has a URL index.

    Raises ``EnvironmentFault`` when the source does not say.
    """
    choices: dict[str, str] = {}
    for crawl_plan in crawl_plans:
        explanation = _choose_index(workspace, crawl_plan, targets)
        if explanation is not None:
            choices[crawl_plan.target_slices.crawl] = explanation
    return choices


def _choose_index(workspace: Workspace, crawl_plan: CrawlPlan, targets: Sequence[Target]) -> str | None:
    crawl, via = crawl_plan.target_slices.crawl, workspace.settings.index
    harvested = {subset for (_, subset), index in crawl_plan.indexes.items() if "parquet" in index.versions}
    lookups = _list_lookups(crawl_plan)
    unharvested = {slice_.subset for slice_ in lookups} - harvested
    if not has_subsets(crawl) or harvested >= {slice_.subset for slice_ in crawl_plan.target_slices.requested_slices}:
        return None
    if not unharvested:
        # slices located by another index need no harvest now, nor does another spelling of their keys
        return ""
    if via != "auto":
        return None if via == "parquet" else ""
    searched_targets = _list_searched_targets(crawl_plan, targets)
    files = sum(file.subset in unharvested for file in listed_files(workspace, crawl)[0])
    if files <= _FEW_FILES:
        return None
    zipnum, harvest = estimate_zipnum(searched_targets), estimate_harvest(searched_targets, files)
    if choose_cheapest([zipnum, harvest]) is harvest or workspace.clusters.find(workspace.transport, crawl) is None:
        return None
    return f"{zipnum.description} instead of {harvest.description}"


def _list_lookups(crawl_plan: CrawlPlan) -> list[Slice]:
    """The slices to be looked up in an index."""
    return [slice_ for slice_ in crawl_plan.plan.reasons_for(LOCATE) if not is_named_captures(slice_.target)]


def _list_searched_targets(crawl_plan: CrawlPlan, targets: Sequence[Target]) -> list[Target]:
    """The targets that have to be located."""
    slugs = {slice_.partition.target for slice_ in _list_lookups(crawl_plan)}
    return [target for target in targets if target.slug in slugs]


def explain_index_choices(choices: Mapping[str, str]) -> list[str]:
    """A sentence for each crawl with an explanation."""
    return [f"{crawl}: {explanation}" for crawl, explanation in choices.items() if explanation]
