"""When pages say they were published and changed: which reader is believed, and what is no date."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from cc_pipeline.documents.about.published import read_stated_date, read_url_day
from cc_pipeline.documents.dates import parse_date
from cc_pipeline.documents.parse import parse_page
from cc_pipeline_tests.documents.pages import WHEN, page

DAY = date(2024, 3, 5)
FAR = "2023-01-02T03:04:05Z"


def row(head: str = "", body: str = "", **more: Any) -> dict[str, Any]:
    markup = f"<html><head><title>t</title>{head}</head><body><h1>A heading</h1>{body}</body></html>"
    return dict(parse_page(page(markup, **more)).metadata)


def ld(*values: Any) -> str:
    return "".join(f'<script type="application/ld+json">{json.dumps(value)}</script>' for value in values)


def article(**more: Any) -> dict[str, Any]:
    return {"@context": "https://schema.org", "@type": "NewsArticle", **more}


LD = ld(article(datePublished="2024-03-05T10:00:00Z"))
PUBLISHED = [
    ("json-ld", LD, ""),
    ("json-ld", ld({"@graph": [{"@type": "WebSite"}, {"@type": "WebPage", "datePublished": "2024-03-05"}]}), ""),
    ("json-ld", ld({"@type": "WebPage", "mainEntity": article(datePublished="March 5, 2024")}), ""),
    ("open-graph", '<meta property="article:published_time" content="2024-03-05T10:00:00+00:00">', ""),
    ("open-graph", '<meta property="og:article:published_time" content="2024-03-05">', ""),
    *(
        ("meta", f'<meta name="{name}" content="2024-03-05T10:00:00Z">', "")
        for name in (
            *("date", "DC.date.issued", "dcterms.created", "parsely-pub-date", "sailthru.date", "publish_date"),
            *("citation_publication_date", "article:published_time", "pubdate", "originalPublicationDate"),
        )
    ),
    (
        "microdata",
        "",
        '<div itemscope itemtype="http://schema.org/Article"><meta itemprop=datePublished content=2024-03-05>',
    ),
    ("microdata", "", '<span itemprop="datePublished" content="2024-03-05">yesterday</span>'),
    ("time", "", '<time pubdate datetime="2024-03-05T10:00">5 March</time>'),
    ("time", "", '<time class="entry-date published updated" datetime="2024-03-05">5 March</time>'),
    ("time", "", "<time>March 5, 2024</time>"),
]


@pytest.mark.parametrize(("source", "head", "body"), PUBLISHED)
def test_every_reader_finds_the_day_and_says_who_it_is(source: str, head: str, body: str) -> None:
    found = row(head, body)
    assert (found["published_from"], found["published_day"]) == (source, DAY)
    assert found["published"].date() == DAY


@pytest.mark.parametrize(
    ("path", "day"),
    [
        ("/2024/03/05/a-story", DAY),
        ("/news/2024-03-05/x.html", DAY),
        ("/2024/mar/5/x", DAY),
        ("/a/story-20240305.html", DAY),
        ("/2024/03/a-story", None),
        ("/2024/13/45/x", None),
        ("/id/120240305123", None),
        ("/2024/03/051", None),
    ],
)
def test_a_day_in_the_address(path: str, day: date | None) -> None:
    assert read_url_day("https://example.com" + path) == day
    assert row(url="https://example.com" + path)["published"] is None


@pytest.mark.parametrize(
    "bad", ["0001-01-01T00:00:00Z", "1970-01-01T00:00:00Z", "", "yesterday", "2035-01-01", "05/06/2024"]
)
def test_what_cannot_be_read_or_be_true_gives_way_to_the_next_reader(bad: str) -> None:
    found = row(ld(article(datePublished=bad)) + '<meta name="date" content="2024-03-05">')
    assert (found["published_from"], found["published_day"]) == ("meta", DAY)


@pytest.mark.parametrize(
    ("stated", "day"),
    [
        (FAR, date(2023, 1, 2)),
        ("2024-03-06", date(2024, 3, 6)),
        ("2024-03-06T02:00:00", date(2024, 3, 6)),
        ("2024-03-06T02:00:00Z", DAY),
        ("2024-03-04T22:00:00Z", DAY),
        ("2024-03-06T15:00:00Z", date(2024, 3, 6)),
        ("2024-03-06T02:00:00+05:00", date(2024, 3, 6)),
    ],
)
def test_an_address_says_the_day_of_a_moment_in_utc_and_overrules_nothing(stated: str, day: date) -> None:
    found = row(ld(article(datePublished=stated)), url="https://example.com/2024/03/05/x")
    assert (found["published"], found["published_from"]) == (parse_date(stated), "json-ld")
    assert found["published_day"] == day


def test_the_day_is_the_one_that_is_written_and_the_moment_is_utc() -> None:
    found = row(ld(article(datePublished="2024-03-05T22:30:00-05:00")))
    assert found["published"] == datetime(2024, 3, 6, 3, 30, tzinfo=UTC)
    assert (found["published_day"], found["published_precision"]) == (DAY, "moment")
    local = row(ld(article(datePublished="2024-03-05T22:30:00")))
    assert (local["published_day"], local["published_precision"]) == (DAY, "local")


def test_dates_of_comments_reviews_lists_and_other_pages_are_not_the_pages() -> None:
    comment = (
        '<article itemscope itemtype="http://schema.org/Comment"><time itemprop=datePublished datetime=2024-03-05>'
    )
    assert row(body=comment + "x</time></article>")["published_from"] != "microdata"
    videos = (
        '<p itemscope itemtype="http://schema.org/VideoObject"><meta itemprop="datePublished" content="2023-01-02"></p>'
    )
    found = row('<meta name="dc.date" content="2024-03-05">', videos * 3)
    assert (found["published_from"], found["published_day"]) == ("meta", DAY)
    events = [{"@type": "Event", "datePublished": FAR}] * 2
    assert row(ld(events))["published_from"] != "json-ld"
    assert row(ld(events[:1]))["published_from"] == "json-ld"
    assert (
        row(body='<p class="comment"><time class="comment-date" datetime="2024-03-05">x</time>')["published_from"]
        != "time"
    )


def times(*values: str, name: str = "") -> str:
    return "".join(f'<p><time class="{name}" datetime="{value}">x</time>' for value in values)


def test_times_of_several_days_are_those_of_other_pages() -> None:
    days = ("2024-03-05", "2024-02-01")
    for name in ("", "entry-date published"):
        assert row(body=times(*days, name=name))["published"] is None
        assert row(body=times("2024-03-05T10:00", "2024-03-05", "soon", name=name))["published_day"] == DAY
    assert row(body=times("2024-03-05", name="published") + times(*days))["published_day"] == DAY
    assert row(body=times(*days, name="updated"))["modified"] is None


@pytest.mark.parametrize(
    ("source", "head", "body"),
    [
        ("json-ld", ld(article(dateModified="2024-03-05T01:00:00Z")), ""),
        ("open-graph", '<meta property="og:updated_time" content="2024-03-05T01:00:00Z">', ""),
        ("open-graph", '<meta property="article:modified_time" content="2024-03-05T01:00:00Z">', ""),
        ("meta", '<meta http-equiv="last-modified" content="Tue, 05 Mar 2024 01:00:00 GMT">', ""),
        ("meta", '<meta name="dcterms.modified" content="2024-03-05">', ""),
        ("microdata", "", '<time itemprop="dateModified" datetime="2024-03-05">x</time>'),
        ("time", "", '<time class="updated" datetime="2024-03-05">x</time>'),
    ],
)
def test_modified(source: str, head: str, body: str) -> None:
    found = row(head, body)
    assert (found["modified_from"], found["modified_day"]) == (source, DAY)
    assert found["published"] is None


@pytest.mark.parametrize(
    "body",
    ['<p class="post-meta"><span class="date">05.03.2024</span></p>', "<p>Written on March 5, 2024</p>", "© 2024"],
)
def test_a_date_in_the_text_is_not_stated(body: str) -> None:
    assert row('<meta property="og:type" content="article">', body)["published"] is None


def test_nothing_is_later_than_the_fetch() -> None:
    soon = WHEN + timedelta(days=1)
    assert read_stated_date(soon.isoformat(), WHEN) is not None
    assert read_stated_date((WHEN + timedelta(days=3)).isoformat(), WHEN) is None
    assert read_stated_date("1066-10-14", None) is None
    assert read_stated_date(20240305, WHEN) is None
