"""The code location of ``test_ways.py``: that of cc_pipeline, in which those partitions fail that a file names.

Importing it changes ``extraction.run``, so tests name this module and never import it.

python -m cc_pipeline_tests.defs.ways_location ARGUMENTS     cc-pipeline, with the same partitions bad
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import cc_pipeline.extraction.run as stages
from cc_pipeline.cli.app import main
from cc_pipeline.definitions import defs
from cc_pipeline.errors import CcPipelineError
from cc_pipeline.extraction.group_state import RunState
from cc_pipeline.lake.slice import StageReport
from cc_pipeline.workspace.workspace import Workspace

__all__ = ["defs"]

_locate = stages.locate_captures


def _locate_or_fail(workspace: Workspace, crawl: str, slugs: Sequence[str], run: RunState | None = None) -> StageReport:
    bad = Path(os.environ["WAYS_BAD"]).read_text("utf-8").split()
    for slug in slugs:
        if f"{crawl}|{slug}" in bad:
            raise CcPipelineError(f"{slug} is bad in {crawl}, as the test wants it")
    return _locate(workspace, crawl, slugs, run)


stages.locate_captures = _locate_or_fail

if __name__ == "__main__":
    main()
