"""What a purge has begun: ``purges/<slug>.json`` in the lake's place, from before its first step until nothing is left.

So a purge that is killed goes on where it stopped, also from another home on the lake, and upkeep knows which stored
files still have records that are to go.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Final

from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.transport.client import Transport
from cc_pipeline.transport.faults import FaultKind, RangeFault

_FOLDER: Final = "purges/"
_LONGEST: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class PurgeNote:
    """``files`` (by crawl) are stored files with records that are to go; ``old`` those of them that no row named any
    more once they were dealt with, which only wait for their deletion. ``removed_at`` is when the rows were gone."""

    slug: str
    definition: str
    files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    old: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    crawls: tuple[str, ...] = ()
    removed_at: datetime | None = None

    @property
    def all_files(self) -> dict[str, tuple[str, ...]]:
        """Every stored file that has, or had, records that are to go, by crawl."""
        crawls = sorted({*self.files, *self.old})
        return {crawl: tuple(sorted({*self.files.get(crawl, ()), *self.old.get(crawl, ())})) for crawl in crawls}

    def with_files(self, files: Mapping[str, tuple[str, ...]]) -> PurgeNote:
        """With more files to deal with."""
        crawls = sorted({*self.files, *files})
        return replace(
            self,
            files={crawl: tuple(sorted({*self.files.get(crawl, ()), *files.get(crawl, ())})) for crawl in crawls},
        )

    def dealt_with(self, crawl: str, files: tuple[str, ...]) -> PurgeNote:
        """With these files of ``crawl`` among the old ones."""
        left = tuple(one for one in self.files.get(crawl, ()) if one not in set(files))
        old = tuple(sorted({*self.old.get(crawl, ()), *files}))
        return replace(self, files={**self.files, crawl: left}, old={**self.old, crawl: old})


def write(place: Transport, note: PurgeNote) -> None:
    """Writes the note down, in the place of the one before. Raises ``EnvironmentFault``."""
    at = None if note.removed_at is None else note.removed_at.isoformat()
    place.put(_key(note.slug), (json.dumps(asdict(note) | {"removed_at": at}) + "\n").encode())


def read(place: Transport, slug: str) -> PurgeNote | None:
    """The note of a purge that has begun and not ended. Raises ``EnvironmentFault``, also for a note that is none."""
    try:
        noted = json.loads(place.read_all(_key(slug), _LONGEST).data)
        at = noted["removed_at"]
        return PurgeNote(
            str(noted["slug"]),
            str(noted["definition"]),
            {str(crawl): tuple(map(str, files)) for crawl, files in noted["files"].items()},
            {str(crawl): tuple(map(str, files)) for crawl, files in noted["old"].items()},
            tuple(map(str, noted["crawls"])),
            None if at is None else datetime.fromisoformat(at).astimezone(UTC),
        )
    except RangeFault as fault:
        if fault.kind is FaultKind.NOT_FOUND:
            return None
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise EnvironmentFault(
            f"{place.source}/{_key(slug)} does not say what a purge has begun",
            "It was not written by this version. Delete it, and purge the target again.",
        ) from error


def begun(place: Transport) -> list[PurgeNote]:
    """All purges that have begun and not ended. Raises ``EnvironmentFault``."""
    slugs = [one.key.removeprefix(_FOLDER).removesuffix(".json") for one in place.listing(_FOLDER)]
    notes = (read(place, slug) for slug in slugs if not slug.startswith("."))
    return [note for note in notes if note is not None]


def end(place: Transport, slug: str) -> None:
    """Removes the note. Raises ``EnvironmentFault``."""
    place.delete(_key(slug))


def _key(slug: str) -> str:
    return f"{_FOLDER}{slug}.json"
