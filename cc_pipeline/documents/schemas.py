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

#: Increased with every change of a row's values, new columns included: stages parse rows of an older version again,
#: without fetching.
PARSER_VERSION = "7"
#: The value of the column ``parser``.
PARSER = "cc_pipeline.documents"

_ATTRIBUTES = pa.map_(pa.string(), pa.string())
_STRINGS = pa.list_(pa.string())


def _struct(**fields: pa.DataType) -> pa.DataType:
    return pa.struct([pa.field(name, kind) for name, kind in fields.items()])


#: ``parser`` and ``parser_version`` name the row's maker; ``source_kind`` is ``records``, ``sequencefile``,
#: ``wat`` or ``wet``; ``source_file`` is the archive file, or the file read whole for the other kinds.
PROVENANCE_COLUMNS: Final = (
    Column(
        "parser",
        pa.string(),
        "Who made the row: cc_pipeline.documents, or Common Crawl itself (commoncrawl-2012, -wat, -wet)",
        nullable=False,
    ),
    Column(
        "parser_version",
        pa.string(),
        "Rows of an older version are stale and parsed again without refetching",
        nullable=False,
    ),
    Column("source_kind", pa.string(), "records, sequencefile, wat or wet", nullable=False),
    Column("source_file", pa.string(), "The archive file; of rows from files read whole that file"),
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

#: ``syntax`` is ``json-ld``, ``microdata`` or ``rdfa``; ``value`` is JSON, whose schema is the page's.
STRUCTURED = _struct(syntax=pa.string(), types=_STRINGS, value=pa.string())

_QUALITY_COUNTS = frozenset(
    {"lines", "words", "characters", "stop_words", "sentences", "javascript_lines", "curly_brackets", "lorem_ipsum"}
)

#: The metrics of documents/signals/quality.py.
QUALITY = _struct(**{name: pa.int32() if name in _QUALITY_COUNTS else pa.float32() for name in Quality._fields})

_METADATA: Final = (
    Column("attempt_time", TIMESTAMP, "When the crawl of the page was attempted"),
    Column(
        "disposition", pa.string(), "SUCCESS or FAILURE, as the 2012 metadata has it (docs/formats.md)", nullable=False
    ),
    Column("failure_reason", pa.string(), "Why it is a FAILURE, in the words of 2012 or ours (docs/formats.md)"),
    Column("failure_detail", pa.string(), "The failure in words"),
    Column("redirect_from", REDIRECT, "The exchange that led here, where the archive tells it (2012)"),
    Column("redirect_to", pa.string(), "Absolute target of a redirect"),
    Column("server_ip", pa.string(), "Address of the server, as archived"),
    Column("http_result", pa.int32(), "HTTP status"),
    Column(
        "http_headers", _ATTRIBUTES, "Lower-case name to value, the status line under response; repeated headers joined"
    ),
    Column("http_header_list", pa.list_(NAME_VALUE), "Every header as archived, in order"),
    Column("content_len", pa.int64(), "Content-Length as sent, else bytes of the body"),
    Column("mime_type", pa.string(), "Media type as declared, without parameters; text/html where nothing is declared"),
    Column(
        "type_from", pa.string(), "What decided how the body is read: header, archive (the type it identified) or bytes"
    ),
    Column("download_size", pa.int64(), "Bytes that travelled"),
    Column("download_truncated", pa.bool_(), "True when the body was cut"),
    Column("truncated_reason", pa.string(), "The archive's word for why the body was cut"),
    Column("content_is_gzip", pa.bool_(), "True when it travelled gzipped"),
    Column("gunzip_content_len", pa.int64(), "Bytes after unpacking"),
    Column("gunzip_failed", pa.bool_(), "Files of 2012 only"),
    Column("md5", pa.string(), "MD5 of the body, hexadecimal"),
    Column("charset_detected", pa.string(), "Encoding the text was read in"),
    Column(
        "charset_detector", pa.int32(), "0 header, 1 meta tag, 2 and 3 detectors, 10 undetermined (docs/documents.md)"
    ),
    Column("text_simhash", pa.int64(), "64-bit simhash of the text by the 2012 algorithm, signed"),
    Column("parsed_as", pa.string(), "html or feed; null for what is neither"),
    Column("content", CONTENT, "What the page says: title, meta tags, links; or the feed's own fields"),
    Column("archiveInfo", ARCHIVE_INFO, "The archive pointer in the numbers of 2012 (arcFileParition is spelt so)"),
    # anomalies of readable pages, words of documents/page.py's FLAGS
    Column("flags", _STRINGS, "What was odd but readable"),
    Column(
        "metadata_json", pa.string(), "Null; cc-pipeline export --format metadata-json writes the document on demand"
    ),
    Column(
        "feed", FEED, "What a feed says of itself beyond the 2012 document: version, language, pictures, links, podcast"
    ),
    # the page's own metadata: documents/about/
    Column("published", TIMESTAMP, "When the page, feed or item says it was published; null where no date was found"),
    Column(
        "published_precision",
        pa.string(),
        "moment, local (no zone: the clock time as if UTC), day, week, month or year",
    ),
    Column(
        "published_day",
        pa.date32(),
        "The day in the page's own zone, as it stands in the address or in the date as written",
    ),
    Column(
        "published_from",
        pa.string(),
        "json-ld, open-graph, meta, microdata, rdfa, time, url; htmldate and htmldate-text are guesses",
    ),
    Column("modified", TIMESTAMP, "When the page says it was last changed; headers do not count"),
    Column("modified_precision", pa.string(), "As published_precision"),
    Column("modified_day", pa.date32(), "As published_day"),
    Column("modified_from", pa.string(), "json-ld, open-graph, meta, microdata, rdfa or time"),
    Column("author", pa.string(), "Names, several with commas between them"),
    Column(
        "author_from",
        pa.string(),
        "json-ld, open-graph, meta, microdata, rdfa, rel-author (a link) or byline (an element marked so)",
    ),
    Column("canonical_url", pa.string(), "Absolute target of rel=canonical"),
    Column("canonical_from", pa.string(), "link (the element) or header"),
    Column(
        "robots",
        pa.list_(ROBOTS_RULE),
        "What robots are asked: source (meta or header), bot (null: every one), directives in lower case",
    ),
    Column("robots_directives", _STRINGS, "What every robot is asked, each once; none is told as noindex and nofollow"),
    Column("tdm_reservation", pa.bool_(), "Whether text and data mining is reserved, by header or meta tag (TDMRep)"),
    Column("tdm_policy", pa.string(), "Absolute URL of the policy for text and data mining"),
    Column("alternates", pa.list_(ALTERNATE), "The page in other languages: hreflang, url, source (link or header)"),
    Column(
        "feed_links", pa.list_(FEED_FOUND), "Feeds the page names: type (rss, atom, json or null), url, title, source"
    ),
    Column("refresh", REFRESH, "Seconds and URL of its refresh (null: itself), source meta or header"),
    Column("headings", pa.list_(HEADING), "Level 1 to 6 and text, in order"),
    Column(
        "structured", pa.list_(STRUCTURED), "JSON-LD documents, microdata and RDFa items: syntax, types, value as JSON"
    ),
    # only for ARC files of crawl-002: documents/arc_time.py
    Column(
        "fetch_time_corrected",
        TIMESTAMP,
        "Of ARC files of crawl-002, whose dates are Pacific time: fetch_time in UTC, moved by the whole "
        "hours that the response's Date is away; null for other captures, and without a Date within a day",
    ),
)

_TEXT: Final = (
    Column(
        "text", pa.string(), "Title, description and body, white space collapsed; feeds, JSON, XML, PDF: all their text"
    ),
    Column("main_content", pa.string(), "Text without navigation and other boilerplate"),
    Column("main_content_extractor", pa.string(), "Library and version that found main_content"),
    Column("title", pa.string(), "Title of the page: the best it says about itself"),
    Column("description", pa.string(), "Meta description, else og:description"),
    Column("site_name", pa.string(), "og:site_name or application-name"),
    Column("author", pa.string(), "Names, several with commas between them"),
    Column("published", TIMESTAMP, "When the page, feed or item says it was published; null where no date was found"),
    Column("html_lang", pa.string(), "lang of the root element"),
    Column(
        "content_languages", pa.string(), "Up to three ISO-639-3 codes, best first (CLD2); text with commas in the lake"
    ),
    Column("language_reliable", pa.bool_(), "CLD2's own trust in the languages; null where the codes are not ours"),
    Column("canonical_url", pa.string(), "Absolute target of rel=canonical"),
    Column("open_graph", pa.list_(NAME_VALUE), "OpenGraph properties in order, repetitions kept"),
    # one compact JSON document per script; its schema is the page's, so it stays text
    Column("json_ld", _STRINGS, "One compact JSON text per script"),
    Column("json_ld_types", _STRINGS, "Every @type in the JSON-LD"),
    Column("main_content_markdown", pa.string(), "main_content as Markdown, where CC_PIPELINE_MARKDOWN asks for it"),
    # the reader: html, feed, text, json, xml, sitemap, pdf
    Column(
        "text_type",
        pa.string(),
        "What was read: html, feed, text, json, xml, sitemap, pdf; null for files of 2012, WAT and WET",
    ),
    # of the main content: documents/signals/
    Column("content_simhash", pa.int64(), "Simhash of main_content: few differing bits, much the same text"),
    Column(
        "content_minhash",
        pa.list_(pa.int32()),
        "64 least values of its five-word runs: the share of equal places estimates the share in common",
    ),
    Column(
        "quality",
        QUALITY,
        "Figures of main_content after the rules of Gopher and C4 (docs/documents.md); null without a word",
    ),
)

_LINKS: Final = (
    Column("link_index", pa.int32(), "Place among the page's links, from 0", nullable=False),
    # the feed item whose content holds the link; null for links of the page itself
    Column("item_index", pa.int32(), "The feed item whose content has the link; null for the page's own"),
    Column("type", pa.string(), "Element of the link: a, link, img, script …; of sitemaps url, sitemap, image, video"),
    Column("href", pa.string(), "As written"),
    Column("link_url", pa.string(), "What a browser would ask for: absolute, escaped; null where that cannot be"),
    Column("link_host", pa.string(), "Host of link_url in ASCII (xn--…), as the index has it"),
    Column("link_domain", pa.string(), "Registered domain of link_host"),
    Column("text", pa.string(), "Text of a link (a, area)"),
    Column("rel", pa.string(), "The rel attribute, as written"),
    Column("attributes", _ATTRIBUTES, "Every other attribute of the element but rel; none for srcset"),
    # the attribute that holds the link; null if the source does not have it
    Column(
        "attribute",
        pa.string(),
        "The attribute that holds the link: href, src, srcset, action, poster, data; null where nobody says",
    ),
    Column("link_host_shown", pa.string(), "The host as browsers show it, where that is not link_host"),
)

_FEED_ITEMS: Final = (
    Column("feed_type", pa.string(), "rss-feed, atom-feed or json-feed"),
    Column("feed_title", pa.string(), "Title of the feed"),
    Column("item_index", pa.int32(), "Place in the feed, from 0", nullable=False),
    Column("title", pa.string(), "Title of the item, as text"),
    Column("description", pa.string(), "Description of the item, as text"),
    Column("link", pa.string(), "The item's first link"),
    # every link of the item: alternate, self, replies, enclosure ...
    Column("links", _FEED_LINKS, "All links of the item, with type, rel and title"),
    Column("author", pa.string(), "As written, or the first name"),
    Column("authors", _AUTHORS, "Name, address and mail of each author"),
    Column("categories", _STRINGS, "Categories as listed"),
    Column("comments", pa.string(), "Address of the comments"),
    Column("guid", pa.string(), "Id of the item"),
    Column("published", TIMESTAMP, "When the page, feed or item says it was published; null where no date was found"),
    Column("updated", TIMESTAMP, "When the item says it was updated"),
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
    Column("language", pa.string(), "Language of the item, as it says"),
    Column("image", pa.string(), "Address of the item's picture"),
    Column(
        "enclosures",
        pa.list_(ENCLOSURE),
        "Files that belong to it: url, type, length in bytes, title, duration in seconds",
    ),
    Column(
        "media",
        pa.list_(MEDIA),
        "Objects of Media RSS: url, type, medium, size in pixels and bytes, duration in seconds, texts, player",
    ),
    Column(
        "podcast", PODCAST, "What iTunes' elements say: owner, type, explicit, episode, season, duration in seconds …"
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
