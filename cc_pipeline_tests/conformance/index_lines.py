"""Lines of indexes: one that cannot be read costs itself and says so."""

from __future__ import annotations

from typing import NamedTuple


class Line(NamedTuple):
    """``columns`` are values of the capture that a line names; ``None`` where it names none."""

    report: str
    about: str
    line: bytes
    columns: dict[str, object] | None


_PLACE = b'"length": "2479", "offset": "598", "filename": "crawl-data/CC-MAIN-2024-22/segments/1.1/warc/a.warc.gz"'
_FILE = "crawl-data/CC-MAIN-2024-22/segments/1.1/warc/a.warc.gz"
_KEY = b"com,example)/ 20240518010203 "

LINES = (
    Line(
        "ukwa/ukwa-manage#105",
        "a media type with spaces and markup",
        _KEY + b'{"url": "https://example.com/", "mime": "- html&gt; VSND", "status": "200", ' + _PLACE + b"}",
        {"content_mime_type": "- html&gt; VSND", "warc_record_offset": 598, "fetch_status": 200},
    ),
    Line(
        "harvard-lil/perma#2605",
        "spaces in the key and in the URL",
        b'com,example)/key/signal vip.jpg 20150302104602 {"url": "http://example.com/key/Signal VIP.jpg", '
        + _PLACE
        + b"}",
        {
            "url_surtkey": "com,example)/key/signal vip.jpg",
            "url": "http://example.com/key/Signal VIP.jpg",
            "warc_record_length": 2479,
        },
    ),
    Line(
        "webrecorder/pywb#478", "no JSON", _KEY + b"https://example.com/ text/html 200 ABC - - 2479 598 a.warc.gz", None
    ),
    Line("webrecorder/pywb#478", "JSON that breaks off", _KEY + b'{"url": "https://example.com/", ' + _PLACE, None),
    Line("RFC 8259 4", "JSON that is a list", _KEY + b"[1]", None),
    Line(
        "RFC 8259 6",
        "an offset that is no number",
        _KEY + b'{"url": "x", ' + _PLACE.replace(b'"598"', b'"-1"') + b"}",
        None,
    ),
    Line(
        "webrecorder/cdxj-indexer#21",
        "no status and a dash for one",
        _KEY + b'{"url": "https://example.com/", "status": "-", ' + _PLACE + b"}",
        {"fetch_status": None},
    ),
    Line(
        "iipc/jwarc#78",
        "a time that is none is kept as written",
        b'com,example)/ 20241399999999 {"url": "https://example.com/?a=%", ' + _PLACE + b"}",
        {"fetch_time": None, "url": "https://example.com/?a=%", "warc_filename": _FILE},
    ),
)
