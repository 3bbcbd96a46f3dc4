"""Codings are undone only where headers name them and the bytes have them."""

from __future__ import annotations

import gzip
import zlib

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cc_pipeline.archive import arc, warc
from cc_pipeline.archive.record import ArchivedRecord, decoded_payload
from cc_pipeline.codings import dechunked
from cc_pipeline_tests.archive import builders

TEXT = b"<html>" + b"some text, and more of it. " * 200 + b"</html>"


def record(body: bytes, **headers: str) -> ArchivedRecord:
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return warc.read_record(builders.response(body, head=f"HTTP/1.1 200 OK\r\n{lines}\r\n".encode()), "s", 0)


def chunks(body: bytes, size: int = 1000) -> bytes:
    parts = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(f"{len(part):x}\r\n".encode() + part + b"\r\n" for part in parts) + b"0\r\n\r\n"


def bare_deflate(body: bytes) -> bytes:
    engine = zlib.compressobj(wbits=-15)
    return engine.compress(body) + engine.flush()


ENCODERS = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": lambda body: bytes(cramjam.brotli.compress(body)),
    "zstd": lambda body: bytes(cramjam.zstd.compress(body)),
}


@pytest.mark.parametrize("coding", list(ENCODERS))
def test_each_coding_alone_and_chunked(coding: str) -> None:
    body = ENCODERS[coding](TEXT)
    alone = decoded_payload(record(body, Content_Encoding=coding))
    assert (alone.body, alone.codings, alone.complete) == (TEXT, (coding,), True)
    both = decoded_payload(record(chunks(body, 50), Transfer_Encoding="chunked", Content_Encoding=coding.upper()))
    assert (both.body, both.codings, both.complete) == (TEXT, ("chunked", coding), True)


def test_bare_deflate_and_several_codings() -> None:
    assert decoded_payload(record(bare_deflate(TEXT), Content_Encoding="deflate")).body == TEXT
    twice = decoded_payload(record(gzip.compress(zlib.compress(TEXT), mtime=0), Content_Encoding="deflate, gzip"))
    assert (twice.body, twice.codings) == (TEXT, ("gzip", "deflate"))


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
@pytest.mark.parametrize("body", [TEXT, bytes(range(256)) * 2_000], ids=["small", "large"])
def test_a_wrong_checksum_loses_nothing(coding: str, body: bytes) -> None:
    """curl/curl#3796, nodejs/node#7502: browsers do not compare it."""
    coded = bytearray(ENCODERS[coding](body))
    coded[-8 if coding == "gzip" else -1] ^= 255
    damaged = decoded_payload(record(bytes(coded), Content_Encoding=coding))
    assert (damaged.body, damaged.codings, damaged.complete) == (body, (coding,), False)


@pytest.mark.parametrize("coding", [*ENCODERS, "compress", "identity", "", "none", "utf-8"])
def test_a_body_that_was_decoded_before_it_was_stored_stays_as_it_is(coding: str) -> None:
    plain = decoded_payload(record(TEXT, Content_Encoding=coding, Transfer_Encoding="chunked"))
    assert (plain.body, plain.codings, plain.complete) == (TEXT, (), True)


def test_bytes_that_look_encoded_without_a_header_stay_as_they_are() -> None:
    body = gzip.compress(TEXT, mtime=0)
    assert decoded_payload(record(body, Content_Type="application/gzip")).body == body


def test_an_arc_record_of_2012_is_not_decoded_twice() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding:gzip\r\nTransfer-Encoding:chunked\r\n\r\n"
    found = decoded_payload(arc.read_record(builders.arc(head + TEXT), "s", 0))
    assert (found.body, found.codings) == (TEXT, ())


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_a_truncated_body_gives_its_beginning(coding: str) -> None:
    body = ENCODERS[coding](bytes(range(256)) * 300)
    found = decoded_payload(record(body[: len(body) // 2], Content_Encoding=coding))
    assert found.body
    assert (bytes(range(256)) * 300).startswith(found.body)
    assert (found.codings, found.complete) == ((coding,), False)


@pytest.mark.parametrize("coding", ["br", "zstd"])
def test_a_truncated_body_gives_its_beginning_where_the_decoder_does_not_say_how_much(coding: str) -> None:
    text = b"".join(b"<p>%d</p>" % number for number in range(60_000))
    body = ENCODERS[coding](text)
    found = decoded_payload(record(body[: len(body) // 2], Content_Encoding=coding))
    assert len(found.body) > 10_000
    assert text.startswith(found.body)
    assert (found.codings, found.complete) == ((coding,), False)
    bounded = decoded_payload(record(body, Content_Encoding=coding), limit=5_000)
    assert (bounded.body, bounded.complete) == (text[:5_000], False)


@pytest.mark.parametrize("coding", list(ENCODERS))
def test_the_bound_holds(coding: str) -> None:
    found = decoded_payload(record(ENCODERS[coding](bytes(1 << 20)), Content_Encoding=coding), limit=10_000)
    if coding in ("br", "zstd"):  # zeros cannot be told from what was not written: then the body stays as stored
        assert found.codings == ()
    else:
        assert (found.body, found.complete) == (bytes(10_000), False)


@pytest.mark.parametrize(
    "body", [b"", b"5\r\nhel", b"5\r\nhelloX0\r\n\r\n", b"x\r\nhello", b"-5\r\nhello\r\n0\r\n\r\n"]
)
def test_what_is_not_chunked_throughout(body: bytes) -> None:
    assert dechunked(body) is None


@given(st.binary(max_size=400), st.sampled_from([*ENCODERS]), st.booleans(), st.integers(0, 400))
def test_nothing_raises_and_nothing_grows_beyond_the_bound(body: bytes, coding: str, chunked: bool, cut: int) -> None:
    headers = {"Content_Encoding": coding} | ({"Transfer_Encoding": "chunked"} if chunked else {})
    for stored in (body, ENCODERS[coding](body)[:cut]):
        found = decoded_payload(record(stored, **headers), limit=100)
        assert found.body == stored or len(found.body) <= max(100, len(stored))
