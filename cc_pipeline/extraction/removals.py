"""Decides whether captures that their index no longer lists are removed. A shorter index is distrusted, like a source
that lost many records.

A few of many unlisted captures are removed, with their records and pages. All others stay until a person accepts the
removal: if the index lists fewer files than before, if a target would have no captures left, or if more than
``CC_PIPELINE_MAX_LOST`` of a target's captures would go.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from cc_pipeline.commoncrawl.crawls import index_is_built
from cc_pipeline.errors import Incomplete, UnconfirmedRemovals
from cc_pipeline.extraction.fetch_counts import share
from cc_pipeline.extraction.loss_policy import FetchIncomplete, describe_accept_options
from cc_pipeline.extraction.slice_state import Lookup
from cc_pipeline.index.locators import PARQUET
from cc_pipeline.lake.content_digests import NOTHING, combine_digests
from cc_pipeline.lake.lake import Lake
from cc_pipeline.lake.slice import FETCH, LOCATE, Slice, group_by_partition
from cc_pipeline.lake.slices import read_notes

_ADVICE: Final = (
    "The captures stay, with their records and pages. Check the index of the source{harvest}, then run this again: the "
    "run checks whether they are listed. To accept the loss, add {options} to the run"
)
_HARVEST_ADVICE: Final = ", harvest it again (cc-pipeline index harvest {crawls} --refresh)"


@dataclass(frozen=True, slots=True)
class Listing:
    """The note of a slice's last lookup: its index, the length of the list of index files (``None``: not known), the
    number of captures that it no longer listed, and a digest of these (:data:`NOTHING`: none)."""

    located_by: str = ""
    size: int | None = None
    unlisted_captures: int = 0
    removal: str = NOTHING

    def is_longer_than(self, new_listing: Listing) -> bool:
        """Whether the same index listed more files then than ``new_listing``."""
        is_same_index = (
            self.located_by == new_listing.located_by and self.size is not None and new_listing.size is not None
        )
        return is_same_index and (self.size or 0) > (new_listing.size or 0)


def get_listing(lookup: Lookup) -> Listing:
    """What the note of a lookup says of its index."""
    return Listing(lookup.located_by, lookup.index_size, lookup.unlisted_captures, lookup.removal)


def combine_listings(listings: Collection[Listing]) -> Listing:
    """The notes of several slices as one, if they are of one index; an empty note if they are of several."""
    index_names = {listing.located_by for listing in listings}
    sizes = [listing.size for listing in listings if listing.size is not None]
    return Listing(
        index_names.pop() if len(index_names) == 1 else "",
        max(sizes, default=None),
        sum(listing.unlisted_captures for listing in listings),
    )


@dataclass(frozen=True, slots=True)
class Removal:
    """The captures that a lookup would take away from a slice: the numbers of captures ``captures_before`` and
    ``captures_left`` after it (with new ones), and the listings of its index ``old_listing`` and ``new_listing``."""

    captures_before: int
    captures_left: int
    old_listing: Listing
    new_listing: Listing


def find_unconfirmed_removals(
    removals: Mapping[Slice, Removal],
    other_slices: Mapping[Slice, tuple[int, Listing]],
    allowed: float,
    accepted: Collection[str],
) -> set[Slice]:
    """The slices whose unlisted captures stay.

    A target is assessed by all its slices: ``other_slices`` are those that were not looked up now, with their captures
    and notes. ``allowed`` is the share that may be removed, ``accepted`` are the numbers that a person accepted.
    """
    unconfirmed: set[Slice] = set()
    other_by_target = group_by_partition(other_slices)
    for partition, slices in group_by_partition(removals).items():
        other_counts = [other_slices[slice_] for slice_ in other_by_target.get(partition, ())]
        unlisted_captures = sum(removals[slice_].new_listing.unlisted_captures for slice_ in slices)
        removal_number = combine_digests(
            [removals[slice_].new_listing.removal for slice_ in slices]
            + [listing.removal for _, listing in other_counts]
        )
        if not unlisted_captures or removal_number in accepted:
            continue
        captures_before = sum(removals[slice_].captures_before for slice_ in slices) + sum(
            captures for captures, _ in other_counts
        )
        captures_left = sum(removals[slice_].captures_left for slice_ in slices) + sum(
            captures for captures, _ in other_counts
        )
        shrunk_slices = [slice_ for slice_ in slices if removals[slice_].new_listing.unlisted_captures]
        is_shorter = any(
            removals[slice_].old_listing.is_longer_than(removals[slice_].new_listing) for slice_ in shrunk_slices
        )
        was_unconfirmed = any(removals[slice_].old_listing.unlisted_captures for slice_ in shrunk_slices)
        if is_shorter or was_unconfirmed or not captures_left or unlisted_captures > allowed * captures_before:
            unconfirmed.update(shrunk_slices)
    return unconfirmed


def build_removal_error(
    listings: Mapping[Slice, tuple[int, Listing]], slugs: Collection[str]
) -> FetchIncomplete | None:
    """The error to raise if unlisted captures of any of the targets ``slugs`` stay unconfirmed. It has each target with
    its number. ``listings`` has captures and notes by slice. The error's ``report`` is not set yet."""
    errors: dict[str, Incomplete] = {}
    numbers: list[str] = []
    # the index files that a harvest can fetch again
    harvested_crawls = {
        slice_.crawl
        for slice_, (_, listing) in listings.items()
        if listing.located_by == PARQUET and not index_is_built(slice_.crawl)
    }
    for partition, slices in group_by_partition(listings).items():
        unlisted_captures = sum(listings[slice_][1].unlisted_captures for slice_ in slices)
        if unlisted_captures and partition.target in slugs:
            captures = sum(listings[slice_][0] for slice_ in slices)
            problem = (
                f"the index of {partition.crawl} no longer lists {unlisted_captures:,} of {captures:,} captures "
                f"({share(unlisted_captures, captures)}) of {partition.target}; this loss is not confirmed"
            )
            numbers.append(combine_digests(listings[slice_][1].removal for slice_ in slices))
            errors[partition.target] = UnconfirmedRemovals(problem, _build_advice(harvested_crawls, numbers[-1:]))
    if not errors:
        return None
    first, *_ = errors.values()
    suffix = f" ({len(errors) - 1:,} more targets are affected)" if len(errors) > 1 else ""
    removal_error = FetchIncomplete(first.problem + suffix, _build_advice(harvested_crawls, numbers))
    removal_error.errors_by_target, removal_error.reasons = errors, {None}
    return removal_error


