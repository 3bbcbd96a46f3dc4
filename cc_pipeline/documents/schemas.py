"""The four tables a parsed page becomes, as Arrow schemas.

Each starts with the key columns it shares with ``records`` and ends with who made the row. The attributes in
between carry the names of the 2012 metadata document exactly (``arcFileParition`` included), as typed columns.
Only plain types that Delta, DuckDB and Spark read alike: no dictionaries, no large or view types.
"""

from __future__ import annotations

import pyarrow as pa

from cc_pipeline.capture_columns import KEY_FIELDS, TIMESTAMP
from cc_pipeline.documents.signals.quality import Quality

#: Raised with every change that makes a row come out differently, a new column included: stages parse rows of an
#: older version again, without fetching.
PARSER_VERSION = "7"
#: Who made a row, in its column ``parser``.
PARSER = "cc_pipeline.documents"

_ATTRIBUTES = pa.map_(pa.string(), pa.string())
_STRINGS = pa.list_(pa.string())


def _struct(**fields: pa.DataType) -> pa.DataType:
    return pa.struct([pa.field(name, kind) for name, kind in fields.items()])


#: ``parser`` and ``parser_version`` say what made the row; ``source_kind`` is ``records``, ``sequencefile``,
#: ``wat`` or ``wet``; ``source_file`` is the archive file, or the file read whole for the other kinds.
PROVENANCE_FIELDS: tuple[pa.Field, ...] = (
    pa.field("parser", pa.string(), nullable=False),
    pa.field("parser_version", pa.string(), nullable=False),
    pa.field("source_kind", pa.string(), nullable=False),
    pa.field("source_file", pa.string()),
)

#: One header or OpenGraph property; a list of these keeps order and repetition, which a map cannot.
NAME_VALUE = _struct(name=pa.string(), value=pa.string())

#: One ``meta`` tag. ``name`` is its key: the ``name`` attribute, else ``property``, ``http-equiv`` or ``itemprop``.
META_TAG = _struct(name=pa.string(), content=pa.string(), attributes=_ATTRIBUTES)

#: One link. ``type`` is the tag, ``href`` the attribute as written, ``url`` the absolute URL it means,
#: ``attributes`` every other attribute of the tag.
LINK = _struct(type=pa.string(), href=pa.string(), url=pa.string(), text=pa.string(), attributes=_ATTRIBUTES)

#: A link of a feed or feed item.
FEED_LINK = _struct(type=pa.string(), href=pa.string(), rel=pa.string(), title=pa.string())

AUTHOR = _struct(name=pa.string(), url=pa.string(), email=pa.string())

#: The ``content`` of a feed item as the 2012 document nests it.
HTML_DOC = _struct(type=pa.string(), title=pa.string(), meta_tags=pa.list_(META_TAG), links=pa.list_(LINK))

#: A file that belongs to a feed item: length in bytes and seconds, as the feed says.
ENCLOSURE = _struct(url=pa.string(), type=pa.string(), length=pa.int64(), title=pa.string(), duration=pa.float64())

#: An object of Media RSS: pixels, seconds, bytes.
MEDIA = _struct(
    url=pa.string(),
    type=pa.string(),
    medium=pa.string(),
    width=pa.int32(),
    height=pa.int32(),
    duration=pa.float64(),
    file_size=pa.int64(),
    title=pa.string(),
    description=pa.string(),
    credit=pa.string(),
    thumbnail=pa.string(),
    player=pa.string(),
)

#: What iTunes' elements say of a feed or an item.
PODCAST = _struct(
    author=pa.string(),
    owner=AUTHOR,
    subtitle=pa.string(),
    summary=pa.string(),
    image=pa.string(),
    type=pa.string(),
    explicit=pa.bool_(),
    block=pa.bool_(),
    complete=pa.bool_(),
    episode=pa.int32(),
    season=pa.int32(),
    duration=pa.float64(),
    new_feed_url=pa.string(),
)

#: What a feed says of itself beyond the 2012 document.
FEED = _struct(
    version=pa.string(),
    language=pa.string(),
    copyright=pa.string(),
    image=pa.string(),
    icon=pa.string(),
    links=pa.list_(FEED_LINK),
    podcast=PODCAST,
)

_FEED_LINKS = pa.list_(FEED_LINK)
_AUTHORS = pa.list_(AUTHOR)

FEED_ITEM = _struct(
    title=pa.string(),
    description=pa.string(),
    link=_FEED_LINKS,
    self=_FEED_LINKS,
    replies=_FEED_LINKS,
    author=pa.string(),
    authors=_AUTHORS,
    categories=_STRINGS,
    comments=pa.string(),
    published=TIMESTAMP,
    updated=TIMESTAMP,
    guid=pa.string(),
    content=pa.list_(HTML_DOC),
)

