"""What ``cc-pipeline doctor`` looks at. Each finding says what it is and what to do."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cc_pipeline.errors import CcPipelineError
from cc_pipeline.extraction.crawls import list_crawls
from cc_pipeline.extraction.tables import TABLES
from cc_pipeline.extraction.workspace import Workspace
from cc_pipeline.settings import PREFIX, Settings, remembered_source

_LOW_DISK = 5_000_000_000
_MANY_FILES = 2_000


@dataclass(frozen=True, slots=True)
class Finding:
    """``level`` is ``ok``, ``note`` or ``bad``."""

    level: str
    topic: str
    text: str
    advice: str = ""


def examine(settings: Settings) -> list[Finding]:
    """All findings; nothing raises, since a broken home is what a person asks about."""
    return [
        Finding("ok", "python", f"{sys.version.split()[0]}, {sys.executable}"),
        *_home(settings),
        *_contact(settings),
        *_disk(settings.home),
        *_source(settings),
        *_tables(settings),
    ]


def _home(settings: Settings) -> Iterator[Finding]:
    known = remembered_source(settings.home)
    if known is None:
        yield Finding("note", "home", f"{settings.home} is new; the first run makes it a home of {settings.source}")
    elif known != settings.source:
        advice = f"Set {PREFIX}HOME to another folder, or unset {PREFIX}SOURCE."
        yield Finding("bad", "home", f"{settings.home} belongs to {known}, not to {settings.source}", advice)
    else:
        yield Finding("ok", "home", f"{settings.home}, of {known}")


def _contact(settings: Settings) -> Iterator[Finding]:
    if settings.is_public and not settings.contact:
        advice = (
            f"Set {PREFIX}CONTACT to an address or page of yours: the people who run the bucket can then reach you."
        )
        yield Finding("note", "contact", "requests carry no contact", advice)
    elif settings.contact:
        yield Finding("ok", "contact", settings.user_agent)


def _disk(home: Path) -> Iterator[Finding]:
    place = home
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    if free < _LOW_DISK:
        yield Finding("bad", "disk", f"{free / 1e9:.1f} GB free", "Free some space: records and tables need gigabytes.")
    else:
        yield Finding("ok", "disk", f"{free / 1e9:.0f} GB free")


def _source(settings: Settings) -> Iterator[Finding]:
    try:
        crawls = list_crawls(Workspace(settings))
    except CcPipelineError as error:
        yield Finding("bad", "source", str(error), f"Check {PREFIX}SOURCE and {PREFIX}COLLINFO, and the network.")
        return
    yield Finding("ok", "source", f"{settings.source}: {len(crawls)} crawls, newest {crawls[0].id if crawls else '-'}")


def _tables(settings: Settings) -> Iterator[Finding]:
    if remembered_source(settings.home) != settings.source:
        return
    workspace = Workspace(settings)
    for spec in TABLES:
        try:
            pinned = workspace.lake.pin(spec.name)
        except CcPipelineError as error:
            yield Finding("bad", spec.name, str(error))
            continue
        if pinned.version < 0:
            continue
        text = f"{pinned.rows:,} rows in {len(pinned.files):,} files, version {pinned.version}"
        level = "note" if len(pinned.files) > _MANY_FILES else "ok"
        yield Finding(level, spec.name, text, "Merge its small files: run the upkeep job." if level == "note" else "")
    if settings.published_path.exists():
        yield Finding("ok", "cc.duckdb", f"{settings.published_path.stat().st_size:,} bytes")
    else:
        yield Finding("note", "cc.duckdb", "nothing published yet", "Run something, or materialize `warehouse`.")
