"""Files read whole: turns the name that a person gives into a kind, a place, a crawl and a partition key."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

from cc_pipeline.addresses import shown
from cc_pipeline.archive.record import ArchivedRecord
from cc_pipeline.archive.sequencefile import read_header
from cc_pipeline.archive.warc import iter_records
from cc_pipeline.commoncrawl.crawls import validate_crawl_id
from cc_pipeline.commoncrawl.paths import current_key
from cc_pipeline.errors import DataFault, UserInputError
from cc_pipeline.stages.source_files import FileKind, SourceFile
from cc_pipeline.transport.client import Transport
from cc_pipeline.wholefiles.download import is_local, read_head, size_and_tag

#: Header metadata under which exported SequenceFiles name their crawl.
CRAWL_ENTRY = "cc_pipeline.crawl"
_CRAWL_OF_2012 = "CC-MAIN-2012"
_IN_KEY = re.compile(r"(?:\A|/)(?:crawl-data|projects/[^/]+)/([^/]+)/segments/")
_PART_OF = re.compile(rb"^isPartOf:[ \t]*(\S+)", re.MULTILINE | re.IGNORECASE)


def identify(transport: Transport, named: str, kind: str, crawl: str | None = None) -> SourceFile:
    """The file a person means by a path of this machine or a key (or address) of the source behind ``transport``.

    Without ``crawl`` the crawl comes from the key, the file's ``warcinfo`` (``isPartOf``) or the header of a
    SequenceFile. A SequenceFile that names no crawl counts as one of 2012. Raises ``UserInputError`` for an unknown
    kind, a file that is not there, and a crawl that cannot be told.
    """
    if kind not in get_args(FileKind):
        raise UserInputError(f"unknown kind {kind!r}; choose one of {', '.join(get_args(FileKind))}")
    known: FileKind = kind  # type: ignore[assignment]  # checked against the literal's values
    location = _location(transport, named)
    return SourceFile(known, location, validate_crawl_id(crawl) if crawl else _crawl_of(transport, location, known))


def _location(transport: Transport, named: str) -> str:
    path = Path(named).expanduser()
    if path.is_file():
        return str(path.absolute())
    if path.is_absolute():
        raise UserInputError(f"{named} is not a file on this machine")
    try:
        key = current_key(named)
    except DataFault as fault:
        raise UserInputError(
            f"{shown(named)!r} is neither a file here nor a key of the source: {fault.reason}"
        ) from None
    if size_and_tag(transport, key) is None:
        raise UserInputError(f"{shown(named)!r} is neither a file here nor a key of {transport.source}")
    return key


def _crawl_of(transport: Transport, location: str, kind: FileKind) -> str:
    found = _IN_KEY.search(location)
    if found:
        return validate_crawl_id(found.group(1))
    head = read_head(transport, location)
    if kind == "sequencefile":
        return _crawl_of_sequencefile(head, location)
    # the first record of a WAT or WET file may say which crawl it is part of
    first = next(iter_records(head, location), None)
    part_of = _PART_OF.search(first.payload) if isinstance(first, ArchivedRecord) else None
    if part_of is None:
        place = "path" if is_local(location) else "key"
        raise UserInputError(f"neither {location} nor its {place} says which crawl it belongs to; name it with --crawl")
    return validate_crawl_id(part_of.group(1).decode("latin-1"))


def _crawl_of_sequencefile(head: bytes, location: str) -> str:
    try:
        written = dict(read_header(head, location).metadata).get(CRAWL_ENTRY)
    except DataFault:
        # a damaged header is reported when the file is read
        written = None
    return validate_crawl_id(written) if written else _CRAWL_OF_2012
