"""Input and output of a parser: one record's payload with its keys, the options, the parsed page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, NamedTuple


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits per page. Content beyond a limit is cut and flagged.

    ``payload_bytes`` parsed at most, ``depth`` of nested elements, ``elements``: tags and attributes of a page,
    ``options`` of select lists, ``meta_tags``, ``links`` a page, ``attributes`` a tag, ``attribute_chars`` a value,
    ``text_chars`` of full text, ``feed_items`` a feed. ``extractor_work`` limits the open elements summed over all
    tags: beyond it main content is not extracted, since extractors visit each element's ancestors.
    ``sitemap_links`` a sitemap; ``pdf_pages`` a PDF file, ``pdf_stream_bytes`` of drawing commands a part of its pages.
    A page has no rows but its failure beyond ``row_bytes`` of them, ``memory_bytes`` that its worker process may hold,
    and ``seconds`` of processor time. The last two are far above what pages within the other limits take.
    """

    payload_bytes: int = 16 * 1024 * 1024
    depth: int = 512
    elements: int = 500_000
    extractor_work: int = 8_000_000
    options: int = 4_000
    meta_tags: int = 2_000
    links: int = 20_000
    attributes: int = 256
    attribute_chars: int = 16 * 1024
    text_chars: int = 4 * 1024 * 1024
    feed_items: int = 10_000
    sitemap_links: int = 50_000
    pdf_pages: int = 1_000
    pdf_stream_bytes: int = 512 * 1024
    row_bytes: int = 64 * 1024 * 1024
    seconds: float = 30.0
    memory_bytes: int = 3 * 1024 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ParseOptions:
    """Options of a parser: which columns are filled. ``markdown`` adds the main content as Markdown."""

    main_content: bool = True
    markdown: bool = False
    language: bool = True
    text_simhash: bool = True
    limits: Limits = field(default_factory=Limits)


#: Anomalies of a page that was read nevertheless.
FLAGS: tuple[str, ...] = (
    "payload_cut",  # longer than the limit; only its beginning was parsed
    "links_cut",  # more links than the limit
    "attributes_cut",  # a tag with more attributes than the limit, or a longer value
    "nesting_cut",  # elements nested deeper than the limit, or too many left open; their tags were taken out
    "elements_cut",  # more tags and attributes, or options, than the limit; what follows was left out
    "main_content_left_out",  # nested too deep and often to look for main content, or a library failed at it
    "meta_cut",  # more meta tags than the limit
    "text_cut",  # more text than the limit
    "items_cut",  # more feed items than the limit
    "base_unusable",  # a base element that is no absolute URL
    "facts_cut",  # more headings, structured data or elements with facts than their bounds
    "json_ld_invalid",  # a JSON-LD script that is no JSON
    "content_decoded",  # the body still had a transfer or content coding, which was taken off before it was read
    "coding_mismatch",  # a Content-Encoding that the bytes do not have, or one they have and no header names
    "coding_cut",  # a coded body that was cut off or damaged; its beginning was read
    "binary_content",  # a type of text on bytes that are none (PDF, pictures, archives); not read as text
    "type_mismatch",  # HTML by what the archive identified, under another type; read as HTML
    "text_unread",  # text under the type of a file or a program, such as image/png, which was not read
    "charset_mismatch",  # bytes that do not decode in the charset they are labelled with
    "lists_cut",  # a feed or one of its items lists more of a kind than the limit
    "feed_malformed",  # read as a feed although it is not well-formed
    "feed_unreadable",  # labelled as a feed but no feed could be read
    "json_invalid",  # labelled as JSON and read as plain text
    "xml_malformed",  # XML that is not well-formed; what could be read of it
    "xml_unreadable",  # labelled as XML, and none
    "pdf_truncated",  # a PDF file that is cut, or lacks its end
    "pdf_locked",  # a PDF file that needs a password
    "pdf_unreadable",  # a PDF file that PDFium cannot open
    "pdf_page_unreadable",  # a page of a PDF file that PDFium cannot read
    "unknown_keys",  # a 2012 document with keys nobody has described
)

SourceKind = Literal["records", "sequencefile"]
Headers = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class RedirectSource:
    """The exchange that redirected to a page, if the archive has it."""

    source_url: str
    http_result: int | None = None
    server_ip: str | None = None
    http_headers: Headers = ()
    http_status_line: str | None = None


@dataclass(frozen=True, slots=True)
class PageInput:
    """One capture, ready to parse.

    The first group is copied into every row. ``payload`` is the body as archived (Common Crawl removes codings,
    ``parse_page`` those that others kept). ``http_headers`` keep order and repetition. ``fetch_time`` is aware UTC.
    ``truncated`` is the archive's reason for a cut body, ``None`` for a complete one. ``mime_detected`` is the media
    type that the index detected from the bytes. ``record_type`` is the WARC record's.
    """

    crawl: str
    subset: str
    url: str
    payload: bytes
    target: str = ""
    url_surtkey: str | None = None
    fetch_time: datetime | None = None
    fetch_status: int | None = None
    content_digest: str | None = None
    warc_filename: str | None = None
    warc_record_offset: int | None = None
    warc_record_length: int | None = None
    domain: str | None = None
    condition_match: str | None = None
    # the exchange
    http_status: int | None = None
    http_status_line: str | None = None
    http_headers: Headers = ()
    server_ip: str | None = None
    truncated: str | None = None
    mime_detected: str | None = None
    record_headers: Headers = ()
    redirect_from: RedirectSource | None = None
    record_type: str = "response"
    # its location
    archive_format: str = "warc"
    warc_segment: str | None = None
    source_kind: SourceKind = "records"
    source_file: str | None = None

    @property
    def content_headers(self) -> Headers:
        """The headers that describe the payload: those of HTTP, or for a ``resource`` record, which has none, the
        record's own (WARC 1.1, 6.4)."""
        return self.record_headers if self.record_type == "resource" else self.http_headers


#: The tags that the 2012 document lists, with the attribute that holds the link.
LINK_ATTRIBUTE = {
    "a": "href",
    "img": "src",
    "script": "src",
    "link": "href",
    "iframe": "src",
    "area": "href",
    "frame": "src",
}


class Link(NamedTuple):
    """One link of a page; ``url`` is absolute, ``None`` if ``href`` cannot be resolved.

    ``attributes`` hold every attribute but the one in ``href``, whose name is ``attribute`` if known; a link of an
    image's ``srcset`` has none, since its tag has a link of its own. ``host`` is in ASCII, ``host_shown`` as browsers
    show it if that differs. ``item_index`` is set for links inside the content of a feed item.
    """

    type: str | None
    href: str | None
    url: str | None
    text: str | None
    rel: str | None
    attributes: dict[str, str]
    host: str | None = None
    domain: str | None = None
    item_index: int | None = None
    attribute: str | None = None
    host_shown: str | None = None

    @property
    def is_document_link(self) -> bool:
        """Whether the 2012 document lists such links."""
        return self.attribute is None or LINK_ATTRIBUTE.get(self.type or "") == self.attribute


@dataclass(frozen=True, slots=True)
class ParsedPage:
    """The rows of one capture.

    ``keys`` are the shared key and provenance columns. ``metadata`` and ``text`` are rows without those
    (``text`` is ``None`` if the capture has no text); ``metadata["content"]["links"]`` is left out,
    ``links`` holds them. ``feed_items`` are rows without keys too.
    """

    keys: Mapping[str, Any]
    metadata: Mapping[str, Any]
    text: Mapping[str, Any] | None = None
    links: tuple[Link, ...] = ()
    feed_items: tuple[Mapping[str, Any], ...] = field(default=())
