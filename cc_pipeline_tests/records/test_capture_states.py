"""The states of captures as one machine: whatever a source answers, each capture gets one outcome. And what becomes of
it over days, in a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cc_pipeline.archive.record import sha1_base32
from cc_pipeline.records.ask_counts import count_asks
from cc_pipeline.records.capture_states import CaptureStates, RangeRequest
from cc_pipeline.records.orders import RecordOptions
from cc_pipeline.records.range_plan import Coalescing, plan_ranges
from cc_pipeline.records.segments import Row
from cc_pipeline.records.source_state import SourceState
from cc_pipeline.records.verification import ExpectedRecord, verify_record
from cc_pipeline.transport.faults import FaultKind, RangeFault, range_fault
from cc_pipeline.transport.ranges import ByteRange, RangeBytes
from cc_pipeline_tests.records.planned import captures_table, make_archives

CRAWL = "CC-MAIN-2024-22"
FILES, RECORDS = 5, 4
#: What a source does with a request: it gives the bytes, damages them alike or each time in another way, or nothing.
BYTES = ("good", "damaged", "noise")
FAULTS = (
    FaultKind.NOT_FOUND,
    FaultKind.RANGE_NOT_SATISFIABLE,
    FaultKind.SHORT_BODY,
    FaultKind.TIMEOUT,
    FaultKind.REFUSED,
)
ACT = st.sampled_from([*BYTES, *(kind.value for kind in FAULTS[:4])])
#: What a file does with one request after the other; then it begins again.
HABIT = st.lists(ACT, min_size=1, max_size=1) | st.lists(ACT, min_size=2, max_size=4)
#: The number of requests after which something happens, seldom at all.
LATER = st.none() | st.none() | st.none() | st.integers(0, 60)
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def _bucket() -> tuple[dict[str, bytes], pa.Table]:
    bodies = [b"%d" % number * (number + 1) for number in range(RECORDS)]
    contents, rows = make_archives({f"f{file}.warc.gz": bodies for file in range(FILES)})
    for file in range(FILES):
        # the index has another digest of one record of each file
        rows[file * RECORDS + file % RECORDS]["content_digest"] = sha1_base32(b"another")
    return contents, captures_table(rows, CRAWL)


CONTENTS, CAPTURES = _bucket()


@dataclass
class Source:
    """A source in which each file has habits. After ``closed_after`` requests it refuses."""

    habits: dict[str, list[str]]
    closed_after: int | None = None
    requests: Counter[str] = field(default_factory=Counter)

    def answer(self, request: ByteRange) -> RangeBytes | RangeFault:
        assert request.offset is not None
        sent, habits = sum(self.requests.values()), self.habits.get(request.key, ["good"])
        act = habits[self.requests[request.key] % len(habits)]
        self.requests[request.key] += 1
        if self.closed_after is not None and sent >= self.closed_after:
            act = FaultKind.REFUSED.value
        start, end = request.offset, request.offset + request.length
        data = CONTENTS[request.key][start:end]
        if act not in BYTES:
            fault = range_fault(FaultKind(act), request.key, start, end - start, "as the script says", 1)
            fault.tag = request.tag
            return fault
        if act == "damaged":
            data = bytes(byte ^ 1 for byte in data)
        elif act == "noise":
            data = bytes((byte + sent) % 256 for byte in data)
        return RangeBytes(request.key, start, data, None, None, 1, request.tag)


@dataclass
class Fetch:
    """One fetch from a source: the rows, in the order of the captures, and the kinds and rows of what was stored."""

    rows: list[Row]
    stored: list[tuple[str, Row]]
    good: set[tuple[str, int]]
    fetched: int
    is_proven: bool


def fetch(
    source: Source,
    held: Sequence[Row] = (),
    ask_time: datetime = NOON,
    *,
    captures: pa.Table = CAPTURES,
    halted_after: int | None = None,
    times: int = 1,
    **chosen: Any,
) -> Fetch:
    """Fetches; each answer is given so many ``times``."""
    options = RecordOptions(**{"coalescing": Coalescing(gap=1 << 10, span=900), "give_up_after": 8} | chosen)
    stored: list[tuple[str, Row]] = []
    good: set[tuple[str, int]] = set()

    def store(kind: str, member: bytes, content: bytes, row: Row) -> None:
        row |= {"stored_file": kind, "stored_offset": len(stored), "stored_length": len(member)}
        stored.append((kind, dict(row)))

    def halt(is_refused: bool) -> bool:
        return halted_after is not None and sum(source.requests.values()) >= halted_after

    state = SourceState(options.give_up_after, gave_good_record=options.source_gave_good_record)
    states = CaptureStates(captures, CRAWL, options, ask_time, state, store, halt)
    states.reuse(held, [])
    for request in chain.from_iterable(states.passes()):
        assert isinstance(request.tag, RangeRequest)
        answer = source.answer(request)
        for arrival in [arrival for _ in range(times) for arrival in states.add_answer(answer)]:
            verdict = verify_record(arrival.data, arrival.expected)
            if verdict.reason is None:
                good.add((arrival.expected.key, arrival.expected.offset))
            states.add_verdict(arrival, verdict)
    states.finish()
    for request in states.proof_ranges():
        answer = source.answer(request)
        assert isinstance(request.tag, ExpectedRecord)
        if isinstance(answer, RangeBytes) and verify_record(answer.data, request.tag).reason is None:
            state.note_good_record(request.key)
    rows = [
        row
        for batch in states.outcomes.batches()
        for row in count_asks(batch, ask_time, is_source_sound=state.gave_good_record).to_pylist()
    ]
    return Fetch(rows, stored, good, states.fetched, state.gave_good_record)


@settings(max_examples=300, deadline=None)
@given(
    habits=st.lists(HABIT, min_size=FILES, max_size=FILES),
    gave_good_record=st.booleans(),
    span=st.sampled_from([1, 900, 1 << 20]),
    closed_after=LATER,
    halted_after=LATER,
)
def test_each_capture_ends_in_one_outcome_within_its_requests(
    habits: list[list[str]], gave_good_record: bool, span: int, closed_after: int | None, halted_after: int | None
) -> None:
    source = Source({f"f{number}.warc.gz": acts for number, acts in enumerate(habits)}, closed_after)
    coalescing = Coalescing(gap=1 << 10, span=span)
    ranges = Counter(planned.key for planned in plan_ranges(CAPTURES, coalescing))
    done = fetch(source, halted_after=halted_after, coalescing=coalescing, source_gave_good_record=gave_good_record)
    places = [(row["warc_filename"], row["warc_record_offset"]) for row in done.rows]
    columns = (CAPTURES[name].to_pylist() for name in ("warc_filename", "warc_record_offset"))
    assert places == list(zip(*columns, strict=True))
    # no record that is good but for the index's digest is lost, and each is stored once
    assert {place for place, row in zip(places, done.rows, strict=True) if row["outcome"] == "fetched"} == done.good
    assert sum(kind == "warc" for kind, _ in done.stored) == len(done.good) == done.fetched
    for row in done.rows:
        assert row["outcome"] in ("fetched", "pending")
        assert (row["outcome"] == "fetched") == (row["reason"] is None)
        assert row["asks"] == int(row["last_ask_at"] is not None) <= int(gave_good_record or bool(done.good))
    for key, sent in source.requests.items():
        # each range once, each record alone once
        assert sent <= ranges[key] + RECORDS


def outcomes(done: Fetch, key: str = "f1.warc.gz") -> set[tuple[Any, ...]]:
    return {(row["outcome"], row["asks"], row["reason"]) for row in done.rows if row["warc_filename"] == key}


GONE = {"f1.warc.gz": ["not_found"]}
EVERYTHING = [f"f{number}.warc.gz" for number in range(FILES)]


@pytest.mark.parametrize(
    ("habits", "hours", "expected"),
    [
        # an ask a day, whatever is asked in between
        (GONE, (0, 24, 48), [(1, "pending"), (2, "pending"), (3, "lost")]),
        (GONE, (0, 19, 20, 39, 40), [(1, "pending"), (1, "pending"), (2, "pending"), (2, "pending"), (3, "lost")]),
        ({"f1.warc.gz": ["damaged"]}, (0, 24, 48), [(1, "pending"), (2, "pending"), (3, "lost")]),
        # a fault of the source is no ask, however often
        ({"f1.warc.gz": ["timeout"]}, (0, 24, 48, 72), [(0, "pending")] * 4),
        # a source that gives nothing at all is not believed
        ({key: ["not_found"] for key in EVERYTHING}, (0, 24, 48, 72), [(0, "pending")] * 4),
        # a clock that was a year ahead: the ask is due
        (GONE, (365 * 24, 0, 24), [(1, "pending"), (2, "pending"), (3, "lost")]),
    ],
    ids=["gone", "often", "damaged", "timeout", "all gone", "clock ahead"],
)
def test_what_becomes_of_a_file_that_fails(
    habits: dict[str, list[str]], hours: Sequence[int], expected: list[tuple[int, str]]
) -> None:
    rows: list[Row] = []
    seen = []
    for hour in hours:
        done = fetch(Source(habits), rows, NOON + timedelta(hours=hour))
        rows = done.rows
        [(word, asks, _)] = outcomes(done)
        seen.append((asks, word))
    assert seen == expected


def test_two_days_of_lies_are_healed_by_a_sound_one() -> None:
    rows: list[Row] = []
    for day, act in enumerate(("damaged", "not_found", "good")):
        done = fetch(Source({"f1.warc.gz": [act]}), rows, NOON + timedelta(days=day))
        rows = done.rows
    assert outcomes(done) == {("fetched", 0, None)}


def test_bad_bytes_are_kept_as_they_came_and_lost_is_final_until_asked_for() -> None:
    damaged = Source({"f1.warc.gz": ["damaged"]})
    rows: list[Row] = []
    for day in range(3):
        rows = fetch(damaged, rows, NOON + timedelta(days=day)).rows
    lost = {("lost", 3, "not_gzip")}
    of_file = [row for row in rows if row["warc_filename"] == "f1.warc.gz"]
    assert all(row["stored_file"] == "raw" and row["stored_length"] == row["warc_record_length"] for row in of_file)
    sound = Source({})
    assert outcomes(fetch(sound, rows, NOON + timedelta(days=9))) == lost
    assert not sound.requests
    assert outcomes(fetch(damaged, rows, retry_lost=True)) == lost
    assert outcomes(fetch(sound, rows, retry_lost=True)) == {("fetched", 0, None)}


@pytest.mark.parametrize("key", ["../f1.warc.gz", "/etc/passwd", "a/../../f1.warc.gz", "f\0.warc.gz", None])
def test_a_row_that_names_no_key_of_the_source_is_lost_alone(key: str | None) -> None:
    rows = CAPTURES.to_pylist()
    rows[3]["warc_filename"] = key
    done = fetch(Source({}), captures=pa.Table.from_pylist(rows, schema=CAPTURES.schema))
    assert (done.rows[3]["outcome"], done.rows[3]["reason"], done.rows[3]["warc_filename"]) == (
        "lost", "bad_plan", key or "",
    )  # fmt: skip
    assert done.fetched == len(rows) - 1


def test_one_answer_seen_twice_settles_nothing_and_stores_nothing_twice() -> None:
    # damaged on the way once, and good when each record was asked for again
    done = fetch(Source({key: ["damaged", *["good"] * RECORDS] for key in EVERYTHING}), times=2)
    assert done.fetched == sum(kind == "warc" for kind, _ in done.stored) == FILES * RECORDS


@pytest.mark.parametrize("kind", [FaultKind.THROTTLED, FaultKind.FORBIDDEN])
def test_a_file_that_is_refused_alone_keeps_no_other_away(kind: FaultKind) -> None:
    done = fetch(Source({"f1.warc.gz": [kind.value]}))
    assert {(word, reason) for word, _, reason in outcomes(done)} == {("pending", kind.value)}
    assert done.fetched == (FILES - 1) * RECORDS


def test_a_file_that_is_gone_costs_a_few_requests_a_day() -> None:
    source = Source(GONE)
    first = fetch(source, coalescing=Coalescing(gap=0, span=1))
    assert source.requests["f1.warc.gz"] == 3
    assert outcomes(first) == {("pending", 1, "not_found")}
    # what was not requested counts as what was
    assert sorted(row["attempts"] for row in first.rows if row["warc_filename"] == "f1.warc.gz") == [0, 1, 1, 1]


def test_asks_of_other_targets_are_taken_over() -> None:
    [first, second] = (fetch(Source(GONE), [], NOON + timedelta(hours=hour)).rows for hour in (0, 1))
    twice = fetch(Source(GONE), first, NOON + timedelta(days=1)).rows
    for held in ([*second, *twice], [*twice, *second]):
        assert outcomes(fetch(Source(GONE), held, NOON + timedelta(days=2))) == {("lost", 3, "not_found")}
    # a record that any of them has is one for all
    lost = fetch(Source(GONE), twice, NOON + timedelta(days=2)).rows
    here = fetch(Source({})).rows
    source = Source(GONE)
    assert outcomes(fetch(source, [*lost, *here])) == {("fetched", 0, None)}
    assert not source.requests


def test_captures_that_failed_come_last_and_those_not_asked_for_keep_what_is_known() -> None:
    silent = {key: ["timeout"] for key in EVERYTHING[:3]}
    first = fetch(Source(silent), give_up_after=3, coalescing=Coalescing(gap=0, span=1 << 20))
    assert outcomes(first, EVERYTHING[3]) == {("pending", 0, "timeout")}
    assert {row["attempts"] for row in first.rows if row["warc_filename"] in EVERYTHING[3:]} == {0}
    second = fetch(Source(silent), first.rows, NOON + timedelta(hours=1), give_up_after=3)
    assert [outcomes(second, key) for key in EVERYTHING[3:]] == [{("fetched", 0, None)}] * 2
    # the source refuses: what is known stays
    gone = fetch(Source(GONE)).rows
    refused = fetch(Source(GONE, closed_after=0), gone, NOON + timedelta(days=1))
    assert outcomes(refused) == {("pending", 1, "not_found")}
