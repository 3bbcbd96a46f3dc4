"""The code location of the tests with real processes: that of cc_pipeline, in which those partitions fail that the file
``BAD_PARTITIONS`` names, and those wait that ``HELD_PARTITIONS`` names. Importing it changes ``extraction.run``."""

import os
import time
from collections.abc import Sequence
from pathlib import Path

import cc_pipeline.extraction.run as stages
from cc_pipeline import definitions
from cc_pipeline.errors import CcPipelineError
from cc_pipeline.lake.slice import StageReport
from cc_pipeline.workspace.workspace import Workspace

_locate = stages.locate_captures


def _locate_or_fail(workspace: Workspace, crawl: str, slugs: Sequence[str], **given: object) -> StageReport:
    bad, held = Path(os.environ["BAD_PARTITIONS"]).read_text("utf-8").split(), Path(os.environ["HELD_PARTITIONS"])
    while {f"{crawl}|{slug}" for slug in slugs} & {*held.read_text("utf-8").split()}:
        held.with_suffix(".waits").touch()
        time.sleep(0.2)
    for slug in slugs:
        if f"{crawl}|{slug}" in bad:
            raise CcPipelineError(f"{slug} is bad in {crawl}, as the test wants it")
    return _locate(workspace, crawl, slugs, **given)  # type: ignore[arg-type]


stages.locate_captures = _locate_or_fail


defs = definitions.defs()
