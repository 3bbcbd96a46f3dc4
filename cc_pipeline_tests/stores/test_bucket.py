"""What becomes of refusals, silence and mistakes when a bucket is written, listed or deleted from."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from cc_pipeline.errors import EnvironmentFault, UserInputError
from cc_pipeline.stores import s3
from cc_pipeline.stores.answer import S3Options, Timeouts
from cc_pipeline.transport.client import Transport
from cc_pipeline.transport.faults import FaultKind, RangeFault
from cc_pipeline.transport.ranges import RetryPolicy
from cc_pipeline.transport.source_client import SourceOptions
from cc_pipeline_tests.motoserver import CREDENTIALS, client_of, moto_server
from cc_pipeline_tests.ports import free_port
from cc_pipeline_tests.weedserver import S3Server

#: Long enough for an answer on a busy machine, for the kinds that are not silent.
PATIENT = Timeouts(connect=10, silence=20, window=40.0, slowest=50_000_000)
QUICK = Timeouts(connect=1, silence=0.4, window=1.0, slowest=50_000_000)
ONCE = RetryPolicy(attempts=1)
#: Bytes of the smallest part of an upload that S3 takes.
PART = 5 << 20
#: Status, headers and body.
Response = tuple[int, dict[str, str], bytes]
#: What the server sends for a method, a path with its query, and a body; ``None`` is silence.
Script = Callable[[str, str, bytes], Response | None]


def error(status: int, code: str, **headers: str) -> Response:
    return status, headers, f"<Error><Code>{code}</Code><Message>because</Message></Error>".encode()


@contextmanager
def scripted(script: Script, *, reads_bodies: bool = True) -> Iterator[tuple[str, list[str]]]:
    """An S3 server that answers by a script; its address, and the requests it got."""
    requests: list[str] = []
    over = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0)) if reads_bodies else b""
            requests.append(f"{self.command} {self.path}")
            response = script(self.command, self.path, body)
            if response is None:
                over.wait(5)
                self.close_connection = True
                return
            status, headers, body = response
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_PUT = do_POST = do_DELETE = answer

        def log_message(self, format: str, *args: object) -> None:
            """Nothing is printed."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", requests
    finally:
        over.set()
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, text in CREDENTIALS.items():
        monkeypatch.setenv(name, text)
    monkeypatch.setattr(s3, "PART_BYTES", PART)


def place_at(endpoint: str, retry: RetryPolicy = ONCE, timeouts: Timeouts = PATIENT) -> Transport:
    # what a place of our own refuses is a matter of the object
    return Transport(
        "s3://mine/prefix",
        SourceOptions(retry=retry, timeouts=timeouts, pauses=False, s3=S3Options(endpoint=endpoint)),
    )


REFUSALS = [
    (error(403, "AccessDenied"), FaultKind.FORBIDDEN),
    (error(403, "SignatureDoesNotMatch"), FaultKind.UNAUTHORIZED),
    (error(404, "NoSuchBucket"), FaultKind.NOT_FOUND),
    # without a word about it, a second is waited
    (error(503, "SlowDown", Retry_After="0"), FaultKind.THROTTLED),
    (error(429, "TooManyRequests", Retry_After="0"), FaultKind.THROTTLED),
    (error(400, "ThrottlingException", Retry_After="0"), FaultKind.THROTTLED),
    (error(500, "InternalError"), FaultKind.SERVER_ERROR),
    (error(400, "RequestTimeout"), FaultKind.CLIENT_ERROR),
    (error(409, "OperationAborted"), FaultKind.CLIENT_ERROR),
    (error(501, "SomethingNew"), FaultKind.SERVER_ERROR),
    (None, FaultKind.TIMEOUT),
]


