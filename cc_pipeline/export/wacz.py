"""Stored records as a WACZ file: WARC files, an index of them, a list of pages, and digests of it all in one ZIP file.

The layout is that of the WACZ format 1.1.1 (specs.webrecorder.net): members are stored as they are, so that a viewer
reads a record, or a block of the index, by its range. It is written in one pass: memory does not grow with the records.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from cc_pipeline import SOFTWARE
from cc_pipeline.archive.writing import Address, warcinfo_record, write_records
from cc_pipeline.commoncrawl.surt import surt_key
from cc_pipeline.errors import DataFault, UserInputError
from cc_pipeline.lake.ordered import OrderedRows
from cc_pipeline.records.reading import read_delivered_members
from cc_pipeline.records.storage import RecordStorage

Row = Mapping[str, Any]

VERSION: Final = "1.1.1"
#: Bytes of a WARC file in the archive after which the next file begins.
WARC_BYTES: Final = 1 << 30
#: Lines of one block of the index.
_BLOCK_LINES: Final = 3_000
#: Maximum bytes of a ZIP member without extra fields.
_MAX_MEMBER_BYTES: Final = (1 << 31) - 1
_WINDOW: Final = 4 << 20
_INDEX_BATCH_LINES: Final = 5_000
#: Maximum examples of captures that were left out.
_MAX_EXAMPLES: Final = 20
_INDEX: Final = pa.schema([pa.field("key", pa.string()), pa.field("stamp", pa.string()), pa.field("said", pa.string())])
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
#: The earliest time that a ZIP member can have. It makes files reproducible.
_ZIP_TIME: Final = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Page:
    """A page to list: its address, when it was captured, and its title."""

    url: str
    captured: datetime
    title: str | None


@dataclass(frozen=True, slots=True)
class Wacz:
    """The contents of a written file: the number of records and of listed pages, the number of records that were left
    out because their stored bytes are damaged, and some of these as ``URL: reason``.
    """

    records: int
    pages: int
    left_out: int
    examples: tuple[str, ...]


def write_wacz(
    path: Path,
    records: Iterable[Row],
    pages: Iterable[Page],
    storage: RecordStorage,
    scratch: Path,
    *,
    title: str,
    description: str,
    address: Address,
) -> Wacz:
    """Writes ``records`` (fetched rows of the records table, each capture once, sorted by file) and ``pages``.

    ARC records are converted; ``address`` returns an archive file's absolute address, which they then contain.
    ``scratch`` is a folder in which the index is sorted. Raises ``EnvironmentFault`` if lake or disk fail,
    ``UserInputError`` for more captures than one file can list (some 20 million).
    """
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        writer = _Writer(archive)
        lines = OrderedRows(_INDEX, ("key", "stamp", "said"), scratch)
        count, faults = _write_archive(writer, records, storage, lines, address, description)
        _write_index(writer, lines)
        page_count, first = _write_pages(writer, pages, title)
        package: dict[str, Any] = {
            "profile": "data-package",
            "wacz_version": VERSION,
            "title": title,
            "description": description,
            "software": SOFTWARE,
            "created": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "resources": writer.resources,
        }
        if first is not None:
            package |= {"mainPageUrl": first.url, "mainPageDate": _iso(first.captured)}
        data = (json.dumps(package, indent=2, ensure_ascii=False) + "\n").encode()
        digest = json.dumps({"path": "datapackage.json", "hash": _hash(data)}, indent=2) + "\n"
        writer.add_metadata("datapackage.json", data)
        writer.add_metadata("datapackage-digest.json", digest.encode())
    return Wacz(count, page_count, len(faults), tuple(faults[:_MAX_EXAMPLES]))


class _Writer:
    """Writes the members of the ZIP file and collects their entries of ``datapackage.json``."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive
        self.resources: list[dict[str, Any]] = []

    @contextmanager
    def member(self, name: str, *, packed: bool = False) -> Iterator[_Member]:
        """Opens a member that the package lists with its digest. ``packed`` compresses it, which suits text that is
        read as a whole.
        """
        info = zipfile.ZipInfo(name, _ZIP_TIME)
        info.compress_type = zipfile.ZIP_DEFLATED if packed else zipfile.ZIP_STORED
        # Viewers assume that a member without extra fields in the directory has none before its bytes either.
        with self._archive.open(info, "w") as stream:
            written = _Member(stream)
            yield written
        self.resources.append(
            {
                "name": name.rpartition("/")[2].lower(),
                "path": name,
                "hash": f"sha256:{written.digest.hexdigest()}",
                "bytes": written.size,
            }
        )

    def add_metadata(self, name: str, data: bytes) -> None:
        self._archive.writestr(zipfile.ZipInfo(name, _ZIP_TIME), data)


