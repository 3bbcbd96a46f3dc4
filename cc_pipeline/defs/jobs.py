"""The jobs a person or a schedule launches.

Belongs here: selections of assets that run together. Not here: when they run (sensors, schedules).
"""

from __future__ import annotations

import dagster as dg

harvest_crawl = dg.define_asset_job(
    "harvest_crawl",
    selection=dg.AssetSelection.assets("index_manifest", "index_footers", "row_groups"),
    description="A crawl's path list, its footers and its row groups in the catalog.",
)

extract_domain = dg.define_asset_job(
    "extract_domain",
    selection=dg.AssetSelection.assets(
        "captures", "fetch_plan", "records", "page_metadata", "page_text", "page_links", "feed_items"
    ),
    description="A domain's captures in a crawl: found, fetched, parsed.",
)

list_crawls = dg.define_asset_job(
    "list_crawls", selection=dg.AssetSelection.assets("crawls"), description="The list of crawls, read again."
)

publish = dg.define_asset_job(
    "publish", selection=dg.AssetSelection.assets("warehouse"), description="A new snapshot of cc.duckdb."
)

read_source_files = dg.define_asset_job(
    "read_source_files",
    selection=dg.AssetSelection.groups("sources"),
    description="Files read whole (2012 SequenceFiles, WAT, WET) into the tables of parsed pages.",
)

export_domain = dg.define_asset_job(
    "export_domain",
    selection=dg.AssetSelection.groups("exports"),
    description="A domain's parsed pages in a crawl as Hadoop SequenceFiles, text and metadata.",
)
