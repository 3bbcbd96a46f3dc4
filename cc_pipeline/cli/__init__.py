"""The ``cc-pipeline`` command.

Heavy imports (dagster, duckdb) happen inside the commands that need them, so that ``--help`` answers at once.
"""

from __future__ import annotations

import gc

#: New objects between two garbage collections. Loading Dagster makes some 400,000, none of them garbage.
_GC_THRESHOLD = 500_000


def main() -> None:
    """Runs the command line. The tree is built here, because commands of extensions import this package."""
    gc.set_threshold(_GC_THRESHOLD)
    from cc_pipeline.cli.app import main as run

    run()


__all__ = ["main"]
