"""Records to deliver, and places to deliver them to: a folder, or a bucket of an S3 server on loopback."""

from __future__ import annotations

import gzip
import io
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from warcio.archiveiterator import ArchiveIterator

from cc_pipeline.extensions.delivery.copying import CopyReport, Order, copy_records
from cc_pipeline.extensions.delivery.manifest import MANIFEST, Manifest, read_manifest
from cc_pipeline.extensions.delivery.verification import VerifyReport, verify_place
from cc_pipeline.records.storage import RecordStorage
from cc_pipeline.stores.answer import ListedObject, S3Options
from cc_pipeline.transport.client import Transport
from cc_pipeline.transport.source_client import SourceOptions
from cc_pipeline_tests.archive import builders
from cc_pipeline_tests.motoserver import moto_server
from cc_pipeline_tests.records.fetching import fetch_table
from cc_pipeline_tests.records.planned import captures_table, html_record
from cc_pipeline_tests.world import Killed

CRAWL = "CC-MAIN-2024-22"
FILES = ("a.warc.gz", "b.warc.gz", "c.arc.gz")
EACH = 9


def source_at(root: Path) -> pa.Table:
    """A bucket of three files, one of them ARC, with ``EACH`` records each; all their captures."""
    root.mkdir()
    rows = []
    for file in FILES:
        data = b""
        for number in range(EACH):
            url = f"https://example.com/{file[0]}/{number}"
            body = f"{url} ".encode() * 40
            member = (
                builders.member(builders.arc(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n" + body, url=url))
                if file.endswith(".arc.gz")
                else html_record(url, body)
            )
            rows.append({"url": url, "warc_filename": file, "warc_record_offset": len(data),
                         "warc_record_length": len(member), "archive_format": file.split(".")[1],
                         "subset": "robotstxt" if file == FILES[1] else "warc"})  # fmt: skip
            data += member
        (root / file).write_bytes(data)
    return captures_table(rows, CRAWL)


@dataclass
class Shop:
    """A lake's stored records and the source they come from."""

    root: Path
    storage: RecordStorage
    captures: pa.Table
    fetches: int = 0

    def records(self, captures: pa.Table | None = None, held: pa.Table | None = None) -> pa.Table:
        """Rows of the records table, fetched from the source as it is now."""
        self.fetches += 1
        with Transport(str(self.root / "source")) as source:
            return fetch_table(
                self.captures if captures is None else captures, source, self.storage, crawl=CRAWL,
                commit=f"c{self.fetches}", held=held,
            ).table  # fmt: skip


@contextmanager
def shop_at(root: Path) -> Iterator[Shop]:
    captures = source_at(root / "source")
    with Transport(str(root / "lake")) as lake:
        yield Shop(root, RecordStorage(lake), captures)


@dataclass
class Place:
    """A place, the files that were written there (not its manifest), and a kill after so many writes."""

    transport: Transport
    scratch: Path
    writes: list[str] = field(default_factory=list)
    kill_at: int | None = None
    puts: int = 0

    def __post_init__(self) -> None:
        put = self.transport.put

        def watched_put(key: str, data: bytes | Path, *, only_if_absent: bool = False) -> bool:
            if self.kill_at is not None and self.puts >= self.kill_at:
                raise Killed
            self.puts += 1
            self.writes += [key] * (key != MANIFEST)
            return put(key, data, only_if_absent=only_if_absent)

        self.transport.put = watched_put  # type: ignore[method-assign]

    def copy(self, shop: Shop, records: pa.Table, *targets: str, convert: bool = False, file_bytes: int = 1_500,
             parallel: int = 2, crawl: str = CRAWL) -> CopyReport:  # fmt: skip
        order = Order(crawl, targets or ("example.com",), ("warc",), convert, file_bytes)
        self.scratch.mkdir(exist_ok=True)
        try:
            return copy_records(order, records, shop.storage, self.transport, self.scratch, parallel=parallel)
        finally:
            if self.kill_at is None:
                assert list(self.scratch.iterdir()) == []

    def verify(self) -> VerifyReport:
        return verify_place(self.transport, parallel=2)

    def files(self) -> dict[str, ListedObject]:
        return {one.key: one for one in self.transport.listing("")}

    @property
    def manifest(self) -> Manifest:
        found = read_manifest(self.transport)
        assert found is not None
        return found

    def record_files(self) -> list[str]:
        return sorted(key for key in self.files() if key.endswith((".warc.gz", ".arc.gz")))

    def read(self, key: str) -> bytes:
        return self.transport.read_all(key).data

    def held(self) -> Counter[tuple[str, int]]:
        """How often each capture is in the place, by what an independent reader finds where the lists say."""
        found: Counter[tuple[str, int]] = Counter()
        for key in self.record_files():
            data = self.read(key)
            listed = pq.read_table(pa.BufferReader(self.read(f"{key}.captures.parquet"))).to_pylist()
            kinds = Counter(one.rec_type for one in ArchiveIterator(io.BytesIO(data), arc2warc=True))
            assert kinds.pop("warcinfo") == 1
            assert kinds == {"response": len(listed)}
            for row in listed:
                member = data[row["offset"] :][: row["length"]]
                if key.endswith(".arc.gz"):
                    assert gzip.decompress(member).startswith(f"{row['url']} ".encode())
                else:
                    record = next(iter(ArchiveIterator(io.BytesIO(member))))
                    assert record.rec_headers["WARC-Target-URI"] == row["url"]
                found[row["warc_filename"], row["warc_record_offset"]] += 1
        return found


@contextmanager
def folder_place(root: Path) -> Iterator[Place]:
    with Transport(str(root / "place")) as transport:
        yield Place(transport, root / "scratch")


@contextmanager
def bucket_place(root: Path) -> Iterator[Place]:
    """The caller has put credentials into the environment."""
    with (
        moto_server("mine") as address,
        Transport(f"s3://mine/{uuid.uuid4()}", SourceOptions(s3=S3Options(endpoint=address))) as transport,
    ):
        yield Place(transport, root / "scratch")
