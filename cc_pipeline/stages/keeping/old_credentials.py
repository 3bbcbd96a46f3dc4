"""Credentials that versions of before wrote into a home: in ``home.json`` and in the heads of stored records."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator

from cc_pipeline.addresses import holds_access
from cc_pipeline.home import NOTE, read_note
from cc_pipeline.records.segments import SUFFIXES
from cc_pipeline.stages.workspace import Workspace

#: Files of records that are looked at, the oldest first: what is written now has none.
_SAMPLE = 50
#: Bytes of a file that hold what it says of itself, and the head of its first record.
_HEAD = 64 << 10
_MEMBERS = 2
_SOURCE = re.compile(rb"^(?:WARC-Source-URI|source): *(\S+)", re.MULTILINE)
_KINDS = (SUFFIXES["warc"], SUFFIXES["arc"])


def files_with_credentials(workspace: Workspace) -> tuple[list[str], int]:
    """The home's own note and the keys of stored files whose head holds credentials, and how many files of records
    were looked at.

    Raises ``EnvironmentFault`` or ``DataFault`` where stored files cannot be read.
    """
    held = []
    note = read_note(workspace.settings.home)
    if note is not None and holds_access(note.source):
        held.append(NOTE)
    place = workspace.place
    stored = [listed for listed in place.listing("records/") if listed.key.endswith(_KINDS) and listed.size]
    sample = sorted(stored, key=lambda listed: (listed.modified, listed.key))[:_SAMPLE]
    for listed in sample:
        head = place.read(listed.key, 0, min(listed.size, _HEAD)).data
        if any(holds_access(address.decode("utf-8", "replace")) for address in _addresses(head)):
            held.append(listed.key)
    return held, len(sample)


def _addresses(head: bytes) -> Iterator[bytes]:
    """The sources that the first members of a file name; a member that is cut or damaged says what it can."""
    for _ in range(_MEMBERS):
        inflater = zlib.decompressobj(31)
        try:
            content = inflater.decompress(head, _HEAD)
        except zlib.error:
            return
        yield from _SOURCE.findall(content)
        head = inflater.unused_data
