"""The gate before a fetch: a price above what the settings allow is told, with what allows it, and nothing is fetched.

What was located stays, so whoever then allows the price goes on from there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
import pyarrow as pa

from cc_pipeline.commoncrawl.parts import whole_slug
from cc_pipeline.keys import PLACE
from cc_pipeline.lake.streaming import stream_rows
from cc_pipeline.records.plan import check_budget, price_of
from cc_pipeline.settings import Settings
from cc_pipeline.stages.workspace import Workspace
from cc_pipeline.transport.budget import SourceLimits, chosen_limits, default_limits, shared_among


def refuse_dear(workspace: Workspace, crawl: str, slugs: Collection[str]) -> None:
    """Raises ``UserInputError`` where fetching all captures of a target would cost more than the settings allow.

    ``slugs`` are slices in ``crawl`` that are to be fetched; those of parts of a set are priced together.
    """
    if not slugs:
        return
    settings = workspace.settings
    limits = limits_of(settings)
    for slug, captures in places_of_targets(workspace, crawl, slugs).items():
        check_budget(
            price_of(captures),
            max_bytes=settings.max_bytes,
            max_requests=settings.max_requests,
            what=f"{slug} in {crawl}",
            rate=limits.rate,
        )


def limits_of(settings: Settings) -> SourceLimits:
    """What the request budget allows this host at the source."""
    defaults = default_limits(settings.source, settings.s3_at(settings.source).endpoint)
    return shared_among(chosen_limits(defaults, settings.rate, settings.concurrency), settings.hosts)


def places_of_targets(workspace: Workspace, crawl: str, slugs: Collection[str]) -> Mapping[str, pa.Table]:
    """The places of the captures of slices, by whole target; targets without captures are not there.

    A place takes some twenty bytes: names of files are there once.
    """
    names = pa.dictionary(pa.int32(), pa.string())
    where = {"crawl": crawl, "target": list(slugs)}
    parts = []
    for batch in stream_rows(workspace.lake, "captures", where, ["target", *PLACE]):
        own = pa.Table.from_batches([batch])
        for column in ("target", PLACE[0]):
            index = own.schema.get_field_index(column)
            own = own.set_column(index, column, own.column(column).cast(names))
        parts.append(own)
    if not parts:
        return {}
    rows = pa.concat_tables(parts).unify_dictionaries().combine_chunks()
    found = rows.column("target").combine_chunks()
    wholes = [whole_slug(slug) for slug in found.dictionary.to_pylist()]
    slugs_here = sorted(set(wholes))
    number = {slug: place for place, slug in enumerate(slugs_here)}
    owners = np.asarray([number[slug] for slug in wholes])[found.indices.to_numpy()]
    rows = rows.take(pa.array(np.argsort(owners, kind="stable")))
    ends = np.cumsum(np.bincount(owners, minlength=len(slugs_here)))
    starts = [0, *ends[:-1].tolist()]
    return {
        slug: rows.slice(start, end - start) for slug, start, end in zip(slugs_here, starts, ends.tolist(), strict=True)
    }
