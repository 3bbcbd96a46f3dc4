"""Finds captures in a crawl's ZipNum index: the CDXJ lines behind ``cluster.idx``."""

from __future__ import annotations

import json
import re
import time
import uuid
import zlib
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import pyarrow as pa

from cc_pipeline.commoncrawl.domains import host_columns
from cc_pipeline.commoncrawl.index_schema import CAPTURE_SCHEMA
from cc_pipeline.commoncrawl.key_ranges import RangeSet
from cc_pipeline.commoncrawl.paths import cluster_key, segment_of, subset_of, todays_key
from cc_pipeline.commoncrawl.target import Target
from cc_pipeline.errors import DataFault, DataKind, UserInputError
from cc_pipeline.grouping import group_within
from cc_pipeline.index.gaps import IndexGaps
from cc_pipeline.index.locator import CaptureSink, LookupEstimate, LookupResult, TargetRouter, surt_ranges
from cc_pipeline.index.parquet.fetch import Cost, PageIndexes, Piece, fetch_pieces
from cc_pipeline.index.shards import is_arc
from cc_pipeline.index.zipnum.cluster import Cluster, Member, line_key
from cc_pipeline.progress import format_count
from cc_pipeline.transport.client import Transport

_TEXTS = {
    "mime": "content_mime_type",
    "mime-detected": "content_mime_detected",
    "charset": "content_charset",
    "languages": "content_languages",
    "truncated": "content_truncated",
    "redirect": "fetch_redirect",
}
_OWN_FIELDS = frozenset({"url", "status", "digest", "length", "offset", "filename"})
_INT64_LIMIT = 1 << 63


def capture_of(line: bytes, source: str, offset: int) -> Mapping[str, Any]:
    """Returns the columns of ``CAPTURE_SCHEMA`` that a line has or implies.

    Raises ``DataFault`` (``source``, ``offset`` of its member) for a line without a location in an archive.
    """
    # keys of other writers have spaces
    head, _, members = line.partition(b" {")
    key, _, stamp = head.rpartition(b" ")
    text = b"{" + members
    try:
        fields = json.loads(text)
    except ValueError as error:
        raise DataFault(
            DataKind.MALFORMED, source, offset, f"the line of {key[:200]!r} has no JSON ({error})"
        ) from error
    if not isinstance(fields, dict):
        raise DataFault(DataKind.MALFORMED, source, offset, f"the line of {key[:200]!r} has no JSON object")
    file = fields.get("filename")
    if not isinstance(file, str) or not file:
        raise DataFault(DataKind.MALFORMED, source, offset, f"the line of {key[:200]!r} names no file")
    file = todays_key(file)
    url = fields.get("url")
    url = url if isinstance(url, str) else ""
    columns = host_columns(url)
    arc = is_arc(file)
    extra = {name: value for name, value in fields.items() if name not in _TEXTS and name not in _OWN_FIELDS}
    moment = _moment(stamp)
    if moment is None:
        extra["timestamp"] = stamp.decode("utf-8", "backslashreplace")
    record_id = _record_id(fields.get("recordid"))
    if record_id is not None:
        del extra["recordid"]
    return {
        **columns,
        **{column: _text(fields.get(name)) for name, column in _TEXTS.items()},
        **({"content_mime_type": None} if arc and fields.get("mime") == "unk" else {}),
        "subset": subset_of(file),
        "url_surtkey": key.decode("utf-8", "backslashreplace"),
        "url": url,
        "fetch_time": moment,
        "fetch_status": _status(fields.get("status")),
        "content_digest": _digest(fields.get("digest")),
        "warc_filename": file,
        "warc_record_offset": _number(fields, "offset", key, source, offset),
        "warc_record_length": _number(fields, "length", key, source, offset),
        "warc_segment": segment_of(file),
        "warc_record_id": record_id,
        "domain": columns["url_host_registered_domain"] or columns["url_host_name"] or None,
        "archive_format": "arc" if arc else "warc",
        "extra_columns": [(name, _text(value)) for name, value in extra.items()] or None,
    }


