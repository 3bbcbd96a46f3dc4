"""Lists of targets wherever targets go, typos, and a run that says what it did itself."""

from __future__ import annotations

import io
import json
import re
import shutil
import sys
from pathlib import Path

import duckdb
import pytest

from cc_pipeline.api.user_input import expand_lists, read_targets
from cc_pipeline.cli.output import console, console_err
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.defs.home_namespace import OWN_HOME
from cc_pipeline.defs.instance import open_instance
from cc_pipeline.errors import UserInputError
from cc_pipeline.settings import load_settings
from cc_pipeline_tests.cli.conftest import NEW, OLD, Cli, World

pytestmark = pytest.mark.xdist_group("cli")


def slugs(given: list[str]) -> list[str]:
    return [target.slug for target in read_targets(given)]


def test_a_list_in_a_file_or_a_pipe_is_the_same_as_its_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "members.txt").write_text("b.org\nc.org\n", "utf-8")
    file = tmp_path / "sites.txt"
    file.write_text("\ufeff# ours\nexample.com\n\nhost:www.example.org  # one host\nset:few = @members.txt\n", "utf-8")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("example.net\nmünchen.de\n".encode())))
    found = read_targets(["example.com", f"@{file}", "-", "EXAMPLE.net"])
    assert [target.slug for target in found] == [
        "example.com", "host_www.example.org", "set-few", "example.net", "xn--mnchen-3ya.de"
    ]  # fmt: skip
    # files of sets lie beside the list
    assert [member.slug for member in found[2].members] == ["b.org", "c.org"]
    assert expand_lists(["set:few", f"@{file}"])[:3] == ["set:few", "example.com", "host:www.example.org"]


def test_wrong_lines_are_named_with_their_numbers(tmp_path: Path) -> None:
    file = tmp_path / "sites.txt"
    file.write_text("example.com\ntwo words\n# x\nset:a = b.org\nset:a = c.org\nexample.og\n", "utf-8")
    with pytest.raises(UserInputError) as refused:
        read_targets([f"@{file}"])
    words = str(refused.value)
    assert [f"{file}, line {number}: " in words for number in range(1, 7)] == [False, True, False, False, True, True]
    file.write_text("# nothing\n", "utf-8")
    with pytest.raises(UserInputError, match="names no target"):
        read_targets([f"@{file}"])
    file.write_bytes(b"example.com\n\xff\n")
    with pytest.raises(UserInputError, match="line 2 is not UTF-8"):
        read_targets([f"@{file}"])
    with pytest.raises(UserInputError, match="cannot be read"):
        read_targets(["@no-such-file.txt"])


@pytest.mark.parametrize(
    ("typed", "guess"), [("example.og", "example.org"), ("example.cmo", "example.com"), ("exmple.ogr", "exmple.org")]
)
def test_a_suffix_that_nobody_sells_is_a_typo_unless_it_is_meant(typed: str, guess: str) -> None:
    with pytest.raises(UserInputError, match=rf"did you mean {guess}\?.* no known top-level .* write domain:{typed}"):
        read_targets([typed])
    assert slugs([f"domain:{typed}"]) == [typed]
    assert slugs([f"host:www.{typed}", "192.0.2.17", "example.co.uk"])[1:] == ["192.0.2.17", "example.co.uk"]


def test_a_name_without_captures_is_guessed(cli: Cli, world: World, tmp_path: Path) -> None:
    home = shutil.copytree(world.untouched, tmp_path / "home")
    said = cli("lookup", "exmaple.com", "-c", NEW, "--home", home)
    assert said.status == 1
    assert f"error: the index of {NEW} lists no capture of exmaple.com (did you mean example.com?)" in said.told
    assert cli("lookup", "exmaple.com", "--count", "-c", NEW, "--home", home).status == 1
    mixed = cli("lookup", "example.com", "exmaple.com", "-c", NEW, "--home", home)
    assert "no captures of exmaple.com (did you mean example.com?)" in mixed.told