#: ``content``: an ``html-doc`` fills title, meta_tags and links, a feed the rest.
CONTENT = _struct(
    type=pa.string(),
    title=pa.string(),
    meta_tags=pa.list_(META_TAG),
    links=pa.list_(LINK),
    link=_FEED_LINKS,
    description=pa.string(),
    published=TIMESTAMP,
    updated=TIMESTAMP,
    categories=_STRINGS,
    generator=pa.string(),
    ttl=pa.int32(),
    authors=_AUTHORS,
    items=pa.list_(FEED_ITEM),
)

REDIRECT = _struct(source_url=pa.string(), http_result=pa.int32(), server_ip=pa.string(), http_headers=_ATTRIBUTES)

ARCHIVE_INFO = _struct(
    arcSourceSegmentId=pa.int64(),
    arcFileDate=pa.int64(),
    arcFileParition=pa.int64(),
    arcFileOffset=pa.int64(),
    compressedSize=pa.int64(),
)

#: What one robot (``bot``; null: every one) is asked. ``source`` is ``meta`` or ``header``.
ROBOTS_RULE = _struct(source=pa.string(), bot=pa.string(), directives=_STRINGS)

#: The page in another language. ``source`` is ``link`` or ``header``, for feeds too.
ALTERNATE = _struct(hreflang=pa.string(), url=pa.string(), source=pa.string())

#: A feed that the page names; ``type`` is ``rss``, ``atom``, ``json`` or null.
FEED_FOUND = _struct(type=pa.string(), url=pa.string(), title=pa.string(), source=pa.string())

#: Where the page sends its reader, after how many seconds; ``source`` is ``meta`` or ``header``.
REFRESH = _struct(seconds=pa.float64(), url=pa.string(), source=pa.string())

HEADING = _struct(level=pa.int8(), text=pa.string())

#: ``syntax`` is ``json-ld``, ``microdata`` or ``rdfa``; ``value`` is JSON, whose schema is the page's.
STRUCTURED = _struct(syntax=pa.string(), types=_STRINGS, value=pa.string())

_QUALITY_COUNTS = frozenset(
    {"lines", "words", "characters", "stop_words", "sentences", "javascript_lines", "curly_brackets", "lorem_ipsum"}
)

#: The figures of documents/signals/quality.py.
QUALITY = _struct(**{name: pa.int32() if name in _QUALITY_COUNTS else pa.float32() for name in Quality._fields})

_METADATA_FIELDS: tuple[pa.Field, ...] = (
    pa.field("attempt_time", TIMESTAMP),
    pa.field("disposition", pa.string(), nullable=False),
    pa.field("failure_reason", pa.string()),
    pa.field("failure_detail", pa.string()),
    pa.field("redirect_from", REDIRECT),
    pa.field("redirect_to", pa.string()),
    pa.field("server_ip", pa.string()),
    pa.field("http_result", pa.int32()),
    pa.field("http_headers", _ATTRIBUTES),
    pa.field("http_header_list", pa.list_(NAME_VALUE)),
    pa.field("content_len", pa.int64()),
    pa.field("mime_type", pa.string()),
    pa.field("type_from", pa.string()),
    pa.field("download_size", pa.int64()),
    pa.field("download_truncated", pa.bool_()),
    pa.field("truncated_reason", pa.string()),
    pa.field("content_is_gzip", pa.bool_()),
    pa.field("gunzip_content_len", pa.int64()),
    pa.field("gunzip_failed", pa.bool_()),
    pa.field("md5", pa.string()),
    pa.field("charset_detected", pa.string()),
    pa.field("charset_detector", pa.int32()),
    pa.field("text_simhash", pa.int64()),
    pa.field("parsed_as", pa.string()),
    pa.field("content", CONTENT),
    pa.field("archiveInfo", ARCHIVE_INFO),
    # what was odd but readable, words of documents/page.py's FLAGS
    pa.field("flags", _STRINGS),
    pa.field("metadata_json", pa.string()),
    pa.field("feed", FEED),
    # what the page says about itself: documents/about/
    pa.field("published", TIMESTAMP),
    pa.field("published_precision", pa.string()),
    pa.field("published_day", pa.date32()),
    pa.field("published_from", pa.string()),
    pa.field("modified", TIMESTAMP),
    pa.field("modified_precision", pa.string()),
    pa.field("modified_day", pa.date32()),
    pa.field("modified_from", pa.string()),
    pa.field("author", pa.string()),
    pa.field("author_from", pa.string()),
    pa.field("canonical_url", pa.string()),
    pa.field("canonical_from", pa.string()),
    pa.field("robots", pa.list_(ROBOTS_RULE)),
    pa.field("robots_directives", _STRINGS),
    pa.field("tdm_reservation", pa.bool_()),
    pa.field("tdm_policy", pa.string()),
    pa.field("alternates", pa.list_(ALTERNATE)),
    pa.field("feed_links", pa.list_(FEED_FOUND)),
    pa.field("refresh", REFRESH),
    pa.field("headings", pa.list_(HEADING)),
    pa.field("structured", pa.list_(STRUCTURED)),
    # of ARC files of crawl-002 alone: documents/arc_time.py
    pa.field("fetch_time_corrected", TIMESTAMP),
)

