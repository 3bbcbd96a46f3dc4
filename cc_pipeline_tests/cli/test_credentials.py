"""Credentials in a source's address are sent to it, and found nowhere afterwards."""

from __future__ import annotations

import base64
import json
import stat
from pathlib import Path
from urllib.parse import quote

import pytest

from cc_pipeline.testing.mini_crawl import MiniCrawlTruth
from cc_pipeline_tests.cli.conftest import NEW, OLD, Cli
from cc_pipeline_tests.cli.written import everything_in, texts_in
from cc_pipeline_tests.faultserver import FaultServer, Rule
from cc_pipeline_tests.frontmanners import Manners
from cc_pipeline_tests.world import extract, harvest, publish, workspace_of

USER, PASSWORD, TOKEN = "keeper", "s3cret/Wörd@7", "t0ken/Zz+9=="
GUARDED = Manners(user=USER, password=PASSWORD)
#: Each way in which a secret might be spelt somewhere.
SECRETS = {
    text.encode()
    for secret in (PASSWORD, TOKEN)
    for text in (secret, quote(secret, safe=""), quote(secret), quote(secret, safe="@"), json.dumps(secret)[1:-1])
} | {base64.b64encode(f"{USER}:{PASSWORD}".encode()), b"s3cret", b"t0ken"}


@pytest.fixture
def bucket(bucket: tuple[Path, MiniCrawlTruth]) -> Path:
    return bucket[0]


def place_of(server: FaultServer) -> str:
    """Host and port."""
    return f"127.0.0.1:{server.port}"


def leaks(data: bytes) -> list[bytes]:
    return [secret for secret in SECRETS if secret in data]


def files_that_leak(folder: Path) -> list[str]:
    return sorted({str(path.relative_to(folder)) for path, text in everything_in(folder) if leaks(text)})


def whole_path(cli: Cli, source: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Everything a person does with a source, errors included; what all of it said."""
    monkeypatch.setenv("CC_PIPELINE_HOME", str(home))
    monkeypatch.setenv("CC_PIPELINE_SOURCE", source)
    monkeypatch.chdir(home.parent)
    place = source.rpartition("@")[2].partition("?")[0].rpartition("//")[2]
    said = ""
    for expected, words in (
        (0, ["ui", "--init"]),
        (0, ["crawls"]),
        (0, ["index", "harvest", "-c", NEW]),
        (0, ["run", "-c", NEW, "example.com"]),
        (0, ["sql", "SELECT * FROM publication", "--format", "json"]),
        (0, ["sql", "SELECT * FROM ledger LIMIT 3", "--format", "csv"]),
        (0, ["plan", "example.com", "-c", NEW]),
        (0, ["doctor"]),
        (1, ["run", "-c", "CC-MAIN-1999-01", "example.com"]),
        (1, ["files", "add", f"{source}/nowhere", "--kind", "sequencefile"]),
        (1, ["crawls", "--source", source.replace(place, "127.0.0.1:1"), "--home", str(home.parent / "none")]),
        (1, ["index", "harvest", "-c", NEW, "--source", source.replace(place, "127.0.0.1:1")]),
        (1, ["crawls", "--source", source.replace(place, f"{place}0000")]),
        (1, ["crawls", "--source", source.replace("http://", "ftp://")]),
        (1, ["crawls", "--source", source.replace("http://", "s3://")]),
    ):
        answer = cli(*words)
        assert answer.status == expected, (words, answer)
        said += answer.out + answer.err
    return said


@pytest.mark.process
def test_a_password_is_sent_and_written_nowhere(
    bucket: Path, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    with FaultServer(bucket, manners=GUARDED) as server:
        source = f"http://{USER}:{quote(PASSWORD, safe='')}@{place_of(server)}"
        said = whole_path(cli, source, home, monkeypatch)
        # a run whose step fails: the event log has what was said
        footers = [path.relative_to(bucket).as_posix() for path in bucket.rglob(f"crawl={OLD}/**/*.parquet")]
        server.set_rules([Rule("redirect", key, times=None, to=f"{source}/{key}?token={TOKEN}") for key in footers])
        failed = cli("index", "harvest", "-c", OLD)
        assert footers
        assert failed.status == 1
        said += failed.out + failed.err
        monkeypatch.setenv("CC_PIPELINE_SOURCE", source.replace("s3cret", "s3cret-wrong"))
        refused = cli("index", "harvest", "-c", OLD)
        # waiting makes no credentials good
        assert refused.status == 1
        assert "credentials" in refused.told
        said += refused.out + refused.err
    assert {hit.status for hit in server.hits} >= {200, 206, 401}
    for hit in server.hits:
        assert leaks(f"{hit.key}?{hit.query}".encode()) == []
        assert [name for name, value in hit.headers.items() if leaks(value.encode())] in ([], ["authorization"])
    assert leaks(said.encode()) == []
    assert files_that_leak(tmp_path) == []
    stored = next((home / "lake" / "records").rglob("*.warc.gz"))
    text = b"".join(texts_in(stored))
    assert f"WARC-Source-URI: http://{place_of(server)}/crawl-data/".encode() in text
    assert f"source: http://{place_of(server)}\r\n".encode() in text
    assert stat.S_IMODE((home / "home.json").stat().st_mode) == 0o600


@pytest.mark.process
def test_a_token_is_sent_as_it_was_given_and_written_nowhere(
    bucket: Path, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = f"token={TOKEN}&X-Amz-Credential=a%2Fb"
    with FaultServer(bucket, manners=Manners(query=query)) as server:
        workspace = workspace_of(f"http://{place_of(server)}/?{query}", tmp_path)
        harvest(workspace)
        extract(workspace, "example.com")
        publish(workspace)
        monkeypatch.setenv("CC_PIPELINE_HOME", str(tmp_path))
        monkeypatch.setenv("CC_PIPELINE_SOURCE", f"http://{place_of(server)}/?{query}")
        said = cli("doctor")
    assert said.status == 0, said
    assert {hit.status for hit in server.hits} <= {200, 206, 404}
    assert all(not leaks(value.encode()) for hit in server.hits for value in hit.headers.values())
    assert leaks(repr(said).encode()) == []
    assert files_that_leak(tmp_path) == []
