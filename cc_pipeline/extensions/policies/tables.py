"""The table ``site_policies``, and the stage that fills it."""

from __future__ import annotations

from typing import Final

from cc_pipeline.capture_columns import SLICE
from cc_pipeline.extensions.policies.schemas import SITE_POLICIES_SCHEMA
from cc_pipeline.lake.lake import TableSpec
from cc_pipeline.lake.slice import Stage

POLICIES: Final = Stage("policies", ("site_policies",))

TABLES: Final = (TableSpec("site_policies", SITE_POLICIES_SCHEMA, SLICE, (), stage=POLICIES),)
