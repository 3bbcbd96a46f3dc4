"""The fault matrix: every kind, once or for good, over a partition; the ledger balances and names them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from cc_pipeline.archive.record import sha1_base32
from cc_pipeline.records.orders import RecordOptions
from cc_pipeline.records.range_plan import Coalescing
from cc_pipeline.records.segments import retire_journals
from cc_pipeline.stores.answer import Timeouts
from cc_pipeline.transport.client import Transport
from cc_pipeline.transport.faults import RangeFault
from cc_pipeline.transport.ranges import ByteRange, RangeBytes, RetryPolicy
from cc_pipeline.transport.source_client import SourceOptions
from cc_pipeline_tests.faultserver import FAULT_KINDS, FaultServer, Rule
from cc_pipeline_tests.records.fetching import FIRST_ASK, Fetched, fetch_table
from cc_pipeline_tests.records.planned import captures_table, html_record, shelf_at

CRAWL = "CC-MAIN-2024-22"
RECORDS = 2_000
FILES = 20
#: Columns that may differ between two runs over the same captures (a record's stored length counts its source's URI).
VARYING = ("fetched_at", "attempts", "stored_file", "stored_offset", "stored_length")

#: About eight records a range, so that a bad one has company.
TOGETHER = Coalescing(gap=1 << 20, span=8_000)


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, pa.Table]:
    """2,000 records in 20 files, with gaps between them that no range bridges."""
    folder = tmp_path_factory.mktemp("bucket")
    draw = random.Random(5)
    rows = []
    contents = [bytearray() for _ in range(FILES)]
    for number in range(RECORDS):
        url = f"https://example.com/page/{number}"
        body = b"<html>" + draw.randbytes(draw.randint(200, 900)) + b"</html>"
        member = html_record(url, body)
        file = contents[number % FILES]
        rows.append(
            {
                "url": url,
                "content_digest": sha1_base32(body),
                "warc_filename": f"f{number % FILES:02d}.warc.gz",
                "warc_record_offset": len(file),
                "warc_record_length": len(member),
            }
        )
        file += member + bytes(40)
    for number, file in enumerate(contents):
        (folder / f"f{number:02d}.warc.gz").write_bytes(file)
    return folder, captures_table(rows, CRAWL)


#: What shows only after a timeout. Others are given time: on a busy machine a good answer takes a while too.
SILENT = {"stall", "drip"}


def fetch(
    url: str,
    captures: pa.Table,
    lake: Path,
    commit: str,
    held: pa.Table | None = None,
    *,
    silent: bool = False,
    days: float = 0,
    **options: object,
) -> Fetched:
    retry = RetryPolicy(attempts=3, base=0.001, longest=0.002)
    brief = Timeouts(connect=20, silence=1, window=2, slowest=1_000_000)
    timeouts = brief if silent else Timeouts(connect=20, silence=20, window=30, slowest=1_000_000)
    chosen: dict[str, object] = {"coalescing": Coalescing(gap=0), "give_up_after": 200} | options
    with Transport(url, SourceOptions(retry=retry, timeouts=timeouts)) as transport, shelf_at(lake) as storage:
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


def same(one: pa.Table, other: pa.Table) -> bool:
    return bool(one.drop_columns(VARYING) == other.drop_columns(VARYING))


def balanced(result: Fetched, captures: pa.Table) -> bool:
    names = ("warc_filename", "warc_record_offset")
    keys = list(zip(*(result.table.column(name).to_pylist() for name in names), strict=True))
    asked = list(zip(*(captures.column(name).to_pylist() for name in names), strict=True))
    return keys == asked and sum(result.outcomes.values()) == captures.num_rows


@pytest.fixture(scope="module")
def faultless(bucket: tuple[Path, pa.Table], tmp_path_factory: pytest.TempPathFactory) -> pa.Table:
    folder, captures = bucket
    result = fetch(str(folder), captures, tmp_path_factory.mktemp("lake"), "c0")
    assert result.outcomes == {"fetched": RECORDS}
    assert pc.unique(result.table.column("digest_check")).to_pylist() == ["match"]
    return result.table


def test_all_transient_faults_at_once_change_nothing(
    bucket: tuple[Path, pa.Table], faultless: pa.Table, tmp_path: Path
) -> None:
    folder, captures = bucket
    captures, faultless = (table.slice(0, 1_000) for table in (captures, faultless))
    rules = [Rule(kind, share=0.01, retry_after=0, bytes_per_second=50) for kind in FAULT_KINDS]
    with FaultServer(folder, rules=rules) as server:
        result = fetch(server.url, captures, tmp_path, "c1", silent=True)
        assert {hit.fault for hit in server.hits} == {*FAULT_KINDS, None}
        assert balanced(result, captures)
        for commit in ("c2", "c3", "c4"):  # a range may have met several faults that only a later look cures
            result = fetch(server.url, captures, tmp_path, commit, held=result.table, silent=True)
    assert result.outcomes == {"fetched": 1_000}
    assert same(result.table, faultless)


def test_bad_bytes_are_kept_as_they_came_and_lost_on_the_third_day(
    bucket: tuple[Path, pa.Table], tmp_path: Path
) -> None:
    folder, captures = bucket[0], bucket[1].slice(0, 500)
    with FaultServer(folder, rules=[Rule("garbage", times=None, share=0.05)]) as server:
        result = fetch(server.url, captures, tmp_path, "c0")
        for day in (1, 2):
            rows = [row for row in result.table.to_pylist() if row["outcome"] != "fetched"]
            assert {(row["outcome"], row["asks"]) for row in rows} == {("pending", day)}
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
    assert healed.outcomes == {"fetched": 500}
    assert healed.requests == len(rows)


@pytest.mark.parametrize("named", ["f0", "f1"])
def test_files_in_trouble_keep_none_of_the_others_away(
    bucket: tuple[Path, pa.Table], tmp_path: Path, named: str
) -> None:
    """Ten files fail one after the other, asked for before or after all that are whole."""
    folder, captures = bucket
    result: Fetched | None = None
    with FaultServer(folder, rules=[Rule("500", key=f"{named}*", times=None)]) as server:
        for run in range(3):
            held = None if result is None else result.table
            result = fetch(server.url, captures, tmp_path, f"c{run}", held, days=run, give_up_after=500)
        assert result is not None
        assert sum(result.table["outcome"].to_pylist().count(name) for name in ("fetched",)) == RECORDS // 2
        lost = [row for row in result.table.to_pylist() if row["outcome"] != "fetched"]
        # a fault of the source is no ask
        assert {(row["outcome"], row["reason"], row["asks"]) for row in lost} == {("pending", "server_error", 0)}
        server.set_rules([])
        result = fetch(server.url, captures, tmp_path, "c9", result.table)
    assert result.outcomes == {"fetched": RECORDS}


@pytest.mark.parametrize(
    ("gone", "is_sound"),
    [(["f03.warc.gz"], True), ([f"f{n:02d}.warc.gz" for n in range(FILES)], False)],
    ids=["one of many", "all"],
)
def test_a_file_that_is_gone_is_lost_on_the_third_day_where_the_source_answers(
    bucket: tuple[Path, pa.Table], tmp_path: Path, gone: list[str], is_sound: bool
) -> None:
    folder, captures = bucket
    root = tmp_path / "bucket"
    root.mkdir()
    for path in folder.iterdir():
        if path.name not in gone:
            (root / path.name).write_bytes(path.read_bytes())
    for place, lake in ((str(root), "folder"), (None, "served")):
        result: Fetched | None = None
        with FaultServer(root) as server:
            for day in range(3):
                held = None if result is None else result.table
                result = fetch(place or server.url, captures, tmp_path / lake, f"c{day}", held, days=day)
                lost = [row for row in result.table.to_pylist() if row["outcome"] != "fetched"]
                assert {row["warc_filename"] for row in lost} == set(gone)
                asks = day + 1 if is_sound else 0
                word = "lost" if asks == 3 else "pending"
                assert {(row["outcome"], row["reason"], row["asks"]) for row in lost} == {(word, "not_found", asks)}
            # a few requests a day, those in flight included
            asked = Counter(hit.key for hit in server.hits)
            assert all(asked[key] <= 3 * (128 + 3) for key in gone)


@pytest.mark.parametrize("key", ["../f01.warc.gz", "/etc/passwd", "a/../../f01.warc.gz", "f\0.warc.gz", None])
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
    captures = captures.slice(0, 100)
    options = RecordOptions(coalescing=TOGETHER, examiners=examiners)
    with (
        FaultServer(folder, rules=[Rule("bit_flip", by_key=True)]) as server,
        SeenTwice(server.url) as transport,
        shelf_at(tmp_path) as storage,
    ):
        result = fetch_table(captures, transport, storage, crawl=CRAWL, commit="c", options=options)
        journals = [storage.transport.read_all(key).data for key in storage.journals(CRAWL)]
    # damaged on the way once, and good when it was asked for again
    assert result.outcomes == {"fetched": 100}
    assert sum(data.count(b'"outcome":"fetched"') for data in journals) == 100
