"""A harvest through every kind of trouble: nothing lost, nothing twice, sick places left alone."""

from __future__ import annotations

import os
import sqlite3
from collections import Counter
from pathlib import Path

import pytest

from cc_pipeline.errors import EnvironmentFault, Incomplete
from cc_pipeline.index.catalog.from_footers import crawl_tables
from cc_pipeline.index.footers.harvest import FIRST_GUESS, TRIES, harvest_crawl
from cc_pipeline.index.footers.store import FooterStore, KeyBounds
from cc_pipeline.stores.answer import Timeouts
from cc_pipeline.transport.client import Transport
from cc_pipeline.transport.faults import FaultKind, range_fault
from cc_pipeline.transport.ranges import RetryPolicy
from cc_pipeline.transport.source_client import SourceOptions
from cc_pipeline_tests.faultserver import FaultServer, Rule
from cc_pipeline_tests.index.footers.footer_files import index_table, parquet_bytes
from cc_pipeline_tests.index.footers.harvest_world import CRAWL, MemoryReader, bucket_of, key_of

QUICK = RetryPolicy(base=0.01, longest=0.05)


def transport(url: str, **options: object) -> Transport:
    timeouts = Timeouts(connect=20.0, silence=4.0, window=20.0)
    return Transport(url, SourceOptions(**{"retry": QUICK, "concurrency": 64, "timeouts": timeouts, **options}))


@pytest.mark.bomb
def test_nine_hundred_files_through_faults(tmp_path: Path):
    keys = bucket_of(tmp_path / "bucket", 900)
    rotten, stalled = keys[450], keys[700]
    rules = [
        Rule("garbage", rotten, times=None),
        Rule("stall", stalled),
        # what ends a request for good may be otherwise the next time
        *(Rule(kind, key) for kind, key in (("404", keys[200]), ("xml_200", keys[300]))),
        Rule("503", share=0.05, retry_after=1),
        Rule("reset", share=0.01),
        Rule("short", share=0.01),
    ]
    store = FooterStore(tmp_path / "footers")
    with FaultServer(tmp_path / "bucket", rules=rules) as server, transport(server.url) as reader:
        report = harvest_crawl(CRAWL, keys, reader, store)
        hits = list(server.hits)
    assert report.fetched == 899
    assert [path for path, _ in report.failed] == [rotten]
    assert "does not end as Parquet" in report.failed[0][1]
    met = Counter(hit.fault for hit in hits)
    assert met["503"] > 20
    assert met["reset"] > 3
    assert met["short"] > 3
    assert met["stall"] == 1
    assert met["garbage"] == TRIES
    # nothing twice: every good answer was for another file
    good = Counter(hit.key for hit in hits if hit.fault is None)
    assert set(good) == set(keys) - {rotten}
    assert set(good.values()) == {1}
    tables = crawl_tables(CRAWL, keys, store)
    assert sorted(tables.index_files["path"].to_pylist()) == sorted(keys)
    assert tables.row_groups.num_rows == 899 * 3
    assert sum(tables.coverage["harvested"].to_pylist()) == 899
    assert sum(tables.coverage["failed"].to_pylist()) == 1
    failed = [row for row in tables.index_files.to_pylist() if row["outcome"] == "failed"]
    assert [row["path"] for row in failed] == [rotten]
    assert failed[0]["reason"]


def test_a_killed_harvest_loses_what_it_had_not_committed(tmp_path: Path):
    keys = bucket_of(tmp_path / "bucket", 6)
    store = FooterStore(tmp_path / "footers")
    reader = MemoryReader({key: (tmp_path / "bucket" / key).read_bytes() for key in keys})
    harvest_crawl(CRAWL, keys[:4], reader, store)
    killed = os.fork()
    if not killed:
        commit = sqlite3.connect(tmp_path / "footers" / CRAWL / "footers.sqlite")
        # so that half of it is in the file already
        commit.execute("PRAGMA cache_size = 1")
        commit.execute("UPDATE footers SET reason = 'half-way', footer = randomblob(1000000)")
        os._exit(0)
    os.waitpid(killed, 0)
    assert (tmp_path / "footers" / CRAWL / "footers.sqlite-journal").stat().st_size
    assert set(store.read(CRAWL).entries) == set(keys[:4])
    report = harvest_crawl(CRAWL, keys, reader, store)
    assert (report.reused, report.fetched, report.failed) == (4, 2, ())


