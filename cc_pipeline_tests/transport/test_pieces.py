"""A long range leaves in whole records while it arrives, and goes on where it broke."""

from __future__ import annotations

import random
import time
from dataclasses import replace
from itertools import accumulate, cycle
from pathlib import Path

import pytest
from cc_pipeline.transport.pieces import PIECE, Pieces, peak_memory
from hypothesis import given
from hypothesis import strategies as st

from cc_pipeline.stores.answer import Answer
from cc_pipeline.transport import pieces as of_pieces
from cc_pipeline.transport.client import Transport
from cc_pipeline.transport.faults import FaultKind, Finding, RangeFault, Verified
from cc_pipeline.transport.ranges import ByteRange, RangeBytes, RetryPolicy
from cc_pipeline.transport.source_client import SourceOptions
from cc_pipeline_tests.faultserver import FaultServer, Rule

FIRST = 100


@given(
    st.lists(st.integers(1, 300), min_size=1, max_size=60),
    st.lists(st.integers(20, 700), min_size=1, max_size=60),
    st.lists(st.integers(0, 40), max_size=6),
    st.integers(0, 1_000),
)
def test_pieces_are_the_range_cut_where_records_end(
    records: list[int], chunks: list[int], breaks: list[int], seed: int
) -> None:
    draw = random.Random(seed)
    data = draw.randbytes(FIRST + sum(records))
    ends = tuple(accumulate(records, initial=FIRST))[1:]
    got: list[tuple[int, bytes]] = []
    waiting = 0

    def give(offset: int, body: bytes, found: Verified) -> None:
        nonlocal waiting
        assert (found.total, found.etag) == (len(data), '"e"')
        got.append((offset, body))
        waiting += 1

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(of_pieces, "PIECE", 500)
        asked = ByteRange("k", FIRST, sum(records), ends=ends)
        pieces, most = Pieces(asked, give), peak_memory(asked)
        for number in range(len(breaks) + 1):
            pieces.start()
            start = pieces.span.offset
            assert start is not None
            assert start == FIRST or start in ends
            last = len(data) - 1
            head = {"content-range": f"bytes {start}-{last}/{len(data)}", "etag": '"e"'}
            assert pieces.begins(206, head)
            at = start
            stops_after = breaks[number] if number < len(breaks) else None
            for count, chunk in enumerate(cycle(chunks)):
                if at == len(data) or count == stops_after:
                    break
                if pieces.is_full or draw.random() < 0.5:
                    while waiting:
                        waiting -= 1
                        pieces.release_piece()
                assert not pieces.is_full
                pieces.take(data[at : at + chunk])
                at = min(len(data), at + chunk)
                # what arrives, and what nobody took: two pieces, with the record and the chunk that go beyond
                assert len(pieces._buffer) <= 500 + 300 + 700
                assert len(pieces._buffer) + (len(got[-1][1]) if waiting else 0) <= most + chunk
            found = pieces.judge(Answer(206, head, b"", at - start))
            if isinstance(found, Verified):
                got.append((found.offset, pieces.take_remainder(Answer(206, head, b""))))
                break
            assert found.kind in (FaultKind.SHORT_BODY, FaultKind.EMPTY_BODY)
        assert isinstance(found, Verified)
    assert b"".join(body for _, body in got) == data[FIRST:]
    assert [offset for offset, _ in got] == list(accumulate((len(body) for _, body in got), initial=FIRST))[:-1]
    assert all(offset + len(body) in ends for offset, body in got)


