"""The keys of the bucket, in the layouts of eighteen years: path lists, index files, WARC files and the ARC files of
2008 to 2012.

Addresses of all years (``s3n://``, ``https://``) are read as keys of today's bucket.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Final, Literal

from cc_pipeline.commoncrawl.crawls import ARC_CRAWLS, index_is_built, news_month, validate_crawl_id
from cc_pipeline.errors import DataFault, DataKind, UserInputError
from cc_pipeline.progress import format_count

if TYPE_CHECKING:
    import pyarrow as pa


_PLACES = re.compile(
    r"(?:s3[an]?://(?:commoncrawl|aws-publicdatasets)/"
    r"|https?://(?:data\.commoncrawl\.org|commoncrawl\.s3[.a-z0-9-]*\.amazonaws\.com"
    r"|aws-publicdatasets\.s3[.a-z0-9-]*\.amazonaws\.com)/"
    r"|https?://s3[.a-z0-9-]*\.amazonaws\.com/(?:commoncrawl|aws-publicdatasets)/)"
)
#: The prefix of every name in the old layout.
OLD_FOLDER: Final = "common-crawl/"
# only before the public layouts: a user may have other files in a folder of this name
_OLD = r"^common-crawl/((?:crawl-data|crawl-00[12]|parse-output|cc-index|projects)/)"
_OLD_NAME = re.compile(_OLD)

_KEY = re.compile(r"[!-~]+")
_MAX_KEY = 1024

_BY_SEGMENT = re.compile(r"parse-output/segment/(\d{1,19})/(\d{1,15})_(\d{1,9})\.arc\.gz")
_BY_DAY = re.compile(r"(crawl-00[12])/(\d{4})/(\d\d)/(\d\d)/(\d+)/(\d{1,15})_(\d{1,9})\.arc\.gz")
_CRAWL_OF_FOLDER: Final = {folder: crawl for crawl, folder in ARC_CRAWLS.items()}
_MAX_MS: Final = 4_102_444_800_000  # the year 2100

#: The lists of every crawl since 2013; ``non200responses`` lists the files of subset ``crawldiagnostics``.
PathList = Literal["segment", "warc", "robotstxt", "non200responses", "cc-index", "cc-index-table"]

#: The longest real lists have some 100,000 paths in 15 MB, the list of ARC files of crawl 002 has 323,694 in 16 MB.
MAX_LIST_BYTES: Final = 1 << 28
#: The maximum number of lines, empty ones too: their keys take a few hundred MB at most.
MAX_LIST_KEYS: Final = 2_000_000
#: An address is a key of at most 1,024 bytes after a bucket's name; the rest is room for blanks.
_MAX_LINE: Final = 4096
#: The number of unusable lines that a note quotes, and the number that makes a list unusable.
_NAMED_LINES: Final = 5
_MAX_FAULTS: Final = 10_000
#: Bytes inflated at a time, and bytes of gzip data passed to zlib at a time (the unused rest is copied).
_PIECE: Final = 1 << 18
_STEP: Final = 1 << 14
#: Lists have one member; packers that cut their input make a member of 64 KiB or more.
_MAX_MEMBERS: Final = 1 << 14

_INDEX_FILE = re.compile(
    r"(?:cc-index|projects/[^/]+/[^/]+/index)/table/(?P<table>[^/]+/[^/]+)/crawl=(?P<crawl>[^/=]+)/subset=(?P<subset>[^/=]+)/"
    r"part-(?P<part>\d++)[^/]*\.parquet"
)
_WARC_FILE = re.compile(
    r"(?:crawl-data|projects/[^/]+)/(?P<crawl>[^/]+)/segments/(?P<segment>[^/]+)/"
    r"(?P<subset>warc|crawldiagnostics|robotstxt|wat|wet|text)/(?P<name>[^/]+)"
)
_NEWS_FILE = re.compile(r"crawl-data/CC-NEWS/(?P<year>\d{4})/(?P<month>\d\d)/CC-NEWS-(?P<segment>\d{14}-\d+)\.warc\.gz")
_WARC_NAME = re.compile(
    r"[A-Za-z0-9-]+?-(?P<start>\d{14})(?:-(?P<end>\d{14}))?-(?P<number>\d+)(?:-[^/]{1,255})?\.warc\.(?:\w+\.)?gz"
)


def todays_key(name: str) -> str:
    """Returns the key in today's bucket for a name or an address of any year; other names unchanged.

    ``common-crawl/crawl-data/…``, ``s3://aws-publicdatasets/common-crawl/parse-output/…`` and
    ``https://data.commoncrawl.org/crawl-data/…`` are such names. Does not check the key.
    """
    match = _PLACES.match(name)
    return _OLD_NAME.sub(r"\1", name[match.end() :].lstrip("/") if match else name)


def todays_keys(names: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Does the same for a column of names without the address of a bucket."""
    # slow to import, and not needed for a single name
    import pyarrow.compute as pc  # noqa: PLC0415

    return pc.replace_substring_regex(names, _OLD, r"\1")