def test_a_harvest_keeps_nobody_waiting(tmp_path: Path):
    store = FooterStore(tmp_path)
    (tmp_path / CRAWL).mkdir()
    (tmp_path / CRAWL / "footers.sqlite").touch()
    assert not store.read(CRAWL).entries, "another process is about to fill it"
    bounds = KeyBounds("a", 0, b"a", b"b")
    with store.write(CRAWL) as writer:
        writer.put_failure("a", "x")
        store.put_bounds(CRAWL, bounds)
        assert store.read(CRAWL).read_bounds() == [bounds]
        assert not store.read(CRAWL).entries
    assert store.read(CRAWL).entries.keys() == {"a"}


def test_a_file_that_is_no_database_is_named(tmp_path: Path):
    (tmp_path / CRAWL).mkdir()
    (tmp_path / CRAWL / "footers.sqlite").write_bytes(b"x" * 5000)
    store = FooterStore(tmp_path)
    for use in (store.read, store.write):
        with pytest.raises(EnvironmentFault, match=r"footers\.sqlite cannot be used"):
            use(CRAWL)


@pytest.mark.parametrize("refresh", [False, True])
def test_a_stored_footer_with_wrong_bytes_is_no_failure_of_the_source_and_is_fetched_again(
    tmp_path: Path, refresh: bool
):
    keys = bucket_of(tmp_path / "bucket", 6)
    store = FooterStore(tmp_path / "footers")
    reader = MemoryReader({key: (tmp_path / "bucket" / key).read_bytes() for key in keys})
    harvest_crawl(CRAWL, keys, reader, store)
    whole = crawl_tables(CRAWL, keys, store)
    file = tmp_path / "footers" / CRAWL / "footers.sqlite"
    footer = store.read(CRAWL)._read_stored(keys[3])
    file.write_bytes(file.read_bytes().replace(footer[-200:], footer[-200:-1] + bytes([footer[-1] ^ 1])))
    rows = crawl_tables(CRAWL, keys, store).index_files.to_pylist()
    [failed] = [row for row in rows if row["outcome"] != "decoded"]
    assert "the stored copy of the footer" in failed["reason"]
    assert failed["fault_offset"] is None, "no byte of the index file is wrong"
    report = harvest_crawl(CRAWL, keys, reader, store, refresh=refresh)
    assert (report.reused, report.fetched, report.failed) == (5, 1, ())
    columns = [name for name in whole.row_groups.column_names if name != "harvested_at"]
    assert crawl_tables(CRAWL, keys, store).row_groups.select(columns) == whole.row_groups.select(columns)


@pytest.mark.parametrize("count", [1, 4])
def test_a_dead_place_is_an_error_however_small_the_crawl(tmp_path: Path, count: int):
    keys = bucket_of(tmp_path / "bucket", count)
    retry = RetryPolicy(attempts=2, base=0.01, longest=0.02)
    dead = FaultServer(tmp_path / "bucket", rules=[Rule("500", times=None)])
    with dead as server, transport(server.url, retry=retry) as reader, pytest.raises(EnvironmentFault):
        harvest_crawl(CRAWL, keys, reader, FooterStore(tmp_path / "footers"))


def test_refusals_stop_at_once(tmp_path: Path):
    keys = bucket_of(tmp_path / "bucket", 300)
    with FaultServer(tmp_path / "bucket", rules=[Rule("403", times=None)]) as server:
        with transport(server.url, concurrency=8) as reader, pytest.raises(EnvironmentFault, match="stopped"):
            harvest_crawl(CRAWL, keys, reader, FooterStore(tmp_path / "footers"))
        assert len(server.hits) < 100


def test_twenty_corrupt_files_of_nine_hundred_do_not_stop_the_rest_and_sixty_do(tmp_path: Path):
    keys = [key_of(number) for number in range(900)]
    reader = MemoryReader(dict.fromkeys(keys, parquet_bytes(index_table(20))))
    reader.objects |= dict.fromkeys(keys[::45], b"not parquet at all")
    report = harvest_crawl(CRAWL, keys, reader, FooterStore(tmp_path / "some"))
    assert report.fetched == 880
    assert sorted(path for path, _ in report.failed) == keys[::45]
    reader.objects |= dict.fromkeys(keys[::15], b"not parquet at all")
    with pytest.raises(EnvironmentFault, match="stopped because 51 of 751 index files failed"):
        harvest_crawl(CRAWL, keys, reader, FooterStore(tmp_path / "many"))


def test_a_changed_file_is_harvested_again(tmp_path: Path):
    keys = [key_of(number) for number in range(5)]
    reader = MemoryReader({key: parquet_bytes(index_table(20)) for key in keys})
    store = FooterStore(tmp_path)
    harvest_crawl(CRAWL, keys, reader, store)
    reader.objects[keys[2]] = parquet_bytes(index_table(60, "org,other"))
    reader.etags[keys[2]] = '"another"'
    reader.asked.clear()
    assert harvest_crawl(CRAWL, keys, reader, store).reused == 5
    assert not reader.asked
    report = harvest_crawl(CRAWL, keys, reader, store, refresh=True)
    assert (report.fetched, report.reused) == (1, 4)
    assert store.read(CRAWL).entries[keys[2]].etag == '"another"'
    groups = crawl_tables(CRAWL, keys, store).row_groups
    changed = [row for row in groups.to_pylist() if row["path"] == keys[2]]
    assert len(changed) == 3
    assert changed[0]["url_surtkey_min"].startswith(b"org,other")


