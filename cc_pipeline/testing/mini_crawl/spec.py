"""Specifications of mini crawls, presets, and random values that depend only on seed and labels: the same specification
gives the same bucket, byte for byte."""

from __future__ import annotations

import base64
import hashlib
import re
import uuid
import zlib
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Self

from cc_pipeline.commoncrawl.crawls import has_feature
from cc_pipeline.errors import UserInputError

#: Known starting times; other crawls begin ten days before the week in their id.
_STARTS: dict[str, datetime] = {
    "CC-MAIN-2024-22": datetime(2024, 5, 17, 23, 31, 22, tzinfo=UTC),
    "CC-MAIN-2018-05": datetime(2018, 1, 16, 7, 4, 44, tzinfo=UTC),
    "CC-MAIN-2012": datetime(2012, 1, 27, 22, 31, 13, tzinfo=UTC),
    "CC-MAIN-2009-2010": datetime(2009, 9, 17, 0, 0, 0, tzinfo=UTC),
    "CC-MAIN-2008-2009": datetime(2008, 5, 9, 0, 0, 0, tzinfo=UTC),
}
_WEEKLY = re.compile(r"CC-(?:MAIN-(\d{4})-(\d{2})|SUPPLEMENTAL-(\d{4})-(\d{2})(?:-[A-Za-z0-9]+)*)")


def _derived(seed: int, labels: tuple[object, ...], size: int) -> bytes:
    text = "\x1f".join((str(seed), *(str(label) for label in labels)))
    return hashlib.blake2b(text.encode(), digest_size=size).digest()


def drawn_number(seed: int, *labels: object) -> int:
    """Returns a whole number from 0 to 2**64 - 1 for these labels (only numbers and text: their ``str`` is hashed)."""
    return int.from_bytes(_derived(seed, labels, 8), "big")


def generator(seed: int, *labels: object) -> Random:
    """Returns a new random generator for these labels."""
    return Random(drawn_number(seed, *labels))


def identifier(seed: int, *labels: object) -> uuid.UUID:
    """Returns a version 4 UUID for these labels."""
    return uuid.UUID(bytes=_derived(seed, labels, 16), version=4)


def ordered_identifier(milliseconds: int, seed: int, *labels: object) -> uuid.UUID:
    """Returns a version 7 UUID: ``milliseconds`` since 1970, then the labels' bytes."""
    raw = bytearray(milliseconds.to_bytes(6, "big") + _derived(seed, labels, 10))
    raw[6] = 0x70 | raw[6] & 0x0F
    raw[8] = 0x80 | raw[8] & 0x3F
    return uuid.UUID(bytes=bytes(raw))


def sha1_base32(data: bytes) -> str:
    """Returns the digest as in WARC headers and indexes, without a prefix (32 characters)."""
    return base64.b32encode(hashlib.sha1(data, usedforsecurity=False).digest()).decode()


