"""The columns about a page, from its tree, tags and headers: one pass over the tree, while it is complete."""

from __future__ import annotations

import re
from collections.abc import Callable, Set
from datetime import date
from typing import Any

from selectolax.lexbor import LexborHTMLParser

from cc_pipeline.documents.about.author import AuthorNames, author
from cc_pipeline.documents.about.marks import Marks, Metas, Structured
from cc_pipeline.documents.about.nodes import Nodes, is_article, kinds_of
from cc_pipeline.documents.about.published import TEXT, SourcedDate, guessed_date, modified, on_day, published
from cc_pipeline.documents.about.relations import refresh, relations
from cc_pipeline.documents.about.robots import robots
from cc_pipeline.documents.html.description import JsonLd, PageFacts, json_ld, page_facts, types_of
from cc_pipeline.documents.html.tree import HtmlDocument
from cc_pipeline.documents.html.urls import Resolved, browser_resolver, domain_of, host_of
from cc_pipeline.documents.page import Limits, PageInput

_STRUCTURED_CHARS = 512 * 1024
_MAX_STRUCTURED = 1_000
_ARTICLE_TYPES = frozenset({"article", "blog", "news", "post", "news.article", "blogpost"})
#: The distance of an article's date from its heading, in characters of the page's text.
_CHARS_BEFORE, _CHARS_AFTER = 200, 600
_YEAR = re.compile(r"(?<!\d)(?:19|20)\d\d(?!\d)")
#: A note of copyright: the years before the mark, and up to 60 characters after it.
_COPYRIGHT = re.compile(r"(?:\d{4}\s*[-–]\s*)?(?:\d{4}\s*)?(?:©|\(c\)|\bcopyright\b).{0,60}", re.IGNORECASE)


def header_columns(page: PageInput) -> dict[str, Any]:
    """Returns the columns that the headers alone give for a capture of any kind: robots, canonical URL, languages."""
    resolve = browser_resolver(page.url)
    return _read_relation_columns(page, HtmlDocument(), resolve, resolve, None)


