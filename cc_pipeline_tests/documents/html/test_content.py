"""The main content of generated pages: furniture left out, lists kept, Markdown."""

from __future__ import annotations

import numpy as np
import pytest

from cc_pipeline.documents.html import content, model
from cc_pipeline.documents.html.content import (
    main_content,
)
from cc_pipeline.documents.html.content_selection import content_of
from cc_pipeline.documents.page import Limits, ParseOptions
from cc_pipeline.documents.parse import parse_page
from cc_pipeline_tests.documents.pages import page, tables_of

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


def test_furniture_around_an_article_is_left_out() -> None:
    found = main_content(ARTICLE) or ""
    assert found.split("\n") == [*SENTENCES, "More in the archive of the town, which opens at noon each day."]


def test_a_list_of_articles_keeps_its_headlines() -> None:
    teasers = "".join(
        f"<div><h2><a href='/{n}'>Headline {n}</a></h2><p>{sentence}</p></div>" for n, sentence in enumerate(SENTENCES)
    )
    found = main_content(f"<html><body><h1>Home</h1>{teasers}</body></html>") or ""
    assert found.count("Headline") == found.count("Sentence") == len(SENTENCES)


def test_a_box_of_facts_before_the_text_is_kept_and_a_table_of_links_is_not() -> None:
    facts = "".join(f"<tr><th>Fact {n}</th><td><a href=/m>River number {n}</a>, {n} miles</td></tr>" for n in range(5))
    links = "".join(f"<tr><td><a href=/{n}>Headline {n} of another page</a></td></tr>" for n in range(5))
    tables = f"<table class=infobox>{facts}</table><table class=navbox>{links}</table><table>{links}</table>"
    seen = tables_of(f"<body><table class=infobox>{facts}</table><div>{tables}{PARAGRAPHS}</div></body>")
    texts = [seen.text_of(block) for block in range(len(seen.blocks.chars))]
    # the trees doubt all tables
    likely = np.array([0.9 if text.startswith("Sentence") else 0.1 for text in texts], np.float32)
    found = content_of(seen, likely).text.split("\n")
    assert [text for text in found if not text.startswith("Sentence")] == texts[10:20]


POST = (
    "<div class='twitter embed'><blockquote class=twitter-tweet><p>{} <a href=/t>t.example/1</a></p>"
    "&mdash; A. Writer (@writer) <a href=/s>May 18, 2024</a></blockquote></div>"
)


def _kept_of(markup: str, likelihoods: dict[str, float]) -> list[str]:
    """The blocks that are kept; each as likely as is said of how it begins, others surely content."""
    seen = tables_of(markup)
    texts = [seen.text_of(block) for block in range(len(seen.blocks.chars))]
    likely = [next((share for begin, share in likelihoods.items() if text.startswith(begin)), 0.95) for text in texts]
    return content_of(seen, np.array(likely, np.float32)).text.split("\n")


@pytest.mark.parametrize("named", ["twitter embed", "share", "quote"])
def test_a_post_that_an_article_quotes_is_kept_with_who_wrote_it(named: str) -> None:
    post = POST.format("It rained on the mill all day, and nobody came.").replace("twitter embed", named)
    found = _kept_of(f"<body><main>{PARAGRAPHS}{post}{PARAGRAPHS}</main>", {"It rained": 0.4, "\u2014": 0.2})
    assert found[len(SENTENCES) : -len(SENTENCES)] == [
        "It rained on the mill all day, and nobody came. t.example/1",
        "\u2014 A. Writer (@writer) May 18, 2024",
    ]


def test_headings_of_what_is_kept_stay_whatever_their_rank() -> None:
    section = f"<h1>Section of the first rank</h1>{PARAGRAPHS}<h2>Part</h2><h3>Part of a part</h3>{PARAGRAPHS}"
    behind = "<h2>Related</h2><p><a href=/r>Another article of ours that is not this one</a></p>"
    likelihoods = {"The mill": 0.3, "Section": 0.3, "Part": 0.2, "Related": 0.2, "Another": 0.02}
    found = _kept_of(f"<body><main><h1>The mill</h1>{PARAGRAPHS}{section}{behind}</main>", likelihoods)
    assert [text for text in found if text not in SENTENCES] == ["Section of the first rank", "Part", "Part of a part"]


def test_main_content_has_its_bound() -> None:
    cut = ParseOptions(limits=Limits(text_chars=500), markdown=True)
    # title and description are in the text too
    told = f"<title>{'title ' * 200}</title><meta name=description content='{'told ' * 200}'><p>body"
    for markup in (ARTICLE, told):
        parsed = parse_page(page(markup), cut)
        assert parsed.text is not None
        for name in ("title", "description", "text", "main_content", "main_content_markdown"):
            assert len(parsed.text[name] or "") <= 500
        assert parsed.metadata["flags"] == ["text_cut"]


def test_markdown_has_the_addresses_of_the_links() -> None:
    markup = ARTICLE.replace("/about?a=1", "/about?q=\u0451&a=1").encode("windows-1251", "replace")
    parsed = parse_page(page(markup, "text/html; charset=windows-1251"), ParseOptions(markdown=True))
    address = next(link.url for link in parsed.links if link.url and "about" in link.url)
    assert parsed.text is not None
    assert "?q=%B8&" in address
    assert f"]({address})" in parsed.text["main_content_markdown"]


def test_many_blocks_are_kept_as_they_are() -> None:
    markup = "<html><body><nav>menu</nav>" + "<p>word" * model.MAX_BLOCKS + "</body></html>"
    assert main_content(markup) == "\n".join(["menu", *["word"] * model.MAX_BLOCKS])


def test_a_model_that_fails_on_a_page_costs_its_main_content_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("a library's own fault")

    monkeypatch.setattr(content, "likelihoods", fail)
    parsed = parse_page(page(ARTICLE), ParseOptions(markdown=True))
    assert parsed.text is not None
    assert parsed.text["text"].startswith("The mill")
    assert (parsed.text["main_content"], len(parsed.links)) == (None, 3)
    assert parsed.metadata["flags"] == ["main_content_left_out"]
    monkeypatch.undo()
    monkeypatch.setattr(content, "_write_markdown", fail)
    parsed = parse_page(page(ARTICLE), ParseOptions(markdown=True))
    assert parsed.text is not None
    assert (parsed.text["main_content_markdown"], parsed.metadata["flags"]) == (None, ["main_content_left_out"])
    assert SENTENCES[3] in parsed.text["main_content"]
