"""A stored file written again without some of its records, as a new file: a complete one never changes.

The members that stay are copied byte for byte, so a row that follows its bytes says of them what it said before.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from cc_pipeline import SOFTWARE
from cc_pipeline.archive.members import inflate_member
from cc_pipeline.errors import DataFault, disk_trouble
from cc_pipeline.records.segments import SUFFIXES, segment_head
from cc_pipeline.records.storage import RecordStorage

#: Bytes of neighbouring members that are read together; one record may be larger.
_AT_ONCE: Final = 8 << 20
#: Bytes at the begin of a file that hold its first member, which says what the file is.
_HEAD: Final = 64 << 10
_KINDS: Final[Mapping[str, str]] = {suffix: kind for kind, suffix in SUFFIXES.items()}


def holds_more(storage: RecordStorage, file: str, size: int, lengths: Any) -> bool:
    """Whether a stored file of ``size`` bytes has others than its head and members of these ``lengths`` in bytes."""
    return int(np.sum(lengths)) + _head_length(storage, file, size) < size


def write_again(
    storage: RecordStorage, file: str, size: int, name: str, offsets: Any, lengths: Any, scratch: Path
) -> tuple[str, Any]:
    """Writes the members at ``offsets`` (ascending int64, with their ``lengths`` in bytes) of a stored ``file`` of
    ``size`` bytes to a new file called ``name`` without its suffix; gives the new key, and the members' new offsets.

    Members that the file does not have, because it was cut, lie behind the new file's end as they did behind that of
    the old one. The new file is whole when this returns. ``scratch`` is a folder for it. Raises ``EnvironmentFault``,
    and ``RangeFault`` where the place does not give the old one.
    """
    folder, _, old = file.rpartition("/")
    suffix = next(one for one in _KINDS if old.endswith(one))
    crawl = folder.rpartition("/")[2]
    new = f"{name}{suffix}"
    info = {
        "software": SOFTWARE,
        "format": "WARC File Format 1.0",
        "description": f"Records of {crawl}, extracted from Common Crawl, of {old} without those that were purged",
        "isPartOf": crawl,
    }
    here = offsets + lengths <= size
    path = scratch / new
    with disk_trouble(path), path.open("wb") as out:
        head = segment_head(_KINDS[suffix], new, info)
        out.write(head)
        for start, end in _stretches(offsets[here], lengths[here]):
            out.write(storage.transport.read(file, start, end - start).data)
        out.flush()
        os.fsync(out.fileno())
    written = path.stat().st_size
    kept = lengths[here]
    places = np.full(len(offsets), written, np.int64)
    places[here] = len(head) + np.cumsum(kept) - kept
    key = f"{folder}/{new}"
    storage.transport.put(key, path)
    path.unlink()
    return key, places


def _stretches(offsets: Any, lengths: Any) -> Iterator[tuple[int, int]]:
    """Neighbouring members as (begin, end), at most so many bytes together."""
    start = end = 0
    for offset, length in zip(offsets.tolist(), lengths.tolist(), strict=True):
        if offset != end or offset + length - start > _AT_ONCE:
            if end > start:
                yield start, end
            start = offset
        end = offset + length
    if end > start:
        yield start, end


def _head_length(storage: RecordStorage, file: str, size: int) -> int:
    if file.endswith(SUFFIXES["raw"]) or not size:
        return 0
    try:
        return inflate_member(storage.transport.read(file, 0, min(size, _HEAD)).data, file, 0).consumed
    except DataFault:
        return 0