def gzip_member(data: bytes, level: int = 6) -> bytes:
    """Returns one complete gzip member without file name and time, so the same data gives the same bytes."""
    packer = zlib.compressobj(level, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


class MemberFile:
    """Appends gzip members to a new file; a context manager."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("xb")
        self.size = 0

    def append(self, data: bytes) -> tuple[int, int]:
        """Writes ``data`` as one member; returns its offset and its length in the file, in bytes."""
        member = gzip_member(data)
        self._file.write(member)
        start = self.size
        self.size += len(member)
        return start, len(member)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def _start(crawl: str) -> datetime:
    if crawl in _STARTS:
        return _STARTS[crawl]
    weekly = _WEEKLY.fullmatch(crawl)
    if weekly is None:
        raise UserInputError(f"{crawl!r} is neither a weekly crawl id (CC-MAIN-2024-22) nor CC-MAIN-2012")
    year, number = (int(group) for group in weekly.groups() if group is not None)
    try:
        week = datetime.fromisocalendar(year, number, 1)
    except ValueError as error:
        raise UserInputError(f"{crawl!r} names a week that does not exist ({error})") from error
    return week.replace(tzinfo=UTC) - timedelta(days=10)


@dataclass(frozen=True, slots=True)
class CrawlSpec:
    """One crawl of the bucket.

    ``coverage`` is the share of all pages that this crawl visits. ``parts`` is the number of Parquet files of
    subset ``warc`` (the other subsets have one each), ``row_group_rows`` the rows in each row group, ``page_rows``
    the most rows in a Parquet page. ``zipnum_lines`` are lines in one gzip member. ``extra_columns`` names text
    columns that are unknown to readers; they also become keys of the CDXJ lines. ``record_ids`` adds the column
    ``warc_record_id`` of 2026. Announced or seen once are: ``compression`` of the index files (``gzip`` or
    ``zstd``), ``page_version`` of their data pages (``1.0``, ``2.0``), ``long_places`` (offsets and lengths in 64 bits)
    and ``addresses`` (the column ``warc_ip_address``). A supplemental crawl (``CC-SUPPLEMENTAL-2026-22-focus``) is
    below ``projects/`` and its ``project``, with a separate table and without path lists. ``protocols`` repeats
    ``WARC-Protocol`` in response records. ``cdx`` gives a crawl of the ARC years a ZipNum index, which the others
    always have; ``old_names`` puts ``common-crawl/`` before the archive files in the indexes, as in 2015. ``policies``
    requests the robots.txt of each origin at the start of each segment, with a policy of ``visits.py`` that may change
    from crawl to crawl and between two segments, and adds headers with policies to pages. A crawl without data is
    only listed in collinfo.json.
    """

    id: str
    coverage: float = 0.85
    segments: int = 2
    files_per_segment: int = 2
    parts: int = 3
    row_group_rows: int = 50
    page_rows: int = 20
    zipnum_shards: int = 2
    zipnum_lines: int = 40
    protocols: bool = False
    record_ids: bool = False
    extra_columns: tuple[str, ...] = ()
    has_data: bool = True
    compression: str = "gzip"
    page_version: str = "1.0"
    long_places: bool = False
    addresses: bool = False
    project: str = "cc-example"
    cdx: bool = False
    old_names: bool = False
    policies: bool = False

    @property
    def start(self) -> datetime:
        """The start of the crawl (aware, UTC)."""
        return _start(self.id)

    @property
    def format(self) -> str:
        """``arc`` for the crawls before 2013, else ``warc``."""
        return "warc" if _WEEKLY.fullmatch(self.id) and self.id.partition("-20")[2] >= "13" else "arc"

    @property
    def is_supplemental(self) -> bool:
        """Whether the crawl is below ``projects/``."""
        return self.id.startswith("CC-SUPPLEMENTAL-")

    @property
    def folder(self) -> str:
        """The folder of its segments."""
        return f"projects/{self.project}/{self.id}" if self.is_supplemental else f"crawl-data/{self.id}"

    @property
    def table(self) -> str:
        """The folder of the subsets of its columnar index."""
        if self.is_supplemental:
            return f"{self.folder}/index/table/cc-supplemental/warc/crawl={self.id}"
        return f"cc-index/table/cc-main/warc/crawl={self.id}"

    def since(self, crawl: str) -> bool:
        """Whether this crawl is the given weekly one or a later one; ARC crawls are before all of them."""
        return self.format == "warc" and self.id.partition("-20")[2] >= crawl.partition("-20")[2]


@dataclass(frozen=True, slots=True)
class MiniCrawlSpec:
    """A complete bucket. ``pages`` counts distinct page URLs over all ``sites``; crawls are listed newest first.

    ``truncate_bytes`` is the maximum length of bodies: 1 MiB in Common Crawl, less here. HTML pages have
    2 to 14 paragraphs times ``text_scale``: some 3 KB at 1, and at 12 some 30 KB, nearer to the real web.
    """

    seed: int = 20120601
    pages: int = 400
    sites: int = 10
    crawls: tuple[CrawlSpec, ...] = ()
    truncate_bytes: int = 65536
    text_scale: int = 1
    btree_block_size: int = 65536

    def __post_init__(self) -> None:
        if min(self.text_scale, self.truncate_bytes) < 1:
            raise UserInputError("text scale and truncation limit must be at least 1")
        if not 1 <= self.sites <= self.pages:
            raise UserInputError(f"{self.sites} sites do not fit {self.pages} pages: each site needs a page")
        ids = [crawl.id for crawl in self.crawls]
        if len(set(ids)) != len(ids):
            raise UserInputError("a crawl id is listed twice")
        for crawl in self.crawls:
            counts = (crawl.segments, crawl.files_per_segment, crawl.parts, crawl.row_group_rows, crawl.page_rows)
            if crawl.compression not in ("gzip", "zstd") or crawl.page_version not in ("1.0", "2.0"):
                raise UserInputError(f"{crawl.id}: index files are gzip or zstd, with pages of version 1.0 or 2.0")
            if min(*counts, crawl.zipnum_shards, crawl.zipnum_lines) < 1 or not 0 < crawl.coverage <= 1:
                raise UserInputError(f"{crawl.id}: counts must be at least 1 and coverage in (0, 1]")

    def crawl(self, crawl_id: str) -> CrawlSpec:
        """Returns the crawl with this id; raises ``UserInputError`` if there is none."""
        for crawl in self.crawls:
            if crawl.id == crawl_id:
                return crawl
        raise UserInputError(f"the mini crawl has no {crawl_id}")


#: The bucket of ``make demo``: three eras and a crawl that is announced but has no data yet.
DEMO = MiniCrawlSpec(
    pages=460,
    sites=10,
    btree_block_size=4096,
    crawls=(
        CrawlSpec("CC-MAIN-2024-26", has_data=False),
        CrawlSpec("CC-MAIN-2024-22", protocols=True),
        CrawlSpec("CC-MAIN-2018-05", coverage=0.7),
        CrawlSpec("CC-MAIN-2012", coverage=0.5, segments=2, files_per_segment=1),
    ),
)

#: The smallest bucket with every kind of content.
TEST = MiniCrawlSpec(
    pages=90,
    sites=8,
    truncate_bytes=16384,
    btree_block_size=256,
    crawls=(
        CrawlSpec(
            "CC-MAIN-2024-22", segments=1, parts=2, row_group_rows=20, page_rows=8, zipnum_lines=15, protocols=True
        ),
        CrawlSpec("CC-MAIN-2018-05", segments=1, parts=2, row_group_rows=12, page_rows=8, zipnum_lines=15),
        CrawlSpec("CC-MAIN-2012", coverage=0.6, segments=1, files_per_segment=2),
    ),
)

PRESETS: dict[str, MiniCrawlSpec] = {"demo": DEMO, "test": TEST}


def spec_for(pages: int, *, crawls: tuple[str, ...] | None = None) -> MiniCrawlSpec:
    """Returns a specification whose files, parts, row groups and sites grow with ``pages`` (distinct page URLs).

    ``crawls`` are crawl ids, newest first; by default the demo's three with data.
    """
    ids = crawls if crawls is not None else tuple(crawl.id for crawl in DEMO.crawls if crawl.has_data)
    files = max(1, pages // 4000)
    shape = CrawlSpec(
        ids[0] if ids else "CC-MAIN-2012",
        segments=max(1, min(4, pages // 300)),
        files_per_segment=max(1, files // 4),
        parts=max(2, min(12, pages // 500)),
        row_group_rows=max(20, min(20_000, pages // 24)),
        page_rows=max(10, min(1000, pages // 150)),
        zipnum_shards=max(1, min(8, pages // 2000)),
        zipnum_lines=max(20, min(3000, pages // 20)),
    )
    return MiniCrawlSpec(
        pages=pages,
        sites=max(1, min(pages, 10 + pages // 60)),
        crawls=tuple(
            replace(
                shape, id=name, protocols=name >= "CC-MAIN-2024", record_ids=bool(has_feature(name, "warc_record_id"))
            )
            for name in ids
        ),
    )
