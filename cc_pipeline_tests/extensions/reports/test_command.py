"""A page, where asked for, by the command and from Python."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import cc_pipeline
from cc_pipeline.errors import UserInputError
from cc_pipeline.extensions.reports.api import report
from cc_pipeline.extensions.reports.page import INVENTED_WEB
from cc_pipeline.settings import Settings
from cc_pipeline_tests.cli.conftest import Cli, World
from cc_pipeline_tests.publish.conftest import SITE
from cc_pipeline_tests.world import NEW, OLD


@pytest.mark.xdist_group("cli published")
def test_a_report_says_what_is_missing_and_why(cli: Cli, world: World, tmp_path: Path) -> None:
    page = tmp_path / "folder" / "example.html"
    home = shutil.copytree(world.untouched, tmp_path / "home")
    said = cli("report", "example.com", "--out", page, "--home", home)
    assert (said.status, said.out.strip(), said.err) == (0, str(page), "")
    text = page.read_text("utf-8")
    assert text.startswith("<!doctype html>")
    assert INVENTED_WEB in text
    assert "<summary>Why records are not fetched: 1 reason</summary>" in text
    assert f'href="{world.damaged.url}"' in text
    assert [*page.parent.iterdir()] == [page]
    # one of the two alone is an error, so the help tells no default for it
    assert "give both" in cli("report", "example.com", "--from", NEW, "--home", home).told
    shown = cli("report", "--help").shown
    assert "With --to: the earlier" in shown and "With --from: the later" in shown


@pytest.mark.xdist_group("questions")
def test_pages_from_python(asked_home: Settings, tmp_path: Path) -> None:
    home = cc_pipeline.open(asked_home.home, source=asked_home.source, quiet=True)
    assert report(home, SITE, tmp_path / "page.html") == [tmp_path / "page.html"]
    assert SITE in (tmp_path / "page.html").read_text("utf-8")
    lines = tmp_path / "sites.txt"
    lines.write_text(f"# one\n{SITE}\n", "utf-8")
    [page] = report(home, f"@{lines}", between=(OLD, NEW))
    assert page.is_relative_to(home.settings.home) and SITE in page.read_text("utf-8")
    with pytest.raises(UserInputError, match="several targets"):
        report(home, [SITE, "example.org"], tmp_path / "two.html")