def current_key(address: str) -> str:
    """Returns the key in today's bucket for an address of any year.

    ``s3://aws-publicdatasets/common-crawl/parse-output/…``, ``common-crawl/crawl-data/…``,
    ``https://data.commoncrawl.org/crawl-data/…`` and a plain key are all accepted. Raises ``DataFault`` for
    any other text.
    """
    return clean_key(todays_key(address.lstrip("/")))


def clean_key(key: str) -> str:
    """Returns ``key``. Raises ``DataFault`` unless it is a relative path of printable ASCII without ``..``."""
    if len(key) > _MAX_KEY or not _KEY.fullmatch(key):
        raise DataFault(DataKind.MALFORMED, key[:100], None, "a key is 1 to 1024 printable ASCII characters")
    if "://" in key or "\\" in key or any(part in ("", ".", "..") for part in key.rstrip("/").split("/")):
        raise DataFault(
            DataKind.MALFORMED, key[:100], None, "a key is a relative path without '..' and without empty parts"
        )
    return key


@dataclass(frozen=True, slots=True)
class ArcFile:
    """One ARC file. ``segment_id`` is 0 for crawls without segments, ``file_date_ms`` counts from 1970 in UTC."""

    crawl: str
    segment_id: int
    file_date_ms: int
    partition: int


def arc_key(arc: ArcFile) -> str:
    """Returns the key of an ARC file. Raises ``UserInputError`` for a crawl without ARC files, ``DataFault`` for an
    impossible date."""
    folder = ARC_CRAWLS.get(arc.crawl)
    if folder is None:
        raise UserInputError(f"{arc.crawl} has no ARC files; those that have: {', '.join(ARC_CRAWLS)}")
    name = f"{arc.file_date_ms}_{arc.partition}.arc.gz"
    if folder == "parse-output":
        return f"{folder}/segment/{arc.segment_id}/{name}"
    if not 0 <= arc.file_date_ms < _MAX_MS:
        raise DataFault(DataKind.MALFORMED, name, None, f"{arc.file_date_ms} ms is no date of an ARC file")
    day = _pacific_day(arc.file_date_ms)
    return f"{folder}/{day:%Y/%m/%d}/{arc.partition}/{name}"


def parse_arc_key(address: str) -> ArcFile:
    """Returns the ARC file of a key or an old address. Raises ``DataFault`` for any other text."""
    key = current_key(address)
    if match := _BY_SEGMENT.fullmatch(key):
        return ArcFile("CC-MAIN-2012", int(match[1]), int(match[2]), int(match[3]))
    if match := _BY_DAY.fullmatch(key):
        file = ArcFile(_CRAWL_OF_FOLDER[match[1]], 0, int(match[6]), int(match[7]))
        if file.file_date_ms < _MAX_MS and arc_key(file) == key:
            return file
        raise DataFault(DataKind.MALFORMED, key, None, "the folders in the key do not match the file's name")
    raise DataFault(DataKind.MALFORMED, key, None, "is no ARC file of parse-output, crawl-001 or crawl-002")


def segments_key(crawl: str = "CC-MAIN-2012") -> str:
    """Returns the key of the list of complete segments; only the crawl of 2012 has one."""
    if ARC_CRAWLS.get(crawl) != "parse-output":
        raise UserInputError(f"{crawl} has no list of valid segments")
    return "parse-output/valid_segments.txt"


def parse_valid_segments(
    data: bytes, source: str = "valid_segments.txt", *, faults: list[DataFault] | None = None
) -> tuple[int, ...]:
    """Reads segment ids, one decimal number a line, in the list's order. Raises ``DataFault`` for a wrong line; with
    ``faults``, such faults are added to it instead."""
    segments: dict[int, None] = {}
    offset = 0
    for line in data.split(b"\n"):
        written = line.strip()
        if written:
            if not written.isdigit() or len(written) > 19:
                fault = DataFault(DataKind.MALFORMED, source, offset, f"the line {written[:60]!r} is no segment id")
                if faults is None:
                    raise fault
                faults.append(fault)
            else:
                segments[int(written)] = None
        offset += len(line) + 1
    return tuple(segments)


def _pacific_day(ms: int) -> date:
    """Returns the day on the US west coast, by the daylight saving rule in force since 2007."""
    moment = datetime.fromtimestamp(ms / 1000, UTC)
    year = moment.year
    starts = datetime(year, 3, _sunday(year, 3, 2), 10, tzinfo=UTC)  # 2:00 standard time
    ends = datetime(year, 11, _sunday(year, 11, 1), 9, tzinfo=UTC)  # 2:00 daylight time
    return (moment - timedelta(hours=7 if starts <= moment < ends else 8)).date()


