"""Reports from Python."""

from __future__ import annotations

from pathlib import Path

import pytest

import cc_pipeline
from cc_pipeline.errors import UserInputError
from cc_pipeline.extensions.reports.api import report
from cc_pipeline.settings import Settings
from cc_pipeline_tests.publish.conftest import SITE
from cc_pipeline_tests.world import NEW, OLD


def test_words_and_pages_about_a_target(asked_home: Settings, tmp_path: Path) -> None:
    home = cc_pipeline.open(asked_home.home, source=asked_home.source, quiet=True)
    assert report(home, SITE, tmp_path / "page.html") == [tmp_path / "page.html"]
    assert SITE in (tmp_path / "page.html").read_text("utf-8")
    lines = tmp_path / "sites.txt"
    lines.write_text(f"# one\n{SITE}\n", "utf-8")
    [page] = report(home, f"@{lines}", between=(OLD, NEW))
    assert page.is_relative_to(home.settings.home) and SITE in page.read_text("utf-8")
    with pytest.raises(UserInputError, match="several targets"):
        report(home, [SITE, "example.org"], tmp_path / "two.html")
