"""Answers of any Content-Type with any body, each labelled with the words that a reader would see in it."""

from __future__ import annotations

import gzip
import json
import random
from typing import NamedTuple

from cc_pipeline.documents.page import PageInput
from cc_pipeline_tests.documents.pages import page
from cc_pipeline_tests.documents.test_other import pdf

#: Content-Types by what they say. ``None`` is no header.
TYPES: dict[str, tuple[str | None, ...]] = {
    "nothing": (
        *(None, "", " ", ";charset=utf-8", "*/*", "unknown/unknown", "application/unknown", "utf-8", "None", "null"),
        *("text", "text/", "/", "x", "charset=utf-8", "; charset=", "no-type", "undefined"),
    ),
    "page": ("text/html", "TEXT/HTML ; charset=utf-8", "application/xhtml+xml", "html", "text/html;charset=x-none"),
    "text": ("text/plain", "text/plain; charset=utf-8", "text/x-log", "text/markdown", "text/csv", "message/rfc822"),
    "xml": (
        "text/xml",
        "application/xml",
        "application/rss+xml",
        "application/atom+xml; type=entry",
        "application/rdf+xml",
    ),
    "json": ("application/json", "application/ld+json; charset=utf-8", "application/feed+json", "text/json"),
    "bytes": (
        "application/octet-stream",
        "binary/octet-stream",
        "application/force-download",
        "application/x-download",
    ),
    "file": (
        *("image/png", "image/jpeg", "image/svg+xml", "application/pdf", "application/zip", "video/mp4", "audio/mpeg"),
        *("font/woff2", "application/msword", "application/x-gzip", "application/vnd.ms-excel", "application/x-tex"),
    ),
    "program": ("text/css", "application/javascript", "text/javascript", "application/x-httpd-php", "application/wasm"),
}
#: What a crawler's own detection (Apache Tika) may say of a body, rightly or not.
_DETECTED = (
    *("text/html", "application/xhtml+xml", "application/rss+xml", "application/atom+xml", "application/xml"),
    *("application/json", "text/plain", "application/pdf", "image/png", "application/zip", "application/octet-stream"),
)
_MARKS = {"utf-8": b"\xef\xbb\xbf", "utf-16-le": b"\xff\xfe", "utf-16-be": b"\xfe\xff"}
_SYLLABLES = "ba co du fe gi ha jo ku le mi no pu ra se ti vo wu xa ye zi".split()


class Answer(NamedTuple):
    """A capture; ``body_kind`` is the generator's; ``words`` are those that can be read in it."""

    page: PageInput
    body_kind: str
    words: tuple[str, ...]


def _markup(chance: random.Random, words: list[str]) -> str:
    first, *rest = words
    shapes = (
        f"<!DOCTYPE html><html><head><title>{first}</title></head><body><p>{' '.join(rest)}</p></body></html>",
        f"<!-- made by hand -->\n<HTML><TITLE>{first}</TITLE><BODY><TABLE><TR><TD>{' '.join(rest)}</TABLE>",
        f"\n\n  <html lang=en><body>{first}<script>var x = '<p>'</script><ul><li>{'<li>'.join(rest)}</ul>",
        f"<p>{first}</p><div>{' '.join(rest)}</div>",
        f"<h1>{first}</h1>{' '.join(rest)}",
        f"<?php echo 1 ?><html><body>{' '.join(words)}",
        f"{first} <b>{' '.join(rest)}</b> and so on<br>",
    )
    return chance.choice(shapes)


def _text_body(chance: random.Random, kind: str, words: list[str]) -> str:
    first, *rest = words
    tail = " ".join(rest)
    match kind:
        case "html":
            return _markup(chance, words)
        case "xhtml":
            return f'<?xml version="1.0"?><html xmlns="http://www.w3.org/1999/xhtml"><head><title>{first}</title></head><body><p>{tail}</p></body></html>'
        case "rss":
            items = f"<item><title>{tail}</title></item>"
            return f'<?xml version="1.0"?><rss version="2.0"><channel><title>{first}</title>{items}</channel></rss>'
        case "atom":
            return f'<feed xmlns="http://www.w3.org/2005/Atom"><title>{first}</title><entry><title>{tail}</title></entry></feed>'
        case "sitemap":
            return f"<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9'><url><loc>http://a.example/{first}/{'/'.join(rest)}</loc></url></urlset>"
        case "xml":
            return f"<?xml version='1.0'?><record><name>{first}</name><note>{tail}</note></record>"
        case "json":
            return json.dumps({"name": first, "list": [{"note": tail}, 1, None]})
        case "jsonfeed":
            items = [{"id": "1", "title": tail}]
            return json.dumps({"version": "https://jsonfeed.org/version/1.1", "title": first, "items": items})
        case _:
            return chance.choice(
                (f"{first}\n\n{tail}\n", f"{first}: {tail}", f"# {first}\n* {tail}", f"{first} < {tail}")
            )


def _file_body(chance: random.Random, kind: str, words: list[str]) -> bytes:
    noise = chance.randbytes(chance.randint(40, 400))
    match kind:
        case "pdf":
            return pdf([" ".join(words)])
        case "png":
            return b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\1\0\0\0\1\x08\2\0\0\0" + noise
        case "gif":
            return b"GIF89a\1\0\1\0\x80\0\0" + noise
        case "jpeg":
            return b"\xff\xd8\xff\xe0\0\x10JFIF\0\1\1" + noise
        case "zip":
            return b"PK\3\4\x14\0\0\0\x08\0" + noise
        case _:
            return chance.choice((b"", b" ", b"\n\r\n\t ", b"\xef\xbb\xbf", b"\xff\xfe", b"\0"))


_TEXTS = ("html", "xhtml", "rss", "atom", "sitemap", "xml", "json", "jsonfeed", "text")
_FILES = ("pdf", "png", "gif", "jpeg", "zip", "empty")


def generate_answer(chance: random.Random) -> Answer:
    """An answer with status 200."""
    words = ["".join(chance.choices(_SYLLABLES, k=4)) for _ in range(chance.randint(2, 6))]
    content_type = chance.choice(TYPES[chance.choice(list(TYPES))])
    kind = chance.choice(_FILES) if chance.random() < 0.25 else chance.choice(_TEXTS)
    headers: list[tuple[str, str]] = []
    is_program = content_type in ("text/css", "application/javascript", "text/javascript")
    if kind in _FILES:
        body = _file_body(chance, kind, words)
    else:
        text = _text_body(chance, kind, words)
        # what begins with no tag may be a program
        is_program &= not text.lstrip().startswith("<")
        charset = chance.choice(("utf-8", "utf-8", "utf-8", "cp1252", "utf-16-le", "utf-16-be"))
        mark = _MARKS.get(charset, b"") if charset.startswith("utf-16") or chance.random() < 0.3 else b""
        body = mark + text.encode(charset)
    if chance.random() < 0.05:
        body = gzip.compress(body, mtime=0)
        headers = [("Content-Encoding", "gzip")]
    detected = chance.choice((*[None] * 5, *_DETECTED))
    return Answer(
        page(body, content_type, headers=headers, mime_detected=detected),
        kind,
        tuple(words) if kind == "pdf" or (kind in _TEXTS and not is_program) else (),
    )
