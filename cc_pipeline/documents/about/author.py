"""The authors of a page and the source of each name: names only, several with commas between them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from cc_pipeline.documents.about.statements import Statements, plain
from cc_pipeline.documents.html.marks import Mark, WalkedPage
from cc_pipeline.documents.html.tags import BESIDE, BYLINE, IS_INERT, OTHERS
from cc_pipeline.documents.html.whitespace import collapsed

#: Plain keys of ``meta`` tags (statements.py), the most certain first.
_NAMES = """
author parselyauthor sailthruauthor dccreator dctermcreator dctermscreator dccontributorauthor citationauthor
citationauthors authors byl byline creator articleauthor articleauthorname authorname rbauthors dcsextauthor
atcmetaauthor shareaholicarticleauthorname cxenseparseauthor mediatorauthor mediatorauthorname btauthor postauthor
dccreatoraut dctermscreatoraut newsauthor pageauthor articlewriter writer
""".split()
_GRAPH = """
articleauthor articleauthorname ogarticleauthor ogauthor author bookauthor dccreator dctermscreator schemaauthor
""".split()
_LD = ("author", "creator")
_MAX_NAMES = 20
_MAX_CHARS = 300
#: The longest name in a byline: a longer text is no name.
_NAME_CHARS = 60
_NAME_WORDS = 6

_TAGS = re.compile(r"<[^<>]{0,500}>")
_ADDRESS = re.compile(r"\s*(?:https?://|www\.|//|/|@)\S*\s*\Z|\S[^\s@]*@\S+\Z", re.IGNORECASE)
_BYLINE_PREFIXES = (
    r"by|written by|posted by|published by|words by|story by|text by|reported by|author|authors|von|par|por"
    r"|escrito por|publicado por|di|de|door|af|av|text|texte|testo|texto|autor|autora|autore"
    r"|auteur|автор|текст|작성자|글|作者|文|記者"
)
_PREFIX = re.compile(rf"(?:posts? )?(?:{_BYLINE_PREFIXES})(?:\s*[:：|]\s*|\s+)(?=\S)", re.IGNORECASE)
_PREFIX_STATED = re.compile(
    r"(?:(?:written|posted|published|story|words|text)\s+)?by(?:\s*:\s*|\s+)(?=\S)", re.IGNORECASE
)
_MONTH = (
    r"jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?"
    r"|nov(?:ember)?|dec(?:ember)?"
)
#: Where the name in a byline ends.
_END = re.compile(
    r"(?<!\s)(?:\s+[|•·–—/»-]\s+|\s*[|•·»(\[\n\t]|\s+(?:on|in|at|am|um|le|el|for|via|from|published|posted|updated|last|follow"
    r"|mon|tue|tues|wed|thu|thur|thurs|fri|sat|sun|monday|tuesday|wednesday|thursday|friday|saturday|sunday"
    rf"|staff|contributor|contributing|senior|email|twitter|@\S+|(?:{_MONTH})\.?,?\s+\d+)(?:\b|\Z)"
    r"|\s*+(?:,\s*+)?\d|\s+\S+@\S+)",
    re.IGNORECASE,
)
#: A date in place of a name.
_DATED = re.compile(
    rf"(?:(?:mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?:day)?\.?,?\s+)?(?:{_MONTH})\.?,?\s+\d", re.I
)
_NAME_SEPARATOR = re.compile(r"(?:(?<!\s)\s+)?(?:,|;|&|\band\b|\bund\b|\bet\b|\by\b|\be\b)\s+", re.IGNORECASE)
_NO_NAME = """
author authors admin administrator by byline editor editors editorial staff guest anonymous unknown username user
none null undefined contributor contributors writer writers reporter website webmaster share comments read more
about us home news blog follow subscribe login menu search contact advertisement sponsored bio biography profile
"""
_NO_NAMES = frozenset(_NO_NAME.split())

_MAX_BYLINES = 40
_BYLINE_CHARS = 300
_UNNAMED_TAGS = frozenset(
    {"body", "html", "img", "form", "input", "textarea", "button", "svg", "ul", "ol", "table", "link", "meta"}
)
#: What stands between the links of authors who wrote a page together.
_BETWEEN = re.compile(r"\s*(?:(?:,|;|&|/|and|und|et|y|e)\s*)?", re.IGNORECASE)


class AuthorNames(NamedTuple):
    """Names, and the reader that found them."""

    names: str
    source: str


def author(statements: Statements, page: WalkedPage, site: Iterable[str | None] = ()) -> AuthorNames | None:
    """Returns the answer of the most certain reader that has one.

    If that is only a name of the site (``site``), a byline with a name is preferred.
    """
    site_names = {plain(name) for name in site if name}
    last: AuthorNames | None = None
    for source, value in _read_author_values(statements):
        if names := list(dict.fromkeys(filter(None, map(_stated_name, statements.nodes.names(value))))):
            credit = AuthorNames(", ".join(names), source)
            if plain(credit.names) not in site_names:
                return credit
            last = last or credit
    return _byline(page) or last


def _read_author_values(statements: Statements) -> Iterator[tuple[str, Any]]:
    metas = statements.metas
    for node in statements.nodes.about_page:
        for key in _LD:
            yield "json-ld", node.get(key)
    for key in filter(metas.graph.__contains__, _GRAPH):
        yield "open-graph" if key.startswith(("article", "og", "book")) else "meta", metas.graph[key]
    for key in filter(metas.names.__contains__, _NAMES):
        yield "meta", metas.names[key]
    for item in statements.items:
        for key in _LD:
            yield "microdata", item.get(key)


def _stated_name(text: str) -> str | None:
    """Returns a property's name without markup, ``By`` and addresses; ``None`` if nothing is left."""
    text = collapsed(_TAGS.sub(" ", text))
    text = _PREFIX_STATED.sub("", text, count=1) if _PREFIX_STATED.match(text) else text
    text = text.strip(" ,;|")
    if not text or len(text) > _MAX_CHARS or _ADDRESS.match(text) or not _has_letter(text):
        return None
    return None if text.lower() in ("author", "by", "null", "none", "undefined", "unknown", "n/a") else text


