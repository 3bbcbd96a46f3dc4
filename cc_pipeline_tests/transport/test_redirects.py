"""Redirects are followed where they are declared, to public https hosts, without credentials, each hop judged."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from cc_pipeline.addresses import Access
from cc_pipeline.stores import web
from cc_pipeline.stores.answer import NoAnswer, Timeouts
from cc_pipeline.stores.opening import is_public
from cc_pipeline.stores.web import HttpClient
from cc_pipeline.transport.client import Transport
from cc_pipeline.transport.faults import FaultKind, RangeFault
from cc_pipeline.transport.host_file import read_hosts
from cc_pipeline.transport.ranges import ByteRange, RangeBytes, RetryPolicy
from cc_pipeline.transport.redirects import Undeclared, declared_hosts, target_of
from cc_pipeline.transport.source_client import SourceOptions
from cc_pipeline_tests.faultserver import FaultServer, Rule

QUICK = RetryPolicy(attempts=2, base=0.001, longest=0.005)
DATA = bytes(range(256)) * 40
HF = "https://huggingface.co/buckets/commoncrawl/commoncrawl/resolve/x"
CDN = declared_hosts("https://huggingface.co/buckets/commoncrawl/commoncrawl/resolve", ["Mine.Example:8443"])


@pytest.mark.parametrize(
    ("location", "leads_to"),
    [
        ("https://cas-bridge.xethub.hf.co/a?X-Sig=1#part", "https://cas-bridge.xethub.hf.co/a?X-Sig=1"),
        ("https://us.aws.cdn.hf.co/a", "https://us.aws.cdn.hf.co/a"),
        ("https://cdn-lfs-us-1.hf.co:443/a", "https://cdn-lfs-us-1.hf.co:443/a"),
        ("https://mine.example:8443", "https://mine.example:8443/"),
        ("/api/x?y=1", "https://huggingface.co/api/x?y=1"),
        ("//CDN-LFS.hf.co/a", "https://CDN-LFS.hf.co/a"),
    ],
)
def test_declared_targets_are_followed(location: str, leads_to: str) -> None:
    assert target_of(HF, location, CDN) == leads_to


@pytest.mark.parametrize(
    "location",
    [
        "https://evil.example/a",
        "https://xethub.hf.co/a",
        "https://a.b.aws.cdn.hf.co/a",
        "https://cdn-lfs.evil.hf.co/a",
        "https://cas-bridge.xethub.hf.co.evil.example/",
        "https://mine.example/",
        "https://cas-bridge.xethub.hf.co:8443/",
        "https://cas-bridge.xethub.hf.co@evil.example/",
        "https://me:pw@cas-bridge.xethub.hf.co/",
        "http://cas-bridge.xethub.hf.co/",
        "http://huggingface.co/",
        "https://127.0.0.1/",
        "https://localhost/",
        "https://[::1]/",
        "https://[::ffff:10.0.0.1]/",
        "https://169.254.169.254/latest/meta-data",
        "https://10.0.0.1/",
        "ftp://cas-bridge.xethub.hf.co/",
        "file:///etc/passwd",
        "https://cas-bridge.xethub.hf.co/a b",
        "https://cas-bridge.xethub.hf.co/\r\nX: y",
        "https://cas-bridge.xethub.hf.co:port/",
        "",
        "https://cas-bridge.xethub.hf.co/" + 9000 * "a",
    ],
)
def test_others_are_refused(location: str) -> None:
    with pytest.raises(Undeclared):
        target_of(HF, location, (*CDN, "127.0.0.1", "[::1]", "localhost", "10.0.0.1", "169.254.169.254"))


@pytest.mark.parametrize("host", ["2130706433", "127.1", "0x7f000001", "0x7f.1", "0.0.0.0", "10.0.0.1."])
def test_an_address_in_a_form_of_old_is_no_name_whatever_is_declared(host: str) -> None:
    with pytest.raises(Undeclared):
        target_of(HF, f"https://{host}/a", ("*", "*.*", "*.*.*.*"))


def test_only_a_loopback_source_may_lead_to_loopback_and_never_down_to_http() -> None:
    assert target_of("http://127.0.0.1:1/x", "http://127.0.0.1:2/y", ["127.0.0.1:2"]) == "http://127.0.0.1:2/y"
    for asked, location in (
        ("https://127.0.0.1:1/x", "http://127.0.0.1:2/y"),
        ("http://a.example/x", "http://127.0.0.1:2/y"),
        ("http://a.example/x", "http://b.example/y"),
        ("http://a.example/x", "https://b.example/y"),
        ("http://127.0.0.1:1/x", "http://b.example/y"),
    ):
        with pytest.raises(Undeclared):
            target_of(asked, location, ["127.0.0.1:2", "b.example"])


@pytest.mark.parametrize("looks", ["at the address", "at what the name stands for"])
def test_names_that_stand_for_private_addresses_are_not_connected_to(
    looks: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if looks == "at what the name stands for":
        monkeypatch.setattr(web, "may_be_public", lambda host: True)

    async def asked(method: str) -> str:
        client = HttpClient("test", Timeouts(), public_only=True)
        try:
            await client.ask(method, "http://localhost:9/", {}, hoped_for=200, bound=0)
        except NoAnswer as refused:
            return refused.kind
        finally:
            await client.close()
        return ""

    assert [asyncio.run(asked(method)) for method in ("GET", "HEAD")] == ["redirected"] * 2
    assert is_public("18.155.173.1")
    assert not any(map(is_public, ("127.0.0.1", "10.1.2.3", "fe80::1%eth0", "::ffff:192.168.0.1", "224.0.0.1", "::")))


def key_of(number: int) -> str:
    return f"warc/f{number}.warc.gz"


def ranges(count: int) -> list[ByteRange]:
    return [ByteRange(key_of(number % 20), 7 * (number // 20), 100, tag=number) for number in range(count)]


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("bucket")
    (root / "warc").mkdir()
    for number in range(20):
        (root / key_of(number)).write_bytes(DATA)
    return root


@pytest.fixture
def servers(bucket: Path) -> Iterator[list[FaultServer]]:
    with ExitStack() as stack:
        yield [stack.enter_context(FaultServer(bucket)) for _ in range(3)]


def declared(*servers: FaultServer) -> list[str]:
    return [f"127.0.0.1:{server.port}" for server in servers]


def test_ranges_come_from_where_a_place_redirects_to(servers: list[FaultServer], tmp_path: Path) -> None:
    place, cdn, _ = servers
    place.set_rules([Rule("redirect", times=None, to=f"{cdn.url}{{key}}?Signature=s3cret")])
    budget = tmp_path / "budget.sqlite"
    with Transport(
        place.url,
        SourceOptions(redirects=declared(cdn), retry=QUICK, rate=500, budget_path=budget),
        access=Access("me", "pw", "t=1"),
    ) as transport:
        came = [got for got in transport.read_many(ranges(40)) if isinstance(got, RangeBytes)]
        assert len(came) == 40
        assert all(got.data == DATA[got.offset : got.offset + 100] for got in came)
        assert transport.read_all(key_of(1)).data == DATA
        info = transport.head(key_of(1))
        assert info is not None
        assert info.size == len(DATA)
        assert transport.stats.requests == len(place.hits) + len(cdn.hits)
    # asked anew each time, because what it leads to expires
    assert len(place.hits) == len(cdn.hits) == 42
    assert {hit.query for hit in cdn.hits} == {"Signature=s3cret"}
    assert {hit.authorization for hit in cdn.hits} == {""}
    assert all(hit.authorization for hit in place.hits)
    # each host has a budget of its own, and nothing that lets somebody in is kept
    assert {state.host for state in read_hosts(budget)} == {f"127.0.0.1:{one.port}" for one in (place, cdn)}
    assert b"s3cret" not in budget.read_bytes()


def test_a_place_does_not_lead_to_any_number_of_hosts(servers: list[FaultServer]) -> None:
    place = servers[0]
    place.set_rules([Rule("redirect", times=None, to=f"http://{{key}}:{servers[1].port}/x")])
    options = SourceOptions(redirects=[f"127.0.*.*:{servers[1].port}"], retry=RetryPolicy(attempts=1))
    with Transport(place.url, options) as transport:
        faults = list(transport.read_many([ByteRange(f"127.0.7.{number}", 0, 4) for number in range(1, 61)]))
    kinds = Counter(fault.kind for fault in faults if isinstance(fault, RangeFault))
    assert kinds[FaultKind.REDIRECTED] == 60 - 32
    assert sum(kinds.values()) == 60


@pytest.mark.parametrize("how", ["undeclared", "loop", "private", "downgrade"])
def test_a_place_that_redirects_astray_is_said(servers: list[FaultServer], how: str) -> None:
    place, other, good = servers
    to = {
        "undeclared": other.url,
        "loop": place.url,
        "private": "http://10.0.0.1/",
        "downgrade": "ftp://127.0.0.1/",
    }[how]
    place.set_rules([Rule("redirect", times=None, to=to + "{key}?Signature=s3cret")])
    redirects = [*declared(good), "10.0.0.1"]
    with Transport(place.url, SourceOptions(redirects=redirects, retry=QUICK)) as alone:
        with pytest.raises(RangeFault) as raised:
            alone.read(key_of(1), 0, 4)
        assert raised.value.kind is FaultKind.REDIRECTED
        assert "s3cret" not in str(raised.value)
        assert "CC_PIPELINE_REDIRECTS" in str(raised.value)
    assert not other.hits


@pytest.fixture
def speaking(bucket: Path) -> Iterator[tuple[ThreadingHTTPServer, FaultServer, list[str]]]:
    """A server that redirects and speaks of a size, as Hugging Face does; where it leads to; what it was asked."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.command)
            self.send_response(429 if "limited" in self.path else 302)
            self.send_header("Location", f"{cdn.url}{self.path[1:]}?Signature=s3cret")
            self.send_header("X-Linked-Size", "17" if "odd" in self.path else str(len(DATA)))
            self.send_header("X-Linked-Etag", '"of the object"')
            self.send_header("RateLimit", '"resolvers";r=0;t=55')
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_HEAD = do_GET

        def log_message(self, *_: object) -> None:
            """Nothing on the terminal."""

    (bucket / "odd").write_bytes(DATA)
    with FaultServer(bucket) as cdn, ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield server, cdn, asked
        server.shutdown()


def test_the_size_that_a_redirect_speaks_of_counts(
    speaking: tuple[ThreadingHTTPServer, FaultServer, list[str]],
) -> None:
    server, cdn, asked = speaking
    url = f"http://127.0.0.1:{server.server_port}/"
    with Transport(url, SourceOptions(redirects=declared(cdn), retry=QUICK)) as transport:
        assert transport.read(key_of(1), 0, 4).data == DATA[:4]
        # signed addresses are for GET: what the redirect says is enough
        found = transport.head(key_of(1))
        assert found is not None
        assert (found.size, found.etag) == (len(DATA), '"of the object"')
        assert {hit.method for hit in cdn.hits} == {"GET"}
        with pytest.raises(RangeFault) as raised:
            transport.read("odd", 0, 4)
        assert raised.value.kind is FaultKind.WRONG_RANGE
        assert asked == ["GET", "HEAD", "GET", "GET"]