class PageMetadataReader:
    """Reads a page's metadata. ``parse_html`` calls ``collect``; ``columns`` comes after it."""

    def __init__(self, page: PageInput, limits: Limits) -> None:
        self._page = page
        self._limits = limits
        self._marks = Marks(limits)
        self._resolve_by_url = self._resolve = browser_resolver(page.url)
        self._structured: list[Structured] = []
        self._nodes = Nodes(())
        self._graph_types: Set[str] = frozenset()
        self._published: SourcedDate | None = None
        self._modified: SourcedDate | None = None
        self._author: AuthorNames | None = None
        self.json_ld = JsonLd([], [], [])
        self.facts = PageFacts(None, None, None)

    def collect(self, tree: LexborHTMLParser, document: HtmlDocument, resolve: Callable[[str], Resolved]) -> None:
        """Reads the tree; ``resolve`` makes its references absolute."""
        fetched = self._page.fetch_time
        self._resolve = resolve
        self.json_ld = json_ld(document.json_ld, self._limits, document.flags)
        nodes, metas, marks = Nodes(self.json_ld.values), Metas(document.meta_tags), self._marks
        self.facts = page_facts(document.title, document.meta_tags, nodes.article)
        marks.collect(tree, resolve)
        self._nodes = nodes
        self._graph_types = {kind.strip().lower() for kind in metas.graph.get("ogtype", ())}
        self._structured = marks.structured()
        self._published = published(nodes, metas, marks, self._page.url, fetched)
        self._modified = modified(nodes, metas, marks, fetched)
        host = host_of(self._page.url)
        domain = self._page.domain or (domain_of(host) if host else None) or ""
        self._author = author(nodes, metas, marks, tree, (self.facts.site_name, domain, domain.partition(".")[0]))

    def columns(self, document: HtmlDocument, markup: str) -> dict[str, Any]:
        """Returns the columns of ``page_metadata``. ``markup`` is the page, for the slow search for a date."""
        publication = self._published or self._guessed(document, markup)
        structured = self._structured_column(document.flags)
        if self._marks.reading.cut:
            document.flags.add("facts_cut")
        return {
            "published": publication.stated_date.moment if publication else None,
            "published_precision": publication.stated_date.precision if publication else None,
            "published_day": publication.stated_date.day if publication else None,
            "published_from": publication.source if publication else None,
            "modified": self._modified.stated_date.moment if self._modified else None,
            "modified_precision": self._modified.stated_date.precision if self._modified else None,
            "modified_day": self._modified.stated_date.day if self._modified else None,
            "modified_from": self._modified.source if self._modified else None,
            "author": self._author.names if self._author else None,
            "author_from": self._author.source if self._author else None,
            "headings": self._marks.headings or None,
            "structured": structured or None,
            **_read_relation_columns(self._page, document, self._resolve_by_url, self._resolve, self._marks.refresh),
        }

    def _guessed(self, document: HtmlDocument, markup: str) -> SourcedDate | None:
        if document.work > self._limits.extractor_work:
            return None
        guess = guessed_date(markup, self._page.url, self._page.fetch_time, article=self._is_article(document))
        if guess is None or (guess[1] == TEXT and _is_copyright(guess[0], document.body_text)):
            return None
        return SourcedDate(on_day(guess[0], guess[1] == TEXT), guess[1])

    def _is_article(self, document: HtmlDocument) -> bool:
        """Whether the page declares itself an article, names its author, or has a year near its main heading."""
        if (
            self._nodes.article
            or self._author
            or any(is_article(kinds_of(item, "type")) for item in self._marks.microdata)
        ):
            return True
        if not self._graph_types.isdisjoint(_ARTICLE_TYPES):
            return True
        text = document.body_text
        for heading in self._marks.headings:
            if heading["level"] == 1 and (start := text.find(heading["text"])) >= 0:
                end = start + len(heading["text"])
                if _YEAR.search(text[max(0, start - _CHARS_BEFORE) : start]) or _YEAR.search(
                    text[end : end + _CHARS_AFTER]
                ):
                    return True
        return False

    def _structured_column(self, flags: set[str]) -> list[dict[str, Any]]:
        room, values = _STRUCTURED_CHARS, self.json_ld.values
        structured_rows: list[dict[str, Any]] = []
        documents = [
            Structured("json-ld", self.json_ld.types if len(values) == 1 else types_of([value]), text)
            for value, text in zip(values, self.json_ld.documents, strict=True)
        ]
        for structured in (*documents, *self._structured):
            if len(structured.value) > room or len(structured_rows) >= _MAX_STRUCTURED:
                flags.add("facts_cut")
                continue
            room -= len(structured.value)
            structured_rows.append(structured._asdict())
        return structured_rows


def _read_relation_columns(
    page: PageInput,
    document: HtmlDocument,
    resolve_by_url: Callable[[str], Resolved],
    resolve: Callable[[str], Resolved],
    refresh_content: str | None,
) -> dict[str, Any]:
    robot_rules = robots(document.meta_tags, page.http_headers)
    related = relations(document.links, page.http_headers, resolve_by_url)
    return {
        **related._asdict(),
        "robots": robot_rules.rules,
        "robots_directives": robot_rules.global_directives,
        "tdm_reservation": robot_rules.reserved,
        "tdm_policy": resolve_by_url(robot_rules.policy)[0] if robot_rules.policy else None,
        "refresh": refresh(refresh_content, page.http_headers, resolve, resolve_by_url),
    }


def text_columns(columns: dict[str, Any]) -> dict[str, Any]:
    """Returns the columns that ``page_text`` repeats beside its texts."""
    return {name: columns[name] for name in ("published", "author", "canonical_url")}


def _is_copyright(day: date, text: str) -> bool:
    """Whether the date is a year alone that the text has only in a note of copyright."""
    return (day.month, day.day) == (1, 1) and str(day.year) not in _COPYRIGHT.sub("", text)
