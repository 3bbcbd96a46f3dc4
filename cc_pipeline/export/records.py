"""Counts planned captures of targets for exports of records."""

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
class OutcomeCounts:
    """The numbers of planned captures by outcome, and of exported records by crawl."""

    outcomes: Counter[str] = field(default_factory=Counter)
    crawls: Counter[str] = field(default_factory=Counter)

    @property
    def planned(self) -> int:
        """The number of all planned captures."""
        return sum(self.outcomes.values())


def rows_of_targets(workspace: Workspace, targets: Sequence[Target]) -> list[str]:
    """Returns the slugs under which tables have rows of ``targets``."""
    return [part for slugs in workspace.rows_of([target.slug for target in targets]).values() for part in slugs]


def crawls_with_records(workspace: Workspace, targets: Sequence[Target]) -> list[str]:
    """Returns the crawls in which the home has planned captures of ``targets``, newest first."""
    return _find_crawls(workspace, "records", targets)


def crawls_with_captures(workspace: Workspace, targets: Sequence[Target]) -> list[str]:
    """Returns the crawls in which captures of ``targets`` were located, newest first."""
    return _find_crawls(workspace, "captures", targets)


def crawls_looked_up(workspace: Workspace, targets: Sequence[Target]) -> list[str]:
    """Returns the crawls in which any of ``targets`` was looked up, newest first."""
    return _find_crawls(workspace, "lookups", targets)


def _find_crawls(workspace: Workspace, table: str, targets: Sequence[Target]) -> list[str]:
    slugs = rows_of_targets(workspace, targets)
    return sorted({crawl for (crawl,) in count_rows(workspace.lake, table, {"target": slugs}, ["crawl"])})[::-1]


def written_records(files: tuple[Path, ...], crawls: Mapping[str, int], notes: Sequence[str] = ()) -> Written:
    """Returns the result of an export of records, counted by crawl."""
    return Written(files, ("crawl", "records"), tuple(sorted(crawls.items(), reverse=True)), tuple(notes))