@pytest.mark.parametrize(("answer", "kind"), REFUSALS)
def test_refusals_keep_their_kinds(answer: Response | None, kind: FaultKind) -> None:
    timeouts = QUICK if answer is None else PATIENT
    with scripted(lambda *_: answer) as (endpoint, asked), place_at(endpoint, timeouts=timeouts) as place:
        with pytest.raises(RangeFault) as raised:
            place.put("x", b"12")
        assert raised.value.kind is kind
        if kind is FaultKind.FORBIDDEN:
            assert "status 403, AccessDenied" in str(raised.value) and "access rights" in str(raised.value)
        assert asked == ["PUT /mine/prefix/x"]
        with pytest.raises(EnvironmentFault, match=rf"cannot be listed: {kind.value}") as listed:
            place.listing("")
        assert listed.value.advice
        assert len(asked) == 2
        if kind is FaultKind.NOT_FOUND:
            place.delete("x")
        else:
            with pytest.raises(RangeFault) as raised:
                place.delete("x")
            assert raised.value.kind is kind


def test_an_upload_that_the_server_does_not_take_ends() -> None:
    with scripted(lambda *_: None, reads_bodies=False) as (endpoint, _), place_at(endpoint, timeouts=QUICK) as place:
        with pytest.raises(RangeFault) as raised:
            place.put("x", bytes(2 * PART - 1))
        assert raised.value.kind is FaultKind.TIMEOUT


def test_an_object_that_is_refused_costs_others_no_try() -> None:
    slow = error(503, "SlowDown", Retry_After="0")
    answers = [slow, slow, slow, (200, {}, b"")]
    retry = RetryPolicy(attempts=2, base=0.01, longest=0.02)
    with scripted(lambda *_: answers.pop(0)) as (endpoint, asked), place_at(endpoint, retry) as place:
        with pytest.raises(RangeFault):
            place.put("x", b"12")
        assert place.put("y", b"12")
        assert asked == ["PUT /mine/prefix/x"] * 2 + ["PUT /mine/prefix/y"] * 2


