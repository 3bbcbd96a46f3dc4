"""Where the ARC files of 2008 to 2012 lie, from the numbers an index has about them.

``parse-output/segment/<segment>/<ms>_<partition>.arc.gz`` holds the crawl of 2012, ``crawl-001`` and ``crawl-002``
those before it, as ``<year>/<month>/<day>/<partition>/<ms>_<partition>.arc.gz``. The day is that of US Pacific time:
so it is in all 323,694 keys of crawl-002 that a listing of 2012 has. ``ms`` is when the file was made.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Final

from cc_pipeline.commoncrawl.crawls import ARC_CRAWLS
from cc_pipeline.commoncrawl.keys import current_key
from cc_pipeline.errors import DataFault, UserInputError

_BY_SEGMENT = re.compile(r"parse-output/segment/(\d{1,19})/(\d{1,15})_(\d{1,9})\.arc\.gz")
_BY_DAY = re.compile(r"(crawl-00[12])/(\d{4})/(\d\d)/(\d\d)/(\d+)/(\d{1,15})_(\d{1,9})\.arc\.gz")
_CRAWL_OF_FOLDER: Final = {folder: crawl for crawl, folder in ARC_CRAWLS.items()}
_MAX_MS: Final = 4_102_444_800_000  # the year 2100


@dataclass(frozen=True, slots=True)
class ArcFile:
    """One ARC file. ``segment_id`` is 0 for crawls that have no segments, ``file_date_ms`` counts from 1970 in UTC."""

    crawl: str
    segment_id: int
    file_date_ms: int
    partition: int


@dataclass(frozen=True, slots=True)
class ArcPointer:
    """The 32 bytes a B-tree has for a capture: its ARC file, and the gzip member in it in bytes."""

    segment_id: int
    file_date_ms: int
    partition: int
    offset: int
    length: int

    def file(self, crawl: str) -> ArcFile:
        """The ARC file of ``crawl`` that this points into."""
        return ArcFile(crawl, self.segment_id, self.file_date_ms, self.partition)


def arc_key(file: ArcFile | ArcPointer, crawl: str = "CC-MAIN-2012") -> str:
    """The key of an ARC file; ``crawl`` says where a pointer points to.

    Raises ``UserInputError`` for a crawl without ARC files, ``DataFault`` for a date no ARC file can have.
    """
    arc = file.file(crawl) if isinstance(file, ArcPointer) else file
    folder = ARC_CRAWLS.get(arc.crawl)
    if folder is None:
        raise UserInputError(f"{arc.crawl} has no ARC files; those that have: {', '.join(ARC_CRAWLS)}")
    name = f"{arc.file_date_ms}_{arc.partition}.arc.gz"
    if folder == "parse-output":
        return f"{folder}/segment/{arc.segment_id}/{name}"
    if not 0 <= arc.file_date_ms < _MAX_MS:
        raise DataFault(name, None, f"{arc.file_date_ms} ms is no date of an ARC file")
    day = _pacific_day(arc.file_date_ms)
    return f"{folder}/{day:%Y/%m/%d}/{arc.partition}/{name}"


def parse_arc_key(address: str) -> ArcFile:
    """The ARC file behind a key or an old address. Raises ``DataFault`` for anything else."""
    key = current_key(address)
    if match := _BY_SEGMENT.fullmatch(key):
        return ArcFile("CC-MAIN-2012", int(match[1]), int(match[2]), int(match[3]))
    if match := _BY_DAY.fullmatch(key):
        file = ArcFile(_CRAWL_OF_FOLDER[match[1]], 0, int(match[6]), int(match[7]))
        if file.file_date_ms < _MAX_MS and arc_key(file) == key:
            return file
        raise DataFault(key, None, "its folders do not agree with its name")
    raise DataFault(key, None, "is no ARC file of parse-output, crawl-001 or crawl-002")


def segments_key(crawl: str = "CC-MAIN-2012") -> str:
    """Key of the list of segments that are complete; only the crawl of 2012 has one."""
    if ARC_CRAWLS.get(crawl) != "parse-output":
        raise UserInputError(f"{crawl} has no list of valid segments")
    return "parse-output/valid_segments.txt"


def parse_valid_segments(data: bytes, source: str = "valid_segments.txt") -> tuple[int, ...]:
    """Segment ids, one decimal number a line, in the list's order. Raises ``DataFault`` naming a wrong line."""
    segments: dict[int, None] = {}
    offset = 0
    for line in data.split(b"\n"):
        written = line.strip()
        if written:
            if not written.isdigit() or len(written) > 19:
                raise DataFault(source, offset, f"the line {written[:60]!r} is no segment id")
            segments[int(written)] = None
        offset += len(line) + 1
    return tuple(segments)


def _pacific_day(ms: int) -> date:
    """The day it was on the US west coast, by the daylight saving rule in force since 2007."""
    moment = datetime.fromtimestamp(ms / 1000, UTC)
    year = moment.year
    starts = datetime(year, 3, _sunday(year, 3, 2), 10, tzinfo=UTC)  # 2:00 standard time
    ends = datetime(year, 11, _sunday(year, 11, 1), 9, tzinfo=UTC)  # 2:00 daylight time
    return (moment - timedelta(hours=7 if starts <= moment < ends else 8)).date()


def _sunday(year: int, month: int, nth: int) -> int:
    first = date(year, month, 1)
    return 1 + (6 - first.weekday()) % 7 + 7 * (nth - 1)
