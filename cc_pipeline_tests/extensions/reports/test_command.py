"""``cc-pipeline report``: a page, where asked for."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest

from cc_pipeline_tests.cli.conftest import NEW, OLD, Cli, World

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
    assert (said.status, said.err.startswith("error: out names one file")) == (1, True)


def test_changes_are_said_and_written_alike(cli: Cli, rich: Path, tmp_path: Path) -> None:
    asked = ("report", "example.com", "--format", "text", "--from", OLD, "--to", NEW, "--home", rich)
    said = cli(*asked)
    assert (said.status, said.err) == (0, "")
    title, counts, *rest = said.out.splitlines()
    assert title == f"example.com from {OLD} to {NEW}"
    assert counts.startswith("pages: "), "the summary comes first"
    assert len(rest) < 50 and not any(line.startswith("  ") for line in rest), "a line a page, and the first ones"
    out = tmp_path / "changes.txt"
    assert cli(*asked, "--out", out).out.strip() == str(out)
    assert out.read_text("utf-8") == said.out
    every = cli(*asked, "--details").out
    assert every.startswith(said.out) and every.endswith(f"\n{counts}\n")
    assert "\n== example.com\n" in every and "\n  captured " in every


def test_changes_that_cannot_be_told_say_what_to_do(cli: Cli, rich: Path, tmp_path: Path) -> None:
    said = cli("report", "example.com", "--format", "text", "--from", NEW, "--to", OLD, "--home", rich)
    assert said.status == 1 and f"write --from {OLD} --to {NEW}" in " ".join(said.err.split())
    said = cli("report", "set:x", "--format", "text", "--from", OLD, "--to", NEW, "--home", tmp_path / "new")
    assert said.status == 1
    hint = f"cc-pipeline run 'set:x = example.com, example.org' --crawl {OLD} --crawl {NEW}"
    assert hint in " ".join(said.err.split())


def test_its_help_has_examples(cli: Cli) -> None:
    assert "Examples" in cli("report", "--help").out


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
