"""The gate before a fetch: a price above what the settings allow is told, with what allows it, and nothing is fetched.

What was located stays, so whoever then allows the price goes on from there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pyarrow as pa

from cc_pipeline.commoncrawl.parts import whole_slug
from cc_pipeline.keys import PLACE
from cc_pipeline.records.plan import check_budget, price_of
from cc_pipeline.stages.workspace import Workspace
from cc_pipeline.transport.budget import chosen_limits, default_limits


def refuse_dear(workspace: Workspace, crawl: str, slugs: Collection[str]) -> None:
    """Raises ``UserInputError`` where fetching all captures of a target would cost more than the settings allow.

    ``slugs`` are slices in ``crawl`` that are to be fetched; those of parts of a set are priced together.
    """
    if not slugs:
        return
    settings = workspace.settings
    limits = chosen_limits(default_limits(settings.source, settings.s3_endpoint), settings.rate, settings.concurrency)
    for slug, captures in places_of_targets(workspace, crawl, slugs).items():
        check_budget(
            price_of(captures),
            max_bytes=settings.max_bytes,
            max_requests=settings.max_requests,
            what=f"{slug} in {crawl}",
            rate=limits.rate,
        )


def places_of_targets(workspace: Workspace, crawl: str, slugs: Collection[str]) -> Mapping[str, pa.Table]:
    """The places of the captures of slices, by whole target; targets without captures are not there."""
    rows = workspace.lake.read("captures", {"crawl": crawl, "target": list(slugs)}, ["target", *PLACE])
    names = rows.column("target").combine_chunks().dictionary_encode()
    wholes = [whole_slug(slug) for slug in names.dictionary.to_pylist()]
    by_target: dict[str, pa.Table] = {}
    if not wholes:
        return by_target
    whole = pa.array(wholes, pa.string()).take(names.indices)
    rows = rows.set_column(0, "target", whole).sort_by("target")
    start = 0
    for found in rows.column("target").value_counts().to_pylist():
        by_target[found["values"]] = rows.slice(start, found["counts"])
        start += found["counts"]
    return by_target
