"""A person's front door: the ``cc-pipeline`` command.

Heavy imports (dagster, duckdb) happen inside the commands that need them, so that ``--help`` answers at once.
"""

from __future__ import annotations

from cc_pipeline.cli.app import main

__all__ = ["main"]
