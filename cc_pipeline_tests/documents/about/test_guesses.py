"""What htmldate is given and asked: bounded, and never the end of a page."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest
from htmldate import extractors
from lxml import html

from cc_pipeline.documents.about.published import LANGUAGES, bound_texts, guessed_date

WHEN = datetime(2024, 5, 18, tzinfo=UTC)


def guess(markup: str, *, article: bool = True) -> tuple[date, str] | None:
    return guessed_date(markup, "https://example.com/x", WHEN, article=article)


def test_guesses_say_where_they_are_from() -> None:
    assert guess('<p class="date">2024-03-05</p>') == (date(2024, 3, 5), "htmldate")
    assert guess("<p>Le 5 mars 2024 à Paris</p>") == (date(2024, 3, 5), "htmldate-text")
    assert guess("<p>Le 5 mars 2024 à Paris</p>", article=False) is None


def test_it_reads_dates_in_some_languages_only() -> None:
    guess("<p>Le 5 mars 2024 à Paris</p>")
    assert extractors.get_external_parser().languages == LANGUAGES.split()


def test_a_guess_is_not_later_than_the_fetch() -> None:
    assert guess('<p class="date">2025-03-05</p>') is None


@pytest.mark.parametrize(
    "markup", ["", " ", "\x00", "<", "<!-- -->", "<html>", "\ud800<p>12", "<p>" + "9" * 300_000], ids=range(8)
)
def test_it_never_raises(markup: str) -> None:
    assert guess(markup) is None


def test_only_so_many_short_texts_are_tried() -> None:
    tree = html.document_fromstring("<p>no digits<b>1 a</b> 2 b </p>" * 500 + "<p>" + "long text 3 " * 20 + "</p>")
    bound_texts(tree)
    texts = [text.strip() for element in tree.iter() for text in (element.text, element.tail) if text]
    assert sum(any(letter.isdigit() for letter in text) and len(text) <= 64 for text in texts) == 50
    assert sum(text == "no digits" for text in texts) == 500
    assert any(len(text) > 64 for text in texts)


def test_only_the_beginning_of_a_page_is_given() -> None:
    assert guess("<p>word</p>" * 30_000 + '<p class="date">2024-03-05</p>') is None
