"""The columns about a page, from its tree, tags and headers: one pass over the tree, while it is complete."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from selectolax.lexbor import LexborHTMLParser

from cc_pipeline.documents.about.author import AuthorNames, author
from cc_pipeline.documents.about.marks import Marks, Metas, Statements, Structured
from cc_pipeline.documents.about.nodes import Nodes, OwnAddresses
from cc_pipeline.documents.about.published import SourcedDate, modified, published
from cc_pipeline.documents.about.relations import refresh, relations
from cc_pipeline.documents.about.robots import robots
from cc_pipeline.documents.html.description import JsonLd, PageFacts, json_ld, page_facts
from cc_pipeline.documents.html.tree import HtmlDocument
from cc_pipeline.documents.html.urls import Resolved, browser_resolver, domain_of, host_of
from cc_pipeline.documents.page import Limits, PageInput

_STRUCTURED_CHARS = 512 * 1024
_MAX_STRUCTURED = 1_000


def header_columns(page: PageInput) -> dict[str, Any]:
    """Returns the columns that the headers alone give for a capture of any kind: robots, canonical URL, languages."""
    resolve = browser_resolver(page.url)
    return _read_relation_columns(page, HtmlDocument(), resolve, resolve, None)


class PageMetadata(NamedTuple):
    """What a page states about itself; ``columns`` are those of ``page_metadata``."""

    columns: dict[str, Any]
    facts: PageFacts
    json_ld: JsonLd


def read_page_metadata(
    page: PageInput,
    limits: Limits,
    tree: LexborHTMLParser,
    document: HtmlDocument,
    resolve: Callable[[str], Resolved],
) -> PageMetadata:
    """Reads a complete tree; ``resolve`` makes its references absolute. Adds flags to the document's."""
    ld, metas, marks = json_ld(document.json_ld, limits, document.flags), Metas(document.meta_tags), Marks(limits)
    marks.collect(tree, resolve)
    related = _read_relation_columns(page, document, browser_resolver(page.url), resolve, marks.refresh)
    own = OwnAddresses((page.url, related["canonical_url"], *metas.graph.get("ogurl", ())[:1]), resolve)
    nodes = Nodes(ld.values, own)
    items = [*Nodes(marks.microdata, own).about_page, marks.loose]
    statements = Statements(nodes, items, metas, marks.times)
    facts = page_facts(document.title, metas, nodes)
    host = host_of(page.url)
    domain = page.domain or (domain_of(host) if host else None) or ""
    site_names = (facts.site_name, domain, domain.partition(".")[0])
    columns = {
        **_date_columns("published", published(statements, page.url, page.fetch_time)),
        **_date_columns("modified", modified(statements, page.fetch_time)),
        **_author_columns(author(statements, tree, marks.reading, site_names)),
        "headings": marks.headings or None,
        "structured": _structured_column(ld, marks, document.flags) or None,
        **related,
    }
    if marks.reading.cut:
        document.flags.add("facts_cut")
    return PageMetadata(columns, facts, ld)


def _date_columns(name: str, date: SourcedDate | None) -> dict[str, Any]:
    stated = date.stated_date if date else None
    return {
        name: stated and stated.moment,
        f"{name}_precision": stated and stated.precision,
        f"{name}_day": stated and stated.day,
        f"{name}_from": date and date.source,
    }


def _author_columns(author_names: AuthorNames | None) -> dict[str, Any]:
    return {"author": author_names and author_names.names, "author_from": author_names and author_names.source}


def _structured_column(ld: JsonLd, marks: Marks, flags: set[str]) -> list[dict[str, Any]]:
    room = _STRUCTURED_CHARS
    structured_rows: list[dict[str, Any]] = []
    documents = [Structured("json-ld", types, text) for types, text in zip(ld.types, ld.documents, strict=True)]
    for structured in (*documents, *marks.structured()):
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
