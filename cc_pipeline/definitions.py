"""The Dagster code location: everything under ``defs/``."""

from pathlib import Path

import dagster as dg

from cc_pipeline.defs.internals import definitions_in


@dg.definitions
def defs() -> dg.Definitions:
    """All assets, checks, jobs, sensors, schedules and resources of cc_pipeline."""
    return definitions_in(Path(__file__).parent / "defs")