_TEXT_FIELDS: tuple[pa.Field, ...] = (
    pa.field("text", pa.string()),
    pa.field("main_content", pa.string()),
    pa.field("main_content_extractor", pa.string()),
    pa.field("title", pa.string()),
    pa.field("description", pa.string()),
    pa.field("site_name", pa.string()),
    pa.field("author", pa.string()),
    pa.field("published", TIMESTAMP),
    pa.field("html_lang", pa.string()),
    pa.field("content_languages", pa.string()),
    pa.field("language_reliable", pa.bool_()),
    pa.field("canonical_url", pa.string()),
    pa.field("open_graph", pa.list_(NAME_VALUE)),
    # one compact JSON document per script; its schema is the page's, so it stays text
    pa.field("json_ld", _STRINGS),
    pa.field("json_ld_types", _STRINGS),
    pa.field("main_content_markdown", pa.string()),
    # who read it: html, feed, text, json, xml, sitemap, pdf
    pa.field("text_type", pa.string()),
    # of the main content: documents/signals/
    pa.field("content_simhash", pa.int64()),
    pa.field("content_minhash", pa.list_(pa.int32())),
    pa.field("quality", QUALITY),
)

_LINK_FIELDS: tuple[pa.Field, ...] = (
    pa.field("link_index", pa.int32(), nullable=False),
    # the feed item whose content holds the link; null for links of the page itself
    pa.field("item_index", pa.int32()),
    pa.field("type", pa.string()),
    pa.field("href", pa.string()),
    pa.field("link_url", pa.string()),
    pa.field("link_host", pa.string()),
    pa.field("link_domain", pa.string()),
    pa.field("text", pa.string()),
    pa.field("rel", pa.string()),
    pa.field("attributes", _ATTRIBUTES),
    # the attribute that holds the link; null where the source does not say
    pa.field("attribute", pa.string()),
    pa.field("link_host_shown", pa.string()),
)

_FEED_ITEM_FIELDS: tuple[pa.Field, ...] = (
    pa.field("feed_type", pa.string()),
    pa.field("feed_title", pa.string()),
    pa.field("item_index", pa.int32(), nullable=False),
    pa.field("title", pa.string()),
    pa.field("description", pa.string()),
    pa.field("link", pa.string()),
    # every link of the item: alternate, self, replies, enclosure ...
    pa.field("links", _FEED_LINKS),
    pa.field("author", pa.string()),
    pa.field("authors", _AUTHORS),
    pa.field("categories", _STRINGS),
    pa.field("comments", pa.string()),
    pa.field("guid", pa.string()),
    pa.field("published", TIMESTAMP),
    pa.field("updated", TIMESTAMP),
    pa.field("content", pa.string()),
    pa.field("content_type", pa.string()),
    # the dates as written, and how exact they are (documents/dates.py)
    pa.field("published_text", pa.string()),
    pa.field("updated_text", pa.string()),
    pa.field("published_precision", pa.string()),
    pa.field("updated_precision", pa.string()),
    pa.field("language", pa.string()),
    pa.field("image", pa.string()),
    pa.field("enclosures", pa.list_(ENCLOSURE)),
    pa.field("media", pa.list_(MEDIA)),
    pa.field("podcast", PODCAST),
)


def _table(fields: tuple[pa.Field, ...]) -> pa.Schema:
    return pa.schema([*KEY_FIELDS, *fields, *PROVENANCE_FIELDS])


PAGE_METADATA_SCHEMA = _table(_METADATA_FIELDS)
PAGE_TEXT_SCHEMA = _table(_TEXT_FIELDS)
PAGE_LINKS_SCHEMA = _table(_LINK_FIELDS)
FEED_ITEMS_SCHEMA = _table(_FEED_ITEM_FIELDS)

#: Table name to schema, in the order the stages commit them.
SCHEMAS: dict[str, pa.Schema] = {
    "page_metadata": PAGE_METADATA_SCHEMA,
    "page_text": PAGE_TEXT_SCHEMA,
    "page_links": PAGE_LINKS_SCHEMA,
    "feed_items": FEED_ITEMS_SCHEMA,
}