def _sunday(year: int, month: int, nth: int) -> int:
    first = date(year, month, 1)
    return 1 + (6 - first.weekday()) % 7 + 7 * (nth - 1)


def path_list_key(crawl: str, name: PathList) -> str:
    """Returns the key of one of a crawl's path lists, such as ``crawl-data/CC-MAIN-2024-22/cc-index-table.paths.gz``.

    A month of CC-NEWS has only one list, ``warc``: ``crawl-data/CC-NEWS/2026/05/warc.paths.gz``.
    """
    crawl = validate_crawl_id(crawl)
    month = news_month(crawl)
    folder = crawl if month is None else f"CC-NEWS/{month[0]}/{month[1]:02d}"
    return f"crawl-data/{folder}/{name}.paths.gz"


def published_key(crawl: str) -> str | None:
    """Returns the key of a path list that every published crawl has; ``None`` for a collection that a user named."""
    if not index_is_built(crawl):
        return path_list_key(crawl, "cc-index-table")
    return path_list_key(crawl, "warc") if news_month(crawl) else None


def is_path_list(key: str) -> bool:
    """Whether a key is the key of a path list."""
    return key.endswith(".paths.gz")


def cluster_key(crawl: str) -> str:
    """Returns the key of a crawl's ZipNum summary; its shards are in the same folder."""
    return f"cc-index/collections/{validate_crawl_id(crawl)}/indexes/cluster.idx"


def parse_path_list(
    data: bytes,
    source: str = "paths.gz",
    limit: int = MAX_LIST_BYTES,
    max_lines: int = MAX_LIST_KEYS,
    *,
    faults: list[DataFault] | None = None,
) -> tuple[str, ...]:
    """Reads the keys of a gzipped path list, in its order, old addresses as keys of today's bucket.

    The list is inflated and read a piece at a time. Raises ``DataFault`` for damaged gzip data, for more than
    ``limit`` bytes of text or ``max_lines`` lines (both ``TOO_LARGE``), and for a line that is no key of the bucket,
    with its offset in the inflated text. With ``faults``, faults of single lines are added to it instead."""
    return tuple(key for _, key in listed_keys(inflated(data, source), source, limit, max_lines, faults=faults))


def parse_keys(
    pieces: Iterable[bytes], source: str, limit: int = MAX_LIST_BYTES, max_lines: int = MAX_LIST_KEYS
) -> tuple[str, ...]:
    """Reads the same from text that is not compressed, in ``pieces`` of any size; stops at the limits.

    Raises ``DataFault`` as ``parse_path_list`` does.
    """
    return tuple(key for _, key in listed_keys(pieces, source, limit, max_lines))


def listed_keys(
    pieces: Iterable[bytes],
    source: str,
    limit: int = MAX_LIST_BYTES,
    max_lines: int = MAX_LIST_KEYS,
    *,
    faults: list[DataFault] | None = None,
) -> Iterator[tuple[int, str]]:
    """Yields the same one by one, each with the byte offset of its line in the text."""
    for number, (offset, line) in enumerate(_lines(pieces, source, limit, faults)):
        if faults is not None and len(faults) > _MAX_FAULTS:
            raise faults[0]
        if number == max_lines:
            raise DataFault(DataKind.TOO_LARGE, source, offset, f"has more than {max_lines} lines")
        written = line.strip()
        if not written:
            continue
        try:
            key = _listed_key(written, source, offset)
        except DataFault as fault:
            if faults is None:
                raise
            faults.append(fault)
            continue
        yield offset, key


def _listed_key(written: bytes, source: str, offset: int) -> str:
    try:
        return current_key(written.decode("ascii"))
    except (UnicodeDecodeError, DataFault) as fault:
        reason = fault.reason if isinstance(fault, DataFault) else "it is not ASCII"
        raise DataFault(
            DataKind.MALFORMED, source, offset, f"the line {written[:100]!r} is no key: {reason}"
        ) from fault