def arrive(seed: int) -> None:
    """One range as it arrives and is taken: answers that break or are too long, and a caller that takes a piece at
    once, later, or only when the rest is there. Every byte is given once, in order, and none without its request."""
    draw = random.Random(seed)
    records = [draw.randint(1, 300) for _ in range(draw.randint(1, 60))]
    data = draw.randbytes(FIRST + sum(records))
    ends = tuple(accumulate(records, initial=FIRST))[1:]
    given: list[tuple[int, bytes, int]] = []
    answers: list[int] = []
    answer, held_by_caller, hurry = 0, 0, draw.choice((0.0, 0.1, 0.5, 1.0))

    def give(offset: int, body: bytes, _: Verified) -> None:
        nonlocal held_by_caller
        held_by_caller += 1
        given.append((offset, body, pieces.request))
        answers.append(answer)

    def take(share: float) -> None:
        nonlocal held_by_caller
        while held_by_caller and draw.random() < share:
            held_by_caller -= 1
            pieces.release_piece()

    pieces = Pieces(ByteRange("k", FIRST, sum(records), ends=ends), give)
    found: Verified | Finding | None = None
    while not isinstance(found, Verified):
        pieces.start()
        answer += 1
        at = pieces.span.offset
        assert at is not None
        head = {"content-range": f"bytes {at}-{len(data) - 1}/{len(data)}"}
        assert pieces.begins(206, head)
        breaks = draw.random() < 0.3
        while at < len(data) and not (breaks and draw.random() < 0.1):
            while pieces.is_full:
                take(max(hurry, 0.1))
            chunk = draw.randint(1, 900)
            pieces.take(data[at : at + chunk])
            at = min(len(data), at + chunk)
            take(hurry)
        if at == len(data) and draw.random() < 0.05:
            pieces.take(b"one too many")
        found = pieces.judge(Answer(206, head, b""))
    given.append((found.offset, pieces.take_remainder(Answer(206, head, b"")), pieces.request))
    answers.append(answer)
    while held_by_caller:
        take(0.5)
    assert b"".join(body for _, body, _ in given) == data[FIRST:], seed
    assert [offset for offset, _, _ in given] == list(accumulate((len(b) for _, b, _ in given), initial=FIRST))[:-1]
    by_answer = {(request, answer) for (_, _, request), answer in zip(given, answers, strict=True)}
    assert len(by_answer) == len({request for request, _ in by_answer}) == len({answer for _, answer in by_answer})


