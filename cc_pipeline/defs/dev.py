"""The program of ``cc-pipeline ui``: ``dagster dev``, whose webserver is behind the guard of ``webserver.py``."""

from __future__ import annotations

from cc_pipeline.children import python_command
from cc_pipeline.defs.internals import run_dev


def main() -> None:
    """``dagster dev`` with its own options."""
    run_dev(python_command("cc_pipeline.defs.webserver"))
