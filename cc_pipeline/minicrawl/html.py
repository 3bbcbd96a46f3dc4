"""HTML pages as the web has them: several charsets, every kind of link, tidy and untidy markup."""

from __future__ import annotations

import html
import json
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from cc_pipeline.minicrawl.languages import Language

#: How a page says which charset it is in.
DECLARATIONS: tuple[str, ...] = ("header", "meta", "http-equiv", "both", "bom", "none")


@dataclass(frozen=True, slots=True)
class HtmlPage:
    """A page's bytes and what a reader should find in it. ``charset`` is a Python codec name."""

    body: bytes
    title: str
    charset: str
    declared_in: str
    language: Language


def html_page(
    rng: Random,
    url: str,
    language: Language,
    link: Callable[[int], str],
    *,
    paragraphs: int | None = None,
    scale: int = 1,
) -> HtmlPage:
    """A page in one of the language's charsets. ``link`` gives the URL of some other page for any number.

    The page has ``paragraphs`` paragraphs, or a drawn number of them times ``scale``.
    """
    charset = language.charsets[0] if rng.random() < 0.7 else rng.choice(language.charsets)
    declared_in = rng.choice(DECLARATIONS if charset == "utf-8" else (*DECLARATIONS[:4], "none"))
    title = f"{language.headline(rng)} & {rng.randrange(1000)}"
    if rng.random() < 0.04:
        return _frameset(title, charset, declared_in, language, link)
    head = _head(rng, url, title, charset, declared_in, language, link)
    count = rng.choice((2, 3, 4, 6, 9, 14)) * scale if paragraphs is None else paragraphs
    body = _body(rng, url, title, count, language, link)
    untidy = rng.random() < 0.15
    opening = "<HTML>" if untidy else f'<!DOCTYPE html>\n<html lang="{language.html}">'
    closing = "" if untidy else "</body>\n</html>\n"
    text = f"{opening}\n<head>\n{head}\n</head>\n<body class=page>\n{body}\n{closing}"
    return HtmlPage(_encoded(text, charset, declared_in), title, charset, declared_in, language)


def _encoded(text: str, charset: str, declared_in: str) -> bytes:
    mark = b"\xef\xbb\xbf" if declared_in == "bom" else b""
    return mark + text.encode(charset, errors="xmlcharrefreplace")


def _head(
    rng: Random,
    url: str,
    title: str,
    charset: str,
    declared_in: str,
    language: Language,
    link: Callable[[int], str],
) -> str:
    escaped = html.escape(title)
    description = html.escape(language.sentence(rng), quote=True)
    lines = []
    if declared_in in {"meta", "both"}:
        lines.append(f'<meta charset="{charset}">')
    if declared_in == "http-equiv":
        lines.append(f'<META HTTP-EQUIV="Content-Type" CONTENT="text/html; charset={charset}">')
    lines.append(f"<title>{escaped}</title>")
    if rng.random() < 0.2:
        lines.append(f'<base href="{_origin(url)}/base/">')
    lines += [
        f'<meta name="description" content="{description}">',
        f'<meta name=keywords content="mini, crawl, {language.code}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f'<link rel="canonical" href="{html.escape(url, quote=True)}">',
        '<link rel="stylesheet" type="text/css" href="/static/site.css?v=3" media="all">',
        '<link rel="shortcut icon" href="/favicon.ico">',
        '<link rel="alternate" type="application/rss+xml" title="News" href="/feed/">',
        '<script src="/static/app.js" async></script>',
    ]
    if rng.random() < 0.5:
        lines += [
            f'<meta property="og:title" content="{escaped}">',
            '<meta property="og:type" content="article">',
            f'<meta property="og:image" content="{link(rng.randrange(50))}/cover.jpg">',
            f'<meta property="article:published_time" content="20{rng.randrange(10, 24)}-03-0{rng.randrange(1, 10)}">',
            '<meta name="twitter:card" content="summary">',
        ]
    if rng.random() < 0.35:
        document = {
            "@context": "https://schema.org",
            "@type": rng.choice(("NewsArticle", "Product", "WebPage")),
            "headline": title,
            "author": {"@type": "Person", "name": "Alex Sample"},
            "url": url,
        }
        text = json.dumps(document).replace("<", "\\u003c")
        lines.append(f'<script type="application/ld+json">{text}</script>')
    if rng.random() < 0.1:
        lines.append(f'<meta name="robots" content="{rng.choice(("noindex, follow", "nofollow", "noarchive"))}">')
    return "\n".join(lines)


def _body(rng: Random, url: str, title: str, count: int, language: Language, link: Callable[[int], str]) -> str:
    parts = [
        f'<nav><ul><li><a href="/">Start</a></li><li><a href="#top">Top</a></li>'
        f'<li><a href="{html.escape(link(1), quote=True)}" rel="nofollow">1</a></li>'
        f'<li><a href="mailto:mail@example.com">Mail</a></li>'
        f'<li><a href="javascript:void(0)">Menu</a></li></ul></nav>',
        f"<h1>{html.escape(title)}</h1>",
        "<!-- generated page: <a href='/not-a-link'>in a comment</a> -->",
    ]
    for number in range(count):
        text = html.escape(language.paragraph(rng, rng.randrange(2, 6)))
        target = html.escape(link(rng.randrange(1000)), quote=True)
        anchor = html.escape(language.headline(rng))
        close = "</p>" if rng.random() < 0.9 else ""
        reference = f"{rng.getrandbits(256):064x}"  # the real web is less compressible than our sentences
        parts.append(f'<p data-ref={reference}>{text} <a href="{target}" title="{number}">{anchor}</a>.{close}')
    parts.append(
        rng.choice(_EXTRAS).format(a=rng.randrange(100), far=html.escape(link(rng.randrange(1000)), quote=True))
    )
    parts.append("<script>document.write(\"<a href='/written'>written</a>\");</script>")
    parts.append(f"<footer>&copy; {2000 + rng.randrange(25)} &ndash; <a href='../impressum.html'>Imprint</a></footer>")
    return "\n".join(parts)


_EXTRAS = (
    '<img src="img/{a}.png" alt="picture {a}" width=100 height="50"><img srcset="/i/{a}@2x.webp 2x" src=/i/{a}.webp>',
    '<iframe src="{far}" width="300"></iframe>',
    '<img src="/map.gif" usemap="#m"><map name="m"><area shape="rect" coords="0,0,9,9" href="/region/{a}"></map>',
    "<table border=1><tr><td>{a}<td><A HREF=relative/{a}.html>Cell</A></table>",
    '<form action="/search"><input name="q" value="{a}"></form><a href="?page={a}">next</a><a href="">self</a>',
    '<video src="/v/{a}.mp4" poster="/v/{a}.jpg"></video><a href=" {far} ">spaced</a><a href="//example.net/x">net</a>',
)


def _frameset(title: str, charset: str, declared_in: str, language: Language, link: Callable[[int], str]) -> HtmlPage:
    first, second = (html.escape(link(number), quote=True) for number in (2, 3))
    text = (
        f"<html><head><title>{html.escape(title)}</title></head>\n<frameset cols='20%,80%'>\n"
        f'<frame src="{first}" name="menu">\n<frame src="{second}" name="main">\n'
        "<noframes><body><p>No frames here.</p></body></noframes>\n</frameset></html>\n"
    )
    return HtmlPage(_encoded(text, charset, declared_in), title, charset, declared_in, language)


def _origin(url: str) -> str:
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.split('/', 1)[0]}"
