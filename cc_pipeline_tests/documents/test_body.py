"""Bodies that are not what their headers say: codings still on them, files under a type of text."""

from __future__ import annotations

import gzip
import itertools
import zlib
from collections.abc import Callable

import cramjam
import pytest

from cc_pipeline.documents.body import is_binary
from cc_pipeline.documents.charset import narrowed
from cc_pipeline.documents.page import Limits, ParseOptions
from cc_pipeline.documents.parse import parse_page
from cc_pipeline_tests.documents.pages import page

HTML = (
    b"<title>Title</title><p>" + b"".join(b"Line %d of the text. " % n for n in range(2_000)) + b"<a href=/x>link</a>"
)


def bare(data: bytes) -> bytes:
    engine = zlib.compressobj(wbits=-15)
    return engine.compress(data) + engine.flush()


def chunked(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n0\r\n\r\n" % (len(data), data)


ENCODERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": lambda data: bytes(cramjam.brotli.compress(data, 2)),
    "zstd": lambda data: bytes(cramjam.zstd.compress(data)),
}


@pytest.mark.parametrize(
    ("body", "headers"),
    [(encode(HTML), {"Content-Encoding": name}) for name, encode in ENCODERS.items()]
    + [
        (bare(HTML), {"Content-Encoding": "deflate"}),
        (gzip.compress(gzip.compress(HTML)), {"Content-Encoding": "gzip, gzip"}),
        (gzip.compress(gzip.compress(HTML)), {"Content-Encoding": "gzip"}),
        (gzip.compress(zlib.compress(HTML)), {"content-encoding": "deflate, GZIP"}),
        (chunked(gzip.compress(HTML)), {"Content-Encoding": "gzip", "Transfer-Encoding": "chunked"}),
        (chunked(HTML), {"Transfer-Encoding": "chunked"}),
    ],
    ids=itertools.count(),
)
def test_a_coding_that_headers_and_bytes_agree_on_is_taken_off(body: bytes, headers: dict[str, str]) -> None:
    parsed = parse_page(page(body, headers=headers.items()))
    assert parsed.metadata["flags"] == ["content_decoded"]
    assert parsed.metadata["content"]["title"] == "Title"
    assert [link.url for link in parsed.links] == ["https://www.example.com/x"]
    assert parsed.metadata["charset_detected"] == "UTF-8"


@pytest.mark.parametrize(
    ("body", "headers", "flags"),
    [
        (HTML, {"Content-Encoding": "gzip"}, ["coding_mismatch"]),
        (HTML, {"Content-Encoding": "br"}, ["coding_mismatch"]),
        (HTML, {"Content-Encoding": "utf-8"}, ["coding_mismatch"]),
        (HTML, {"Content-Encoding": "identity"}, None),
        (HTML, {"X-Crawler-Content-Encoding": "gzip"}, None),
        (gzip.compress(HTML), {"Content-Encoding": "br"}, ["coding_mismatch", "content_decoded"]),
        (gzip.compress(HTML), {}, ["coding_mismatch", "content_decoded"]),
        (gzip.compress(HTML), {"X-Crawler-Content-Encoding": "gzip"}, ["coding_mismatch", "content_decoded"]),
    ],
    ids=itertools.count(),
)
def test_headers_that_the_bytes_speak_against_are_flagged(
    body: bytes, headers: dict[str, str], flags: list[str] | None
) -> None:
    row = parse_page(page(body, headers=headers.items())).metadata
    assert (row["flags"], row["content"]["title"]) == (flags, "Title")


def test_arc_files_keep_headers_of_codings_that_were_taken_off() -> None:
    row = parse_page(page(HTML, headers=(("Content-Encoding", "gzip"),), archive_format="arc")).metadata
    assert (row["flags"], row["content"]["title"]) == (None, "Title")


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd"])
def test_a_coded_body_that_was_cut_gives_its_beginning(coding: str) -> None:
    # of one block a decoder gives nothing
    body = ENCODERS[coding](HTML + b"".join(b"<p>%d</p>" % (number * number) for number in range(60_000)))
    row = parse_page(page(body[: len(body) // 2], headers=(("Content-Encoding", coding),))).metadata
    assert (row["flags"], row["content"]["title"]) == (["coding_cut", "content_decoded"], "Title")


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd"])
def test_a_bomb_is_read_to_the_bound(coding: str) -> None:
    body = ENCODERS[coding](HTML + b"x" * 30_000_000)
    options = ParseOptions(limits=Limits(payload_bytes=100_000))
    parsed = parse_page(page(body, headers=(("Content-Encoding", coding),)), options)
    assert parsed.metadata["flags"] == ["content_decoded", "payload_cut"]
    assert parsed.text is not None
    assert len(parsed.text["text"]) < 100_000


FILES = {
    "application/pdf": b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n1 0 obj <</Type /Catalog>>",
    "image/png": b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR",
    "image/jpeg": b"\xff\xd8\xff\xe0\0\x10JFIF\0",
    "application/zip": b"PK\3\4\x14\0\x06\0\x08\0",
    "application/x-ole-storage": b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(20),
    "video/mp4": b"\0\0\0\x20ftypisom",
    "application/x-riff": b"RIFF\x10\0\0\0WEBPVP8 ",
    "application/octet-stream": bytes(range(256)) * 5,
}


@pytest.mark.parametrize("mime", ["text/html", "text/plain", "application/xml", None])
@pytest.mark.parametrize("kind", FILES)
def test_a_file_is_no_text_whatever_its_label(kind: str, mime: str | None) -> None:
    assert is_binary(FILES[kind], narrowed(FILES[kind]))
    parsed = parse_page(page(FILES[kind], mime=mime))
    assert "binary_content" in parsed.metadata["flags"]  # and what a reader of such files says of it
    assert parsed.metadata["disposition"] == "SUCCESS"
    assert "charset_detected" not in parsed.metadata
    assert parsed.links == ()
    assert parsed.text is None or not parsed.text["text"]


def test_the_detected_type_counts_where_the_bytes_agree() -> None:
    odd = b"junk before\r\n%PDF-1.4 \0\1\2 stream"
    assert "binary_content" in parse_page(page(odd, mime_detected="application/pdf")).metadata["flags"]
    assert parse_page(page("<p>plain", mime_detected="application/pdf")).metadata["parsed_as"] == "html"


@pytest.mark.parametrize(
    "text",
    [
        b"GIF pictures and PK fire starters",
        b"<p>\x1b$B$3$s\x1b(B",
        "<p>\u00dcberall".encode("utf-16"),
        "<p>plain ascii text without a mark".encode("utf-16-le"),
        b"a \0 lone zero in a text of some length, as servers leave them",
        b"",
    ],
    ids=itertools.count(),
)
def test_text_is_no_file(text: bytes) -> None:
    assert not is_binary(text, narrowed(text))
