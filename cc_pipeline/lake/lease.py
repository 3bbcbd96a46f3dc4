"""Work that only one home on a lake may do at a time, across machines: merging the files of tables.

Two mergers that begin at the same version of a table both commit, and the rows are there twice: the Delta library finds
no conflict between them (1.6; ``test_shared_lake.py`` shows it). Locks of a host do not reach other hosts, and a home
may end without a word, so a lease is an object that ends by itself. Its number only grows, so that of two homes that
find it ended one gets the next.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Final

from cc_pipeline.transport.client import Transport
from cc_pipeline.transport.faults import FaultKind, RangeFault

#: Longer than any merging takes; after a kill, nobody merges for as long.
LASTS: Final = timedelta(hours=24)
_LONGEST: Final = 4_096


@contextmanager
def leased(lake: Transport, name: str) -> Iterator[bool]:
    """Whether this block has the lease ``name``; ``False`` while another one has it. It ends with the block.

    Raises ``RangeFault`` or ``EnvironmentFault`` when the place cannot be read or written.
    """
    folder = f"leases/{name}/"
    # in a folder, files that are being written have other names
    held = sorted(listed.key for listed in lake.listing(folder) if listed.key.removeprefix(folder).isdecimal())
    if held and not _has_ended(lake, held[-1]):
        yield False
        return
    number = int(held[-1].removeprefix(folder)) + 1 if held else 1
    key = f"{folder}{number:012}"
    until = (datetime.now(UTC) + LASTS).isoformat(timespec="seconds")
    if not lake.put(key, json.dumps({"until": until}).encode(), only_if_absent=True):
        yield False
        return
    try:
        for ended in held:
            lake.delete(ended)
        yield True
    finally:
        # not deleted: the next one takes the number after it
        lake.put(key, json.dumps({"until": datetime.now(UTC).isoformat()}).encode())


def _has_ended(lake: Transport, key: str) -> bool:
    try:
        return datetime.fromisoformat(json.loads(lake.read_all(key, _LONGEST).data)["until"]) <= datetime.now(UTC)
    except RangeFault as fault:
        if fault.kind is FaultKind.NOT_FOUND:
            return False  # another one has just taken the number after it
        raise
