"""Pages that an older parser made: how many, where, what parsing them again costs, and whether somebody said yes.

A new version of the parser makes all pages stale at once, which may be days of work. So automation says what it would
cost and waits; a run that a person starts parses what it touches in any case.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Final

from cc_pipeline.commoncrawl.parts import whole_slug
from cc_pipeline.documents.schemas import PARSER_VERSION
from cc_pipeline.errors import disk_trouble
from cc_pipeline.lake.streaming import count_rows
from cc_pipeline.settings import Settings
from cc_pipeline.stages.workspace import Workspace

#: Pages a second on one core, by extractor (docs/documents.md), with reading and committing them.
_PAGES_A_SECOND: Final = {"fast": 120.0, "auto": 90.0, "quality": 40.0}


@dataclass(frozen=True, slots=True)
class Outdated:
    """``pages`` of an older parser by crawl and target, as they were when ``parser`` was first seen; what Dagster has
    recorded behind ``place`` in its event log was made since. ``agreed`` says that they are to be parsed again."""

    parser: str
    place: int
    agreed: bool = False
    pages: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    def left(self, recorded: Mapping[tuple[str, str], int]) -> dict[tuple[str, str], int]:
        """Pages of the partitions that were not made since; ``recorded`` are the places of their last records."""
        return {
            (crawl, slug): pages
            for crawl, targets in self.pages.items()
            for slug, pages in targets.items()
            if recorded.get((crawl, slug), -1) <= self.place
        }


def outdated(workspace: Workspace, place: int) -> Outdated:
    """What an older parser made. Pages are counted once for each version of the parser, which reads three columns of
    the whole table; ``place`` is where the event log ends now. Raises ``EnvironmentFault``."""
    known = _read(_note(workspace.settings))
    if known is not None and known.parser == PARSER_VERSION:
        return known
    counted = count_rows(workspace.lake, "page_metadata", {}, ["crawl", "target", "parser_version"])
    pages: dict[str, dict[str, int]] = {}
    for (crawl, target, parser), rows in counted.items():
        if parser != PARSER_VERSION:
            own = pages.setdefault(crawl, {})
            own[whole_slug(target)] = own.get(whole_slug(target), 0) + rows
    found = Outdated(PARSER_VERSION, place, False, pages)
    _write(_note(workspace.settings), found)
    return found


def agree(workspace: Workspace, place: int, *, yes: bool = True) -> Outdated:
    """Writes down that the pages of older parsers are to be parsed again, or not."""
    found = replace(outdated(workspace, place), agreed=yes)
    _write(_note(workspace.settings), found)
    return found


def seconds_of(settings: Settings, pages: Collection[int]) -> float:
    """Seconds that parsing so many pages is likely to take on this machine."""
    cores = settings.workers or os.cpu_count() or 1
    return sum(pages) / (_PAGES_A_SECOND[settings.extractor] * cores)


def _note(settings: Settings) -> Path:
    return settings.cache_path / "reparse.json"


def _read(path: Path) -> Outdated | None:
    try:
        return Outdated(**json.loads(path.read_text("utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def _write(path: Path, found: Outdated) -> None:
    with disk_trouble(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f"{path.name}.{os.getpid()}")
        temporary.write_text(json.dumps(asdict(found)), "utf-8")
        temporary.replace(path)
