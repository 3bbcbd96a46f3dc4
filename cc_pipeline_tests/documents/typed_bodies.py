"""Answers of any Content-Type with any body, each labelled with the words that a reader would see in it.

``python -m cc_pipeline_tests.documents.typed_bodies 100000`` parses so many and prints what was lost, by type and body.
"""

from __future__ import annotations

import gzip
import json
import random
import sys
from collections import Counter
from typing import NamedTuple

from cc_pipeline.documents.page import PageInput, ParseOptions
from cc_pipeline.documents.parse import parse_page
from cc_pipeline_tests.documents.pages import page

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
#: What a crawler's own detection (Apache Tika) says of a body, by its kind.
DETECTED = {
    "html": "text/html",
    "xhtml": "application/xhtml+xml",
    "rss": "application/rss+xml",
    "atom": "application/atom+xml",
    "sitemap": "application/xml",
    "xml": "application/xml",
    "json": "application/json",
    "jsonfeed": "application/json",
    "text": "text/plain",
    "pdf": "application/pdf",
    "png": "image/png",
    "gif": "image/gif",
    "jpeg": "image/jpeg",
    "zip": "application/zip",
    "empty": "application/octet-stream",
}
_MARKS = {"utf-8": b"\xef\xbb\xbf", "utf-16-le": b"\xff\xfe", "utf-16-be": b"\xfe\xff"}
_OPTIONS = ParseOptions(main_content=False, language=False, text_simhash=False)
#: Flags that say why a body, or a part of it, was not read.
EXCUSES = frozenset("text_unread binary_content feed_unreadable feed_malformed xml_malformed xml_unreadable".split())
_SYLLABLES = "ba co du fe gi ha jo ku le mi no pu ra se ti vo wu xa ye zi".split()


class Answer(NamedTuple):
    """A capture; ``type_kind`` and ``body_kind`` are the generator's; ``words`` are those that can be read in it."""

    page: PageInput
    type_kind: str
    body_kind: str
    words: tuple[str, ...]


def _pdf(words: str) -> bytes:
    stream = f"BT /F1 12 Tf 72 720 Td ({words}) Tj ET".encode()
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Contents 4 0 R/Resources<</Font<</F1 5 0 R>>>>>>",
        b"<</Length %d>>stream\n%b\nendstream" % (len(stream), stream),
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
    ]
    body, places = b"%PDF-1.4\n", []
    for number, each in enumerate(objects, 1):
        places.append(len(body))
        body += b"%d 0 obj%b endobj\n" % (number, each)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    end = b"xref\n0 6\n0000000000 65535 f \n%btrailer<</Size 6/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF" % (
        table,
        len(body),
    )
    return body + end


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
            return _pdf(" ".join(words))
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
    type_kind = chance.choice(list(TYPES))
    content_type = chance.choice(TYPES[type_kind])
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
    detected = chance.choice((None, None, DETECTED[kind], DETECTED[kind], "application/octet-stream", "text/plain"))
    return Answer(
        page(body, content_type, headers=headers, mime_detected=detected),
        type_kind,
        kind,
        tuple(words) if kind == "pdf" or (kind in _TEXTS and not is_program) else (),
    )


class Reading(NamedTuple):
    """What became of an answer: the flags that say why words were not read, the words that no row has, its text."""

    excuses: tuple[str, ...]
    lost: tuple[str, ...]
    text: str | None


def read_answer(answer: Answer) -> Reading:
    """Parses an answer."""
    parsed = parse_page(answer.page, _OPTIONS)
    text = parsed.text or {}
    rows = [text.get("title"), text.get("text"), *(link.url for link in parsed.links)]
    read = " ".join(row for row in rows if row)
    return Reading(
        tuple(flag for flag in parsed.metadata.get("flags") or () if flag in EXCUSES),
        tuple(word for word in answer.words if word not in read),
        text.get("text"),
    )


def main(count: int) -> None:
    """Parses answers; prints for which types and bodies words were lost without a flag, and how often with which."""
    chance = random.Random(46)
    silent: Counter[tuple[str, str]] = Counter()
    excused: Counter[str] = Counter()
    for _ in range(count):
        answer = generate_answer(chance)
        reading = read_answer(answer)
        if reading.lost and reading.excuses:
            excused[" ".join(reading.excuses)] += 1
        elif reading.lost:
            silent[answer.type_kind, answer.body_kind] += 1
            print(answer.page.http_headers, answer.page.mime_detected, answer.page.payload[:80])
    print(f"{count} answers; words lost without a flag: {silent.total()} {dict(silent)}")
    print(f"with a flag: {excused.total()} {dict(excused)}")


if __name__ == "__main__":
    main(int(sys.argv[1]))