def _has_letter(text: str) -> bool:
    return any(letter.isalpha() for letter in text)


def _byline(page: WalkedPage) -> AuthorNames | None:
    """Returns the names in the links to the authors, or else in an element that is named as the byline.

    Elements after the page's main heading are preferred to those before it.
    """
    level_one = 0
    links: list[tuple[int, Mark, str]] = []
    bylines: list[tuple[int, str]] = []
    for mark in page.facts:
        if mark.tag == "h1":
            level_one += 1
            continue
        is_link = "author" in mark.attributes.get("rel", "").lower().split()
        if not (is_link or mark.tag == "address" or mark.hints & BYLINE) or not _is_own(mark):
            continue
        text = page.spaced_text_of(mark, _BYLINE_CHARS)
        if text and is_link:
            links.append((level_one, mark, text))
        elif text:
            bylines.append((level_one, text))
        if len(links) + len(bylines) >= _MAX_BYLINES:
            break
    for source, texts in (("rel-author", _join(page, links)), ("byline", bylines)):
        for _, text in sorted(texts, key=lambda level_and_text: level_and_text[0] != 1):
            if names := byline_names(text):
                return AuthorNames(names, source)
    return None


def _join(page: WalkedPage, links: list[tuple[int, Mark, str]]) -> list[tuple[int, str]]:
    """Joins the texts of links with nothing but a comma or an ``and`` between them."""
    joined: list[tuple[int, str]] = []
    end = -1
    for level_one, mark, text in links:
        if joined and 0 <= mark.start - end <= _NAME_CHARS and _BETWEEN.fullmatch(page.text, end, mark.start):
            joined[-1] = (joined[-1][0], f"{joined[-1][1]}, {text}")
        else:
            joined.append((level_one, text))
        end = mark.end
    return joined


def _is_own(mark: Mark) -> bool:
    """Whether an element may name the page's own author."""
    return not (mark.state & IS_INERT or mark.tag in _UNNAMED_TAGS or mark.around & (OTHERS | BESIDE))


def byline_names(text: str) -> str | None:
    """Returns the names in a byline's text; ``None`` if it seems to hold none."""
    text = text.strip(" ,;:|-–—•·")
    for _ in range(2):
        if prefix := _PREFIX.match(text):
            text = text[prefix.end() :]
    if _DATED.match(text):
        return None
    if ended := _END.search(text):
        text = text[: ended.start()]
    names = [name for part in _NAME_SEPARATOR.split(text)[:_MAX_NAMES] if (name := part.strip(" ,;:|-–—•·."))]
    if not names or not all(_is_name(name) for name in names):
        return None
    return ", ".join(dict.fromkeys(names))


def _is_name(name: str) -> bool:
    words = name.split()
    if not 1 < len(name) <= _NAME_CHARS or len(words) > _NAME_WORDS or not _has_letter(name):
        return False
    if _ADDRESS.match(name) or all(word.lower().strip(".") in _NO_NAMES for word in words):
        return False
    if len(words) == 1:
        return True  # a user's name may have no capital
    small = sum(word[:1].islower() for word in words)
    return not words[-1][:1].islower() and 2 * small <= len(words)
