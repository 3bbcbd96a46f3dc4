"""WET: the plain text Common Crawl extracts, as WARC ``conversion`` records."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from cc_pipeline.archive.http import first_values
from cc_pipeline.archive.members import DEFAULT_LIMIT, ByteSource
from cc_pipeline.archive.plainwalk import StoredRecord
from cc_pipeline.archive.warc import iter_located
from cc_pipeline.errors import DataFault, DataKind


@dataclass(frozen=True, slots=True)
class WetRecord:
    """The text of one page. ``offset`` and ``length`` (bytes) say where in the WET file its record lies.

    ``fetch_time`` is that of the page. ``languages`` are ISO 639-3 codes, best first, since 2020. ``refers_to``
    is the WARC-Record-ID of the response. ``flags`` as of ``ArchivedRecord``.
    """

    offset: int
    length: int | None
    url: str
    fetch_time: datetime | None
    text: str
    languages: tuple[str, ...]
    refers_to: str | None
    digest: str
    flags: tuple[str, ...]


def iter_wet(stream: ByteSource, source: str, limit: int = DEFAULT_LIMIT) -> Iterator[WetRecord | DataFault]:
    """The texts of a WET file in order, and a ``DataFault`` for each stretch that cannot be read.

    The file's own ``warcinfo`` is passed over. Bytes that are not UTF-8 become replacement characters.
    """
    for found in iter_located(stream, source, limit):
        if isinstance(found, DataFault):
            yield found
        elif found.record.record_type == "conversion":
            yield _wet(found)
        elif found.record.record_type != "warcinfo":
            yield DataFault(
                DataKind.MALFORMED, source, found.offset, f"a {found.record.record_type} record in a WET file"
            )


def _wet(found: StoredRecord) -> WetRecord:
    record = found.record
    values = first_values(record.record_headers)
    languages = values.get("warc-identified-content-language", "")
    return WetRecord(
        offset=found.offset,
        length=found.length,
        url=record.url,
        fetch_time=record.fetch_time,
        text=record.payload.decode("utf-8", "replace"),
        languages=tuple(code for code in (part.strip() for part in languages.split(",")) if code),
        refers_to=values.get("warc-refers-to"),
        digest=record.payload_digest,
        flags=record.flags,
    )
