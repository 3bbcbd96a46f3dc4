"""The Dagster code location of one home."""

import dagster as dg

from cc_pipeline.defs.build import build_own_home


@dg.definitions
def defs() -> dg.Definitions:
    """All assets, checks, jobs, sensors, schedules and resources of cc_pipeline."""
    return build_own_home()
