"""The host with the list of crawls is dead or wrong, and the source answers: what is known then, and what is asked."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cc_pipeline.checks.doctor import examine
from cc_pipeline.commoncrawl import crawls as packaged
from cc_pipeline.errors import EnvironmentFault, UserInputError
from cc_pipeline.harvesting.crawls import commit_crawls, crawls_are_listed, find_crawl, is_published, known_crawls
from cc_pipeline.settings import load_settings, source_addresses
from cc_pipeline.stores.answer import Timeouts
from cc_pipeline.transport.ranges import RetryPolicy
from cc_pipeline.workspace import crawl_list as collinfo
from cc_pipeline.workspace import workspace as workspaces
from cc_pipeline.workspace.crawl_list import read_crawl_list
from cc_pipeline.workspace.workspace import Workspace
from cc_pipeline_tests.faultserver import FaultServer, Rule
from cc_pipeline_tests.world import NEW, OLD, Bucket, closed_port, workspace_of

DEAD = ("refused", "503", "stall", "empty list", "html")
LATER = "CC-MAIN-2026-51"


@contextmanager
def dead_list(kind: str, folder: Path) -> Iterator[str]:
    """The address of a list on a host that fails in this way."""
    if kind == "refused":
        yield f"{closed_port()}/collinfo.json"
        return
    folder.mkdir()
    (folder / "collinfo.json").write_bytes({"html": b"<html>502 Bad Gateway</html>"}.get(kind, b"[]"))
    rules = [] if kind in ("empty list", "html") else [Rule(kind, times=None)]
    with FaultServer(folder, rules=rules) as server:
        yield f"{server.url}collinfo.json"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspaces, "_LIST_TIMEOUTS", Timeouts(0.3, 0.3, 0.3))


@pytest.fixture
def common_crawl(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loopback passes for Common Crawl's own host, and had these crawls at release."""
    monkeypatch.setattr(source_addresses, "_PUBLIC_HOST", "127.0.0.1")
    monkeypatch.setattr(packaged, "_WEEKS", "2018 05\n2024 22\n")


def heads(server: FaultServer) -> list[str]:
    return [hit.key for hit in server.hits if hit.method == "HEAD" or hit.key.endswith(".paths.gz")]


def with_copy(bucket: Path, home: Path, days: float) -> None:
    """A copy of the bucket's list in ``home``, read so many days ago."""
    copy = home / "cache" / "collinfo.json"
    copy.parent.mkdir(parents=True)
    copy.write_bytes((bucket / "collinfo.json").read_bytes())
    then = time.time() - days * 86_400
    os.utime(copy, (then, then))


@pytest.mark.parametrize("kind", ["refused", "html"])
def test_a_fresh_home_finds_a_crawl_by_its_name(bucket: Bucket, tmp_path: Path, kind: str) -> None:
    with dead_list(kind, tmp_path / "lists") as collinfo, FaultServer(bucket[0]) as server:
        workspace = workspace_of(server.url, tmp_path / "home", collinfo=collinfo)
        assert find_crawl(workspace, "2024-22").id == NEW
        assert is_published(workspace, NEW)
        with pytest.raises(EnvironmentFault, match="list of crawls"):
            known_crawls(workspace)
        # what was found once is not asked for again by the next command
        again = workspace_of(server.url, tmp_path / "home", collinfo=collinfo)
        assert find_crawl(again, NEW).id == NEW
    assert heads(server) == [f"crawl-data/{NEW}/cc-index-table.paths.gz"]


def test_absent_is_said_only_of_404_and_remembered_for_a_day(bucket: Bucket, tmp_path: Path) -> None:
    with FaultServer(bucket[0]) as server:
        for _ in range(2):
            workspace = workspace_of(server.url, tmp_path, collinfo=f"{closed_port()}/collinfo.json")
            with pytest.raises(UserInputError, match=f"{LATER}.*is not a crawl of") as refused:
                find_crawl(workspace, LATER)
        assert "(checked less than a minute ago); its list of crawls is not known" in str(refused.value)
        [noted] = (tmp_path / "cache" / "crawls").iterdir()
        noted.write_text(noted.read_text().replace('"at": "20', '"at": "19'))
        with pytest.raises(UserInputError):
            find_crawl(workspace, LATER)
    assert len(heads(server)) == 2, "again on another day"


def test_a_refusal_is_unknown_and_never_absent(bucket: Bucket, tmp_path: Path) -> None:
    with FaultServer(bucket[0], rules=[Rule("500", times=None)]) as server:
        for _ in range(2):
            workspace = workspace_of(server.url, tmp_path, collinfo=f"{closed_port()}/collinfo.json")
            with pytest.raises(EnvironmentFault, match=f"whether .* has {NEW}: .*500.*less than a min") as unsure:
                find_crawl(workspace, NEW)
        assert "next check is possible after" in str(unsure.value)
    assert len(heads(server)) == RetryPolicy().attempts, "what was found out is remembered"