def test_files_that_could_not_be_checked_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    keys = [key_of(number) for number in range(3)]
    reader = MemoryReader({key: parquet_bytes(index_table(20)) for key in keys})
    store = FooterStore(tmp_path)
    harvest_crawl(CRAWL, keys, reader, store)
    for key in keys[1:]:
        reader.objects[key], reader.etags[key] = parquet_bytes(index_table(60, "org,other")), '"another"'
    given = reader.read_many

    def read_many(ranges, *more):
        for found in given(ranges, *more):
            silent = found.key == keys[2]
            yield range_fault(FaultKind.SERVER_ERROR, found.key, None, 8, "500", 1) if silent else found

    monkeypatch.setattr(reader, "read_many", read_many)
    with pytest.raises(Incomplete, match="1 of 3 index files"):
        harvest_crawl(CRAWL, keys, reader, store, refresh=True)
    assert store.read(CRAWL).entries[keys[1]].etag == '"another"', "what could be checked is new"
    assert store.read(CRAWL).entries[keys[2]].etag != '"another"'


def test_a_file_that_fails_for_ever_does_not_make_the_source_sick(tmp_path: Path):
    keys = bucket_of(tmp_path / "bucket", 3)
    store = FooterStore(tmp_path / "footers")
    retry = RetryPolicy(attempts=2, base=0.01, longest=0.02)
    with FaultServer(tmp_path / "bucket", rules=[Rule("500", keys[1], times=None)]) as server:
        for asked in (2 + 3 * 2, 3 * 2):
            before = len(server.hits)
            with transport(server.url, retry=retry) as reader:
                report = harvest_crawl(CRAWL, keys, reader, store)
            assert [path for path, _ in report.failed] == [keys[1]]
            assert len(server.hits) - before == asked


def test_a_footer_longer_than_the_guess_costs_one_request_for_what_is_missing(tmp_path: Path):
    table = index_table(6000)
    long = parquet_bytes(table, 20)
    length = int.from_bytes(long[-8:-4], "little") + 8
    assert length > FIRST_GUESS
    keys = [key_of(number) for number in range(8)]
    reader = MemoryReader(dict.fromkeys(keys, long))
    report = harvest_crawl(CRAWL, keys, reader, FooterStore(tmp_path))
    assert report.fetched == 8
    second = [asked for asked in reader.asked if asked.offset is not None]
    assert len(second) == 1
    assert all(asked.offset == len(long) - length and asked.length == length - FIRST_GUESS for asked in second)
    assert all(asked.etag == reader.etags[asked.key] for asked in second)
    footers = FooterStore(tmp_path).read(CRAWL)
    assert all(footers.footer(key) == long[-length:] for key in keys)


def test_a_file_that_changes_between_two_requests_is_asked_for_anew(tmp_path: Path):
    long = parquet_bytes(index_table(6000), 20)
    key = key_of(0)
    reader = MemoryReader({key: long})
    changed = range_fault(FaultKind.CHANGED_OBJECT, key, 0, 10, "ETag", 1)
    answers = reader.read_many

    def read_many(requests, concurrency=None):
        for asked in requests:
            if asked.offset is not None and not reader.faults.get("done"):
                reader.faults["done"] = changed
                changed.tag = asked.tag
                yield changed
            else:
                yield from answers([asked])

    reader.read_many = read_many
    assert harvest_crawl(CRAWL, [key], reader, FooterStore(tmp_path)).fetched == 1


def test_two_writers_at_once_are_refused(tmp_path: Path):
    store = FooterStore(tmp_path)
    with store.write(CRAWL), pytest.raises(EnvironmentFault, match="another process"):
        store.write(CRAWL)
    store.write(CRAWL).close()


def test_a_disk_that_refuses_at_the_end_leaves_the_crawl_to_others(tmp_path: Path) -> None:
    store = FooterStore(tmp_path)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(EnvironmentFault, match=r"footers\.sqlite cannot be used"), store.write(CRAWL):
        (tmp_path / CRAWL / "footers.sqlite").write_bytes(b"x" * 5000)
    assert len(os.listdir("/proc/self/fd")) == before
    (tmp_path / CRAWL / "footers.sqlite").unlink()
    with store.write(CRAWL):
        pass
