"""The Dagster code location: everything under ``defs/``."""

from pathlib import Path

import dagster as dg


@dg.definitions
def defs() -> dg.Definitions:
    """All assets, checks, jobs, sensors, schedules and resources of cc_pipeline."""
    return dg.load_from_defs_folder(path_within_project=Path(__file__).parent)