def _text(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value if value is None else value.encode("utf-8", "backslashreplace").decode()
    return json.dumps(value, ensure_ascii=False)


def _digest(value: object) -> str | None:
    return _text(value.removeprefix("sha1:")) if isinstance(value, str) else None


def _status(value: object) -> int | None:
    """Returns the status; ``None`` if the line has none, as in crawls of 2015 and of the ARC years: the record has
    it."""
    text = str(value)
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 4 else None


def _record_id(value: object) -> bytes | None:
    """Returns the record's id in the form of the columnar index; ``None`` if it is no UUID: then it stays as text."""
    try:
        return uuid.UUID(value.strip("<>")).bytes if isinstance(value, str) else None
    except ValueError:
        return None


def _moment(stamp: bytes) -> datetime | None:
    try:
        return datetime.strptime(stamp.decode("ascii"), "%Y%m%d%H%M%S").replace(tzinfo=UTC)
    except ValueError:
        return None


def _number(fields: Mapping[str, Any], name: str, key: bytes, source: str, offset: int) -> int:
    text = str(fields.get(name, ""))
    if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) < _INT64_LIMIT):
        raise DataFault(DataKind.MALFORMED, source, offset, f"the line of {key[:200]!r} has the {name} {text[:50]!r}")
    return int(text)


#: Compressed bytes of members in memory at a time; they inflate to about eight times that.
_ROUND_BYTES = 16 << 20
#: Lines that are turned into a table at a time.
_ROWS = 20_000
#: Common Crawl's front serves some objects whole despite a range. A shard has up to 1 GB: members in its first bytes,
#: up to so many, are taken out of it, and others are not worth it.
_MAX_WHOLE_OBJECT = 256 << 20
#: A member holds 3,000 lines; one that inflates beyond this is refused.
_MAX_INFLATED = 256 << 20
#: A record that begins directly after another one: in crawls of 2014 and 2015 members end without a line end, and
#: joined members have two records on a line. A record's values are strings; a key may have a brace, but no quote.
_JOINED = re.compile(rb"(?<=\")\}(?=[^ \n\"]+ \d{14} \{)")
#: Bad lines, and members that cannot be read, that a note or an error names.
_MAX_SHOWN = 5
_MAX_KEPT = 20


@dataclass(slots=True)
class _Unread:
    """The unreadable parts of an index: lines without a location in an archive, and whole members, each as (position,
    reason). Of the lines the first few are stored, and all are counted."""

    lines: list[str] = field(default_factory=list)
    line_count: int = 0
    members: list[tuple[str, str]] = field(default_factory=list)
    requested: int = 0

    def add_line(self, fault: DataFault) -> None:
        self.line_count += 1
        if len(self.lines) < _MAX_SHOWN:
            self.lines.append(str(fault))

    def add_member(self, piece: Piece, fault: DataFault) -> None:
        self.members.append((f"{piece.key} at byte {piece.offset}", fault.reason))

    def notes(self) -> tuple[str, ...]:
        if not self.line_count:
            return ()
        unshown_count = self.line_count - len(self.lines)
        line_list = "; ".join([*self.lines, *([f"{unshown_count:,} more"] if unshown_count else [])])
        return (f"{format_count(self.line_count, 'line')} of the index left out for naming no record: {line_list}",)

    def gaps(self, crawl: str, subsets: Sequence[str]) -> IndexGaps | None:
        unread = len(self.members)
        if not unread:
            return None
        by_subset = tuple((subset, unread, self.requested) for subset in subsets)
        return IndexGaps(
            crawl, self.requested, unread, by_subset, tuple(self.members[:_MAX_KEPT]), "blocks of the URL index"
        )


