"""The table of this extension, and the stage that fills it."""

from __future__ import annotations

from typing import Final

from cc_pipeline.capture_columns import SLICE
from cc_pipeline.extensions.host_facts.schemas import HOST_FACTS_SCHEMA
from cc_pipeline.lake.lake import TableSpec
from cc_pipeline.lake.slice import Stage

FACTS: Final = Stage("facts", ("host_facts",), "facts:{crawl}:{target}")
TABLES: Final = (
    # hosts belong to no subset
    TableSpec(
        "host_facts",
        HOST_FACTS_SCHEMA,
        SLICE,
        ("target", "surt_host_name"),
        ("facts_from",),
        stage=FACTS,
        removed_with="target",
    ),
)
