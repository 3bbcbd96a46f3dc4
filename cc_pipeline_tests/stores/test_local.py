"""A local folder answers like a server, and no key leaves it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cc_pipeline.errors import UserInputError
from cc_pipeline.stores.answer import Answer, S3Options, Span
from cc_pipeline.stores.local import LocalStore
from cc_pipeline.stores.opening import open_store, system_proxy
from cc_pipeline.stores.s3 import S3Store
from cc_pipeline.stores.web import HttpStore
from cc_pipeline.transport.loop import run_now

DATA = bytes(range(100))


def fetch(store: LocalStore, key: str, span: Span | None = None, limit: int = 0) -> Answer:
    return run_now(store.fetch(key, span, limit))


def head(store: LocalStore, key: str) -> Answer:
    return run_now(store.head(key))


def put(store: LocalStore, key: str, data: bytes | Path, *, only_if_absent: bool = False) -> Answer:
    return run_now(store.put(key, data, only_if_absent=only_if_absent))


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    (tmp_path / "a").write_bytes(DATA)
    (tmp_path / "dir").mkdir()
    (tmp_path / "empty").write_bytes(b"")
    return LocalStore(tmp_path)


def test_what_is_no_file_is_not_found(store: LocalStore, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for key in ("nothing", "dir", "a/b", "x" * 400, "fifo"):
        assert fetch(store, key, Span(0, 1)).status == 404, key
        assert head(store, key).status == 404, key
    assert fetch(store, "empty", Span(None, 5)).status == 416


@pytest.mark.parametrize("key", ["../a", "x/../../a", "/etc/passwd", "", "a\0b", ".."])
def test_no_key_leaves_the_root(store: LocalStore, key: str) -> None:
    with pytest.raises(UserInputError):
        fetch(store, key, Span(0, 1))


def test_what_a_person_writes_opens_the_right_store(tmp_path: Path) -> None:
    assert isinstance(open_store(str(tmp_path)), LocalStore)
    by_url = open_store(tmp_path.as_uri())
    assert isinstance(by_url, LocalStore)
    assert by_url.root == tmp_path
    web = open_store("https://data.commoncrawl.org/")
    assert isinstance(web, HttpStore)
    assert web.host == "data.commoncrawl.org"
    assert web.url("a=b/ü %") == "https://data.commoncrawl.org/a=b/%C3%BC%20%25"
    bucket = open_store("s3://commoncrawl/some/prefix/")
    assert isinstance(bucket, S3Store)
    assert bucket.url("k=1") == "https://commoncrawl.s3.us-east-1.amazonaws.com/some/prefix/k%3D1"
    own = open_store("s3://my.bucket", s3=S3Options(endpoint="http://127.0.0.1:9/", region="eu-1"))
    assert own.url("k") == "http://127.0.0.1:9/my.bucket/k"
    assert open_store("s3://mine/a%20b").url("c%20d").endswith("/a%2520b/c%2520d"), "a name in S3 is not escaped"
    assert open_store("s3://my.bucket").url("k").startswith("https://s3.us-east-1.amazonaws.com/my.bucket/")


@pytest.mark.parametrize(
    "root",
    [
        "",
        "ftp://x/y",
        "http://",
        "s3://",
        "file://elsewhere/x",
        "https://x/#f",
        "s3://u:p@b",
        "http://127.0.0.1:99999",
        "http://127.0.0.1:port",
    ],
)
def test_what_cannot_be_opened_says_why(root: str) -> None:
    with pytest.raises(UserInputError):
        open_store(root)


_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


@pytest.fixture
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in _PROXIES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.mark.usefixtures("no_proxies")
@pytest.mark.parametrize(
    ("variable", "written", "proxy"),
    [
        ("HTTPS_PROXY", "proxy.example:3128", "http://proxy.example:3128"),
        ("https_proxy", "http://me:word@proxy.example:3128/", "http://me:word@proxy.example:3128/"),
        ("ALL_PROXY", "proxy.example:3128", "http://proxy.example:3128"),
        ("HTTP_PROXY", "proxy.example:3128", None),
        ("HTTPS_PROXY", "", None),
    ],
)
def test_a_proxy_is_read_as_curl_reads_it(
    monkeypatch: pytest.MonkeyPatch, variable: str, written: str, proxy: str | None
) -> None:
    monkeypatch.setenv(variable, written)
    assert system_proxy("https://data.commoncrawl.org/") == proxy
    monkeypatch.setenv("NO_PROXY", "commoncrawl.org")
    assert system_proxy("https://data.commoncrawl.org/") is None


@pytest.mark.usefixtures("no_proxies")
@pytest.mark.parametrize(
    ("url", "written", "is_direct"),
    [
        ("http://127.0.0.1:80/x", "", True),
        ("http://localhost/x", "", True),
        ("http://[::1]:80/x", "", True),
        ("http://127.0.0.1.example.com/x", "", False),
        ("https://data.commoncrawl.org/", "data.commoncrawl.org:443", True),
        ("https://data.commoncrawl.org/", "data.commoncrawl.org:8443", False),
        ("https://data.commoncrawl.org/", "mmoncrawl.org, 10.0.0.0/8", False),
        ("http://10.1.2.3:9000/", "other.example, 10.0.0.0/8", True),
        ("http://10.1.2.3:9000/", "10.1.2.3:9000", True),
        ("http://11.1.2.3:9000/", "10.0.0.0/8,x/y,fd00::/8", False),
        ("http://[fd00::1]:9000/", "10.0.0.0/8,fd00::/8", True),
    ],
)
def test_hosts_that_need_no_proxy(monkeypatch: pytest.MonkeyPatch, url: str, written: str, is_direct: bool) -> None:
    monkeypatch.setenv("ALL_PROXY", "proxy.example:3128")
    monkeypatch.setenv("NO_PROXY", written)
    assert (system_proxy(url) is None) is is_direct


@pytest.mark.usefixtures("no_proxies")
@pytest.mark.parametrize("variable", ["HTTPS_PROXY", "ALL_PROXY"])
@pytest.mark.parametrize(
    "written",
    ["socks5://me:word@proxy.example:1080", "http://", "proxy.example:port", "http://[x", "http:/proxy.example:3128"],
)
def test_a_proxy_that_is_none_is_named(monkeypatch: pytest.MonkeyPatch, variable: str, written: str) -> None:
    monkeypatch.setenv(variable, written)
    with pytest.raises(UserInputError, match=f"{variable} is .*http://host:port") as refused:
        open_store("https://data.commoncrawl.org/")
    assert "word" not in str(refused.value)


@pytest.mark.parametrize("variable", ["REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"])
def test_certificates_that_are_not_there_are_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str
) -> None:
    monkeypatch.delenv("REQUESTS_CA_BUNDLE", raising=False)
    monkeypatch.setenv(variable, str(tmp_path / "none.pem"))
    with pytest.raises(UserInputError, match=f"{variable} is .*none.pem.*not there"):
        open_store("https://data.commoncrawl.org/")
    (tmp_path / "none.pem").write_text("not a certificate")
    with pytest.raises(UserInputError, match=f"{variable} is .*none.pem.*holds no certificates"):
        open_store("https://data.commoncrawl.org/")