class _Member:
    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.digest = hashlib.sha256()
        self.size = 0

    def write(self, data: bytes) -> None:
        if self.size + len(data) > _MAX_MEMBER_BYTES:
            raise UserInputError("these are too many captures for one WACZ file; export one crawl, or fewer targets")
        self._stream.write(data)
        self.digest.update(data)
        self.size += len(data)


def _write_archive(
    writer: _Writer,
    records: Iterable[Row],
    storage: RecordStorage,
    lines: OrderedRows,
    address: Address,
    description: str,
) -> tuple[int, list[str]]:
    faults: list[str] = []
    pending_lines: list[dict[str, str]] = []
    count = number = 0
    members = read_delivered_members("warc", records, storage, address, window=_WINDOW)
    row, member = next(members, (None, None))
    while row is not None or number == 0:
        name = f"records-{number:05d}.warc.gz"
        with writer.member(f"archive/{name}") as out:
            out.write(_warcinfo(name, description))
            while row is not None and out.size < WARC_BYTES:
                if isinstance(member, DataFault):
                    faults.append(f"{row['url']}: {member}")
                elif member is not None:
                    pending_lines.append(_line(row, name, out.size, len(member)))
                    out.write(member)
                    count += 1
                if len(pending_lines) >= _INDEX_BATCH_LINES:
                    lines.add(pa.Table.from_pylist(pending_lines, schema=_INDEX))
                    pending_lines = []
                row, member = next(members, (None, None))
        number += 1
    if pending_lines:
        lines.add(pa.Table.from_pylist(pending_lines, schema=_INDEX))
    return count, faults


def _warcinfo(name: str, description: str) -> bytes:
    out = io.BytesIO()
    fields = {"software": SOFTWARE, "format": "WARC File Format 1.0", "description": description}
    write_records(out, [warcinfo_record(name, fields, _EPOCH)])
    return out.getvalue()


def _line(row: Row, name: str, offset: int, length: int) -> dict[str, str]:
    cdx_fields: dict[str, str] = {"url": row["url"] or ""}
    if row["content_mime_type"]:
        cdx_fields["mime"] = row["content_mime_type"].split(";")[0].strip()
    if row["fetch_status"] is not None and row["fetch_status"] > 0:
        cdx_fields["status"] = str(row["fetch_status"])
    if row["content_digest"]:
        cdx_fields["digest"] = f"sha1:{row['content_digest'].removeprefix('sha1:')}"
    cdx_fields |= {"length": str(length), "offset": str(offset), "filename": name}
    if row["record_type"] == "revisit":
        cdx_fields["mime"] = "warc/revisit"
    captured = row["fetch_time"] or _EPOCH
    key = surt_key(row["url"] or "")
    return {"key": key, "stamp": captured.strftime("%Y%m%d%H%M%S"), "said": json.dumps(cdx_fields, ensure_ascii=False)}


def _write_index(writer: _Writer, lines: OrderedRows) -> None:
    """Writes the index as gzip members of 3,000 lines, and the list of these members, by which viewers find a URL
    without reading the whole index.
    """
    block_lines = ['!meta 0 {"format": "cdxj-gzip-1.0", "filename": "index.cdx.gz"}']
    with writer.member("indexes/index.cdx.gz") as out:
        for block in _blocks(lines):
            packer = zlib.compressobj(wbits=31)
            data = packer.compress("".join(block).encode()) + packer.flush()
            place = {"offset": out.size, "length": len(data), "digest": _hash(data)}
            block_lines.append(f"{block[0].partition(' {')[0]} {json.dumps(place)}")
            out.write(data)
    with writer.member("indexes/index.idx", packed=True) as out:
        out.write("".join(f"{line}\n" for line in block_lines).encode())


def _blocks(lines: OrderedRows) -> Iterator[Sequence[str]]:
    block: list[str] = []
    for batch in lines.batches():
        for row in batch.to_pylist():
            block.append(f"{row['key']} {row['stamp']} {row['said']}\n")
            if len(block) == _BLOCK_LINES:
                yield block
                block = []
    if block:
        yield block


def _write_pages(writer: _Writer, pages: Iterable[Page], title: str) -> tuple[int, Page | None]:
    """Writes the list of pages. Returns their number and the main page: the shortest address, its newest capture."""
    count = 0
    first: Page | None = None
    with writer.member("pages/pages.jsonl", packed=True) as out:
        out.write((json.dumps({"format": "json-pages-1.0", "id": "pages", "title": title}) + "\n").encode())
        for page in pages:
            captured_at = _iso(page.captured)
            identity = hashlib.sha256(f"{page.url}\n{captured_at}".encode()).hexdigest()[:22]
            line = {"id": identity, "url": page.url, "ts": captured_at, "title": page.title or page.url}
            out.write((json.dumps(line, ensure_ascii=False) + "\n").encode("utf-8", "replace"))
            count += 1
            if first is None or (len(page.url), -page.captured.timestamp()) < (
                len(first.url),
                -first.captured.timestamp(),
            ):
                first = page
    return count, first


def _iso(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _hash(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"
