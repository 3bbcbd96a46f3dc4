"""A fetch from a server with faults: what is stored of bad bytes, of rows that name no record, of repeated answers."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from cc_pipeline.records.orders import RecordOptions
from cc_pipeline.records.range_plan import Coalescing
from cc_pipeline.records.segments import retire_journals
from cc_pipeline.transport.client import Transport
from cc_pipeline.transport.faults import RangeFault
from cc_pipeline.transport.ranges import ByteRange, RangeBytes, RetryPolicy
from cc_pipeline.transport.source_client import SourceOptions
from cc_pipeline_tests.faultserver import FaultServer, Rule
from cc_pipeline_tests.records.fetching import FIRST_ASK, Fetched, fetch_table
from cc_pipeline_tests.records.planned import shelf_at, write_archives

CRAWL = "CC-MAIN-2024-22"
RECORDS, FILES = 300, 10


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, pa.Table]:
    """A folder of archives, and their captures."""
    folder, draw = tmp_path_factory.mktemp("bucket"), random.Random(5)
    bodies = {
        f"f{file}.warc.gz": [b"<html>" + draw.randbytes(draw.randint(200, 900)) for _ in range(RECORDS // FILES)]
        for file in range(FILES)
    }
    return folder, write_archives(folder, bodies, CRAWL)


def fetch(
    url: str,
    captures: pa.Table,
    lake: Path,
    commit: str,
    held: pa.Table | None = None,
    *,
    days: float = 0,
    **options: object,
) -> Fetched:
    retry = RetryPolicy(attempts=3, base=0.001, longest=0.002)
    chosen: dict[str, object] = {"coalescing": Coalescing(gap=0), "give_up_after": 200} | options
    with Transport(url, SourceOptions(retry=retry)) as transport, shelf_at(lake) as storage:
        result = fetch_table(
            captures,
            transport,
            storage,
            crawl=CRAWL,
            commit=commit,
            held=held,
            options=RecordOptions(**chosen),
            asked_at=FIRST_ASK + timedelta(days=days),
        )
        retire_journals(storage, result.settled)
        return result


def test_bad_bytes_are_kept_as_they_came_and_are_lost_until_asked_for(
    bucket: tuple[Path, pa.Table], tmp_path: Path
) -> None:
    folder, captures = bucket
    with FaultServer(folder, rules=[Rule("garbage", times=None, share=0.05)]) as server:
        result = fetch(server.url, captures, tmp_path, "c0")
        for day in (1, 2):
            result = fetch(server.url, captures, tmp_path, f"c{day}", result.table, days=day)
        rows = [row for row in result.table.to_pylist() if row["outcome"] != "fetched"]
        assert {(row["outcome"], row["asks"], row["reason"]) for row in rows} == {("lost", 3, "not_gzip")}
        with shelf_at(tmp_path) as storage:
            for row in rows:
                raw = storage.transport.read(row["stored_file"], row["stored_offset"], row["stored_length"]).data
                assert len(raw) == row["warc_record_length"]
        # lost is final; asked for on request it stays, unless a good record comes
        assert fetch(server.url, captures, tmp_path, "c3", result.table, days=9).requests == 0
        again = fetch(server.url, captures, tmp_path, "c4", result.table, retry_lost=True)
        assert again.table.equals(result.table)
        server.set_rules([])
        healed = fetch(server.url, captures, tmp_path, "c5", result.table, retry_lost=True)
    assert healed.outcomes == {"fetched": RECORDS}
    assert healed.requests == len(rows)


@pytest.mark.parametrize("key", ["../f1.warc.gz", "/etc/passwd", "a/../../f1.warc.gz", "f\0.warc.gz", None])
def test_a_row_that_names_no_key_of_the_source_takes_nothing_with_it(
    bucket: tuple[Path, pa.Table], tmp_path: Path, key: str | None
) -> None:
    folder, captures = bucket
    rows = captures.slice(0, 10).to_pylist()
    rows[3]["warc_filename"] = key
    odd = pa.Table.from_pylist(rows, schema=captures.schema)
    first = fetch(str(folder), odd.slice(0, 6), tmp_path, "c1")
    result = fetch(str(folder), odd, tmp_path, "c2", held=first.table)
    assert result.outcomes == {"fetched": 9, "lost": 1}
    assert result.table["reason"].to_pylist()[3] == "bad_plan"
    assert not any(result.table[name].null_count for name in ("warc_filename", "warc_record_offset"))


class SeenTwice(Transport):
    """Gives each answer's bytes a second time."""

    def read_many(
        self, requests: Iterable[ByteRange], concurrency: int | None = None
    ) -> Iterator[RangeBytes | RangeFault]:
        for outcome in super().read_many(requests, concurrency):
            yield outcome
            if isinstance(outcome, RangeBytes):
                yield outcome


@pytest.mark.parametrize("examiners", [0, 2])
def test_one_answer_seen_twice_settles_nothing_and_stores_nothing_twice(
    bucket: tuple[Path, pa.Table], tmp_path: Path, examiners: int
) -> None:
    folder, captures = bucket
    # about eight records a range, so that a bad one has company
    options = RecordOptions(coalescing=Coalescing(gap=1 << 20, span=8_000), examiners=examiners)
    with (
        FaultServer(folder, rules=[Rule("bit_flip", by_key=True)]) as server,
        SeenTwice(server.url) as transport,
        shelf_at(tmp_path) as storage,
    ):
        result = fetch_table(captures, transport, storage, crawl=CRAWL, commit="c", options=options)
        journals = [storage.transport.read_all(key).data for key in storage.journals(CRAWL)]
    # damaged on the way once, and good when it was asked for again
    assert result.outcomes == {"fetched": RECORDS}
    assert sum(data.count(b'"outcome":"fetched"') for data in journals) == RECORDS
