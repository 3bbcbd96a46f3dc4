"""The ``cc-pipeline`` command.

Heavy imports (dagster, duckdb) happen inside the commands that need them, so that ``--help`` answers at once.
"""

from __future__ import annotations


def main() -> None:
    """Runs the command line. The tree is built here, because commands of extensions import this package."""
    from cc_pipeline.cli.app import main as run

    run()


__all__ = ["main"]
