"""Which table versions the published files of all homes on a lake name, so that no home's upkeep deletes their files.

A home cannot see when another one publishes again. Each home on a lake apart from it keeps an object below
``published/`` there. It counts for a while only: a home may be gone without a word.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Final

from cc_pipeline.lake.lake import PinnedTable
from cc_pipeline.transport.client import Transport
from cc_pipeline.transport.faults import FaultKind, RangeFault

#: How long the files behind a published file of another home are kept, counted from its publication.
KEPT: Final = timedelta(days=30)
_FOLDER: Final = "published/"
_LONGEST: Final = 1 << 20
_NONE_YET: Final = -1


def pin(lake: Transport, home: Path, tables: Sequence[PinnedTable], *, and_before: bool = False) -> None:
    """Notes that the published file of ``home`` names these versions, with ``and_before`` also those noted before."""
    noted = {table.spec.name: [table.version] for table in tables if table.version != _NONE_YET}
    if and_before:
        for name, versions in _versions(lake, _key(home)).items():
            noted[name] = sorted({*noted.get(name, []), *versions})
    at = datetime.now(UTC).isoformat(timespec="seconds")
    lake.put(_key(home), (json.dumps({"published_at": at, "versions": noted}) + "\n").encode())


def unpin(lake: Transport, home: Path) -> None:
    """Notes that the published file of ``home`` needs no files of the lake."""
    lake.delete(_key(home))


def pinned_versions(lake: Transport) -> dict[str, set[int]]:
    """By table, the versions that published files name. Notes that count no more are deleted."""
    found: dict[str, set[int]] = {}
    for listed in lake.listing(_FOLDER):
        versions = _versions(lake, listed.key)
        if not versions:
            lake.delete(listed.key)
        for name, numbers in versions.items():
            found.setdefault(name, set()).update(numbers)
    return found


def published_elsewhere(lake: Transport, home: Path) -> dict[str, datetime]:
    """The other homes whose published files name versions of this lake (as keys of their notes), and when each
    published last."""
    found = {}
    for listed in lake.listing(_FOLDER):
        if listed.key != _key(home) and _versions(lake, listed.key):
            found[listed.key] = datetime.fromtimestamp(listed.modified, UTC)
    return found


def _versions(lake: Transport, key: str) -> Mapping[str, Sequence[int]]:
    """What a note pins; nothing where there is none, it is too old, or it is none of ours."""
    try:
        noted = json.loads(lake.read_all(key, _LONGEST).data)
        at = datetime.fromisoformat(noted["published_at"])
        versions = {str(name): [int(number) for number in numbers] for name, numbers in noted["versions"].items()}
        return versions if datetime.now(UTC) - at < KEPT else {}
    except RangeFault as fault:
        if fault.kind is FaultKind.NOT_FOUND:
            return {}
        raise
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}


def _key(home: Path) -> str:
    return f"{_FOLDER}{sha256(f'{platform.node()}:{home}'.encode()).hexdigest()[:16]}.json"