def test_a_run_says_what_it_did_itself(cli: Cli, world: World, tmp_path: Path) -> None:
    home = shutil.copytree(world.untouched, tmp_path / "home")
    file = tmp_path / "sites.txt"
    file.write_text("example.com\nexmaple.com\nset:duo = example.org, nothing-here.org, no-such.net\n", "utf-8")
    assert cli("targets", "add", "host:www.example.com", "exmaple.net", "--home", home).status == 0
    asked = ("run", "-c", NEW, f"@{file}", "--watched", "--source", world.bucket, "--home", home)
    first = cli(*asked)
    assert first.status == 0
    lines = [re.split(" {2,}", line) for line in first.out.splitlines() if line.startswith(NEW)]
    report = {cells[1].partition(" ")[0]: cells[2:] for cells in lines}
    assert (report["example.com"][0], report["example.com"][2:]) == ("same", ["0", "0", "1"])  # one record is damaged
    assert report["host:www.example.com"][0] == report["set:duo"][0] == "new"
    assert report["exmaple.com"][:2] == ["new", "0"]
    assert int(report["set:duo"][1]) == int(report["set:duo"][2]) > 0
    assert "so this home does not keep them: exmaple.com (did you mean example.com?)\n" in first.out
    assert "captures of 2 of 3 members of set-duo: no-such.net; nothing-here.org.\n" in first.out
    assert "crawldiagnostics and robotstxt were not requested" in " ".join(first.shown.split())
    sites = ("example.com", "example.org")
    here = [c for site in sites for c in world.truth.captures_of(NEW, subset="warc", domain=site)]
    assert f"1 of {len(here):,} captures" in first.shown, "a capture of several targets counts once"
    assert "page_text" not in first.out
    with duckdb.connect(str(home / "cc.duckdb"), read_only=True) as published:
        kept = "SELECT slug FROM targets WHERE slug LIKE 'exma%' UNION SELECT target FROM lookups WHERE captures = 0"
        assert published.execute(kept).fetchall() == [("exmaple.net",)], "what is on the watch list stays"
    with open_instance(load_settings({}, home=str(home))) as instance:
        assert not instance.has_dynamic_partition("target", "exmaple.com")
        assert instance.has_dynamic_partition("target", "exmaple.net")
    nothing = cli("run", "-c", NEW, "exmaple.net", "--format", "json", "--home", home)
    assert (nothing.status, json.loads(nothing.out)["lost"]) == (1, 0), "a row and nothing else"
    assert nothing.told.endswith("error: found in none of the crawls: exmaple.net")
    watched = cli("run", "-c", NEW, "exmaple.ne", "--home", home).out
    assert ": exmaple.ne (did you mean exmaple.net?)\n" in watched
    again = cli(*asked, "--details")
    states = [re.split(" {2,}", line)[2] for line in again.out.splitlines() if line.startswith(NEW)]
    assert sorted(states[:5]) == ["new", *["same"] * 4], "what was not kept is asked for again"
    assert "page_text" in again.out and "planned  fetched  pending  lost" in again.out


@pytest.mark.process
def test_a_range_is_made_crawl_by_crawl(
    cli: Cli, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for screen in (console, console_err):  # so that no address is broken
        monkeypatch.setattr(screen, "_width", 200)
    home = tmp_path / "home"
    new = {capture.url_surtkey for capture in world.truth.captures_of(NEW)}
    old = next(c for c in world.truth.captures_of(OLD, subset="warc", domain="example.com") if c.url_surtkey not in new)
    only_old = f"url:{old.url}"
    place = ("--source", world.bucket, "--home", home)
    named = [only_old, "exmaple.com"]
    said = cli("run", "-c", "2018..2024", *named, *place)
    assert said.status == 0, said.err
    assert "CC-MAIN-2018-05; harvesting the indexes of 2 crawls takes at most some 600 requests" in said.told
    [first, second, titles, found, absent, *_] = said.out.splitlines()
    assert first.startswith(f"1 of 2  {NEW}: 0 of 2 targets, 0 captures, 0 new, "), "the newest first"
    assert second.startswith(f"2 of 2  {OLD}: 1 of 2 targets, 1 capture, 1 new, ")
    assert titles.split() == ["target", "crawls", "captures", "new", "pending", "lost"]
    assert found.split() == [only_old, "1", "1", "1", "0", "0"]
    assert absent.endswith("1 new target, so this home does not keep them: exmaple.com")
    with open_instance(load_settings({}, home=str(home))) as instance:
        made = instance.fetch_materializations(OWN_HOME.key("warehouse"), limit=9).records
    assert len(made) == 2, "at once where there was none, and at the end"
    with duckdb.connect(str(home / "cc.duckdb"), read_only=True) as published:
        asked = "SELECT crawl, count(*) FROM ledger GROUP BY ALL"
        here = [c for c in world.truth.captures_of(OLD, subset="warc") if c.url_surtkey == old.url_surtkey]
        assert published.execute(asked).fetchall() == [(OLD, len(here))]
        assert published.execute("SELECT slug FROM targets").fetchall() == [(parse_target(only_old).slug,)]
