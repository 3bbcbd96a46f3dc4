"""HTTP messages as servers sent them and crawlers stored them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cc_pipeline.archive import record as flag
from cc_pipeline.archive.http import media_type, parse_request, parse_response, split_fields
from cc_pipeline.archive.record import FLAGS

NAMES = st.text("abcXYZ019-_.", min_size=1, max_size=12)
VALUES = st.text(st.characters(min_codepoint=33, max_codepoint=255, exclude_characters="\x7f\x85\xa0"), max_size=20)


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("HTTP/1.1 200 OK", 200),
        ("HTTP/1.0 404", 404),
        ("HTTP/2 301 ", 301),
        ("HTTP/1.1  500 Two Blanks", 500),
        ("http/1.1 200 ok", 200),
        ("HTTP 200 OK", 200),
        ("ICY 200 OK", 200),
        ("HTTP/1.1 999 Odd", 999),
    ],
)
def test_status_lines(line: str, status: int) -> None:
    message = parse_response(f"{line}\r\nA: b\r\n\r\nbody".encode())
    assert (message.status, message.start_line, message.body, message.flags) == (status, line.strip(), b"body", ())


@pytest.mark.parametrize("line", ["HTTP/1.1", "HTTP/1.1 2000 No", "HTTP/1.1 20"])
def test_a_status_line_without_a_status(line: str) -> None:
    message = parse_response(f"{line}\r\nA: b\r\n\r\nbody".encode())
    assert (message.status, message.start_line, message.body) == (None, line, b"body")
    assert message.flags == (flag.NO_STATUS_LINE,)


NO_STATUS, LF, NO_END = (flag.NO_STATUS_LINE,), (flag.HTTP_LF_ONLY,), (flag.NO_HEADER_END,)
AB, ABCD = (("A", "b"),), (("A", "b"), ("C", "d"))


@pytest.mark.parametrize(
    ("block", "headers", "body", "flags"),
    [
        (b"Content-Type: a\r\nServer: x\r\n\r\nbody", (("Content-Type", "a"), ("Server", "x")), b"body", NO_STATUS),
        (b"<html>\n\n</html>", (), b"<html>\n\n</html>", NO_STATUS),
        (b"HTTP/1.1 200 OK\r\nA: b\r\nC: d\r\n", ABCD, b"", NO_END),
        (b"HTTP/1.1 200 OK\nA: b\n\nbody\r\n\r\nmore", AB, b"body\r\n\r\nmore", LF),
        (b"HTTP/1.1 200 OK\r\nA: b\nC: d\r\n\nbody", ABCD, b"body", ()),
        (b"HTTP/1.0 200 OK\r\n\r\nbody", (), b"body", ()),
        (
            b"HTTP/1.1 200 OK\r\nA: b\r\n c\r\nno colon\r\n: nameless\r\nD:\r\n\r\n",
            (("A", "b c"), ("", "no colon"), ("", ": nameless"), ("D", "")),
            b"",
            (flag.HTTP_FOLDED, flag.HTTP_MALFORMED_LINE),
        ),
    ],
)
def test_odd_messages(block: bytes, headers: object, body: bytes, flags: tuple[str, ...]) -> None:
    message = parse_response(block)
    assert (message.headers, message.body, message.flags) == (headers, body, flags)


def test_requests() -> None:
    assert parse_request(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").start_line == "GET / HTTP/1.1"
    assert parse_request(b"\x16\x03\x01binary").body == b"\x16\x03\x01binary"


@given(st.lists(st.tuples(NAMES, VALUES), max_size=20), st.sampled_from(["\r\n", "\n"]), st.binary(max_size=100))
def test_fields_keep_order_repetition_and_bytes(fields: list[tuple[str, str]], end: str, body: bytes) -> None:
    head = end.join(["HTTP/1.1 200 OK", *(f"{name}: {value}" for name, value in fields)])
    message = parse_response(head.encode("latin-1") + 2 * end.encode() + body)
    assert message.headers == tuple(fields)
    assert message.body == body


@given(st.binary(max_size=300))
def test_nothing_is_invented_or_lost_silently(block: bytes) -> None:
    message = parse_response(block)
    assert block.endswith(message.body)
    assert set(message.flags) <= set(FLAGS)
    lines = split_fields(block)
    kept = sum(len(name) + len(value) for name, value in lines.fields) + len(lines.first)
    assert kept <= len(block)


@pytest.mark.parametrize(
    ("value", "expected"),
    [("Text/HTML; charset=x", "text/html"), (" text/plain ", "text/plain"), (";x", None), ("", None), (None, None)],
)
def test_media_types(value: str | None, expected: str | None) -> None:
    assert media_type(value) == expected


@pytest.mark.parametrize(
    "interim", ["HTTP/1.1 100 Continue", "HTTP/1.1 103 Early Hints\r\nLink: </a.css>", "HTTP/1.1 102 P"]
)
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("status", [200, 302, 404])
def test_the_final_response_counts(interim: str, count: int, status: int) -> None:
    before = f"{interim}\r\n\r\n" * count
    message = parse_response(f"{before}HTTP/1.1 {status} X\r\nA: b\r\n\r\nbody".encode())
    assert (message.status, message.start_line, message.headers) == (status, f"HTTP/1.1 {status} X", (("A", "b"),))
    assert (message.body, message.flags) == (b"body", (flag.INTERIM,))


def test_an_interim_response_without_a_final_one_stays() -> None:
    message = parse_response(b"HTTP/1.1 100 Continue\r\n\r\nbody")
    assert (message.status, message.body, message.flags) == (100, b"body", ())
    nested = parse_response(b"HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 404 No\r\n\r\nbody")
    assert (nested.status, nested.body, nested.flags) == (200, b"HTTP/1.1 404 No\r\n\r\nbody", ())
