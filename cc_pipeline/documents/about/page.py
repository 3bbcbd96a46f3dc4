"""The columns about a page, from its marks, tags and headers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from cc_pipeline.documents.about.author import AuthorNames, author
from cc_pipeline.documents.about.nodes import Nodes, OwnAddresses
from cc_pipeline.documents.about.published import SourcedDate, modified, published
from cc_pipeline.documents.about.relations import RELATION_WORDS, ElementLink, refresh, relations
from cc_pipeline.documents.about.robots import robots
from cc_pipeline.documents.about.statements import Facts, Metas, Statements, Structured
from cc_pipeline.documents.html.description import JsonLd, PageFacts, json_ld, page_facts
from cc_pipeline.documents.html.links import relation_links
from cc_pipeline.documents.html.tree import HtmlDocument
from cc_pipeline.documents.html.urls import Resolved, browser_resolver, domain_of, host_of
from cc_pipeline.documents.page import Limits, PageInput

_STRUCTURED_CHARS = 512 * 1024
_MAX_STRUCTURED = 1_000


def header_columns(page: PageInput) -> dict[str, Any]:
    """Returns the columns that the headers alone give for a capture of any kind: robots, canonical URL, languages."""
    return _read_relation_columns(page, browser_resolver(page.url))


class PageMetadata(NamedTuple):
    """What a page states about itself; ``columns`` are those of ``page_metadata``."""

    columns: dict[str, Any]
    facts: PageFacts
    json_ld: JsonLd


def read_page_metadata(page: PageInput, limits: Limits, document: HtmlDocument) -> PageMetadata:
    """Reads the marks of a page. Adds flags to the document's."""
    assert document.page is not None
    resolve = document.resolve
    ld, metas = json_ld(document.json_ld, limits, document.flags), Metas(document.meta_tags)
    facts = Facts(document.page, resolve, limits)
    links = relation_links(document.facts_by_tag["link"], resolve, RELATION_WORDS)
    related = _read_relation_columns(page, resolve, document.meta_tags, links, facts.refreshes)
    own = OwnAddresses((page.url, related["canonical_url"], *metas.graph.get("ogurl", ())[:1]), resolve)
    nodes = Nodes(ld.values, own)
    items = [*Nodes(facts.microdata, own).about_page, facts.loose]
    statements = Statements(nodes, items, metas, facts.times)
    own_facts = page_facts(document.title, metas, nodes)
    host = host_of(page.url)
    domain = page.domain or (domain_of(host) if host else None) or ""
    site_names = (own_facts.site_name, domain, domain.partition(".")[0])
    columns = {
        **_date_columns("published", published(statements, page.url, page.fetch_time)),
        **_date_columns("modified", modified(statements, page.fetch_time)),
        **_author_columns(author(statements, document.page, site_names)),
        "headings": facts.headings or None,
        "structured": _structured_column(ld, facts, document.flags) or None,
        **related,
    }
    if facts.reading.cut:
        document.flags.add("facts_cut")
    return PageMetadata(columns, own_facts, ld)


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


def _structured_column(ld: JsonLd, facts: Facts, flags: set[str]) -> list[dict[str, Any]]:
    room = _STRUCTURED_CHARS
    structured_rows: list[dict[str, Any]] = []
    documents = [Structured("json-ld", types, text) for types, text in zip(ld.types, ld.documents, strict=True)]
    for structured in (*documents, *facts.structured()):
        if len(structured.value) > room or len(structured_rows) >= _MAX_STRUCTURED:
            flags.add("facts_cut")
            continue
        room -= len(structured.value)
        structured_rows.append(structured._asdict())
    return structured_rows


def _read_relation_columns(
    page: PageInput,
    resolve: Callable[[str], Resolved],
    meta_tags: Iterable[Mapping[str, Any]] = (),
    links: Sequence[ElementLink] = (),
    refreshes: Sequence[str] = (),
) -> dict[str, Any]:
    resolve_by_url = browser_resolver(page.url)
    robot_rules = robots(meta_tags, page.http_headers)
    related = relations(links, page.http_headers, resolve_by_url)
    return {
        **related._asdict(),
        "robots": robot_rules.rules,
        "robots_directives": robot_rules.global_directives,
        "tdm_reservation": robot_rules.reserved,
        "tdm_policy": resolve_by_url(robot_rules.policy)[0] if robot_rules.policy else None,
        "refresh": refresh(refreshes, page.http_headers, resolve, resolve_by_url),
    }


def text_columns(columns: dict[str, Any]) -> dict[str, Any]:
    """Returns the columns that ``page_text`` repeats beside its texts."""
    return {name: columns[name] for name in ("published", "author", "canonical_url")}
