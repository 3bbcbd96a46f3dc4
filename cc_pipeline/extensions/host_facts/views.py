"""The view of this extension in ``cc.duckdb``."""

from __future__ import annotations

from typing import Final

from cc_pipeline.columns import notes_of
from cc_pipeline.extensions.host_facts.schemas import HOST_FACTS_COLUMNS
from cc_pipeline.lake.snapshot import ViewSpec
from cc_pipeline.publish.views import WHOLE_TARGET, is_part

VIEWS: Final = (
    ViewSpec(
        "host_facts",
        f"SELECT * FROM lake.host_facts WHERE NOT {is_part('target')} UNION ALL BY NAME "
        f"SELECT DISTINCT ON (crawl, target, surt_host_name) * FROM (SELECT * REPLACE ({WHOLE_TARGET} AS target) "
        f"FROM lake.host_facts WHERE {is_part('target')})",
        "One row per host of a target in a crawl: what datasets keyed by host say of it.",
        row_count_rule=(
            "host_facts",
            f"SELECT count(*) - count(DISTINCT (crawl, {WHOLE_TARGET}, surt_host_name)) FROM lake.host_facts "
            f"WHERE {is_part('target')}",
        ),
        notes=notes_of(HOST_FACTS_COLUMNS),
    ),
)
