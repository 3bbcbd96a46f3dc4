"""The main content of generated pages: furniture left out, lists kept, ``auto``, Markdown."""

from __future__ import annotations

from typing import get_args

import pytest

from cc_pipeline.documents.html import content
from cc_pipeline.documents.html.content import (
    WEIGHTS,
    Extractor,
    MainContent,
    article_of,
    blocks_of,
    extracted,
    features,
    main_content,
    minimal_markup,
)
from cc_pipeline.documents.page import ParseOptions
from cc_pipeline.documents.parse import parse_page
from cc_pipeline.settings import EXTRACTORS
from cc_pipeline_tests.documents.pages import page

SENTENCES = [
    f"Sentence {number} tells of the river, the old mill beside it and the people who crossed the bridge in spring, "
    f"and it goes on long enough to be read as one paragraph of many."
    for number in range(12)
]
PARAGRAPHS = "".join(f"<p>{sentence}</p>" for sentence in SENTENCES)
ARTICLE = f"""<html><body><h1>The mill</h1>
<div>Photo: A. Writer</div><div>Advertisement</div>
<div>{PARAGRAPHS}<p>More in <a href="/about?a=1&amp;b=2">the archive</a> of the town, which opens at noon each day.</p>
</div><div>Advertisement</div>
<div><a href="/1">Another headline</a> <a href="/2">And one more</a></div></body></html>"""
LIST = (
    "<html><body><h1>Parts</h1><ul>" + "".join(f"<li>Part {n}: {n} EUR</li>" for n in range(40)) + "</ul></body></html>"
)


def test_furniture_around_an_article_is_left_out() -> None:
    found = main_content(ARTICLE, "fast") or ""
    assert found.split("\n") == [*SENTENCES, "More in the archive of the town, which opens at noon each day."]


def test_what_is_no_article_is_kept_whole() -> None:
    assert (main_content(LIST, "fast") or "").count("EUR") == 40


def test_a_list_of_articles_keeps_its_headlines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(content, "_quality")
    teasers = "".join(
        f"<div><h2><a href='/{n}'>Headline {n}</a></h2><p>{sentence}</p></div>" for n, sentence in enumerate(SENTENCES)
    )
    for extractor in ("fast", "auto"):
        found = main_content(f"<html><body><h1>Home</h1>{teasers}</body></html>", extractor) or ""
        assert found.count("Headline") == len(SENTENCES)
        assert found.count("Sentence") == len(SENTENCES)


def test_auto_asks_the_other_extractor_for_what_is_no_article_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def quality(markup: str, markdown: bool) -> MainContent:
        asked.append(markup)
        return MainContent("better", None, "trafilatura 0")

    monkeypatch.setattr(content, "_quality", quality)
    assert extracted(ARTICLE, "auto") == extracted(ARTICLE, "fast")
    assert extracted(LIST, "auto").text == "better"
    assert asked == [LIST]
    assert extracted(LIST + " " * 2_000_001, "auto").extractor.startswith("resiliparse")


@pytest.mark.parametrize("extractor", ["fast", "quality"])
def test_markdown_on_request(extractor: Extractor) -> None:
    found = extracted(ARTICLE, extractor, url="https://example.org/a/b", markdown=True)
    assert found.markdown is not None
    assert "[the archive](https://example.org/about?a=1&b=2)" in found.markdown or extractor == "quality"
    assert SENTENCES[3] in found.markdown
    assert "Advertisement" not in found.markdown
    assert extracted(ARTICLE, extractor).markdown is None
    row = parse_page(page(ARTICLE), ParseOptions(main_content=extractor, markdown=True)).text
    assert row is not None
    assert row["main_content_markdown"]


def test_a_block_that_spans_lines_and_entities() -> None:
    blocks = blocks_of(
        '<p>One &lt;b&gt;<br>\ntwo <a href="x>y">a &amp; b</a></p>\n\nbare <a href="/">z\n<h2>H</h2>\n<br>'
    )
    assert [tuple(block)[:4] for block in blocks] == [
        ("p", "One <b>", 0, 0),
        ("p", "two a & b", 5, 1),
        ("", "bare z", 1, 1),
        ("h2", "H", 0, 0),
    ]
    assert features(blocks).shape == (len(blocks), len(WEIGHTS))


@pytest.mark.parametrize("markup", ["", "<p>", "<body></body>", "<p>&nbsp;</p>", "<a href=x>" * 50, "\x00"])
def test_pages_without_content(markup: str) -> None:
    assert (main_content(markup, "fast") or "").strip("\ufffd") == ""
    assert extracted(markup, "auto").extractor
    assert article_of(minimal_markup(markup)).text.strip("\ufffd\n") == ""


def test_many_blocks_are_kept_as_they_are() -> None:
    markup = "<html><body>" + "<p>word</p>" * 6_000 + PARAGRAPHS + "</body></html>"
    assert (main_content(markup, "fast") or "").count("\n") > 6_000


def test_settings_offer_what_the_extractors_are() -> None:
    assert set(EXTRACTORS) == set(get_args(Extractor))


def test_markdown_is_written_of_text_with_control_characters() -> None:
    body = ARTICLE.replace("river", "ri&#x1;ver&#x2;")
    parsed = parse_page(page(body), ParseOptions(markdown=True))
    assert parsed.text is not None
    assert "the river, the old mill" in parsed.text["main_content_markdown"]
    assert parsed.metadata["flags"] is None


@pytest.mark.parametrize(("extractor", "broken"), [("fast", "minimal_markup"), ("quality", "_quality")])
def test_a_library_that_fails_on_a_page_costs_its_main_content_alone(
    extractor: Extractor, broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("a library's own fault")

    monkeypatch.setattr(content, broken, fail)
    parsed = parse_page(page(ARTICLE), ParseOptions(main_content=extractor, markdown=True))
    assert parsed.text is not None
    assert parsed.text["text"].startswith("The mill")
    assert (parsed.text["main_content"], len(parsed.links)) == (None, 3)
    assert parsed.metadata["flags"] == ["main_content_left_out"]


def test_auto_and_markdown_fall_back_where_a_library_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("a library's own fault")

    monkeypatch.setattr(content, "_quality", fail)
    assert "EUR" in (main_content(LIST, "auto") or "")
    monkeypatch.setattr(content, "_in_markdown", fail)
    found = extracted(ARTICLE, "fast", markdown=True)
    assert (found.markdown, found.whole) == (None, False)
    assert found.text is not None
