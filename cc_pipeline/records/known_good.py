"""Known-good records: a place has proved that it works if it gave a good archive record within a day. Without such a
record, no capture that is missing there counts as lost.

A mirror with indexes and without archives says "not found" of each record, and a broken mirror gives the same wrong
bytes twice: both answers are repeatable and still wrong. A readable index is no proof.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from cc_pipeline.archive import arc, warc
from cc_pipeline.archive.gzip_members import DEFAULT_LIMIT, inflate_member
from cc_pipeline.atomic import write_whole
from cc_pipeline.commoncrawl.paths import inflated, listed_keys
from cc_pipeline.errors import DataFault
from cc_pipeline.records.verification import ExpectedRecord, verify_record
from cc_pipeline.transport.client import Transport
from cc_pipeline.transport.faults import FaultKind, RangeFault
from cc_pipeline.transport.named_files import NamedPlaces
from cc_pipeline.transport.ranges import RangeBytes

#: Seconds for which a known-good record proves that its place works.
LIFE: Final = 86_400.0
#: Bytes from the start of an archive file that hold its first record, which describes the file.
_HEAD: Final = 16 << 10
#: Files of the plan that are tried if no list names a crawl's first file.
_FILES: Final = 3
#: Places whose records are stored; the oldest is dropped first.
_MAX_SOURCES: Final = 100


@dataclass(frozen=True, slots=True)
class Search:
    """The candidates for a known-good record: ``records`` that were good before, and the first and the last file of the
    path list ``list_key`` (a key), if there is one."""

    records: tuple[ExpectedRecord, ...] = ()
    list_key: str | None = None


def read_known_good(path: Path, sources: Iterable[str]) -> tuple[bool, tuple[ExpectedRecord, ...]]:
    """Returns whether one of ``sources`` has a valid known-good record in the file ``path``, and all records that were
    good there. A file that cannot be read has none."""
    entries_by_source = _read(path)
    own_entries = [entries_by_source[source] for source in sources if source in entries_by_source]
    now = time.time()
    return any(0 <= now - noted_at < LIFE for noted_at, _ in own_entries), tuple(
        expected for _, expected in own_entries
    )


def note(path: Path, seen: Mapping[str, ExpectedRecord]) -> None:
    """Stores known-good records by the place that gave them. Raises ``OSError``."""
    if not seen:
        return
    now = time.time()
    entries_by_source = {**_read(path), **{source: (now, expected) for source, expected in seen.items()}}
    newest = sorted(entries_by_source.items(), key=lambda pair: -pair[1][0])[:_MAX_SOURCES]
    text = json.dumps(
        {source: {"at": noted_at, "record": asdict(expected)} for source, (noted_at, expected) in newest}, indent=1
    )
    write_whole(path, text)


def _read(path: Path) -> dict[str, tuple[float, ExpectedRecord]]:
    try:
        document = json.loads(path.read_text())
        return {
            source: (float(fields["at"]), ExpectedRecord(**fields["record"])) for source, fields in document.items()
        }
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return {}


def find(transport: Transport | NamedPlaces, search: Search, files: Sequence[str]) -> tuple[str, ExpectedRecord] | None:
    """Fetches a known-good record now, with a few requests. Returns the place that gave it and the record: one that was
    good before, else the first record of a listed file, or of some of ``files``."""
    answers = (_fetch_known_good(transport, expected) for expected in _candidates(transport, search, files))
    return next(filter(None, answers), None)


def _candidates(transport: Transport | NamedPlaces, search: Search, files: Sequence[str]) -> Iterator[ExpectedRecord]:
    yield from search.records[:1]
    archive_keys = () if search.list_key is None else _first_and_last(transport, search.list_key)
    for key in archive_keys or files[:_FILES]:
        yield ExpectedRecord("", "arc" if ".arc" in key.rpartition("/")[2] else "warc", key, 0, _HEAD, None, None, None)


def _first_and_last(transport: Transport | NamedPlaces, list_key: str) -> tuple[str, ...]:
    """Returns the first and the last file of a list: one of them may be missing."""
    keys: list[str] = []
    try:
        for _, key in listed_keys(inflated(transport.read_all(list_key).data, list_key), list_key, faults=[]):
            keys[1:] = [key]
    except (RangeFault, DataFault):
        return ()
    return tuple(keys)


def _fetch_known_good(
    transport: Transport | NamedPlaces, expected: ExpectedRecord
) -> tuple[str, ExpectedRecord] | None:
    try:
        answer = _read_of(transport, expected)
    except RangeFault:
        return None
    if expected.url is None and expected.offset == 0:
        return (answer.source, expected) if is_first_record(answer.data, expected) else None
    verdict = verify_record(answer.data, expected)
    return (answer.source, expected) if verdict.reason is None and verdict.digest_check != "mismatch" else None


def _read_of(transport: Transport | NamedPlaces, expected: ExpectedRecord) -> RangeBytes:
    try:
        return transport.read(expected.key, expected.offset, expected.length or _HEAD)
    except RangeFault as fault:
        if fault.kind is not FaultKind.RANGE_NOT_SATISFIABLE or expected.length != _HEAD:
            raise
    # the file is shorter than the range
    object_info = transport.head(expected.key)
    return transport.read(expected.key, 0, (object_info.size if object_info is not None else None) or 1)


def is_first_record(data: bytes, expected: ExpectedRecord) -> bool:
    """Whether ``data`` begins with the first record of such an archive file: the record that describes the file, and
    names this file if it names one."""
    key = expected.key
    try:
        content = inflate_member(data, key, 0, DEFAULT_LIMIT).content
        if expected.archive_format == "arc":
            return arc.parse_record(content, key, 0).record_type == "filedesc"
        record = warc.parse_record(content, key, 0)
    except DataFault:
        return False
    file_names = [value for name, value in record.record_headers if name.lower() == "warc-filename"]
    return record.record_type == "warcinfo" and all(key.endswith(name.strip()) for name in file_names)
