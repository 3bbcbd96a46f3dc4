"""Whatever a Content-Type says of whatever body: no text is lost without a flag, no file is read as text, and no mark
is part of a text."""

from __future__ import annotations

import random

import pytest
from hypothesis import strategies as st

from cc_pipeline.documents.page import ParseOptions
from cc_pipeline.documents.parse import parse_page
from cc_pipeline_tests.documents.pages import page
from cc_pipeline_tests.documents.typed_bodies import generate_answer
from cc_pipeline_tests.fuzzing import fuzz

_OPTIONS = ParseOptions(main_content=False, language=False, text_simhash=False)
#: Flags that say why a body, or a part of it, was not read.
_EXCUSES = frozenset("text_unread binary_content feed_unreadable feed_malformed xml_malformed xml_unreadable".split())


@fuzz(600, seed=st.integers(0, 1 << 32))
def test_no_text_is_lost_without_a_flag(seed: int) -> None:
    answer = generate_answer(random.Random(seed))
    parsed = parse_page(answer.page, _OPTIONS)
    text = parsed.text or {}
    rows = [text.get("title"), text.get("text"), *(link.url for link in parsed.links)]
    read = " ".join(row for row in rows if row)
    assert all(word in read for word in answer.words) or _EXCUSES & {*(parsed.metadata.get("flags") or ())}
    assert answer.words or answer.body_kind not in ("png", "gif", "jpeg", "zip") or not text.get("text")
    assert not (text.get("text") or "").startswith("\ufeff")


@pytest.mark.parametrize(
    ("mime", "body", "flags"),
    [
        ("image/png", "<html><p>words", ["text_unread"]),
        ("application/octet-stream", "words", ["text_unread"]),
        ("application/pdf", "\ufeffwords", ["text_unread"]),
        ("application/javascript", "<!DOCTYPE html><p>words", ["text_unread"]),
        ("application/javascript", "let words = 1 < 2", None),
        ("text/css", "p { color: red }", None),
        ("image/png", "\ufeff \r\n", None),
        ("image/png", "\x89PNG\r\n\x1a\n\0\0", None),
        ("application/json", '{"count": 1}', None),
    ],
)
def test_text_under_types_that_are_not_read_is_flagged(mime: str, body: str, flags: list[str] | None) -> None:
    for charset in ("utf-8", "utf-16"):
        payload = body.encode("latin-1") if body.startswith("\x89") else body.encode(charset)
        parsed = parse_page(page(payload, mime))
        assert parsed.metadata["flags"] == flags
        assert parsed.text is None
