"""What a search for one page says when it finds none."""

from __future__ import annotations

from pathlib import Path

import pytest

from cc_pipeline.commoncrawl.crawls import known_at_release
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.extraction import nearest_capture
from cc_pipeline.extraction.nearest_capture import CrawlLookup, NoSuchCapture, find_nearest_capture
from cc_pipeline_tests.world import Bucket, workspace_of


@pytest.mark.parametrize(
    ("captures", "problem", "advice"),
    [
        (0, "no capture of http://example.com/ was found in", "Check the spelling of the address"),
        (2, "the index lists 2 captures of http://example.com/, but no record of them could be used", "later"),
    ],
)
def test_captures_that_cannot_be_used_are_not_called_absent(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, captures: int, problem: str, advice: str
) -> None:
    workspace = workspace_of(bucket[0], tmp_path / "home")
    monkeypatch.setattr(
        nearest_capture, "_search_crawl", lambda workspace, crawl, *_: (None, CrawlLookup(crawl, captures, "damaged"))
    )
    with pytest.raises(NoSuchCapture) as raised:
        find_nearest_capture(workspace, parse_target("url:http://example.com/"), None, crawls=known_at_release()[:1])
    assert problem in raised.value.problem and advice in str(raised.value.advice)
    workspace.close()
