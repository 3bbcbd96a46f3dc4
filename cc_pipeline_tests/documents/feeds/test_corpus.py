"""Our feed reader against what feedparser's and gofeed's own tests expect."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from cc_pipeline.documents.charset import decode
from cc_pipeline.documents.feeds.rows import parse_feed
from cc_pipeline.documents.html.urls import resolve_reference
from cc_pipeline.documents.page import Limits
from cc_pipeline_tests.corpus import CORPUS, needs_corpus
from cc_pipeline_tests.documents.feeds.feedparser_expect import OutOfSchema, expectation, holds
from cc_pipeline_tests.documents.feeds.gofeed_twins import feed_differences, item_differences

FEEDS = CORPUS / "feeds"
#: CDF is another format (Microsoft's, 1997); these folders ask for what no RSS or Atom element says.
_OTHER_FORMATS = {"cdf"}
_CONTENT_LOCATION = re.compile(rb"Content-Location:\s*(\S+)")
_SHARE = 0.97


def _wellformed() -> Iterator[tuple[Path, bytes, str]]:
    for path in sorted((FEEDS / "feedparser" / "wellformed").glob("**/*.xml")):
        data = path.read_bytes()
        expected = expectation(data)
        if expected is not None and path.parent.name not in _OTHER_FORMATS:
            yield path, data, expected


@needs_corpus
def test_feedparser_expectations() -> None:
    wrong, right = [], 0
    for path, data, expected in _wellformed():
        base = "http://127.0.0.1:8097/tests/wellformed/base/feed.xml"
        if header := _CONTENT_LOCATION.search(data):
            base = resolve_reference(base, header.group(1).decode())
        try:
            same = holds(expected, parse_feed(decode(data).text, Limits(), base))
        except (OutOfSchema, SyntaxError):
            continue
        except (AssertionError, IndexError, StopIteration, TypeError):
            same = False
        right += same
        if not same:
            wrong.append(f"{path.parent.name}/{path.name}: {expected}")
    assert right > 250
    assert right / (right + len(wrong)) >= _SHARE, "\n".join(wrong)


@needs_corpus
@pytest.mark.parametrize("part", ["items", "feed"])
def test_gofeed_twins(part: str) -> None:
    wrong, right = [], 0
    for kind in ("parser/atom", "parser/rss", "translator/atom", "translator/rss"):
        for twin in sorted((FEEDS / "gofeed" / kind).glob("*.json")):
            source = twin.with_suffix(".xml")
            if not source.exists():
                continue
            feed = parse_feed(decode(source.read_bytes()).text, Limits())
            assert feed is not None, source.name
            compare = item_differences if part == "items" else feed_differences
            differences = compare(feed, json.loads(twin.read_text(encoding="utf-8")), kind)
            right += not differences
            if differences:
                wrong.append(f"{kind}/{source.name}: {differences}")
    assert right > 150
    assert right / (right + len(wrong)) >= _SHARE, "\n".join(wrong)
