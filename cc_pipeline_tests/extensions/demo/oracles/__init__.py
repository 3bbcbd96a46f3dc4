"""The frozen rows of the demo's home."""

from __future__ import annotations

from pathlib import Path

from cc_pipeline_tests.oracles.additions import Addition
from cc_pipeline_tests.oracles.commands import run_command
from cc_pipeline_tests.oracles.sources import digest_source


def make_demo(folder: Path) -> str:
    """The home of ``cc-pipeline demo``, through Dagster. Returns the digest of its bucket."""
    run_command(folder, "demo")
    return digest_source(folder / "home" / "minicrawl")


ADDITION = Addition(homes={"demo": make_demo})
