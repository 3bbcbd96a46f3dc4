"""The end of an object at servers with and without suffix ranges: what it costs, and what is learnt."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from cc_pipeline.transport.client import Transport
from cc_pipeline.transport.faults import FaultKind, RangeFault
from cc_pipeline.transport.ranges import ByteRange, RangeBytes, RetryPolicy
from cc_pipeline.transport.source_client import SourceOptions
from cc_pipeline_tests.faultserver import FaultServer, Hit, Rule

QUICK = RetryPolicy(attempts=4, base=0.001, longest=0.005)
FILES = 30
SUFFIXES = ("bytes=-*",)
#: Servers without suffix ranges: the whole object, a refusal, "not implemented", bytes of nobody knows where.
WITHOUT = ("whole_object", "416", "501", "no_range")


def data_of(number: int) -> bytes:
    return f"{number} ".encode() * (50 + number)


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("bucket")
    for number in range(FILES):
        (root / f"f{number}").write_bytes(data_of(number))
    (root / "empty").write_bytes(b"")
    return root


def without(kind: str, **more: object) -> Rule:
    return Rule(kind, ranges=SUFFIXES, times=None, **more)


def said(hits: list[Hit]) -> Counter[str]:
    """What was asked for: ends, sizes and ranges."""
    named = (
        "HEAD" if hit.method == "HEAD" else "suffix" if (hit.range or "").startswith("bytes=-") else "range"
        for hit in hits
    )
    return Counter(named)


def ends(transport: Transport, length: int = 64, totals: bool = False) -> None:
    """Reads the end of every file and says that it is right."""
    asked = [
        ByteRange(f"f{number}", None, length, tag=number, total=len(data_of(number)) if totals else None)
        for number in range(FILES)
    ]
    for got in transport.read_many(asked):
        assert isinstance(got, RangeBytes), got
        data = data_of(got.tag)
        assert (got.data, got.total, got.offset) == (data[-length:], len(data), max(0, len(data) - length))


def test_a_sound_server_is_asked_once_for_each_end(bucket: Path) -> None:
    with FaultServer(bucket) as server, Transport(server.url) as transport:
        ends(transport)
        assert said(server.hits) == {"suffix": FILES}


@pytest.mark.parametrize("kind", WITHOUT)
def test_a_host_without_suffix_ranges_is_learnt_once(bucket: Path, kind: str) -> None:
    with FaultServer(bucket, rules=[without(kind)]) as server, Transport(server.url, SourceOptions(retry=QUICK)) as one:
        one.read_suffix("f0", 8)
        assert said(server.hits) == {"suffix": 1, "HEAD": 1, "range": 1}
        server.hits.clear()
        ends(one)
        assert said(server.hits) == {"HEAD": FILES, "range": FILES}
        server.hits.clear()
        ends(one, totals=True)
        assert said(server.hits) == {"range": FILES}, "a size that is known need not be asked for"
        # the host has suffix ranges now, and no longer says how long objects are
        server.set_rules([Rule("501", ranges=("",), times=None)])
        one.read_suffix("f1", 8)
        server.hits.clear()
        ends(one)
        assert said(server.hits) == {"suffix": FILES}


def test_one_object_that_fails_says_nothing_about_its_host(bucket: Path) -> None:
    with FaultServer(bucket) as server, Transport(server.url, SourceOptions(retry=QUICK)) as transport:
        transport.read_suffix("f0", 8)
        server.set_rules([without("whole_object", key="f1")])
        server.hits.clear()
        ends(transport)
        # it is tried as often as any such answer, and comes by its size in the end
        assert said(server.hits) == {"suffix": FILES - 1 + 2, "HEAD": 1, "range": 1}
        server.hits.clear()
        with pytest.raises(RangeFault) as empty:
            transport.read_suffix("empty", 8)
        assert empty.value.kind is FaultKind.RANGE_NOT_SATISFIABLE
        with pytest.raises(RangeFault) as gone:
            transport.read_suffix("gone", 8)
        assert gone.value.kind is FaultKind.NOT_FOUND
        assert said(server.hits) == {"suffix": 2, "HEAD": 1}


def test_a_host_that_is_out_is_not_taken_for_one_without(bucket: Path) -> None:
    for kind in ("500", "503", "403", "404"):
        with FaultServer(bucket, rules=[Rule(kind, times=None, retry_after=0)]) as server:
            with Transport(server.url, SourceOptions(retry=QUICK, pauses=False)) as transport:
                with pytest.raises(RangeFault):
                    transport.read_suffix("f0", 8)
                server.set_rules([])
                server.hits.clear()
                transport.read_suffix("f1", 8)
            assert said(server.hits) == {"suffix": 1}
