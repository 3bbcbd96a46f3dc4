"""The Dagster code location of one home."""

import dagster as dg

from cc_pipeline.defs.declared.build import everything


@dg.definitions
def defs() -> dg.Definitions:
    """All assets, checks, jobs, sensors, schedules and resources of cc_pipeline."""
    return everything()
