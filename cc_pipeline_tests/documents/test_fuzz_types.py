"""Whatever a Content-Type says of whatever body: no text is lost without a flag, no file is read as text, and no mark
is part of a text. For ``CC_PIPELINE_FUZZ_SECONDS``, or some hundreds of answers."""

from __future__ import annotations

import random
import time

import pytest

from cc_pipeline.documents.page import ParseOptions
from cc_pipeline.documents.parse import parse_page
from cc_pipeline_tests import fuzzing
from cc_pipeline_tests.documents.pages import page
from cc_pipeline_tests.documents.typed_bodies import generate_answer, read_answer

_FEWEST = 600


def test_no_text_is_lost_without_a_flag() -> None:
    seed = random.randrange(1 << 32) if fuzzing.SECONDS else 46
    chance, until, count = random.Random(seed), time.monotonic() + fuzzing.SECONDS, 0
    while count < _FEWEST or time.monotonic() < until:
        count += 1
        answer = generate_answer(chance)
        reading = read_answer(answer)
        assert reading.excuses or not reading.lost, (seed, answer)
        assert answer.words or answer.body_kind not in ("png", "gif", "jpeg", "zip") or not reading.text, (seed, answer)
        assert not (reading.text or "").startswith("\ufeff"), (seed, answer)


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


@pytest.mark.parametrize("charset", ["utf-16", "utf-16-le", "utf-32"])
@pytest.mark.parametrize("mime", ["text/html", "text/plain", None])
def test_feeds_in_wide_characters_are_known_by_their_root(charset: str, mime: str | None) -> None:
    feed = "<rss version='2.0'><channel><title>News</title><item><title>One</title></item></channel></rss>"
    parsed = parse_page(page(feed.encode(charset), mime), ParseOptions(main_content=False))
    assert parsed.metadata["parsed_as"] == "feed"
    assert [item["title"] for item in parsed.feed_items] == ["One"]
