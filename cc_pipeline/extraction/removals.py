"""Decides whether captures that their index no longer lists are removed. A shorter index is distrusted, like a source
that lost many records.

A few of many unlisted captures are removed, with their records and pages. All others stay until a person accepts the
removal: if the index lists fewer files than before, if a target would have no captures left, or if more than
``CC_PIPELINE_MAX_LOST`` of a target's captures would go.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow.compute as pc

from cc_pipeline.errors import Doubted, Incomplete
from cc_pipeline.extraction.fetch_counts import share
from cc_pipeline.extraction.shortfall import NotGiven
from cc_pipeline.lake.digests.digest import NOTHING, together
from cc_pipeline.lake.lake import Lake
from cc_pipeline.lake.slice import Slice, targets_by_crawl

_ADVICE: Final = (
    "They stay, with their records and pages. Check the index of the source, harvest it again (cc-pipeline index "
    "harvest), and run it again: it checks whether they are listed now. To accept that they are gone, add "
    "--accept-losses {number} to the run"
)


@dataclass(frozen=True, slots=True)
class Listing:
    """The note of a slice's last look-up: its index, the length of the list of index files (``None``: not known), the
    number of captures that it no longer listed, and a digest of these (:data:`NOTHING`: none)."""

    located_by: str = ""
    size: int | None = None
    unlisted: int = 0
    removal: str = NOTHING

    def is_longer_than(self, now: Listing) -> bool:
        """Whether the same index listed more files then than ``now``."""
        same = self.located_by == now.located_by and self.size is not None and now.size is not None
        return same and (self.size or 0) > (now.size or 0)


def noted_listings(lake: Lake, slices: Collection[Slice]) -> dict[Slice, Listing]:
    """The last note of each of ``slices`` of one crawl, whether or not its captures were committed."""
    found = {}
    for crawl, targets in targets_by_crawl(slices).items():
        rows = lake.read("lookups", {"crawl": crawl, "target": targets}, ["target", *_NOTED])
        for row in rows.to_pylist():
            found[Slice(crawl, row["target"])] = Listing(
                row["located_by"], row["index_size"], row["unlisted"], row["removal"]
            )
    return found


def together_listed(listings: Collection[Listing]) -> Listing:
    """The notes of several slices as one, if they are of one index; an empty note if they are of several."""
    by = {one.located_by for one in listings}
    sizes = [one.size for one in listings if one.size is not None]
    return Listing(by.pop() if len(by) == 1 else "", max(sizes, default=None), sum(one.unlisted for one in listings))


_NOTED: Final = ("located_by", "index_size", "unlisted", "removal")


@dataclass(frozen=True, slots=True)
class Removal:
    """The captures that a look-up would take away from a slice: the numbers of captures ``before`` and ``left`` after
    it (with new ones), and the listings of its index ``then`` and ``now``."""

    before: int
    left: int
    then: Listing
    now: Listing


def doubted(
    removals: Mapping[Slice, Removal],
    others: Mapping[Slice, tuple[int, Listing]],
    allowed: float,
    accepted: Collection[str],
) -> set[Slice]:
    """The slices whose unlisted captures stay.

    A target is assessed by all its slices: ``others`` are those that were not looked up now, with their captures and
    notes. ``allowed`` is the share that may be removed, ``accepted`` are the numbers that a person accepted.
    """
    found: set[Slice] = set()
    by_target = _by_target(others)
    for whole, own in _by_target(removals).items():
        beside = [others[slice_] for slice_ in by_target.get(whole, ())]
        unlisted = sum(removals[slice_].now.unlisted for slice_ in own)
        number = together([removals[one].now.removal for one in own] + [listing.removal for _, listing in beside])
        if not unlisted or number in accepted:
            continue
        before = sum(removals[slice_].before for slice_ in own) + sum(captures for captures, _ in beside)
        left = sum(removals[slice_].left for slice_ in own) + sum(captures for captures, _ in beside)
        shrank = [one for one in own if removals[one].now.unlisted]
        is_shorter = any(removals[one].then.is_longer_than(removals[one].now) for one in shrank)
        was_doubted = any(removals[one].then.unlisted for one in shrank)
        if is_shorter or was_doubted or not left or unlisted > allowed * before:
            found.update(shrank)
    return found


def refused_removals(standing: Mapping[Slice, tuple[int, Listing]], asked: Collection[str]) -> NotGiven | None:
    """The error to raise if unlisted captures of any of the targets ``asked`` stay unconfirmed. It has each target with
    its number. ``standing`` has captures and notes by slice. The error's ``report`` is not set yet."""
    each: dict[str, Incomplete] = {}
    for whole, own in _by_target(standing).items():
        unlisted = sum(standing[slice_][1].unlisted for slice_ in own)
        if unlisted and whole.target in asked:
            captures = sum(standing[slice_][0] for slice_ in own)
            what = (
                f"the index of {whole.crawl} no longer lists {unlisted:,} of {captures:,} captures "
                f"({share(unlisted, captures)}) of {whole.target}, which is not confirmed"
            )
            each[whole.target] = Doubted(what, _ADVICE.format(number=number_of(standing[one][1] for one in own)))
    if not each:
        return None
    first, *_ = each.values()
    more = f" (and so of {len(each) - 1:,} more targets)" if len(each) > 1 else ""
    refusal = NotGiven(first.what + more, first.advice)
    refusal.each, refusal.reasons = each, {None}
    return refusal


def number_of(listings: Iterable[Listing]) -> str:
    """The number by which a person accepts the removals from the slices of a target."""
    return together(one.removal for one in listings)


def numbers_of_losses(lake: Lake) -> tuple[set[str], list[str]]:
    """The numbers that a person may accept: of all losses, and of the unconfirmed ones."""
    known: set[str] = set()
    doubted_now: set[str] = set()
    fetches = lake.read("fetches", columns=["crawl", "target", "losses", "losses_doubted"]).to_pylist()
    lookups = lake.read("lookups", columns=["crawl", "target", "removal", "unlisted"])
    noted = [(row, row["losses"], row["losses_doubted"]) for row in fetches]
    gone = [(row, row["removal"], True) for row in lookups.filter(pc.greater(lookups["unlisted"], 0)).to_pylist()]
    for rows in (noted, gone):
        by_target: dict[Slice, list[tuple[str, bool]]] = {}
        for row, number, is_doubted in rows:
            by_target.setdefault(Slice(row["crawl"], row["target"]).whole, []).append((number, is_doubted))
        for own in by_target.values():
            number = together(each for each, _ in own)
            known |= {number, *(each for each, _ in own)}
            doubted_now |= {number} if any(is_doubted for _, is_doubted in own) else set()
    return known, sorted(doubted_now)


def _by_target(slices: Iterable[Slice]) -> dict[Slice, list[Slice]]:
    found: dict[Slice, list[Slice]] = {}
    for slice_ in slices:
        found.setdefault(slice_.whole, []).append(slice_)
    return found
