"""Work that no schedule and no other job includes, because it reads much: asked for crawl by crawl.

Belongs here: jobs of single assets, and launching them. Not here: the assets, or when the main jobs run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import dagster as dg

from cc_pipeline.commoncrawl.targets import Target
from cc_pipeline.defs.launch import LaunchedRun, Launcher
from cc_pipeline.defs.partitions import CRAWL, contiguous_ranges, partition_key

repair_statistics = dg.define_asset_job(
    "repair_statistics",
    selection=dg.AssetSelection.assets("repaired_statistics"),
    description="Key bounds of a crawl's row groups that were published without; reads their key column.",
)

build_url_index = dg.define_asset_job(
    "build_url_index",
    selection=dg.AssetSelection.assets("url_index"),
    description="A prefixed B-tree over a crawl's URLs; reads four columns of its whole index, or its ARC files.",
)

fetch_domain = dg.define_asset_job(
    "fetch_domain",
    selection=dg.AssetSelection.assets("captures", "fetch_plan", "records"),
    description="A domain's captures in a crawl, found and fetched but not parsed.",
)

parse_domain = dg.define_asset_job(
    "parse_domain",
    selection=dg.AssetSelection.assets("page_metadata", "page_text", "page_links", "feed_items"),
    description="A domain's stored records, parsed.",
)


class OptInLauncher(Launcher):
    """Runs these jobs as well as those of :class:`Launcher`."""

    def __enter__(self) -> OptInLauncher:
        return self

    def repair(self, crawl: str) -> LaunchedRun:
        """Materializes ``repaired_statistics`` of a harvested crawl."""
        self._add(CRAWL, [crawl])
        return self._run("repair_statistics", crawl, partition_key=crawl)

    def build_url_index(self, crawl: str) -> LaunchedRun:
        """Materializes ``url_index`` of a crawl."""
        self._add(CRAWL, [crawl])
        return self._run("build_url_index", crawl, partition_key=crawl)

    def fetch(self, crawl: str, targets: Sequence[Target]) -> Iterator[LaunchedRun]:
        """Materializes captures, plan and records of ``targets`` in ``crawl``."""
        self.add_targets(targets)
        self._add(CRAWL, [crawl])
        return self._run_domains("fetch_domain", crawl, [target.slug for target in targets])

    def parse(self, crawl: str, slugs: Sequence[str]) -> Iterator[LaunchedRun]:
        """Materializes the page tables of partitions whose records are there."""
        return self._run_domains("parse_domain", crawl, slugs)

    def record_outside_run(self, asset: str, crawl: str, slug: str, metadata: Mapping[str, int | str]) -> None:
        """Notes in the instance that a partition of ``asset`` was written by no run."""
        event = dg.AssetMaterialization(asset, partition=partition_key(crawl, slug), metadata=dict(metadata))
        self.instance.report_runless_asset_event(event)

    def _run_domains(self, job: str, crawl: str, slugs: Sequence[str]) -> Iterator[LaunchedRun]:
        ordered = self.instance.get_dynamic_partitions("domain")
        for first, last in contiguous_ranges(ordered, slugs):
            yield self._run_range(job, partition_key(crawl, first), partition_key(crawl, last))
