"""The ``cc-pipeline`` command.

Heavy imports (dagster, duckdb) happen inside the commands that need them, so that ``--help`` answers at once.
"""

from __future__ import annotations

import gc

#: New objects before a garbage collection of the youngest, and such collections before one of older objects. Loading
#: Dagster makes some 400,000 objects, none of them garbage; a long command still collects all every two million.
_GC_THRESHOLDS = (500_000, 2, 2)


def main() -> None:
    """Runs the command line. The tree is built here, because commands of extensions import this package."""
    gc.set_threshold(*_GC_THRESHOLDS)
    from cc_pipeline.cli.app import main as run

    run()


__all__ = ["main"]
