"""Which nodes are about the page, and by which names their properties are read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cc_pipeline.documents.parse import parse_page
from cc_pipeline_tests.documents.pages import page

URL = "https://www.example.com/dir/page.html?q=1"
OTHER = "https://www.example.com/dir/other.html"


def article(name: str, **more: Any) -> dict[str, Any]:
    return {
        "@type": "NewsArticle",
        "headline": name,
        "author": {"@type": "Person", "name": f"Author {name}"},
        "datePublished": "2024-03-05",
        **more,
    }


def facts(*values: Any, head: str = "", body: str = "", url: str = URL) -> tuple[str | None, ...]:
    scripts = "".join(f'<script type="application/ld+json">{json.dumps(value)}</script>' for value in values)
    parsed = parse_page(page(f"<title>Page</title>{head}{scripts}<body>{body}", url=url))
    assert parsed.text is not None
    day = parsed.metadata["published_day"]
    return parsed.text["title"], parsed.metadata["author"], day and day.isoformat()


OWN = ("Own", "Author Own", "2024-03-05")
NOTHING = ("Page", None, None)
TEASERS = [article("One", url=OTHER), article("Two", url=f"{OTHER}?2")]


@pytest.mark.parametrize(
    "values",
    [
        {"@type": "CollectionPage", "url": URL, "hasPart": [article("One")]},
        {"@type": "ItemList", "itemListElement": [{"@type": "ListItem", "item": article("One")}]},
        [article("One"), article("Two")],
        {"@graph": [article("One"), {**article("Two"), "@type": "BlogPosting"}]},
        TEASERS,
        TEASERS[:1],
        article("One", mainEntityOfPage=OTHER),
        article("One", mainEntityOfPage={"@type": "WebPage", "@id": OTHER}),
        article("One", url="/dir/page.html?q=2"),
        {"@type": "WebPage", "name": "Page", "mainEntity": [article("One"), article("Two")]},
        {"@type": "VideoObject", "name": "Video", "url": OTHER, "uploadDate": "2024-03-05"},
        {"@type": "WebSite", "mainEntity": None, "url": [None, 7, {}], "@id": 7, "mainEntityOfPage": True},
    ],
)
def test_other_pages_are_not_this_one(values: Any) -> None:
    assert facts(values) == NOTHING


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"url": URL},
        {"url": "http://example.com/dir/page.html#top"},
        {"url": "page.html/"},
        {"url": ["https://m.example.com/p", URL]},
        {"@id": "#article"},
        {"@id": f"{URL}#article", "url": OTHER},
        {"mainEntityOfPage": URL},
        {"mainEntityOfPage": {"@type": "WebPage", "@id": f"{URL}#webpage"}},
        {"mainEntityOfPage": {"@type": "WebPage", "url": URL}},
        {"mainEntityOfPage": "True"},
        {"@id": "https://cms.example.net/7"},
        {"url": "https://www.example.com"},
        {"mainEntityOfPage": "https://example.com/dir/"},
    ],
)
def test_the_page_s_own_article_among_others(more: dict[str, Any]) -> None:
    own = article("Own", **more)
    assert facts([*TEASERS, own]) == facts(own) == OWN


@pytest.mark.parametrize(
    "head", [f'<link rel="canonical" href="{OTHER}">', f'<meta property="og:url" content="{OTHER}">']
)
def test_a_page_has_the_addresses_that_it_states(head: str) -> None:
    assert facts([article("Own", url=OTHER), article("Two", url=f"{OTHER}?2")], head=head) == OWN


def test_items_of_microdata_are_asked_too() -> None:
    item = (
        '<div itemscope itemtype="https://schema.org/Article"><b itemprop="author">Author {0}</b>'
        '<meta itemprop="datePublished" content="2024-03-05"><link itemprop="url" href="{1}"></div>'
    )
    assert facts(body=item.format("Own", "")) == ("Page", *OWN[1:])
    assert facts(body=item.format("One", OTHER)) == NOTHING
    assert facts(body=item.format("One", OTHER) + item.format("Own", URL)) == ("Page", *OWN[1:])
    assert facts(body=item.replace("url", "image").format("One", "/i.png") * 2) == NOTHING


@pytest.mark.parametrize(
    ("context", "prefix"),
    [
        ({"s": "http://schema.org/"}, "s:"),
        ([{"schema": "https://schema.org/"}, "https://example.com/context"], "schema:"),
        ("https://schema.org", "schema:"),
        (None, "http://schema.org/"),
        (None, "https://schema.org/"),
    ],
)
def test_properties_are_read_by_their_expanded_names(context: Any, prefix: str) -> None:
    person = {"@type": f"{prefix}Person", f"{prefix}name": [{"@value": "Author Own"}]}
    node = {
        "@type": [f"{prefix}Article"],
        f"{prefix}headline": [{"@value": "Own", "@language": "en"}],
        f"{prefix}author": person,
        f"{prefix}datePublished": {"@value": "2024-03-05"},
    }
    assert facts({"@context": context, **node}) == OWN
    page_node = {"@type": f"{prefix}WebPage", f"{prefix}mainEntity": node}
    assert facts({"@context": context, "@graph": [page_node, {f"{prefix}url": OTHER, **node}]}) == OWN


def test_names_of_other_vocabularies_are_not_schema_orgs() -> None:
    contao = {"contao": "https://schema.contao.org/"}
    assert facts({"@context": contao, "@type": "contao:Page", "contao:title": "One"}) == NOTHING
    assert facts({"@context": contao, "@type": "Article", "contao:headline": "One", "x:headline": "Two"}) == NOTHING


def test_references_in_texts_of_any_kind_are_replaced_once() -> None:
    written, read = "Tom &amp; Jerry&#8217;s &lt;b&gt; &amp;amp;", "Tom & Jerry\u2019s <b> &amp;"
    publisher = {"@type": "Organization", "name": written}
    node = {"@type": "Article", "headline": written, "description": written, "publisher": publisher}
    tag = written.replace("&", "&amp;")
    for head in (
        f'<script type="application/ld+json">{json.dumps(node)}</script>',
        f'<meta property="og:title" content="{tag}"><meta name=description content="{tag}">'
        f'<meta property="og:site_name" content="{tag}">',
    ):
        text = parse_page(page(f"<title>Page</title>{head}")).text
        assert text is not None
        assert (text["title"], text["description"], text["site_name"]) == (read, read, read)
    text = parse_page(page(f"<title>{tag}</title>")).text
    assert text is not None and text["title"] == read
    assert (
        parse_page(page(f'<meta name=author content="{tag} x">')).metadata["author"] == f"{read.replace('<b> ', '')} x"
    )


def test_names_that_many_nodes_refer_to_are_read_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = []
    monkeypatch.setattr("cc_pipeline.documents.about.nodes.plain_text", texts.append)
    nodes = [{"@type": f"Kind{number}", "author": [{"@id": "#x"}] * 50} for number in range(200)]
    facts([*nodes, {"@id": "#x", "name": ["Ann Lee", "x" * 601] * 50}])
    assert len(texts) < 10_000
    assert max(len(text) for text in texts if isinstance(text, str)) <= 600