def _build_advice(harvested_crawls: Collection[str], numbers: Sequence[str]) -> str:
    crawl_options = " ".join(f"--crawl {crawl}" for crawl in sorted(harvested_crawls))
    harvest_advice = _HARVEST_ADVICE.format(crawls=crawl_options) if crawl_options else ""
    return _ADVICE.format(harvest=harvest_advice, options=describe_accept_options(numbers))


def read_loss_numbers(lake: Lake) -> tuple[set[str], list[str]]:
    """The numbers that a person may accept: of all losses, and of the unconfirmed ones."""
    numbers: set[str] = set()
    unconfirmed_numbers: set[str] = set()
    by_target: dict[tuple[Slice, str], list[tuple[str, bool]]] = {}
    for row in read_notes(lake, (LOCATE, FETCH)):
        note = row.note
        is_lookup = row.stage == LOCATE.label
        if is_lookup and note["unlisted"]:
            by_target.setdefault((row.slice_.partition, row.stage), []).append((note["removal"], True))
        elif not is_lookup:
            pair = (note["losses"], note["losses_unconfirmed"])
            by_target.setdefault((row.slice_.partition, row.stage), []).append(pair)
    for pairs in by_target.values():
        number = combine_digests(part for part, _ in pairs)
        numbers |= {number, *(part for part, _ in pairs)}
        unconfirmed_numbers |= {number} if any(is_unconfirmed for _, is_unconfirmed in pairs) else set()
    return numbers, sorted(unconfirmed_numbers)