def refuse_faulty_list(faults: Sequence[DataFault], good: int) -> None:
    """Raises the first of ``faults``, faults of single lines, if they are more than one and more than a tenth of the
    number of ``good`` lines: then it is no list, or a list of something else."""
    if faults and (not good or len(faults) > max(1, good // 10)):
        raise faults[0]


def describe_faulty_lines(faults: Sequence[DataFault], source: str) -> tuple[str, ...]:
    """Returns a note with the first lines that were left out of the list ``source``; none if all were read."""
    if not faults:
        return ()
    examples = "; ".join(str(fault) for fault in faults[:_NAMED_LINES])
    return (
        f"{format_count(len(faults), 'line')} of {source} cannot be read, so the rest of the list is used: {examples}",
    )


def _lines(
    pieces: Iterable[bytes], source: str, limit: int, faults: list[DataFault] | None
) -> Iterator[tuple[int, bytes]]:
    """Yields each line with its byte offset, of at most ``limit`` bytes of text. Too long a line is a fault."""
    partial_line = b""
    offset = size = 0
    passed = 0  # bytes of a line that is too long, and was reported
    for piece in pieces:
        size += len(piece)
        if size > limit:
            raise DataFault(
                DataKind.TOO_LARGE,
                source,
                None,
                f"the list unpacks to more than {limit:,} bytes, and real lists are much smaller",
            )
        *complete_lines, partial_line = (partial_line + piece).split(b"\n")
        for line in complete_lines:
            if not passed:
                yield offset, line
            offset += passed + len(line) + 1
            passed = 0
        if passed or len(partial_line) > _MAX_LINE:
            if not passed:
                reason = f"a line of more than {_MAX_LINE} bytes is no key: {partial_line[:100]!r}"
                fault = DataFault(DataKind.MALFORMED, source, offset, reason)
                if faults is None:
                    raise fault
                faults.append(fault)
            passed += len(partial_line)
            partial_line = b""
    if partial_line:
        yield offset, partial_line


@dataclass(frozen=True, slots=True)
class IndexFile:
    """One Parquet file of the columnar index."""

    path: str
    crawl: str
    subset: str
    part: int

    @classmethod
    def from_path(cls, path: str) -> IndexFile:
        """Parses a line of ``cc-index-table.paths.gz``. Raises ``DataFault`` for other keys."""
        match = _INDEX_FILE.fullmatch(path)
        if match is None:
            raise DataFault(
                DataKind.MALFORMED,
                path,
                None,
                "is no Parquet file of the columnar index (cc-index/table/…/crawl=…/subset=…/part-NNNNN….parquet)",
            )
        return cls(path, match["crawl"], match["subset"], int(match["part"]))


@dataclass(frozen=True, slots=True)
class WarcFile:
    """One WARC, WAT or WET file by its name.

    ``started`` (aware UTC) is in all names, ``ended`` since 2016; ``number`` counts within the segment. All three are
    ``None`` if a name does not follow the pattern.
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
        """Parses a key or an old address. Raises ``DataFault`` if it is no WARC file of Common Crawl."""
        key = current_key(path)
        if news := _NEWS_FILE.fullmatch(key):
            started, _, number = news["segment"].partition("-")
            crawl = f"CC-NEWS-{news['year']}-{news['month']}"
            return cls(key, crawl, news["segment"], "news-warc", _moment(started), None, int(number))
        match = _WARC_FILE.fullmatch(key)
        if match is None:
            raise DataFault(DataKind.MALFORMED, path, None, "is no WARC file of a crawl (crawl-data/…/segments/…)")
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


def subset_of(file: str) -> str:
    """Returns ``crawldiagnostics`` or ``robotstxt`` for archive files below such folders, ``warc`` for all others."""
    folder = file.rpartition("/")[0].rpartition("/")[2]
    return folder if folder in ("crawldiagnostics", "robotstxt") else "warc"


def segment_of(file: str) -> str | None:
    """Returns the segment in the path of an archive file of any year, if it has one."""
    parts = file.split("/")
    for name in ("segments", "segment"):
        if name in parts[:-2]:
            return parts[parts.index(name) + 1]
    return None


def _moment(digits: str) -> datetime | None:
    try:
        return datetime.strptime(digits, "%Y%m%d%H%M%S").replace(tzinfo=UTC)
    except ValueError:
        return None


def inflated(data: bytes, source: str) -> Iterator[bytes]:
    """Yields the text of all members of a gzipped list, in pieces of at most ``_PIECE`` bytes. Raises ``DataFault``."""
    view = memoryview(data)
    position = members = 0
    while position < len(data):
        if members and data[position] == 0 and not data[position:].strip(b"\0"):
            return  # padding after the last member
        if members == _MAX_MEMBERS:
            raise DataFault(DataKind.TOO_LARGE, source, position, f"has more than {_MAX_MEMBERS} gzip members")
        start, engine = position, zlib.decompressobj(wbits=31)
        while not engine.eof:
            stored = engine.unconsumed_tail or view[position : position + _STEP]
            if not stored:
                raise DataFault(DataKind.GZIP_TRUNCATED, source, len(data), "its gzip data ends too early")
            fresh = not engine.unconsumed_tail
            try:
                piece = engine.decompress(stored, _PIECE)
            except zlib.error as fault:
                raise DataFault(DataKind.GZIP_CORRUPT, source, start, f"is not gzip data ({fault})") from fault
            position += len(stored) if fresh else 0
            if piece:
                yield piece
        position -= len(engine.unused_data)
        members += 1
    if not members:
        raise DataFault(DataKind.TRUNCATED, source, 0, "is empty")
