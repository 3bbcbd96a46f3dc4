"""What the first commands of a new home request of a front with Common Crawl's manners, and say of a network that does
not let them through."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from cc_pipeline.testing.mini_crawl.generate import ensure
from cc_pipeline.testing.mini_crawl.spec import TEST
from cc_pipeline.testing.mini_crawl.truth import MiniCrawlTruth
from cc_pipeline.workspace import crawl_list
from cc_pipeline_tests.cli.conftest import NEW, Cli
from cc_pipeline_tests.faultserver import FaultServer
from cc_pipeline_tests.frontmanners import CLOUDFRONT
from cc_pipeline_tests.lab import DATA, INDEX, PROXY, common_crawl_lab, why_no_lab
from cc_pipeline_tests.world import announce, closed_port, copy_of

Bucket = tuple[Path, MiniCrawlTruth]
#: More index files than are harvested for one target, so that the URL index is asked.
_FILES = 40


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bucket whose newest crawl has so many index files as to make a harvest dear."""
    newest, *others = TEST.crawls
    root = tmp_path_factory.mktemp("large") / "bucket"
    ensure(root, replace(TEST, crawls=(replace(newest, parts=_FILES), *others)))
    return root


@pytest.fixture
def requests_of(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Calls a command against a server; gives its requests as ``METHOD last-part-of-the-key``."""

    def call(server: FaultServer, home: Path, *words: str) -> list[str]:
        # the list of crawls is kept for a day, as the public one is
        monkeypatch.setattr(crawl_list, "DEFAULT_COLLINFO", f"{server.url}collinfo.json")
        before = len(server.hits)
        said = cli(*words, "--source", server.url, "--home", home)
        assert said.status == 0, said.told
        return [f"{hit.method} {hit.key.rpartition('/')[2]}" for hit in server.hits[before:]]

    return call


def test_a_listed_crawl_is_found_by_its_path_list(
    requests_of: Callable[..., list[str]], bucket: Bucket, tmp_path: Path
) -> None:
    root = copy_of(bucket[0], tmp_path / "bucket")
    announce(root)
    with FaultServer(root, manners=replace(CLOUDFRONT, latency=0.0)) as server:
        first, second, third = (
            requests_of(server, tmp_path / "home", "lookup", domain, "-c", "newest")
            for domain in ("example.org", "example.com", "example.com")
        )
    # the newest is announced and not published: its list is asked for once more by each command
    lists = ["GET cc-index-table.paths.gz"]
    assert first == ["GET collinfo.json", *lists * 2, *["GET cluster.idx"] * 2, "GET cdx-00001.gz"]
    assert second == third == [*lists, "GET cluster.idx", "GET cdx-00000.gz", "GET cdx-00001.gz"]


@pytest.mark.process
def test_a_run_reads_the_path_list_once(requests_of: Callable[..., list[str]], large: Path, tmp_path: Path) -> None:
    with FaultServer(large, manners=replace(CLOUDFRONT, latency=0.0)) as server:
        first, second, third = (
            requests_of(server, tmp_path / "home", "run", domain, "-c", "newest")
            for domain in ("example.org", "example.com", "example.com")
        )
    assert {*first, *second} & {"HEAD cc-index-table.paths.gz", "HEAD cluster.idx"} == set()
    assert [first.count("GET cc-index-table.paths.gz"), second.count("GET cc-index-table.paths.gz")] == [1, 1]
    assert (len(first), len(second), len(third)) == (7, 6, 0)


@pytest.mark.process
def test_all_crawls_go_on_behind_one_that_is_only_announced(cli: Cli, bucket: Bucket, tmp_path: Path) -> None:
    root = copy_of(bucket[0], tmp_path / "bucket")
    (root / "crawl-data" / "CC-MAIN-2018-05" / "cc-index-table.paths.gz").unlink()
    said = cli("run", "-c", "all", "example.org", "--yes", "--source", root, "--home", tmp_path / "home")
    assert said.status == 0, said.told
    assert "CC-MAIN-2018-05 is announced but not published yet, so it is skipped" in said.told
    assert NEW in said.told


NOWHERE = "http://data.cc-pipeline.invalid"


@contextmanager
def network(status: int) -> Iterator[str]:
    """A proxy, or a network in front of the source, that answers everything itself with HTML."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            page = b"<!DOCTYPE html><title>Please sign in</title>"
            self.send_response(status)
            self.send_header("Content-Length", str(len(page)))
            self.end_headers()
            self.wfile.write(page)

        do_CONNECT = do_GET

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def crawls(cli: Cli, home: Path, source: str) -> str:
    said = cli("crawls", "--source", source, "--home", home)
    assert said.status == 1
    return said.told


@pytest.mark.parametrize(
    ("cause", "advice"),
    [
        ("a proxy with a password", "answers with status 407) after 2 attempts) what to do: Check HTTPS_PROXY"),
        ("a proxy with a password before https", "answers with status 407) after 2 attempts) what to do: Check HTTPS"),
        ("a dead proxy", "takes no connection (Connect call failed"),
        ("no such host", "what to do: Check the spelling of CC_PIPELINE_SOURCE. If it is right, this machine is off"),
        ("a sign-in", "the network sends pages of its own: sign in to it in a browser"),
    ],
)
def test_each_cause_has_its_advice(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cause: str, advice: str
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with network(407 if cause.startswith("a proxy") else 200) as address:
        if "proxy" in cause:
            scheme = "https" if "https" in cause else "http"
            monkeypatch.setenv(f"{scheme}_proxy", closed_port() if cause.startswith("a dead") else address)
        source = NOWHERE.replace("http", "https") if "https" in cause else NOWHERE
        said = crawls(cli, tmp_path / "home", address if cause == "a sign-in" else source)
    assert advice in said
    assert "A crawl that you name (--crawl CC-MAIN-2024-22) needs no list." in said


def test_an_old_list_is_told_with_its_age(
    cli: Cli, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC_PIPELINE_COLLINFO", f"{closed_port()}/collinfo.json")
    copy = tmp_path / "home" / "cache" / "collinfo.json"
    copy.parent.mkdir(parents=True)
    copy.write_bytes((bucket[0] / "collinfo.json").read_bytes())
    os.utime(copy, (0, 0))
    for words in (("crawls",), ("lookup", "example.com", "-c", "newest")):
        said = cli(*words, "--source", bucket[0], "--home", tmp_path / "home")
        assert said.status == 0 and "days ago is used instead, which may lack newer crawls" in said.told, said


COMMAND = Path(sys.executable).with_name("cc-pipeline")


def environment_of(home: Path) -> dict[str, str]:
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("CC_PIPELINE_", "DAGSTER_"))}
    # what was learnt of the hosts is the user's, and each home here is a user's own
    state = str(home.with_name(f"{home.name}-state"))
    return kept | {"CC_PIPELINE_HOME": str(home), "XDG_STATE_HOME": state, "NO_COLOR": "1", "COLUMNS": "200"}


@pytest.mark.process
@pytest.mark.skipif(bool(why_no_lab()), reason=why_no_lab())
def test_a_proxy_between_is_used_for_all(bucket: Bucket, tmp_path: Path) -> None:
    environment = environment_of(tmp_path / "home") | {"HTTPS_PROXY": PROXY}
    with common_crawl_lab(bucket[0], tmp_path / "lab", CLOUDFRONT) as lab:
        looked_up = lab.run([COMMAND, "lookup", "example.com", "-c", "newest", "--format", "json"], environment)
        tunnels = {hit.key for hit in lab.hits(PROXY) if hit.method == "CONNECT"}
        other = environment_of(tmp_path / "other") | {"HTTPS_PROXY": "socks5://127.0.0.1:1"}
        wrong = lab.run([COMMAND, "crawls"], other)
    assert looked_up.returncode == 0, looked_up.stderr
    assert len(looked_up.stdout.splitlines()) == len(bucket[1].captures_of(NEW, subset="warc", domain="example.com"))
    assert tunnels == {f"{DATA}:443", f"{INDEX}:443"}
    assert wrong.returncode == 1
    assert "HTTPS_PROXY is 'socks5://127.0.0.1:1', which is no address of an HTTP proxy" in wrong.stderr
