"""Keys in the bucket: path lists, files of the columnar index, WARC files; ARC files are in ``arc_paths``."""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal, get_args

from cc_pipeline.commoncrawl.arc_paths import (
    ArcFile,
    ArcPointer,
    arc_key,
    parse_arc_key,
    parse_valid_segments,
    segments_key,
)
from cc_pipeline.commoncrawl.crawls import validate_crawl_id
from cc_pipeline.commoncrawl.keys import clean_key, current_key
from cc_pipeline.errors import DataFault

__all__ = [
    "PATH_LISTS",
    "ArcFile",
    "ArcPointer",
    "IndexFile",
    "PathList",
    "WarcFile",
    "arc_key",
    "clean_key",
    "cluster_key",
    "current_key",
    "parse_arc_key",
    "parse_path_list",
    "parse_valid_segments",
    "path_list_key",
    "segments_key",
]

PathList = Literal["segment", "warc", "wat", "wet", "robotstxt", "non200responses", "cc-index", "cc-index-table"]

#: Names of the lists every crawl since 2013 has; ``non200responses`` lists the files of subset ``crawldiagnostics``.
PATH_LISTS: Final[tuple[PathList, ...]] = get_args(PathList)

#: The longest real list has some 100,000 paths in 15 MB.
MAX_LIST_BYTES: Final = 1 << 28

_INDEX_FILE = re.compile(
    r"cc-index/table/(?P<table>[^/]+/[^/]+)/crawl=(?P<crawl>[^/=]+)/subset=(?P<subset>[^/=]+)/"
    r"part-(?P<part>\d+)[^/]*\.parquet"
)
_WARC_FILE = re.compile(
    r"crawl-data/(?P<crawl>[^/]+)/segments/(?P<segment>[^/]+)/"
    r"(?P<subset>warc|crawldiagnostics|robotstxt|wat|wet|text)/(?P<name>[^/]+)"
)
_NEWS_FILE = re.compile(r"crawl-data/CC-NEWS/(?P<year>\d{4})/(?P<month>\d\d)/CC-NEWS-(?P<segment>\d{14}-\d+)\.warc\.gz")
_WARC_NAME = re.compile(
    r"[A-Z-]+?-(?P<start>\d{14})(?:-(?P<end>\d{14}))?-(?P<number>\d+)(?:-[^/]+)?\.warc\.(?:\w+\.)?gz"
)


def path_list_key(crawl: str, name: PathList) -> str:
    """Key of one of a crawl's path lists, such as ``crawl-data/CC-MAIN-2024-22/cc-index-table.paths.gz``."""
    return f"crawl-data/{validate_crawl_id(crawl)}/{name}.paths.gz"


def cluster_key(crawl: str) -> str:
    """Key of a crawl's ZipNum summary; its shards lie beside it."""
    return f"cc-index/collections/{validate_crawl_id(crawl)}/indexes/cluster.idx"


def parse_path_list(data: bytes, source: str = "paths.gz", limit: int = MAX_LIST_BYTES) -> tuple[str, ...]:
    """The keys of a gzipped path list, in its order, old addresses brought to today's bucket.

    Raises ``DataFault`` for damaged or endless gzip data (more than ``limit`` bytes of text) and for a line that is
    no key of the bucket; the offset of the latter is its place in the inflated text.
    """
    text = _inflate(data, source, limit)
    keys: list[str] = []
    offset = 0
    for line in text.split(b"\n"):
        written = line.strip()
        if written:
            try:
                keys.append(current_key(written.decode("ascii")))
            except (UnicodeDecodeError, DataFault) as fault:
                reason = fault.reason if isinstance(fault, DataFault) else "it is not ASCII"
                raise DataFault(source, offset, f"the line {written[:100]!r} is no key: {reason}") from fault
        offset += len(line) + 1
    return tuple(keys)


@dataclass(frozen=True, slots=True)
class IndexFile:
    """One Parquet file of the columnar index."""

    path: str
    crawl: str
    subset: str
    part: int

    @classmethod
    def from_path(cls, path: str) -> IndexFile:
        """From a line of ``cc-index-table.paths.gz``. Raises ``DataFault`` if it is something else."""
        match = _INDEX_FILE.fullmatch(path)
        if match is None:
            raise DataFault(path, None, "is no file of a columnar index (crawl=…/subset=…/part-NNNNN….parquet)")
        return cls(path, match["crawl"], match["subset"], int(match["part"]))


@dataclass(frozen=True, slots=True)
class WarcFile:
    """One WARC, WAT or WET file by its name.

    ``started`` (aware UTC) is in the name of all of them, ``ended`` since 2016; ``number`` counts within the segment.
    All three are ``None`` where a name does not follow the pattern.
    """

    path: str
    crawl: str
    segment: str
    subset: str
    started: datetime | None
    ended: datetime | None
    number: int | None

    @classmethod
    def from_path(cls, path: str) -> WarcFile:
        """From a key or an old address. Raises ``DataFault`` if it is no WARC file of Common Crawl."""
        key = current_key(path)
        if news := _NEWS_FILE.fullmatch(key):
            started, _, number = news["segment"].partition("-")
            crawl = f"CC-NEWS-{news['year']}-{news['month']}"
            return cls(key, crawl, news["segment"], "news-warc", _moment(started), None, int(number))
        match = _WARC_FILE.fullmatch(key)
        if match is None:
            raise DataFault(path, None, "is no WARC file of a crawl (crawl-data/…/segments/…)")
        name = _WARC_NAME.fullmatch(match["name"])
        return cls(
            key,
            match["crawl"],
            match["segment"],
            match["subset"],
            _moment(name["start"]) if name else None,
            _moment(name["end"]) if name and name["end"] else None,
            int(name["number"]) if name else None,
        )


def _moment(digits: str) -> datetime | None:
    try:
        return datetime.strptime(digits, "%Y%m%d%H%M%S").replace(tzinfo=UTC)
    except ValueError:
        return None


def _inflate(data: bytes, source: str, limit: int) -> bytes:
    """All members of a gzip file, never holding more than ``limit`` bytes."""
    inflated: list[bytes] = []
    size, rest = 0, data
    while rest:
        engine = zlib.decompressobj(wbits=31)
        try:
            piece = engine.decompress(rest, limit - size + 1)
        except zlib.error as fault:
            if inflated and not rest.strip(b"\0"):
                break  # padding behind the last member
            raise DataFault(source, len(data) - len(rest), f"is not gzip data ({fault})") from fault
        size += len(piece)
        if size > limit:
            raise DataFault(source, None, f"inflates to more than {limit} bytes")
        if not engine.eof:
            raise DataFault(source, len(data), "its gzip data ends too early")
        inflated.append(piece)
        rest = engine.unused_data
    if not inflated:
        raise DataFault(source, 0, "is empty")
    return b"".join(inflated)
