"""Pages of an older parser: how many there are and where, the cost of parsing them again, and whether somebody agreed.

A new version of the parser makes all pages stale at once, which may be days of work. So automation reports the cost and
waits. A run that a person starts parses its own partitions in any case.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from cc_pipeline.atomic import write_whole
from cc_pipeline.automation.due import format_duration
from cc_pipeline.commoncrawl.slice_slugs import subsets_in
from cc_pipeline.errors import disk_trouble
from cc_pipeline.extraction.plan import Price, ReasonKind, SliceRequest, estimate_price, options_of, plan
from cc_pipeline.extraction.slice_state import SliceState, read_slice_states
from cc_pipeline.lake.slice import FETCH, PARSE, Slice
from cc_pipeline.lake.slices import list_slices
from cc_pipeline.progress import format_count
from cc_pipeline.settings import Settings
from cc_pipeline.workspace.workspace import Workspace

#: Pages per second on one core (docs/documents.md), including reading and committing them.
_PAGES_PER_SECOND: Final = 120


def find_outdated(settings: Settings, slice_states: Mapping[Slice, SliceState]) -> dict[Slice, Price]:
    """Returns the pages and stored bytes of each partition that have to be parsed again for no reason but a newer
    parser."""
    parsed = {
        slice_: SliceRequest("") for slice_, slice_state in slice_states.items() if slice_state.parsed is not None
    }
    costs: dict[Slice, Price] = {}
    for slice_, reason in plan(parsed, slice_states, {}, options_of(settings), (PARSE,)).reasons_for(PARSE).items():
        price = estimate_price(slice_states[slice_], PARSE, reason)
        # the number of pages may be unknown, and a slice without pages has nothing to parse
        if reason.kind is ReasonKind.PARSER and price.pages != 0:
            pages, stored = _sum_costs([price, costs.get(slice_.partition, Price())])
            costs[slice_.partition] = Price(pages=pages, stored=stored)
    return costs


def _sum_costs(prices: Collection[Price]) -> tuple[int, int]:
    """Returns the sums of the known pages and stored bytes."""
    return sum(price.pages or 0 for price in prices), sum(price.stored or 0 for price in prices)


def find_all_outdated(workspace: Workspace) -> dict[Slice, Price]:
    """Returns the same as :func:`find_outdated` for all parsed slices in the subsets of the settings, which are those
    that runs make. Raises ``EnvironmentFault``."""
    subsets = workspace.settings.subsets
    slices = [
        slice_ for slice_ in list_slices(workspace.lake, PARSE) if slice_.subset in subsets_in(slice_.crawl, subsets)
    ]
    states = read_slice_states(workspace, slices, (FETCH, PARSE), check_stored_files=False)
    return find_outdated(workspace.settings, states)


def write_agreement(settings: Settings, *, yes: bool) -> None:
    """Stores whether the pages of older parsers are to be parsed again."""
    path = _agreement_path(settings)
    with disk_trouble(path):
        write_whole(path, json.dumps({"parser": options_of(settings).parser, "agreed": yes}), durable=True)


def is_agreed(settings: Settings) -> bool:
    """Whether somebody agreed, for the current parser."""
    try:
        agreement = json.loads(_agreement_path(settings).read_text("utf-8"))
        return bool(agreement["agreed"]) and agreement["parser"] == options_of(settings).parser
    except (OSError, ValueError, TypeError, KeyError):
        return False


def describe_cost(settings: Settings, costs: Mapping[Slice, Price]) -> str:
    """Describes the cost of parsing these pages again on this machine."""
    pages, stored = _sum_costs(costs.values())
    return (
        f"{format_count(pages, 'page')} of {format_count(len(costs), 'partition')} came from an older parser "
        "version. To parse these pages "
        f"again takes {format_duration(estimate_seconds(settings, pages))}, reads {stored / 1e6:,.1f} MB of stored "
        "records and fetches nothing"
    )


def estimate_seconds(settings: Settings, pages: int) -> float:
    """Returns the seconds that parsing so many pages is likely to take on this machine."""
    cores = settings.workers or os.cpu_count() or 1
    return pages / (_PAGES_PER_SECOND * cores)


def _agreement_path(settings: Settings) -> Path:
    return settings.cache_path / "reparse.json"
