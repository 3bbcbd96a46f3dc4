"""The code location of the soak: that of cc_pipeline, in which one partition in fifty cannot be located."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import cc_pipeline.extraction.run as stages
from cc_pipeline.definitions import defs
from cc_pipeline.errors import CcPipelineError
from cc_pipeline.lake.slice import StageReport
from cc_pipeline.workspace.workspace import Workspace

__all__ = ["defs", "is_bad"]

_ONE_IN = 50
_locate = stages.locate_captures


def is_bad(crawl: str, slug: str) -> bool:
    """Whether a partition always fails."""
    return hashlib.sha256(f"{crawl}|{slug}".encode()).digest()[0] * _ONE_IN < 256


def _locate_or_fail(workspace: Workspace, crawl: str, slugs: Sequence[str]) -> StageReport:
    for slug in slugs:
        if is_bad(crawl, slug):
            raise CcPipelineError(f"the index of {crawl} cannot be read for {slug}, as the soak wants it")
    return _locate(workspace, crawl, slugs)


stages.locate_captures = _locate_or_fail
