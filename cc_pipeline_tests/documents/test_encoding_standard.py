"""Decoding and the queries of links are those of the standards: no byte sequence and no character differs."""

from __future__ import annotations

import json

import pytest

from cc_pipeline.documents.charset import decode, decode_as
from cc_pipeline.documents.html.urls import browser_resolver
from cc_pipeline_tests.documents.encoding_standard import DIGESTS, ENCODINGS, decoded_digests, link_digest

_EXPECTED: dict[str, dict[str, str]] = json.loads(DIGESTS.read_text())
#: Encodings with characters beyond the Basic Multilingual Plane, one with states, and one of the many that have
#: references alone.
_BEYOND = ("Big5", "gb18030", "ISO-2022-JP", "windows-1252")


def _decode(data: bytes, name: str) -> str:
    return decode_as(data, name)[0]


def _resolve(address: str, name: str) -> str:
    return browser_resolver("http://example.com/", name)(address)[0] or ""


@pytest.mark.parametrize("name", ENCODINGS)
def test_every_byte_sequence_is_read_as_the_standard_says(name: str) -> None:
    digests = decoded_digests(name, _decode)
    assert digests == {kind: _EXPECTED[name][kind] for kind in digests}


@pytest.mark.parametrize("name", ENCODINGS)
def test_every_character_in_a_query_is_written_in_the_page_s_charset(name: str) -> None:
    assert link_digest(name, _resolve, beyond=False) == _EXPECTED[name]["links"]


@pytest.mark.parametrize("name", _BEYOND)
def test_characters_beyond_the_basic_plane_are_written_so_too(name: str) -> None:
    assert link_digest(name, _resolve, beyond=True) == _EXPECTED[name]["links_beyond"]


@pytest.mark.parametrize(
    ("payload", "label", "text", "clean"),
    [
        (b"\xad\xa1\xad\xd5", "euc-jp", "\u2460\u33c4", True),
        (b"\x1b$B-!-U\x1b(B", "iso-2022-jp", "\u2460\u33c4", True),
        (b"\x88\x62\x88\xa5", "big5", "\u00ca\u0304\u00ea\u030c", True),
        (b"\x80", "gb2312", "\u20ac", True),
        (b"\xae\xbe", "koi8-u", "\u045e\u040e", True),
        (b"\xca", "windows-1255", "\u05ba", True),
        (b"A\x80\xff", "x-user-defined", "A\uf780\uf7ff", True),
        (b"<p>x", "replacement", "\ufffd", False),
        # the escape is no escape, and its other bytes are katakana
        (b"\x1b(I\x1b(X", "iso-2022-jp", "\ufffd\uff68\uff98", False),
        # a byte of a character that is none is read again
        (b"\x81<p>", "shift_jis", "\ufffd<p>", False),
        (b"\xd8\x00a\x00", "utf-16be", "\ufffd\u6100", False),
    ],
)
def test_characters_that_codecs_of_python_lack_or_lose(payload: bytes, label: str, text: str, clean: bool) -> None:
    assert decode(payload, label)[::3] == (text, clean)
