"""``cc-pipeline report``: a page, where asked for."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest

from cc_pipeline_tests.cli.conftest import NEW, Cli, World

pytestmark = pytest.mark.xdist_group("cli published")


def test_a_report_says_what_is_missing_and_why(cli: Cli, world: World, tmp_path: Path) -> None:
    page = tmp_path / "folder" / "example.html"
    home = shutil.copytree(world.untouched, tmp_path / "home")
    said = cli("report", "example.com", "--out", page, "--home", home)
    assert (said.status, said.out.strip(), said.err) == (0, str(page), "")
    text = page.read_text("utf-8")
    assert text.startswith("<!doctype html>")
    assert "<summary>Why records are not here: 1 reason</summary>" in text
    assert f'href="{world.damaged.url}"' in text
    assert [*page.parent.iterdir()] == [page]


def test_by_default_it_lies_in_the_home(cli: Cli, world: World) -> None:
    said = cli("report", "example.com", "--home", world.home)
    page = world.home / "reports" / "example.com.html"
    assert said.out.strip() == str(page)
    assert page.stat().st_size > 10_000


def test_a_list_is_read_by_its_lines(cli: Cli, world: World, tmp_path: Path) -> None:
    (tmp_path / "sites.txt").write_text("# ours\n\nexample.com  # the first\n")
    said = cli("report", f"@{tmp_path / 'sites.txt'}", "--home", world.home)
    assert said.status == 0, said.err
    assert [Path(line).name for line in said.out.split()] == ["example.com.html"]
    (tmp_path / "sites.txt").write_text("example.com\nexample.org\n")
    said = cli("report", f"@{tmp_path / 'sites.txt'}", "--out", "x.html", "--home", world.home)
    assert (said.status, said.err.startswith("error: --out names one file")) == (1, True)


@pytest.mark.parametrize("target", ["set:six", "host:www.example.net", "url:http://example.com/it's"])
def test_what_it_says_of_a_target_that_nobody_looked_for_can_be_typed(
    cli: Cli, world: World, tmp_path: Path, target: str
) -> None:
    home = shutil.copytree(world.untouched, tmp_path / "home")
    said = cli("report", target, "--home", home)
    assert (said.status, said.out) == (1, "")
    [hint] = re.findall(r"cc-pipeline .*", " ".join(said.err.split()))
    _, *typed = shlex.split(hint)
    assert (typed[0], *typed[2:]) == ("run", "--crawl", "newest")
    assert cli("plan", typed[1], "-c", NEW, "--home", home).status == 0, typed
