"""The S3 store against moto's server and against SeaweedFS, which checks signatures."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.stores.answer import S3Options
from cc_pipeline.transport.client import Transport
from cc_pipeline.transport.faults import FaultKind, RangeFault
from cc_pipeline.transport.ranges import ByteRange, RangeBytes, RetryPolicy
from cc_pipeline.transport.source_client import SourceOptions
from cc_pipeline_tests.motoserver import client_of, moto_server
from cc_pipeline_tests.weedserver import S3Server, weed_server

BUCKET = "cc-pipeline-tests"
MOTO_KEY = "testing"
DATA = bytes(range(256)) * 300
ODD_KEYS = ("a=b/c d+e,f.bin", "ü/%41~x.bin", "plus+and&question?.bin", "crawl=CC-MAIN-2024-22/subset=warc/part-0.gz")


@pytest.fixture(scope="module", params=["moto", pytest.param("weed", marks=pytest.mark.process)])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    if request.param == "weed":
        with weed_server(tmp_path_factory.mktemp("weed"), BUCKET) as running:
            yield running
        return
    with moto_server() as endpoint:
        yield S3Server(endpoint, MOTO_KEY, "testing")


@pytest.fixture
def place(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Transport]:
    client = client_of(server.endpoint, server.key, server.secret)
    if BUCKET not in [bucket["Name"] for bucket in client.list_buckets()["Buckets"]]:
        client.create_bucket(Bucket=BUCKET)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", server.key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", server.secret)
    with Transport(
        f"s3://{BUCKET}/pre fix", SourceOptions(s3=S3Options(endpoint=server.endpoint, region="us-east-1"))
    ) as transport:
        for listed in transport.listing(""):
            transport.delete(listed.key)
        yield transport


@pytest.mark.parametrize("key", ODD_KEYS)
def test_objects_go_in_and_ranges_come_out(place: Transport, key: str) -> None:
    assert not place.exists(key)
    assert place.put(key, DATA)
    got = place.read(key, 100, 50)
    assert (got.data, got.total) == (DATA[100:150], len(DATA))
    assert got.etag
    suffix = place.read_suffix(key, 70)
    assert (suffix.data, suffix.offset) == (DATA[-70:], len(DATA) - 70)
    assert place.read_suffix(key, 10 * len(DATA)).data == DATA
    assert place.read_all(key).data == DATA
    info = place.head(key)
    assert info is not None
    assert info.size == len(DATA)
    assert [(listed.key, listed.size) for listed in place.listing("")] == [(key, len(DATA))]
    place.delete(key)
    assert place.listing("") == []


def test_files_are_uploaded_whole(place: Transport, tmp_path: Path) -> None:
    file = tmp_path / "big"
    file.write_bytes(DATA * 100)
    assert place.put("big", file)
    assert place.read_all("big", limit=100 << 20).data == DATA * 100
    (tmp_path / "nothing").write_bytes(b"")
    assert place.put("nothing", tmp_path / "nothing")
    assert place.read_all("nothing").data == b""


def test_writing_what_must_be_new(place: Transport) -> None:
    assert place.put("once", b"1", only_if_absent=True)
    assert not place.put("once", b"2", only_if_absent=True)
    assert place.read_all("once").data == b"1"


def test_faults_are_told_apart(place: Transport) -> None:
    place.put("x", b"12345")
    attempt: Callable[[], object]
    for attempt, kind in (
        (lambda: place.read("none", 0, 1), FaultKind.NOT_FOUND),
        (lambda: place.read("x", 5, 1), FaultKind.RANGE_NOT_SATISFIABLE),
        (lambda: place.read("x", 3, 5), FaultKind.RANGE_NOT_SATISFIABLE),
        (lambda: place.read_all("x", limit=3), FaultKind.LONG_BODY),
    ):
        with pytest.raises(RangeFault) as raised:
            attempt()
        assert raised.value.kind is kind


def test_many_signed_ranges_at_once(place: Transport) -> None:
    place.put("x", DATA)
    outcomes = list(place.read_many((ByteRange("x", n * 7, 7, tag=n) for n in range(200)), concurrency=16))
    assert len(outcomes) == 200
    for outcome in outcomes:
        assert isinstance(outcome, RangeBytes)
        assert outcome.data == DATA[outcome.offset : outcome.offset + 7]


def test_long_listings_come_page_by_page(place: Transport) -> None:
    for number in range(7):
        place.put(f"many/{number}", b"x")
    place.put("other", b"x")
    assert [listed.key for listed in place.listing("many/")] == [f"many/{number}" for number in range(7)]


def test_a_bucket_that_is_not_there(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", server.key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", server.secret)
    with Transport("s3://cc-pipeline-no-such", SourceOptions(s3=S3Options(endpoint=server.endpoint))) as transport:
        with pytest.raises(EnvironmentFault, match="cannot be listed"):
            transport.listing("")
        with pytest.raises(RangeFault) as raised:
            transport.read("x", 0, 1)
        assert raised.value.kind is FaultKind.NOT_FOUND


@pytest.mark.parametrize("endpoint", [None, "http://127.0.0.1:9"])
def test_no_credentials_says_what_to_do(endpoint: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing is asked of the network. Common Crawl's bucket can be read elsewhere, another server's cannot."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    retry = RetryPolicy(attempts=1)
    with Transport("s3://commoncrawl", SourceOptions(retry=retry, s3=S3Options(endpoint=endpoint))) as transport:
        with pytest.raises(EnvironmentFault, match="needs credentials") as raised:
            transport.read("x", 0, 1)
        assert ("data.commoncrawl.org" in raised.value.advice) == (endpoint is None)
        with pytest.raises(EnvironmentFault, match="needs credentials"):
            list(transport.read_many([ByteRange("x", 0, 1)]))


def test_a_wrong_secret_is_refused(server: S3Server, place: Transport, monkeypatch: pytest.MonkeyPatch) -> None:
    if server.key == MOTO_KEY:
        pytest.skip("moto takes any secret")
    place.put("x", b"1")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    retry = RetryPolicy(attempts=1)
    with Transport(
        f"s3://{BUCKET}/pre fix", SourceOptions(retry=retry, s3=S3Options(endpoint=server.endpoint))
    ) as transport:
        with pytest.raises(RangeFault) as raised:
            transport.read_all("x")
        assert raised.value.kind is FaultKind.UNAUTHORIZED


def test_anonymous_requests_are_not_signed(server: S3Server, place: Transport, monkeypatch: pytest.MonkeyPatch) -> None:
    if server.key != MOTO_KEY:
        pytest.skip("SeaweedFS lets nobody in by an object's ACL")
    place.put("open", b"anyone")
    owner = client_of(server.endpoint, server.key, server.secret)
    owner.put_bucket_acl(Bucket=BUCKET, ACL="public-read")
    owner.put_object_acl(Bucket=BUCKET, Key="pre fix/open", ACL="public-read")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    with Transport(
        f"s3://{BUCKET}/pre fix", SourceOptions(s3=S3Options(endpoint=server.endpoint, anonymous=True))
    ) as transport:
        assert transport.read_all("open").data == b"anyone"