class ZipNumLocator:
    """Looks targets up in the ZipNum index of ``crawl``.

    ``cluster`` is its ``cluster.idx``, by default the published one without any known lines; shards lie beside it.
    ``members`` caches members that were read. A crawl has one index for all subsets; a row's subset comes from its file
    name. An answer's cost includes all reads of ``cluster.idx`` since the last answer. A line without a record is left
    out, counted and named in the answer's notes. A member that cannot be read is one of the answer's gaps."""

    name = "zipnum"

    def __init__(
        self,
        reader: Transport,
        crawl: str,
        cluster: Cluster | None = None,
        members: PageIndexes | None = None,
    ) -> None:
        self.crawl = crawl
        self.cluster = cluster or Cluster(reader, cluster_key(crawl))
        self._members = members or PageIndexes(memory=0)
        self._folder = self.cluster.key.rpartition("/")[0]
        self._reader = reader

    def price(self, crawl: str, subsets: Sequence[str], targets: Sequence[Target]) -> LookupEstimate:
        """Estimates the cost of the members that a lookup would read. Reads only probes of ``cluster.idx``."""
        self._check(crawl)
        members = list(self.cluster.members(self._router(targets).ranges))
        size = sum(member.length for member in members)
        return LookupEstimate(len({member.shard for member in members}), 0, len(members), size)

    def locate(
        self, crawl: str, subsets: Sequence[str], targets: Sequence[Target], sink: CaptureSink | None = None
    ) -> LookupResult:
        """Returns every capture of every target, per slug. Raises ``DataFault`` and ``EnvironmentFault``."""
        started = time.monotonic()
        self._check(crawl)
        cost = Cost()
        router = self._router(targets, sink)
        unread = _Unread()
        members = self.cluster.members(router.ranges)
        for batch in group_within(members, (_ROUND_BYTES,), lambda member: (member.length,)):
            lines = self._lines(batch, router.ranges, cost, unread)
            while line_batch := list(islice(lines, _ROWS)):
                rows: list[Mapping[str, Any]] = []
                targets_by_row: list[list[int]] = []
                for line, member in line_batch:
                    try:
                        row = self._row(line, member)
                    except DataFault as fault:
                        unread.add_line(fault)
                        continue
                    if row["subset"] in subsets:
                        rows.append(row)
                        targets_by_row.append(router.matching_targets(line_key(line), row["url"], row["url_host_name"]))
                router.give(pa.Table.from_pylist(rows, schema=CAPTURE_SCHEMA), targets_by_row)
        self.cluster.charge(cost)
        return LookupResult(
            router.captures(),
            cost.requests,
            cost.bytes,
            time.monotonic() - started,
            notes=unread.notes(),
            gaps=unread.gaps(crawl, subsets),
        )

    def _router(self, targets: Sequence[Target], sink: CaptureSink | None = None) -> TargetRouter:
        return TargetRouter(targets, surt_ranges(self.crawl, self.name), sink)

    def _check(self, crawl: str) -> None:
        if crawl != self.crawl:
            raise UserInputError(f"this ZipNum index is of {self.crawl}, not of {crawl}")

    def _key(self, member: Member) -> str:
        return f"{self._folder}/{member.shard}"

    def _lines(
        self, members: Sequence[Member], ranges: RangeSet, cost: Cost, unread: _Unread
    ) -> Iterator[tuple[bytes, Member]]:
        """Yields the members' lines with a key in ``ranges``, in order."""
        pieces = {member: Piece(self._key(member), member.offset, member.length) for member in members}
        data_by_piece = self._members.cached_pieces(pieces.values(), {})
        unreadable: dict[Piece, DataFault] = {}
        missing_data = pieces.values() - data_by_piece.keys()
        data_by_piece |= fetch_pieces(
            self._reader, missing_data, {}, cost, max_object_bytes=_MAX_WHOLE_OBJECT, missing_pieces=unreadable
        )
        self._members.keep(data_by_piece, {})
        for member, piece in pieces.items():
            unread.requested += 1
            try:
                if piece in unreadable:
                    raise unreadable[piece]
                lines = _lines_of(inflate_member(data_by_piece[piece], piece), member, piece, ranges, unread)
            except DataFault as fault:
                unread.add_member(piece, fault)
                continue
            for keys in ranges.near(member.first_key, line_key(lines[-1])):
                first = bisect_left(lines, keys.start, key=line_key)
                end = len(lines) if keys.end is None else bisect_left(lines, keys.end, key=line_key)
                yield from ((line, member) for line in lines[first:end])

    def _row(self, line: bytes, member: Member) -> Mapping[str, Any]:
        key = self._key(member)
        return {
            **capture_of(line, key, member.offset),
            "crawl": self.crawl,
            "located_by": self.name,
            "index_file": key,
            "index_position": member.offset,
        }


