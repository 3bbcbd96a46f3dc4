"""The states of captures as one machine: whatever a source answers, each capture gets one outcome."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import chain

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from cc_pipeline.archive.record import sha1_base32
from cc_pipeline.records.capture_states import CaptureStates, RangeRequest
from cc_pipeline.records.orders import RecordOptions
from cc_pipeline.records.range_plan import Coalescing, plan_ranges
from cc_pipeline.records.retry_policy import MAX_TRIES, FetchRetryPolicy
from cc_pipeline.records.segments import Row
from cc_pipeline.records.verification import verify_record
from cc_pipeline.transport.faults import FaultKind, RangeFault, range_fault
from cc_pipeline.transport.ranges import ByteRange, RangeBytes
from cc_pipeline_tests.records.planned import captures_table, html_record

CRAWL = "CC-MAIN-2024-22"
FILES, RECORDS = 5, 4
#: What a source does with a request: it gives the bytes, damages them alike or each time in another way, gives them
#: from another object, or nothing.
BYTES = ("good", "damaged", "noise", "other object")
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


def _bucket() -> tuple[dict[str, bytes], pa.Table]:
    contents: dict[str, bytes] = {}
    rows = []
    for file in range(FILES):
        key, data = f"f{file}.warc.gz", b""
        for number in range(RECORDS):
            url, body = f"https://example.com/{file}/{number}", b"%d" % number * (number + 1)
            member = html_record(url, body)
            place = {"warc_filename": key, "warc_record_offset": len(data), "warc_record_length": len(member)}
            # the index has another digest of one record of each file
            listed = b"another" if number == file % RECORDS else body
            rows.append({"url": url, "content_digest": sha1_base32(listed)} | place)
            data += member + bytes(40)
        contents[key] = data
    return contents, captures_table(rows, CRAWL)


CONTENTS, CAPTURES = _bucket()


@dataclass
class Source:
    """A source in which each file has habits. After ``closed_after`` requests it refuses."""

    habits: dict[str, list[str]]
    closed_after: int | None
    requests: Counter[str] = field(default_factory=Counter)
    answers: Counter[str] = field(default_factory=Counter)

    def answer(self, request: ByteRange) -> list[RangeBytes | RangeFault]:
        assert request.offset is not None and isinstance(request.tag, RangeRequest)
        sent, habits = sum(self.requests.values()), self.habits[request.key]
        act = habits[self.answers[request.key] % len(habits)]
        self.answers[request.key] += 1
        if self.closed_after is not None and sent >= self.closed_after:
            act = FaultKind.REFUSED.value
        tries = request.tries or 1
        assert 1 <= tries <= MAX_TRIES
        start, end = request.offset, request.offset + request.length
        data = CONTENTS[request.key][start:end]
        if act not in BYTES:
            self.requests[request.key] += tries
            return [_fault(request, FaultKind(act), start, end, tries)]
        self.requests[request.key] += 1
        if act == "damaged":
            data = bytes(byte ^ 1 for byte in data)
        elif act == "noise":
            data = bytes((byte + sent) % 256 for byte in data)
        etag = f'"{sent}"' if act == "other object" else '"1"'
        return [RangeBytes(request.key, start, data, None, etag, 1, request.tag)]


def _fault(request: ByteRange, kind: FaultKind, start: int, end: int, tries: int) -> RangeFault:
    fault = range_fault(kind, request.key, start, end - start, "as the script says", tries)
    fault.tag = request.tag
    return fault


@settings(max_examples=300, deadline=None)
@given(
    habits=st.lists(HABIT, min_size=FILES, max_size=FILES),
    gave_good_record=st.booleans(),
    span=st.sampled_from([1, 900, 1 << 20]),
    closed_after=LATER,
    halted_after=LATER,
)
def test_each_capture_ends_in_one_outcome_within_its_tries(
    habits: list[list[str]], gave_good_record: bool, span: int, closed_after: int | None, halted_after: int | None
) -> None:
    source = Source({f"f{number}.warc.gz": acts for number, acts in enumerate(habits)}, closed_after)
    options = RecordOptions(coalescing=Coalescing(gap=1 << 10, span=span), give_up_after=8)
    ranges = Counter(planned.key for planned in plan_ranges(CAPTURES, options.coalescing))
    stored: list[tuple[str, Row]] = []

    def store(kind: str, member: bytes, content: bytes, row: Row) -> None:
        row |= {"stored_file": kind, "stored_offset": len(stored), "stored_length": len(member)}
        stored.append((kind, dict(row)))

    def halt(is_refused: bool) -> bool:
        return halted_after is not None and sum(source.requests.values()) >= halted_after

    policy = FetchRetryPolicy(options.give_up_after, gave_good_record=gave_good_record)
    states = CaptureStates(CAPTURES, CRAWL, options, policy, store, halt)
    assert states.reuse([], []) == (0, 0)
    good: set[tuple[str, int]] = set()
    usable: set[tuple[str, int]] = set()
    for request in chain.from_iterable(states.passes()):
        for answer in source.answer(request):
            for arrival in states.add_answer(answer):
                verdict = verify_record(arrival.data, arrival.expected)
                if verdict.reason is None:
                    good.add((arrival.expected.key, arrival.expected.offset))
                elif verdict.reason == "digest_mismatch":
                    usable.add((arrival.expected.key, arrival.expected.offset))
                states.add_verdict(arrival, verdict)
    states.finish()

    rows = [row for batch in states.outcomes.batches() for row in batch.to_pylist()]
    places = [(row["warc_filename"], row["warc_record_offset"]) for row in rows]
    columns = (CAPTURES[name].to_pylist() for name in ("warc_filename", "warc_record_offset"))
    assert places == list(zip(*columns, strict=True))
    # no record that is good but for the index's digest is lost, and each is stored once
    assert {place for place, row in zip(places, rows, strict=True) if row["outcome"] == "fetched"} == good | usable
    assert sum(kind == "warc" for kind, _ in stored) == len(good | usable) == states.fetched
    assert len({(row["warc_filename"], row["warc_record_offset"]) for _, row in stored}) == len(stored)
    for row in rows:
        assert row["outcome"] in ("fetched", "quarantined", "missing")
        assert (row["is_final"] is None) == (row["outcome"] == "fetched") == (row["reason"] is None)
        assert (row["stored_file"] is None) == (row["outcome"] == "missing")
        # without a good record nothing counts as lost
        assert not row["is_final"] or gave_good_record or good or usable
    for key, sent in source.requests.items():
        if any(place[0] == key for place in good):
            assert sent <= (MAX_TRIES + 1) * ranges[key] + options.tries * RECORDS
        else:
            # a file that gives nothing costs hardly more than its ranges (docs/faults.md)
            assert sent <= ranges[key] + 3 + ranges[key] // 5
