"""Reading through a real server: ranges, faults of every kind, back-pressure, cancelling."""

from __future__ import annotations

import multiprocessing
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cc_pipeline.errors import DataFault
from cc_pipeline.stores.answer import ERROR_BODY_BYTES, Timeouts
from cc_pipeline.transport.client import Transport
from cc_pipeline.transport.faults import FaultKind, RangeFault
from cc_pipeline.transport.ranges import ByteRange, RangeBytes, RetryPolicy
from cc_pipeline.transport.source_client import SourceOptions
from cc_pipeline_tests.faultserver import FaultServer, Rule

QUICK = RetryPolicy(attempts=4, base=0.001, longest=0.005)
TWICE = RetryPolicy(attempts=2, base=0.001, longest=0.005)
SHORT = Timeouts(connect=5, silence=0.5, window=0.8, slowest=100_000)
DATA = bytes(range(256)) * 40


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(20):
        (tmp_path / f"f{number}.bin").write_bytes(DATA)
    (tmp_path / "empty").write_bytes(b"")
    return tmp_path


def open_transport(url: str, **options: object) -> Transport:
    settings: dict[str, object] = {"retry": QUICK} | options
    return Transport(url, SourceOptions(**settings))


@pytest.mark.parametrize("kind", ["local", "http"])
def test_reads_are_the_same_wherever_the_object_lies(folder: Path, kind: str) -> None:
    with FaultServer(folder) as server, open_transport(server.url if kind == "http" else str(folder)) as transport:
        got = transport.read("f1.bin", 300, 20)
        assert (got.data, got.offset, got.total, got.attempts) == (DATA[300:320], 300, len(DATA), 1)
        suffix = transport.read_suffix("f1.bin", 10)
        assert (suffix.data, suffix.offset, suffix.total) == (DATA[-10:], len(DATA) - 10, len(DATA))
        assert transport.read_suffix("f1.bin", 1 << 20).data == DATA
        assert transport.read_all("empty").data == b""
        assert (transport.exists("f1.bin"), transport.exists("nothing")) == (True, False)
        assert transport.read("f1.bin", 0, 4, etag=got.etag).data == DATA[:4]
        broken: Callable[[], object]
        for broken, expected in (
            (lambda: transport.read("nothing", 0, 4), FaultKind.NOT_FOUND),
            (lambda: transport.read("f1.bin", len(DATA), 4), FaultKind.RANGE_NOT_SATISFIABLE),
            (lambda: transport.read("f1.bin", len(DATA) - 2, 4), FaultKind.RANGE_NOT_SATISFIABLE),
            (lambda: transport.read("f1.bin", 0, 4, etag='"other"'), FaultKind.CHANGED_OBJECT),
            (lambda: transport.read_suffix("empty", 4), FaultKind.RANGE_NOT_SATISFIABLE),
            (lambda: transport.read_all("f1.bin", limit=100), FaultKind.LONG_BODY),
            (lambda: transport.read_all("nothing"), FaultKind.NOT_FOUND),
        ):
            with pytest.raises(RangeFault) as raised:
                broken()
            assert raised.value.kind is expected
            assert isinstance(raised.value, DataFault)


PERSISTENT = {
    "500": (FaultKind.SERVER_ERROR, 4),
    "404": (FaultKind.NOT_FOUND, 1),
    "416": (FaultKind.RANGE_NOT_SATISFIABLE, 1),
    "reset": (FaultKind.CONNECTION_RESET, 4),
    "cut": (FaultKind.SHORT_BODY, 4),
    "stall": (FaultKind.TIMEOUT, 2),
    "drip": (FaultKind.TIMEOUT, 2),
    "short": (FaultKind.SHORT_BODY, 4),
    "long": (FaultKind.LONG_BODY, 2),
    "empty": (FaultKind.EMPTY_BODY, 4),
    "wrong_range": (FaultKind.WRONG_RANGE, 2),
    "no_range": (FaultKind.WRONG_RANGE, 2),
    "whole_object": (FaultKind.WHOLE_OBJECT, 2),
}


