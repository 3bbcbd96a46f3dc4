"""Keys, lines of indexes and dates after reports: a line of an index that cannot be read costs itself and says so, and
a date is right or absent."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple

import pytest

from cc_pipeline.commoncrawl.surt import surt_key
from cc_pipeline.documents.dates import parse_date
from cc_pipeline.errors import DataFault
from cc_pipeline.index.zipnum.locator import capture_of
from cc_pipeline_tests.conformance.url_keys import KEYS


class Stated(NamedTuple):
    """A date as written, and the moment in UTC; ``None`` where nobody can know."""

    report: str
    text: str
    moment: datetime | None


def _utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[misc,arg-type]


DATES = (
    Stated("kurtmckee/feedparser#75", "2016/6/29 15:07:41", _utc(2016, 6, 29, 15, 7, 41)),
    Stated("kurtmckee/feedparser#114", "Fri, 22 Sep 17 22:05:03 +0300", _utc(2017, 9, 22, 19, 5, 3)),
    Stated("kurtmckee/feedparser#33", "Thu, 03 Sep 15 00:01:01 +0200", _utc(2015, 9, 2, 22, 1, 1)),
    Stated("kurtmckee/feedparser#26", "1513-01-01T00:00:00Z", _utc(1513, 1, 1)),
    Stated("kurtmckee/feedparser#72", "Tue, 24 May 2016 2:17:57 PM CEST", _utc(2016, 5, 24, 12, 17, 57)),
    Stated("kurtmckee/feedparser#72", "2016-05-24 14:17:57.02016-05-24 14:17:57.0", None),
    Stated("brief-rss/brief#184", "Mon, 25 Jan 2016 1:35:20 -0800", _utc(2016, 1, 25, 9, 35, 20)),
    Stated("kurtmckee/feedparser#135", "Mo, 25 Jun 2018 11:41:36", None),
    Stated("nuxt-modules/sitemap#637", "garbage2024-01-15T09:30:00Zjunk", None),
    Stated("nuxt-modules/sitemap#637", "2024-02-30", None),
    Stated("nuxt-modules/sitemap#637", "2023-02-29", None),
    Stated("codelucas/newspaper#967", "2023-01-02", _utc(2023, 1, 2)),
    Stated("RFC 3339 5.6", "2024-05-18t01:02:03.4567z", _utc(2024, 5, 18, 1, 2, 3, 456_700)),
    Stated("RFC 5322 4.3", "Sat, 18 May 2024 01:02:03 -0000", _utc(2024, 5, 18, 1, 2, 3)),
    Stated("RFC 9110 5.6.7", "Saturday, 18-May-24 01:02:03 GMT", _utc(2024, 5, 18, 1, 2, 3)),
    Stated("RFC 9110 5.6.7", "Sat May 18 01:02:03 2024", _utc(2024, 5, 18, 1, 2, 3)),
    Stated("rssboard.org", "05/06/2024", None),
)


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


def test_keys() -> None:
    assert [(each.url, surt_key(each.url)) for each in KEYS] == [(each.url, each.key) for each in KEYS]


def test_dates() -> None:
    assert [(each.text, parse_date(each.text)) for each in DATES] == [(each.text, each.moment) for each in DATES]


@pytest.mark.parametrize("line", LINES, ids=lambda line: f"{line.report} {line.about}")
def test_lines_of_an_index(line: Line) -> None:
    if line.columns is None:
        with pytest.raises(DataFault) as fault:
            capture_of(line.line, "cdx-00000.gz", 4711)
        assert (fault.value.source, fault.value.offset) == ("cdx-00000.gz", 4711)
        assert fault.value.reason
    else:
        capture = capture_of(line.line, "cdx-00000.gz", 4711)
        assert {name: capture[name] for name in line.columns} == line.columns