def _lines_of(text: bytes, member: Member, piece: Piece, ranges: RangeSet, unread: _Unread) -> list[bytes]:
    """Returns the records of a member, sorted by key. Lines that are no CDXJ records are left out; those that may be in
    ``ranges`` are added to ``unread``. Raises ``DataFault`` for a member that is not the expected one."""
    lines = split_records(text)
    if not lines or line_key(lines[0]) != member.first_key:
        first = member.first_key.decode("utf-8", "backslashreplace")
        raise DataFault(DataKind.MISMATCH, piece.key, piece.offset, f"a member does not begin with {first!r}")
    if len(lines) == 1 and not text.endswith((b"\n", b"}")):
        raise DataFault(DataKind.TRUNCATED, piece.key, piece.offset, "a member ends inside its only line")
    if not all(map(_is_record, lines)):
        lines = _drop_bad_lines(lines, member, piece, ranges, unread)
    if any(line_key(lines[place]) > line_key(lines[place + 1]) for place in range(len(lines) - 1)):
        raise DataFault(DataKind.MALFORMED, piece.key, piece.offset, "a member's lines are not sorted")
    return lines


def _is_record(line: bytes) -> bool:
    return b" {" in line


def _drop_bad_lines(
    lines: Sequence[bytes], member: Member, piece: Piece, ranges: RangeSet, unread: _Unread
) -> list[bytes]:
    """Returns ``lines`` without those that have no JSON. The key of a dropped line lies between its neighbours'."""
    records: list[bytes] = []
    bad_lines: list[tuple[bytes, bytes]] = []
    last_key = member.first_key
    waiting: list[bytes] = []
    for line in lines:
        if not _is_record(line):
            waiting.append(line)
            continue
        bad_lines += [
            (bad_line, last_key) for bad_line in waiting if _may_match(ranges, bad_line, last_key, line_key(line))
        ]
        waiting.clear()
        last_key = line_key(line)
        records.append(line)
    # after the last record there is no upper bound
    bad_lines += [(bad_line, last_key) for bad_line in waiting if _may_match(ranges, bad_line, last_key, None)]
    if not records:
        raise DataFault(DataKind.MALFORMED, piece.key, piece.offset, "no line of a member is a record")
    for line, key in bad_lines:
        reason = f"the line {line[:100]!r}, behind {key[:200]!r}, does not describe a record"
        unread.add_line(DataFault(DataKind.MALFORMED, piece.key, piece.offset, reason))
    return records


def _may_match(ranges: RangeSet, line: bytes, key_before: bytes, key_after: bytes | None) -> bool:
    """Whether a malformed line may be in ``ranges``: by its own key if that lies between its neighbours', else by
    these."""
    key = line_key(line)
    if b" " in line and key_before <= key and (key_after is None or key <= key_after):
        return ranges.meets(key, key)
    return ranges.meets(key_before, key_after)


def split_records(text: bytes) -> list[bytes]:
    """Returns the lines of an inflated member without their ends; two records on one line are split."""
    return [line for line in _JOINED.sub(b"}\n", text).split(b"\n") if line]


def inflate_member(data: bytes, piece: Piece) -> bytes:
    """Returns the text of a member whose bytes were read from ``piece``. Raises ``DataFault``."""
    inflater = zlib.decompressobj(wbits=31)
    try:
        lines = inflater.decompress(data, _MAX_INFLATED)
    except zlib.error as error:
        raise DataFault(
            DataKind.GZIP_CORRUPT, piece.key, piece.offset, f"a member cannot be inflated ({error})"
        ) from error
    if not inflater.eof or inflater.unused_data:
        raise DataFault(
            DataKind.MISMATCH, piece.key, piece.offset, f"{piece.length} bytes are not exactly one gzip member"
        )
    return lines
