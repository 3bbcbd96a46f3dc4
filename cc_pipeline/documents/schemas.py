"""The four tables of parsed pages, as Arrow schemas.

Each starts with the key columns it shares with ``records`` and ends with the row's provenance. The attributes in
between carry the names of the 2012 metadata document exactly (``arcFileParition`` included), as typed columns.
Only plain types that Delta, DuckDB and Spark read alike: no dictionaries, no large or view types.
To add a column: ``docs/CONTRIBUTING.md``, "A column of pages".
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from cc_pipeline.capture_columns import KEY_COLUMNS, TIMESTAMP
from cc_pipeline.columns import Column, schema_of
from cc_pipeline.documents.signals.quality import Quality

#: Increased with every change of a row's values: stages parse rows of an older version again, without fetching.
PARSER_VERSION = "9"
#: The value of the column ``parser``.
PARSER = "cc_pipeline.documents"

_ATTRIBUTES = pa.map_(pa.string(), pa.string())
_STRINGS = pa.list_(pa.string())


def _struct(**fields: pa.DataType) -> pa.DataType:
    return pa.struct([pa.field(name, kind) for name, kind in fields.items()])


#: ``parser`` and ``parser_version`` name the row's maker; ``source_kind`` is ``records`` or ``sequencefile``;
#: ``source_file`` is the archive file, or the file read whole.
PROVENANCE_COLUMNS: Final = (
    Column(
        "parser",
        pa.string(),
        "Maker of the row: cc_pipeline.documents, or Common Crawl (commoncrawl-2012)",
        nullable=False,
    ),
    Column(
        "parser_version",
        pa.string(),
        "Version of the parser; rows of an older one are stale and parsed again without refetching",
        nullable=False,
    ),
    Column("source_kind", pa.string(), "records or sequencefile", nullable=False),
    Column("source_file", pa.string(), "The archive file, or the file that was read whole"),
)

#: One header or OpenGraph property; a list of these keeps order and repetition, which a map cannot.
NAME_VALUE = _struct(name=pa.string(), value=pa.string())

#: One ``meta`` tag. ``name`` is its key: the ``name`` attribute, else ``property``, ``http-equiv`` or ``itemprop``.
META_TAG = _struct(name=pa.string(), content=pa.string(), attributes=_ATTRIBUTES)

#: One link. ``type`` is the tag, ``href`` the attribute as written, ``url`` the absolute URL,
#: ``attributes`` every other attribute of the tag.
LINK = _struct(type=pa.string(), href=pa.string(), url=pa.string(), text=pa.string(), attributes=_ATTRIBUTES)

#: A link of a feed or feed item.
FEED_LINK = _struct(type=pa.string(), href=pa.string(), rel=pa.string(), title=pa.string())

AUTHOR = _struct(name=pa.string(), url=pa.string(), email=pa.string())

#: The ``content`` of a feed item as the 2012 document nests it.
HTML_DOC = _struct(type=pa.string(), title=pa.string(), meta_tags=pa.list_(META_TAG), links=pa.list_(LINK))

#: A file that belongs to a feed item: length in bytes and seconds, as the feed states.
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

#: The iTunes elements of a feed or an item.
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

#: The fields of a feed beyond the 2012 document.
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

#: A rule for one robot (``bot``; null: every robot). ``source`` is ``meta`` or ``header``.
ROBOTS_RULE = _struct(source=pa.string(), bot=pa.string(), directives=_STRINGS)

#: The page in another language. ``source`` is ``link`` or ``header``, for feeds too.
ALTERNATE = _struct(hreflang=pa.string(), url=pa.string(), source=pa.string())

#: A feed that the page names; ``type`` is ``rss``, ``atom``, ``json`` or null.
FEED_FOUND = _struct(type=pa.string(), url=pa.string(), title=pa.string(), source=pa.string())

#: A redirection by the page, after ``seconds``; ``source`` is ``meta`` or ``header``.
REFRESH = _struct(seconds=pa.float64(), url=pa.string(), source=pa.string())

HEADING = _struct(level=pa.int8(), text=pa.string())

#: ``syntax`` is ``json-ld`` or ``microdata``; ``value`` is JSON, whose schema is the page's.
STRUCTURED = _struct(syntax=pa.string(), types=_STRINGS, value=pa.string())

_QUALITY_COUNTS = frozenset(
    {"lines", "words", "characters", "stop_words", "sentences", "javascript_lines", "curly_brackets", "lorem_ipsum"}
)

#: The metrics of documents/signals/quality.py.
QUALITY = _struct(**{name: pa.int32() if name in _QUALITY_COUNTS else pa.float32() for name in Quality._fields})

_METADATA: Final = (
    Column("attempt_time", TIMESTAMP, "Time of the crawler's attempt"),
    Column("disposition", pa.string(), "SUCCESS or FAILURE, as in the 2012 metadata (docs/formats.md)", nullable=False),
    Column("failure_reason", pa.string(), "Reason of a FAILURE, a term of 2012 or of ours (docs/formats.md)"),
    Column("failure_detail", pa.string(), "The failure in words"),
    Column("redirect_from", REDIRECT, "Request and response that redirected here, if the archive has them (2012)"),
    Column("redirect_to", pa.string(), "Absolute target of a redirect"),
    Column("server_ip", pa.string(), "Address of the server, as archived"),
    Column("http_result", pa.int32(), "HTTP status"),
    Column(
        "http_headers", _ATTRIBUTES, "Lower-case name to value, the status line under response; repeated headers joined"
    ),
    Column("http_header_list", pa.list_(NAME_VALUE), "Every header as archived, in order"),
    Column("content_len", pa.int64(), "Content-Length as sent, else bytes of the body"),
    Column("mime_type", pa.string(), "Media type as declared, without parameters; text/html if none is declared"),
    Column(
        "type_from",
        pa.string(),
        "Origin of the type by which the body is read: header, archive (the type that it identified) or bytes",
    ),
    Column("download_size", pa.int64(), "Bytes that were transferred"),
    Column("download_truncated", pa.bool_(), "Whether the body was cut"),
    Column("truncated_reason", pa.string(), "Why the body was cut, in the archive's term"),
    Column("content_is_gzip", pa.bool_(), "Whether the body was transferred gzipped"),
    Column("gunzip_content_len", pa.int64(), "Bytes after unpacking"),
    Column("gunzip_failed", pa.bool_(), "Whether unpacking failed; only in files of 2012"),
    Column("md5", pa.string(), "MD5 of the body, hexadecimal"),
    Column("charset_detected", pa.string(), "Encoding of the text"),
    Column(
        "charset_detector", pa.int32(), "0 header, 1 meta tag, 2 and 3 detectors, 10 undetermined (docs/documents.md)"
    ),
    Column("text_simhash", pa.int64(), "64-bit simhash of the text by the 2012 algorithm, signed"),
    Column("parsed_as", pa.string(), "html or feed; null for anything else"),
    Column("content", CONTENT, "Title, meta tags and links of a page; or the fields of a feed"),
    Column(
        "archiveInfo", ARCHIVE_INFO, "Location in the archive, in the numbers of 2012 (arcFileParition is spelled so)"
    ),
    # anomalies of readable pages, words of documents/page.py's FLAGS
    Column("flags", _STRINGS, "Anomalies of a readable page"),
    Column("feed", FEED, "Fields of a feed that the 2012 document lacks: version, language, pictures, links, podcast"),
    # the page's own metadata: documents/about/
    Column("published", TIMESTAMP, "Publication time, as the page, feed or item states; null if no date was found"),
    Column(
        "published_precision",
        pa.string(),
        "moment, local (no zone: the clock time as if UTC), day, week, month or year",
    ),
    Column(
        "published_day",
        pa.date32(),
        "Day as the page writes it; of a moment in UTC the one in its address, if some time zone has it",
    ),
    Column(
        "published_from",
        pa.string(),
        "json-ld, open-graph, meta, microdata or time",
    ),
    Column("modified", TIMESTAMP, "Time of the last change, as the page states; headers do not count"),
    Column("modified_precision", pa.string(), "As published_precision"),
    Column("modified_day", pa.date32(), "As published_day"),
    Column("modified_from", pa.string(), "json-ld, open-graph, meta, microdata or time"),
    Column("author", pa.string(), "Names, comma-separated"),
    Column(
        "author_from",
        pa.string(),
        "json-ld, open-graph, meta, microdata, rel-author (a link) or byline (an element marked so)",
    ),
    Column("canonical_url", pa.string(), "Absolute target of rel=canonical"),
    Column("canonical_from", pa.string(), "link (the element) or header"),
    Column(
        "robots",
        pa.list_(ROBOTS_RULE),
        "Rules for robots: source (meta or header), bot (null: all), directives in lower case",
    ),
    Column("robots_directives", _STRINGS, "Directives for all robots, each once; none counts as noindex and nofollow"),
    Column("tdm_reservation", pa.bool_(), "Whether text and data mining is reserved, by header or meta tag (TDMRep)"),
    Column("tdm_policy", pa.string(), "Absolute URL of the policy for text and data mining"),
    Column("alternates", pa.list_(ALTERNATE), "Versions in other languages: hreflang, url, source (link or header)"),
    Column(
        "feed_links",
        pa.list_(FEED_FOUND),
        "Feeds that the page links: type (rss, atom, json or null), url, title, source",
    ),
    Column("refresh", REFRESH, "Seconds and URL of its refresh (null: the page itself), source meta or header"),
    Column("headings", pa.list_(HEADING), "Level 1 to 6 and text, in order"),
    Column("structured", pa.list_(STRUCTURED), "JSON-LD documents and microdata items: syntax, types, value as JSON"),
    # only for ARC files of crawl-002: documents/arc_time.py
    Column(
        "fetch_time_corrected",
        TIMESTAMP,
        "fetch_time in UTC for ARC files of crawl-002, whose dates are in Pacific time: shifted "
        "by the whole hours to the response's Date; null for other captures, and without a Date "
        "within a day",
    ),
)

_TEXT: Final = (
    Column(
        "text",
        pa.string(),
        "Title, description and body with white space collapsed; the whole text of feeds, JSON, XML and PDF",
    ),
    Column("main_content", pa.string(), "Text without navigation and other boilerplate"),
    Column("main_content_extractor", pa.string(), "Library and version that extracted main_content"),
    Column("title", pa.string(), "Title of the page, from the best of its own sources"),
    Column("description", pa.string(), "Meta description, else og:description"),
    Column("site_name", pa.string(), "og:site_name, else the publisher in JSON-LD"),
    Column("author", pa.string(), "Names, comma-separated"),
    Column("published", TIMESTAMP, "Publication time, as the page, feed or item states; null if no date was found"),
    Column("html_lang", pa.string(), "lang attribute of the root element"),
    Column(
        "content_languages",
        pa.string(),
        "Up to three ISO-639-3 codes, best first (CLD2); comma-separated text in the lake",
    ),
    Column(
        "language_reliable", pa.bool_(), "Whether CLD2 calls the languages reliable; null if the codes are not ours"
    ),
    Column("canonical_url", pa.string(), "Absolute target of rel=canonical"),
    Column("open_graph", pa.list_(NAME_VALUE), "OpenGraph properties in order, with repetitions"),
    # one compact JSON document per script; its schema is the page's, so it stays text
    Column("json_ld", _STRINGS, "One compact JSON text per script"),
    Column("json_ld_types", _STRINGS, "Every @type in the JSON-LD"),
    Column("main_content_markdown", pa.string(), "main_content as Markdown, if CC_PIPELINE_MARKDOWN is on"),
    # the reader: html, feed, text, json, xml, sitemap, pdf
    Column(
        "text_type",
        pa.string(),
        "Kind of document: html, feed, text, json, xml, sitemap, pdf; null for files of 2012",
    ),
    # of the main content: documents/signals/
    Column("content_simhash", pa.int64(), "Simhash of main_content; similar texts differ in few bits"),
    Column(
        "content_minhash",
        pa.list_(pa.int32()),
        "MinHash of 64 values over runs of five words of main_content; the share of equal "
        "positions estimates the share of common runs",
    ),
    Column(
        "quality",
        QUALITY,
        "Metrics of main_content by the rules of Gopher and C4 (docs/documents.md); null without a word",
    ),
)

_LINKS: Final = (
    Column("link_index", pa.int32(), "Position among the page's links, from 0", nullable=False),
    # the feed item whose content holds the link; null for links of the page itself
    Column("item_index", pa.int32(), "Feed item whose content has the link; null for links of the page itself"),
    Column("type", pa.string(), "Element of the link: a, link, img, script …; in sitemaps url, sitemap, image, video"),
    Column("href", pa.string(), "As written"),
    Column("link_url", pa.string(), "URL that a browser would request: absolute, escaped; null if there is none"),
    Column("link_host", pa.string(), "Host of link_url in ASCII (xn--…), as in the index"),
    Column("link_domain", pa.string(), "Registered domain of link_host"),
    Column("text", pa.string(), "Text of a link (a, area)"),
    Column("rel", pa.string(), "The rel attribute, as written"),
    Column("attributes", _ATTRIBUTES, "All other attributes of the element except rel; empty for srcset"),
    # the attribute that holds the link; null if the source does not have it
    Column(
        "attribute",
        pa.string(),
        "Attribute of the link: href, src, srcset, action, poster, data; null if the source does not have it",
    ),
    Column("link_host_shown", pa.string(), "Host as browsers show it, if it differs from link_host"),
)

_FEED_ITEMS: Final = (
    Column("feed_type", pa.string(), "rss-feed, atom-feed or json-feed"),
    Column("feed_title", pa.string(), "Title of the feed"),
    Column("item_index", pa.int32(), "Position in the feed, from 0", nullable=False),
    Column("title", pa.string(), "Title of the item, as text"),
    Column("description", pa.string(), "Description of the item, as published: text or markup"),
    Column("link", pa.string(), "First link of the item"),
    # every link of the item: alternate, self, replies, enclosure ...
    Column("links", _FEED_LINKS, "All links of the item, with type, rel and title"),
    Column("author", pa.string(), "Author as written, or the first name of authors"),
    Column("authors", _AUTHORS, "Name, address and mail of each author; of the source or feed if the item has none"),
    Column("categories", _STRINGS, "Categories as listed"),
    Column("comments", pa.string(), "Address of the comments"),
    Column("guid", pa.string(), "Id of the item"),
    Column("published", TIMESTAMP, "Publication time, as the page, feed or item states; null if no date was found"),
    Column("updated", TIMESTAMP, "Time of the last update, as the item states"),
    Column("content", pa.string(), "Markup of the item"),
    Column("content_type", pa.string(), "Media type of content"),
    # the dates as written, and how exact they are (documents/dates.py)
    Column("published_text", pa.string(), "The date as written"),
    Column("updated_text", pa.string(), "The date as written"),
    Column(
        "published_precision",
        pa.string(),
        "moment, local (no zone: the clock time as if UTC), day, week, month or year",
    ),
    Column("updated_precision", pa.string(), "As published_precision"),
    Column("language", pa.string(), "Language of the item, as declared"),
    Column("image", pa.string(), "Address of the item's picture"),
    Column(
        "enclosures",
        pa.list_(ENCLOSURE),
        "Files of the item: url, type, length in bytes, title, duration in seconds",
    ),
    Column(
        "media",
        pa.list_(MEDIA),
        "Objects of Media RSS: url, type, medium, size in pixels and bytes, duration in seconds, texts, player",
    ),
    Column(
        "podcast",
        PODCAST,
        "Values of the iTunes elements: owner, type, explicit, episode, season, duration in seconds …",
    ),
)


#: Table name to columns, in the order the stages commit them.
PAGE_COLUMNS: Final[dict[str, tuple[Column, ...]]] = {
    name: (*KEY_COLUMNS, *columns, *PROVENANCE_COLUMNS)
    for name, columns in (
        ("page_metadata", _METADATA),
        ("page_text", _TEXT),
        ("page_links", _LINKS),
        ("feed_items", _FEED_ITEMS),
    )
}
#: Table name to schema, in the same order.
SCHEMAS: Final[dict[str, pa.Schema]] = {name: schema_of(columns) for name, columns in PAGE_COLUMNS.items()}
PAGE_METADATA_SCHEMA: Final = SCHEMAS["page_metadata"]
PAGE_TEXT_SCHEMA: Final = SCHEMAS["page_text"]
PAGE_LINKS_SCHEMA: Final = SCHEMAS["page_links"]
FEED_ITEMS_SCHEMA: Final = SCHEMAS["feed_items"]
