"""Mutated pages, feeds and headers: rows or a DataFault, nothing else, and rows always fit the tables.

Some dozens of them, or more for ``CC_PIPELINE_FUZZ_SECONDS``. Seeds are documents of ours and, where it lies beside the
checkout, the corpus; a failing input is named by the seed of its random numbers, so that it can be made again.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cc_pipeline.documents.document2012.json import metadata_json
from cc_pipeline.documents.page import Limits, ParseOptions
from cc_pipeline.documents.parse import parse_page
from cc_pipeline.documents.rows import to_record_batches
from cc_pipeline_tests import fuzzing
from cc_pipeline_tests.corpus import CORPUS
from cc_pipeline_tests.documents.feeds.test_feeds import ATOM, RSS
from cc_pipeline_tests.documents.pages import page
from cc_pipeline_tests.documents.test_parse_page import HTML
from cc_pipeline_tests.fuzzing import bounded, fuzz

OPTIONS = ParseOptions(limits=Limits(links=200, feed_items=200))

TOKENS = (
    b'<a href=', b"<base href='", b'<meta charset=', b'<![CDATA[', b']]>', b'<!--', b'-->', b'<script>',
    b'</script>', b'<noscript>', b'</noscript>', b'<template>', b'</template>', b'<svg>', b'<title>', b'<math>',
    b'<iframe>', b'<table>', b'<frameset>', b"<!DOCTYPE x [<!ENTITY a 'b'>]>", b'&a;', b'&#xD800;', b'&#0;',
    b'\x00', b'\xff\xfe', b'\xef\xbb\xbf', b'<style>', b'</style>', b'<select>', b'</p>', b'<form>', b'<rss>',
    b"<feed xmlns='http://www.w3.org/2005/Atom'>", b'<item>', b'<entry>', b"xml:base='http://[::'", b'<link>',
    b'http://[', b'//', b'\\', b'\xed\xa0\x80', b'<plaintext>', b'<script type="application/ld+json">',
    b'{"@type":', b'<html', b'<body', b'</body>', b'</html>', b'<object>', b"'", b'"',
)  # fmt: skip
TYPES = (
    "text/html",
    "application/xml",
    "application/rss+xml",
    "text/plain",
    "text/html; charset=utf-16",
    None,
    ";;",
    "x",
)


def seeds() -> list[bytes]:
    """Documents to start from."""
    found = [text.encode() for text in (HTML, RSS, ATOM)]
    for pattern in (
        "html_text_metadata/readability/*/source.html",
        "feeds/feedparser/*/*/*.xml",
        "charset/chardet/*/*",
    ):
        files = sorted(CORPUS.glob(pattern))
        found += [path.read_bytes() for path in files[:: max(1, len(files) // 20)]]
    return [seed[:100_000] for seed in found]


def mutated(chance: random.Random, documents: list[bytes]) -> bytes:
    """A document cut, doubled, spliced and sprinkled with tokens."""
    data = bytearray(chance.choice(documents))
    for _ in range(chance.randint(1, 12)):
        at = chance.randrange(len(data) + 1)
        to = min(len(data), at + chance.choice((1, 4, 40, 400, 4000)))
        kind = chance.randrange(6)
        if kind == 0:
            del data[at:to]
        elif kind == 1:
            data[at:at] = chance.choice(TOKENS) * chance.choice((1, 1, 1, 2, 300))
        elif kind == 2:
            data[at:at] = data[at:to] * chance.choice((1, 2, 20))
        elif kind == 3:
            data[at:to] = chance.randbytes(min(to - at, 16))
        elif kind == 4:
            other = chance.choice(documents)
            start = chance.randrange(len(other) + 1)
            data[at:at] = other[start : start + chance.choice((10, 100, 1000))]
        elif data:
            data[min(at, len(data) - 1)] ^= 1 << chance.randrange(8)
        if len(data) > 300_000:
            del data[300_000:]
    return bytes(data)


def check(payload: bytes, mime: str | None, **more: object) -> None:
    """Parses and checks what every row promises."""
    parsed = parse_page(page(payload, mime=mime, **more), OPTIONS)
    batches = to_record_batches([parsed])
    assert batches["page_metadata"].num_rows == 1
    assert json.loads(metadata_json(parsed.metadata, parsed.links))["disposition"] == "SUCCESS"
    for batch in batches.values():
        batch.validate(full=True)


def _inputs(start: int) -> Iterator[tuple[int, bytes, str | None]]:
    documents = seeds()
    number = start
    while True:
        chance = random.Random(number)
        yield number, mutated(chance, documents), chance.choice(TYPES)
        number += 1


def test_mutated_documents() -> None:
    end, start = time.monotonic() + fuzzing.SECONDS, int(os.environ.get("CC_PIPELINE_FUZZ_START", "0"))
    for number, payload, mime in _inputs(start):
        try:
            check(payload, mime)
        except Exception as error:
            raise AssertionError(f"input {number} of type {mime}") from error
        if number >= start + 60 and time.monotonic() > end:
            break


@settings(max_examples=80)
@given(st.lists(st.one_of(st.sampled_from(TOKENS), st.binary(max_size=12)), max_size=60), st.sampled_from(TYPES))
def test_token_soup(parts: list[bytes], mime: str | None) -> None:
    check(b"".join(parts), mime)


@settings(max_examples=80)
@given(
    st.lists(st.tuples(st.text(max_size=20), st.text(max_size=40)), max_size=8),
    st.text(max_size=40),
    st.one_of(st.none(), st.integers(0, 999)),
)
def test_odd_headers_urls_and_statuses(headers: list[tuple[str, str]], url: str, status: int | None) -> None:
    parsed = parse_page(page("<a href=x>y</a>", url=url, headers=headers, http_status=status), OPTIONS)
    assert to_record_batches([parsed])["page_metadata"].num_rows == 1


#: What pages are made of that costs a parser something, with a number where one of many is another.
PIECES = (
    *TOKENS,
    *(
        b"<%s>" % name
        for name in b"b i div p li ul td tr span h1 ruby rt option optgroup button object marquee".split()
    ),
    *(b"</%s>" % name for name in b"b a div table td svg br option select li".split()),
    *(b"<nobr>", b"<center>", b"<pre>", b"<a href=x%d>", b"<font color=%d>", b"<a a%d=1>", b" a%d=1", b"<body a%d=1>"),
    *(
        b"<meta name=a%d content=b>",
        b'<img srcset="a 1x, ',
        b"<img src=%d.png>",
        b"<link rel=canonical href=%d>",
        b"x ",
    ),
    *(b'<script type="application/ld+json">', b'{"@type":"a%d"},', b'\\"', b",", b"[", b"//", b"/*", b"&amp", b"&#9;"),
    *(b"data:;base64,", b"../", b"=", b"</scrip", "\u65e5\u672c ".encode(), b"\x1b$B", b"w%d "),
)


@st.composite
def swollen_pages(draw: st.DrawFn) -> bytes:
    """One or two runs of a few pieces over and over: kilobytes, or more where seconds of fuzzing were asked for."""
    most = 400_000 if fuzzing.SECONDS else 4_000
    parts = []
    for _ in range(draw(st.integers(1, 2))):
        parts.append(b"".join(draw(st.lists(st.sampled_from(PIECES), max_size=2))).replace(b"%d", b"0"))
        piece = b"".join(draw(st.lists(st.sampled_from(PIECES), min_size=1, max_size=4)))
        times = draw(st.sampled_from((100, most // 8, most))) // len(piece) + 1
        parts.append(b"".join(piece.replace(b"%d", b"%d" % number) for number in range(times)))
    return b"".join(parts)


@fuzz(40, payload=swollen_pages(), mime=st.sampled_from((*TYPES[:4], "application/xhtml+xml", None)))
def test_swollen_pages(payload: bytes, mime: str | None) -> None:
    """Time and memory are the oracle: no page may cost more than two seconds, or 300 MB over its size."""
    with bounded(2.0, 300.0):
        to_record_batches([parse_page(page(payload, mime=mime))])


@pytest.mark.parametrize(
    "payload",
    [
        b"<template><noscript><template>x</noscript><title>y</title>" * 50,
        b"<noscript><iframe><noscript><script></noscript></iframe>" * 50,
        b"<svg><title><style><title>" * 50,
        b"<frameset><frame src=a><noframes><a href=b>" * 50,
        b"<table><a href=1><tr><a href=2><td><a href=3>" * 200,
        b"<a href=1><a href=2>" * 2000,
        b"<select><script>" * 200,
        b"<plaintext><a href=x>",
        b"<" * 100_000,
        b"&" * 100_000,
        b"<a " + b"x" * 1_000_000,
        b"<a " + b" ".join(b"a%d=%d" % (n, n) for n in range(5_000)) + b" href=x>y</a>",
        b"<!--" * 50_000,
        b"<?xml " * 20_000,
        b"<!DOCTYPE " * 20_000,
        b'<meta charset="' * 10_000,
        b"<rss>" + b"<![CDATA[" * 20_000,
        b"<feed>" + b"&amp" * 50_000,
    ],
    ids=lambda payload: payload[:24].decode(),
)
def test_shapes_that_hurt_parsers(payload: bytes) -> None:
    for mime in ("text/html", "application/xml"):
        check(payload, mime)
