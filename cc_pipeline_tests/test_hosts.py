"""Hosts are compared as hosts: a name that only begins like Common Crawl's is somebody else's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cc_pipeline.addresses import host_of, scheme_of
from cc_pipeline.settings import DEFAULT_COLLINFO, load_settings
from cc_pipeline.transport.limits import default_limits
from cc_pipeline.workspace.crawl_list import read_crawl_list

ENTRY = b'[{"id": "CC-MAIN-2024-22", "name": "x", "cdx-api": "https://index.commoncrawl.org/CC-MAIN-2024-22-index"}]'


@pytest.mark.parametrize(
    ("source", "endpoint", "public"),
    [
        ("https://data.commoncrawl.org", None, True),
        ("https://data.commoncrawl.org/", None, True),
        ("HTTPS://Data.CommonCrawl.org", None, True),
        ("https://data.commoncrawl.org:443", None, True),
        ("https://data.commoncrawl.org.", None, True),
        ("s3://commoncrawl", None, True),
        ("s3://commoncrawl/", None, True),
        ("s3://commoncrawl", "https://s3.us-east-1.amazonaws.com", True),
        ("https://data.commoncrawl.org.evil.example", None, False),
        ("https://data.commoncrawl.organic", None, False),
        ("https://data.commoncrawl.org@evil.example", None, False),
        ("https://evil.example/https://data.commoncrawl.org", None, False),
        ("s3://commoncrawl-mirror", None, False),
        ("s3://commoncrawl.evil", None, False),
        ("s3://commoncrawl", "http://127.0.0.1:9000", False),
        ("s3://commoncrawl", "https://s3.amazonaws.com.evil.example", False),
        ("s3://commoncrawl", "https://ec2-192-0-2-1.compute-1.amazonaws.com", False),
    ],
)
def test_only_common_crawls_own_host_is_public(tmp_path: Path, source: str, endpoint: str | None, public: bool) -> None:
    env = {"CC_PIPELINE_HOME": str(tmp_path), "CC_PIPELINE_SOURCE": source}
    settings = load_settings(env | ({"CC_PIPELINE_S3_ENDPOINT": endpoint} if endpoint else {}))
    assert settings.is_public is public
    assert (settings.collinfo == DEFAULT_COLLINFO) is public
    given = load_settings(env, s3_endpoint=endpoint)
    assert (given.is_public, given.collinfo) == (settings.is_public, settings.collinfo)


def test_limits_are_those_of_the_host() -> None:
    data, index = default_limits("https://data.commoncrawl.org"), default_limits("https://index.commoncrawl.org")
    other = default_limits("https://mirror.example")
    assert len({data, index, other}) == 3
    assert data.rate < other.rate
    for host, limits in (("data", data), ("index", index)):
        assert default_limits(f"https://{host.upper()}.commoncrawl.org./x") == limits
        assert default_limits(f"https://{host}.commoncrawl.org.evil.example") == other
        assert default_limits(f"https://{host}.commoncrawl.org@evil.example") == other
    assert default_limits("S3://bucket") == default_limits("s3://bucket")


@pytest.mark.parametrize(
    ("collinfo", "spared"),
    [
        (DEFAULT_COLLINFO, True),
        ("https://index.commoncrawl.org.evil.example/collinfo.json", False),
        ("https://evil.example/https://index.commoncrawl.org/collinfo.json", False),
    ],
)
def test_only_common_crawls_own_list_is_kept_for_a_day(tmp_path: Path, collinfo: str, spared: bool) -> None:
    settings = load_settings({"CC_PIPELINE_HOME": str(tmp_path), "CC_PIPELINE_COLLINFO": collinfo})
    copy = settings.cache_path / "collinfo.json"
    copy.parent.mkdir()
    copy.write_bytes(ENTRY)
    os.utime(copy)
    asked = []

    def download() -> bytes:
        asked.append(collinfo)
        return ENTRY

    assert [crawl.id for crawl in read_crawl_list(settings, download).crawls] == ["CC-MAIN-2024-22"]
    assert bool(asked) is not spared


def test_host_and_scheme_of_what_is_no_address() -> None:
    for text in ("", "/a/b", "a://", "https://[::1", "https://h:port", "relative/https:/x"):
        assert host_of(text) == ""
    assert (scheme_of("/a/b"), scheme_of("S3://b")) == ("", "s3")
    assert host_of("http://[::1]:80/x") == "::1"
