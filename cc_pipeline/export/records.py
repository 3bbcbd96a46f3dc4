"""Planned captures of targets, as exports of records count them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cc_pipeline.commoncrawl.target import Target
from cc_pipeline.export.format import Written
from cc_pipeline.lake.streaming import count_rows
from cc_pipeline.workspace.workspace import Workspace


@dataclass(slots=True)
class Ledger:
    """What became of the planned captures of what is handed on: outcomes, and records by crawl."""

    outcomes: Counter[str] = field(default_factory=Counter)
    crawls: Counter[str] = field(default_factory=Counter)

    @property
    def planned(self) -> int:
        """All captures that were planned."""
        return sum(self.outcomes.values())


def rows_of_targets(workspace: Workspace, targets: Sequence[Target]) -> list[str]:
    """The slugs under which tables have rows of ``targets``."""
    return [part for own in workspace.rows_of([target.slug for target in targets]).values() for part in own]


def crawls_with_records(workspace: Workspace, targets: Sequence[Target]) -> list[str]:
    """Crawls of which the home has planned captures of ``targets``, newest first."""
    slugs = rows_of_targets(workspace, targets)
    return sorted({crawl for (crawl,) in count_rows(workspace.lake, "records", {"target": slugs}, ["crawl"])})[::-1]


def written_records(files: tuple[Path, ...], crawls: Mapping[str, int], notes: Sequence[str] = ()) -> Written:
    """What was written of records, counted by crawl."""
    return Written(files, ("crawl", "records"), tuple(sorted(crawls.items(), reverse=True)), tuple(notes))