@pytest.mark.parametrize("kind", PERSISTENT)
def test_a_persistent_fault_is_named(folder: Path, kind: str) -> None:
    expected, attempts = PERSISTENT[kind]
    rule = Rule(kind, times=None, retry_after=0, bytes_per_second=100)
    # short timeouts only where the fault is a silence: a busy machine is not one
    options: dict[str, object] = {"timeouts": SHORT, "retry": TWICE} if kind in ("stall", "drip") else {}
    with FaultServer(folder, rules=[rule]) as server, open_transport(server.url, **options) as transport:
        with pytest.raises(RangeFault) as raised:
            transport.read("f1.bin", 300, 200)
        # a reset may also show as a body cut short
        assert raised.value.kind in ({expected, FaultKind.SHORT_BODY} if kind == "reset" else {expected})
        assert len(server.hits) == attempts


def test_many_ranges_come_as_they_complete_with_their_faults(folder: Path) -> None:
    requests = [ByteRange(f"f{n}.bin", n * 10, 10, tag=n) for n in range(20)] + [ByteRange("nothing", 0, 5, tag="none")]
    rules = [Rule("503", share=0.5, retry_after=0)]
    with FaultServer(folder, rules=rules) as server, open_transport(server.url) as transport:
        outcomes = {outcome.tag: outcome for outcome in transport.read_many(requests, concurrency=7)}
    fault = outcomes.pop("none")
    assert isinstance(fault, RangeFault)
    assert len(outcomes) == 20
    for number, outcome in outcomes.items():
        assert isinstance(outcome, RangeBytes)
        assert isinstance(number, int)
        assert outcome.data == DATA[number * 10 : number * 10 + 10]


@pytest.mark.parametrize("kind", ["local", "http"])
def test_requests_are_drawn_no_further_ahead_than_allowed(folder: Path, kind: str) -> None:
    drawn = 0

    def requests() -> Iterator[ByteRange]:
        nonlocal drawn
        for number in range(300):
            drawn += 1
            yield ByteRange(f"f{number % 20}.bin", 0, 1000)

    with FaultServer(folder) as server, open_transport(server.url if kind == "http" else str(folder)) as transport:
        taken = 0
        for _ in transport.read_many(requests(), concurrency=16):
            taken += 1
            assert drawn <= taken + 2 * 16 + 1
    assert taken == 300


def test_what_the_callers_requests_raise_reaches_the_caller(folder: Path) -> None:
    def requests() -> Iterator[ByteRange]:
        yield ByteRange("f1.bin", 0, 5)
        raise RuntimeError("the caller's own")

    with (
        FaultServer(folder) as server,
        open_transport(server.url) as transport,
        pytest.raises(RuntimeError, match="the caller's own"),
    ):
        list(transport.read_many(requests()))


def test_a_forked_process_is_told_instead_of_waiting_for_ever(folder: Path) -> None:
    with FaultServer(folder) as server, open_transport(server.url) as transport:
        transport.read("f1.bin", 0, 5)
        reader, writer = multiprocessing.Pipe(duplex=False)

        def work() -> None:
            try:
                transport.read("f1.bin", 0, 5)
            except RuntimeError as error:
                writer.send(str(error))

        child = multiprocessing.get_context("fork").Process(target=work)
        child.start()
        assert reader.poll(20)
        assert "after the fork" in reader.recv()
        child.join()


def test_a_range_is_taken_out_of_a_whole_object_within_its_bound(tmp_path: Path) -> None:
    content = random.Random(1).randbytes(10_000)
    (tmp_path / "shard.gz").write_bytes(content)
    asked = ByteRange("shard.gz", 5_000, 300, max_object_bytes=10_000)
    with (
        FaultServer(tmp_path, rules=[Rule("whole_object", times=None)]) as server,
        Transport(server.url, SourceOptions(retry=TWICE)) as transport,
    ):
        [got] = transport.read_many([asked])
        assert isinstance(got, RangeBytes)
        assert (got.data, got.offset, got.total) == (content[5_000:5_300], 5_000, 10_000)
        refused = 2 * (ERROR_BODY_BYTES + 1)
        assert transport.stats.bytes <= refused + 5_300, "the rest is not taken"
        [fault] = transport.read_many([replace(asked, max_object_bytes=5_299)])
        assert isinstance(fault, RangeFault) and fault.kind is FaultKind.WHOLE_OBJECT
