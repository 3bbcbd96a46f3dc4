"""Dates and authors of the corpus' news pages beside htmldate's and trafilatura's."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from cc_pipeline.documents.page import ParseOptions
from cc_pipeline.documents.parse import parse_page
from cc_pipeline_tests.corpus import needs_corpus
from cc_pipeline_tests.documents.news import htmldate_day, news_pages, same_names, trafilatura_author
from cc_pipeline_tests.documents.pages import page

pytestmark = needs_corpus
OPTIONS = ParseOptions(main_content=False, language=False, text_simhash=False)


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    return [
        dict(parse_page(page(markup, url=url, domain=None, fetch_time=None), OPTIONS).metadata)
        for url, markup in news_pages()
    ]


def test_stated_dates_are_htmldates(rows: list[dict[str, Any]]) -> None:
    days = [htmldate_day(url, markup) for url, markup in news_pages()]
    pairs = [(row["published_day"], day) for row, day in zip(rows, days, strict=True) if row["published"] and day]
    assert len(rows) == 133
    # for the other pages it guesses
    assert sum(bool(row["published"]) for row in rows) == len(pairs) >= 103
    assert sum(abs(ours - theirs) <= timedelta(days=1) for ours, theirs in pairs) >= 0.98 * len(pairs)
    # a moment in UTC without the page's own zone can be of the next day
    assert sum(ours == theirs for ours, theirs in pairs) >= 0.97 * len(pairs)


def test_as_many_authors_as_trafilatura_and_the_same(rows: list[dict[str, Any]]) -> None:
    names = [trafilatura_author(url, markup) for url, markup in news_pages()]
    pairs = [(row["author"], name) for row, name in zip(rows, names, strict=True) if row["author"] and name]
    assert sum(bool(row["author"]) for row in rows) >= sum(map(bool, names)) >= 105
    differ = [pair for pair in pairs if not same_names(*pair)]
    # those that differ: it has the magazine's name where the page has a person's as well
    assert len(differ) <= 0.04 * len(pairs), differ