def test_a_crawl_newer_than_the_list_is_found_and_listed_in_the_table(bucket: Bucket, tmp_path: Path) -> None:
    with FaultServer(bucket[0]) as server:
        lists = tmp_path / "lists"
        lists.mkdir()
        (lists / "collinfo.json").write_text(f'[{{"id": "{OLD}"}}]')
        workspace = workspace_of(server.url, tmp_path / "home", collinfo=str(lists / "collinfo.json"))
        assert find_crawl(workspace, NEW).id == NEW
        commit_crawls(workspace)
        assert workspace.lake.read("crawls").sort_by("crawl")["crawl"].to_pylist() == [OLD, NEW]
        assert [crawl.id for crawl in known_crawls(workspace).crawls] == [OLD], "newest and all mean the list"


@pytest.mark.parametrize("kind", DEAD)
@pytest.mark.usefixtures("impatient")
def test_an_old_copy_serves_everything_and_says_how_old_it_is(bucket: Bucket, tmp_path: Path, kind: str) -> None:
    home = tmp_path / "home"
    with_copy(bucket[0], home, 26.2)
    kept = (home / "cache" / "collinfo.json").read_bytes()
    with dead_list(kind, tmp_path / "lists") as collinfo, FaultServer(bucket[0]) as server:
        workspace = workspace_of(server.url, home, collinfo=collinfo)
        listed = known_crawls(workspace)
        assert (listed.origin, listed.crawls[0].id) == ("copy", NEW)
        assert listed.fault is not None, "a sensor must not take an old list for today's"
        assert "the copy from 26 days ago is used instead" in (listed.note or "")
        assert find_crawl(workspace, OLD).started is not None
        report = commit_crawls(workspace)
        assert (report.rows, report.notes) == (3, (listed.note,))
        assert crawls_are_listed(workspace), "no run is started to write the same again"
        listing, data = (finding for finding in examine(workspace.settings) if finding.topic == "source")
        assert (listing.level, "26 days ago" in listing.text) == ("note", True)
        assert (data.level, NEW in data.text) == ("ok", True)
    assert (home / "cache" / "collinfo.json").read_bytes() == kept, "what is no list never replaces the copy"


def test_a_dead_host_is_asked_once_in_a_while_by_all_commands(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    read = Workspace._download_crawl_list
    monkeypatch.setattr(Workspace, "_download_crawl_list", lambda self: asked.append("list") or read(self))
    with dead_list("503", tmp_path / "lists") as address, FaultServer(bucket[0]) as server:
        for _ in range(3):
            listed = workspace_of(server.url, tmp_path / "home", collinfo=address).crawl_list
            assert listed.origin == "none"
        assert "the next try is after" in (listed.note or "")
        assert len(asked) == 1
        failed = tmp_path / "home" / "cache" / "collinfo.failed.json"
        then = time.time() - collinfo._RETRY_AFTER.total_seconds() - 1
        os.utime(failed, (then, then))
        # nor does the failure of one list say anything of another
        assert workspace_of(server.url, tmp_path / "home", collinfo=address).crawl_list.origin == "none"
        assert len(asked) == 2
        there = workspace_of(server.url, tmp_path / "home", collinfo=f"{server.url}collinfo.json")
        assert there.crawl_list.origin == "list"
    assert not failed.exists()


@pytest.mark.usefixtures("common_crawl")
def test_what_was_known_at_release_serves_common_crawls_own_source(bucket: Bucket, tmp_path: Path) -> None:
    with FaultServer(bucket[0]) as server:
        workspace = workspace_of(server.url, tmp_path, collinfo=f"{closed_port()}/collinfo.json")
        listed = known_crawls(workspace)
        assert (listed.origin, [crawl.id for crawl in listed.crawls[:2]]) == ("release", [NEW, OLD])
        assert next(crawl.id for crawl in listed.crawls if crawl.era == "arc") == "CC-MAIN-2012"
        assert listed.read_at == packaged.LIST_COMPARED_ON
        for words in ("no copy of the list", f"{packaged.LIST_COMPARED_ON:%Y-%m-%d}", f"newer than {NEW}, name it"):
            assert words in (listed.note or "")
        assert commit_crawls(workspace).written == 5


@pytest.mark.parametrize(("days", "asked"), [(0.5, 0), (1.5, 1), (-3, 1)], ids=["fresh", "old", "of a wrong clock"])
def test_a_copy_counts_for_a_day(bucket: Bucket, tmp_path: Path, days: float, asked: int) -> None:
    with_copy(bucket[0], tmp_path / "home", days)
    settings = load_settings({}, source="https://data.commoncrawl.org", home=str(tmp_path / "home"))
    requests: list[int] = []

    def download() -> bytes:
        requests.append(1)
        return (bucket[0] / "collinfo.json").read_bytes()

    assert read_crawl_list(settings, download).origin == "list"
    assert len(requests) == asked
