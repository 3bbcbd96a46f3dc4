"""Checks the estimated cost before a fetch. Above the limit in the settings nothing is fetched, and the message says
which setting allows it.

Located captures stay, so the next command with a higher limit goes on from there. A command that fetches many
partitions is counted as a whole: partitions after the limit is reached are refused, the others are fetched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from cc_pipeline.capture_columns import PLACE
from cc_pipeline.extraction.slice_state import SliceState
from cc_pipeline.lake.ordered import OrderedRows
from cc_pipeline.lake.slice import Slice, group_by_partition
from cc_pipeline.lake.streaming import stream_rows
from cc_pipeline.progress import format_count
from cc_pipeline.records.locations import PLACE_NAME
from cc_pipeline.records.range_plan import FetchEstimate, check_budget, price_of_all
from cc_pipeline.settings import Settings
from cc_pipeline.workspace.schemas import CAPTURES_SCHEMA
from cc_pipeline.workspace.workspace import Workspace, rate_now


def enforce_cost_limit(workspace: Workspace, slice_states: Mapping[Slice, SliceState]) -> None:
    """Raises ``UserInputError`` if fetching all captures of these slices would cost more than the settings allow: those
    of one target, or, where a command is one question, all captures of its targets that are not stored yet.

    The costs noted at the lookups are summed. Rows are read only if that sum is too high, because neighbours in
    several slices of a target are fetched together.
    """
    settings, nothing = workspace.settings, FetchEstimate(0, 0, 0, 0, 0)
    prices: dict[Slice, FetchEstimate] = {}
    for partition, slices in group_by_partition(slice_states).items():
        lookups = [lookup for slice_ in slices if (lookup := slice_states[slice_].lookup) is not None]
        price = sum((lookup.price for lookup in lookups), nothing)
        if len(lookups) < len(slices) or _exceeds_limit(price, settings):
            price = price_of_slices(workspace, slices)
            _refuse(workspace, price, f"{partition.target} in {partition.crawl}")
        prices[partition] = _exclude_fetched(price, [slice_states[slice_] for slice_ in slices])
    all_prices = workspace.fetch_estimates | prices
    if workspace.one_command and len(all_prices) > 1:
        names = " and ".join(f"{partition.target} in {partition.crawl}" for partition in [*prices][:2])
        count = format_count(len(all_prices), "partition")
        total = sum(all_prices.values(), nothing)
        _refuse(workspace, total, f"{names}, with the others of this command ({count}),")
    workspace.fetch_estimates.update(prices)


def _exclude_fetched(price: FetchEstimate, slice_states: Sequence[SliceState]) -> FetchEstimate:
    """The share of a cost that is for captures which were not fetched before."""
    fetched = sum(slice_state.fetch.fetched for slice_state in slice_states if slice_state.fetch is not None)
    share = max(0.0, 1 - fetched / price.captures) if price.captures else 0.0
    return FetchEstimate(
        price.captures, price.files, int(price.requests * share), int(price.bytes * share), price.record_bytes
    )


def _exceeds_limit(price: FetchEstimate, settings: Settings) -> bool:
    limits = ((price.bytes, settings.max_bytes), (price.requests, settings.max_requests))
    return any(allowed is not None and size > allowed for size, allowed in limits)


def _refuse(workspace: Workspace, price: FetchEstimate, subject: str) -> None:
    settings = workspace.settings
    check_budget(
        price,
        max_bytes=settings.max_bytes,
        max_requests=settings.max_requests,
        subject=subject,
        rate=rate_now(workspace),
    )


def price_of_slices(workspace: Workspace, slices: Sequence[Slice]) -> FetchEstimate:
    """The cost of fetching all captures of slices of one target in one crawl. Memory is bounded, whatever their
    number."""
    where = {"crawl": slices[0].crawl, "target": [slice_.target for slice_ in slices]}
    with workspace.scratch_folder("price") as scratch:
        places = OrderedRows(pa.schema([CAPTURES_SCHEMA.field(name) for name in PLACE]), PLACE_NAME, scratch)
        for batch in stream_rows(workspace.lake, "captures", where, PLACE):
            places.add(batch)
        return price_of_all(places.drain())