CALLS: dict[str, Callable[[Transport], object]] = {
    "read": lambda place: place.read("x", 0, 1),
    "put": lambda place: place.put("x", b""),
    "delete": lambda place: place.delete("x"),
    "listing": lambda place: place.listing(""),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_server_or_credentials_that_are_not_there_are_named(
    call: Callable[[Transport], object], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    nobody = f"http://127.0.0.1:{free_port()}"
    with place_at(nobody) as place, pytest.raises(EnvironmentFault, match="unreachable") as raised:
        call(place)
    assert raised.value.advice
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    # Common Crawl's bucket can also be read elsewhere
    for place in (place_at(nobody), Transport("s3://commoncrawl", SourceOptions(retry=ONCE))):
        with place, pytest.raises(EnvironmentFault, match="needs credentials") as raised:
            call(place)
        assert "AWS_ACCESS_KEY_ID" in raised.value.advice
        assert ("data.commoncrawl.org" in raised.value.advice) == (place.source == "s3://commoncrawl")


@pytest.mark.parametrize(
    "endpoint",
    ["127.0.0.1:9000", "http://127.0.0.1:99999", "http://127.0.0.1:port", "ftp://x", "http://", "http://x/?y"],
)
def test_an_endpoint_that_is_none_is_told_before_anything_is_sent(endpoint: str) -> None:
    with pytest.raises(UserInputError):
        Transport("s3://mine/prefix", SourceOptions(s3=S3Options(endpoint=endpoint)))


def test_parts_of_an_upload_that_fails_are_taken_back(tmp_path: Path) -> None:
    file = tmp_path / "big"
    file.write_bytes(bytes(2 * PART))

    def script(method: str, *_: object) -> Response:
        if method == "POST":
            xml = "<InitiateMultipartUploadResult><UploadId>up</UploadId></InitiateMultipartUploadResult>"
            return 200, {}, xml.encode()
        return (204, {}, b"") if method == "DELETE" else error(503, "SlowDown")

    with scripted(script) as (endpoint, asked), place_at(endpoint) as place:
        with pytest.raises(RangeFault) as raised:
            place.put("x", file)
        assert raised.value.kind is FaultKind.THROTTLED
        assert any(request.startswith("DELETE ") and "uploadId=up" in request for request in asked)


def test_a_listing_that_is_cut_is_not_taken_for_the_whole() -> None:
    answers = [
        (200, {}, b"<ListBucketResult><Contents><Key>prefix/a</Key><Size>1</Size></Contents><IsTruncated>tr"),
        (200, {}, b"no XML at all"),
    ]
    with scripted(lambda *_: answers.pop(0)) as (endpoint, _), place_at(endpoint) as place:
        for _ in range(2):
            with pytest.raises(EnvironmentFault, match=r"cannot be listed: server_error \(status 500\)"):
                place.listing("")


@pytest.fixture(scope="module")
def moto() -> Iterator[str]:
    with moto_server("mine") as endpoint:
        yield endpoint


def test_large_files_go_up_in_parts(moto: str, tmp_path: Path) -> None:
    file = tmp_path / "big"
    file.write_bytes(bytes(2 * PART) + b"end")
    with Transport("s3://mine/parts", SourceOptions(s3=S3Options(endpoint=moto))) as place:
        assert place.put("big", file, only_if_absent=True)
        assert not place.put("big", file, only_if_absent=True)
        assert place.put("big", file)
        info = place.head("big")
        assert info is not None
        assert info.size == 2 * PART + 3
        assert info.etag is not None
        assert info.etag.endswith('-3"')
        assert place.read_suffix("big", 5).data == file.read_bytes()[-5:]


def test_writing_goes_where_reading_goes(moto: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "http_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with Transport("s3://mine/same", SourceOptions(retry=ONCE, s3=S3Options(endpoint=moto))) as place:
        assert place.put("x", b"12")
        assert place.read_all("x").data == b"12"
        assert [listed.key for listed in place.listing("")] == ["x"]


@contextmanager
def forgetful() -> Iterator[tuple[Transport, dict[str, bytes]]]:
    """A bucket that keeps what is written to it, and whose answer to each first write of an object is lost."""
    kept: dict[str, bytes] = {}
    lost: set[str] = set()

    def answer(method: str, path: str, body: bytes) -> Response:
        key = path.partition("?")[0]
        if method == "GET":
            return (200, {"ETag": '"e"'}, kept[key]) if key in kept else error(404, "NoSuchKey")
        if method == "PUT" and key in kept:
            return error(412, "PreconditionFailed")
        if method == "PUT":
            kept[key] = body
            if key not in lost:
                lost.add(key)
                return error(500, "InternalError")
        return 200, {"ETag": '"e"'}, b""

    retry = RetryPolicy(attempts=3, base=0.001, longest=0.002)
    with scripted(answer) as (endpoint, _), place_at(endpoint, retry) as place:
        yield place, kept


def test_a_write_whose_answer_was_lost_was_made() -> None:
    with forgetful() as (place, kept):
        assert place.put("mine", b"1", only_if_absent=True)
        assert not place.put("mine", b"1", only_if_absent=True)  # nothing was lost this time: another wrote it
        kept["/mine/prefix/theirs"] = b"longer than ours"
        assert not place.put("theirs", b"2", only_if_absent=True)


def test_anonymous_requests_are_not_signed(moto: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = client_of(moto, *CREDENTIALS.values())
    owner.put_bucket_acl(Bucket="mine", ACL="public-read")
    owner.put_object(Bucket="mine", Key="open", Body=b"anyone", ACL="public-read")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    with Transport("s3://mine", SourceOptions(s3=S3Options(endpoint=moto, anonymous=True))) as place:
        assert place.read_all("open").data == b"anyone"


@pytest.mark.process
def test_a_wrong_secret_is_refused(weed: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", weed.key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with Transport("s3://lake", SourceOptions(retry=ONCE, s3=S3Options(endpoint=weed.endpoint))) as place:
        with pytest.raises(RangeFault) as raised:
            place.read_all("x")
        assert raised.value.kind is FaultKind.UNAUTHORIZED