@given(st.integers(0, 1 << 40), st.sampled_from((1, 50, 500, 4_000)))
def test_every_byte_is_given_once_however_late_a_piece_is_taken(seed: int, piece: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(of_pieces, "PIECE", piece)
        arrive(seed)


def test_an_answer_that_is_something_else_gives_no_piece() -> None:
    pieces = Pieces(ByteRange("k", 0, 10, ends=(5, 10)), lambda *_: pytest.fail("a piece"))
    for status, head in (
        (200, {}),
        (206, {"content-range": "bytes 1-10/20"}),
        (206, {"content-range": "bytes 0-9/20", "content-length": "12"}),
        (206, {"content-range": "bytes 0-9/*x"}),
    ):
        pieces.start()
        assert not pieces.begins(status, head)
        assert isinstance(pieces.judge(Answer(status, head, b"")), Finding)


RECORD = 60_000
COUNT = 200


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bucket")
    (folder / "f").write_bytes(random.Random(1).randbytes(RECORD * COUNT + 7))
    return folder


ASKED = ByteRange("f", 7, RECORD * COUNT, ends=tuple(7 + RECORD * n for n in range(1, COUNT + 1)))


def read(source: str, asked: ByteRange = ASKED) -> tuple[list[RangeBytes | RangeFault], Transport]:
    retry = RetryPolicy(base=0.001, longest=0.002)
    with Transport(source, SourceOptions(retry=retry, rate=1e6, concurrency=4)) as transport:
        return list(transport.read_many([asked])), transport


def whole(folder: Path, got: list[RangeBytes | RangeFault]) -> bool:
    assert all(isinstance(one, RangeBytes) for one in got)
    assert all(one.offset in (7, *ASKED.ends) for one in got)
    data = b"".join(one.data for one in got if isinstance(one, RangeBytes))
    return data == (folder / "f").read_bytes()[7:]


@pytest.mark.parametrize("over", ["http", "folder"])
def test_it_comes_in_pieces_over_every_way(folder: Path, over: str) -> None:
    with FaultServer(folder) as server:
        got, transport = read(str(folder) if over == "folder" else server.url)
        assert whole(folder, got)
        assert max(len(one.data) for one in got if isinstance(one, RangeBytes)) < 2 * PIECE
        assert len(got) >= 4
        assert transport.stats.bytes == ASKED.length
        assert len(server.hits) == (0 if over == "folder" else 1)


@pytest.mark.parametrize("kind", ["cut", "reset", "short", "503", "long", "empty"])
def test_what_breaks_goes_on_behind_the_last_whole_record(folder: Path, kind: str) -> None:
    # each range breaks once, in its middle where it is a connection: more often than a range is tried
    breaks = kind in ("cut", "reset")
    with FaultServer(folder, rules=[Rule(kind, times=1 if breaks else 2, by_key=not breaks, retry_after=0)]) as server:
        got, _ = read(server.url)
        assert whole(folder, got)
        starts = [int((hit.range or "").removeprefix("bytes=").partition("-")[0]) for hit in server.hits]
    assert starts == sorted(starts)
    # of each answer that gave something, one piece is the first
    assert {one.offset for one in got if isinstance(one, RangeBytes) and one.first} == set(starts)
    if breaks:
        # of a reset connection, what had not been read yet is lost
        assert len(starts) > RetryPolicy().attempts
        assert sum(hit.body_bytes for hit in server.hits) < (2.5 if kind == "cut" else 4) * ASKED.length


@pytest.mark.parametrize("tries", [None, 6])
def test_what_broke_and_went_on_was_spent(folder: Path, tries: int | None) -> None:
    with FaultServer(folder, rules=[Rule("cut")]) as server:
        got, _ = read(server.url, replace(ASKED, tries=tries))
        assert whole(folder, got)
        assert len(server.hits) > 6
        last = got[-1]
        assert isinstance(last, RangeBytes)
        assert last.attempts == (tries or len(server.hits))


@pytest.mark.parametrize("delay", [0.0, 0.1])
def test_a_caller_that_holds_a_piece_gets_each_byte_once(folder: Path, delay: float) -> None:
    with FaultServer(folder) as server, Transport(server.url, SourceOptions(rate=1e6)) as transport:
        got = []
        for one in transport.read_many([ASKED, replace(ASKED, ends=())]):
            time.sleep(delay)  # the rest of the range completes meanwhile
            got.append(one)
    pieces = [one for one in got if isinstance(one, RangeBytes) and one.tag is None]
    assert sum(len(one.data) for one in pieces) == 2 * ASKED.length
    assert len({one.request for one in pieces}) == 2


def test_large_records_keep_to_the_memory_bound(folder: Path) -> None:
    # each half of the file is one record; both fit, beside nothing else
    asked = replace(ASKED, ends=(7 + RECORD * COUNT // 2, 7 + RECORD * COUNT))
    with FaultServer(folder) as server:
        with Transport(
            server.url, SourceOptions(rate=1e6, concurrency=4), memory_bound=3 * asked.length // 2
        ) as transport:
            assert next(iter(transport.read_many([asked, asked]))).offset == 7
        assert len(server.hits) == 1


def test_a_fault_is_of_what_is_left(folder: Path) -> None:
    # the first answer breaks in its middle, and nothing comes of the rest
    first = f"bytes=7-{6 + ASKED.length}"
    rules = [Rule("cut", ranges=(first,)), Rule("500", times=None, ranges=("*",))]
    with FaultServer(folder, rules=rules) as server:
        got, _ = read(server.url)
    *came, fault = got
    assert isinstance(fault, RangeFault)
    data = b"".join(one.data for one in came if isinstance(one, RangeBytes))
    assert RECORD * COUNT // 3 < len(data) <= RECORD * COUNT // 2
    assert len(data) % RECORD == 0
    assert (fault.kind, fault.offset, fault.length) == (FaultKind.SERVER_ERROR, 7 + len(data), ASKED.length - len(data))
    # nor is anything else on the way when the caller leaves early
    with FaultServer(folder) as server, Transport(server.url) as transport:
        assert next(iter(transport.read_many([ASKED, ASKED]))).offset == 7


def dies(transport: Transport, *, keeps: bool) -> BaseException:
    """A consumer that fails in the middle; its traceback keeps its variables, and so the iterator where one has it."""
    try:
        if keeps:
            outcomes = transport.read_many([ASKED] * 3)
            for _ in outcomes:
                raise ValueError
        for _ in transport.read_many([ASKED] * 3):
            raise ValueError
    except ValueError as error:
        return error
    raise AssertionError


@pytest.mark.parametrize("keeps", [False, True])
def test_a_consumer_that_died_keeps_nobody_waiting(folder: Path, monkeypatch: pytest.MonkeyPatch, keeps: bool) -> None:
    monkeypatch.setattr("cc_pipeline.transport.source_client._STALL_SECONDS", 0.02)
    with FaultServer(folder) as server, Transport(server.url, SourceOptions(rate=1e6, concurrency=1)) as transport:
        error = dies(transport, keeps=keeps)
        assert transport.read("f", 5, 10).data == (folder / "f").read_bytes()[5:15]
        assert error.__traceback__ is not None


def test_a_consumer_that_reads_from_the_same_place_goes_on(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cc_pipeline.transport.source_client._STALL_SECONDS", 0.02)
    data = (folder / "f").read_bytes()
    with FaultServer(folder) as server, Transport(server.url, SourceOptions(rate=1e6, concurrency=1)) as transport:
        got = []
        for one in transport.read_many([ASKED]):
            assert isinstance(one, RangeBytes)
            assert transport.read("f", one.offset, 10).data == data[one.offset : one.offset + 10]
            got.append(one.data)
    assert b"".join(got) == data[7:]
