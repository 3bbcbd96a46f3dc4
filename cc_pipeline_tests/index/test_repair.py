"""Bounds that a writer did not leave are read once, right, and never lost again."""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.index.catalog.from_footers import crawl_tables, footers_digest
from cc_pipeline.index.footers.harvest import harvest_crawl
from cc_pipeline.index.footers.store import FooterStore
from cc_pipeline.index.repair import plan_repair, repair_row_groups
from cc_pipeline.transport.client import Transport
from cc_pipeline.transport.faults import FaultKind, range_fault
from cc_pipeline_tests.corpus import CORPUS, needs_corpus
from cc_pipeline_tests.index.footers.footer_files import encrypted_bytes, index_table, parquet_bytes
from cc_pipeline_tests.index.footers.harvest_world import CRAWL, MemoryReader, key_of


def unmarked(rows: int = 60, **options: object) -> bytes:
    """An index file without statistics, its rows not in order."""
    table = index_table(rows)
    table = table.take([(number * 7) % rows for number in range(rows)]) if rows % 7 else table
    return parquet_bytes(table, write_statistics=False, **options)


def harvested(tmp_path: Path, objects: dict[str, bytes]) -> tuple[MemoryReader, FooterStore]:
    reader, store = MemoryReader(objects), FooterStore(tmp_path)
    harvest_crawl(CRAWL, list(objects), reader, store)
    reader.asked.clear()
    return reader, store


@pytest.mark.parametrize(
    "options",
    [
        {"compression": "gzip"},
        {"compression": "zstd", "use_dictionary": False, "data_page_size": 200},
        {"compression": "none", "data_page_version": "2.0"},
        {"compression": "snappy", "use_dictionary": True},
    ],
)
def test_bounds_are_those_of_the_values(tmp_path: Path, options):
    keys = [key_of(0), key_of(1)]
    data = unmarked(60, **options)
    reader, store = harvested(tmp_path, dict.fromkeys(keys, data))
    before = crawl_tables(CRAWL, keys, store)
    assert before.coverage["without_statistics"].to_pylist() == [6]
    plan = plan_repair(CRAWL, keys, store)
    report = repair_row_groups(CRAWL, keys, reader, store)
    assert (report.repaired, report.remaining, report.failed) == (6, 0, ())
    assert (report.requests, report.bytes) == (6, plan.bytes)
    after = crawl_tables(CRAWL, keys, store)
    assert after.coverage["without_statistics"].to_pylist() == [0]
    file = pq.ParquetFile(__import__("io").BytesIO(data))
    for row in after.row_groups.to_pylist():
        values = file.read_row_group(row["row_group"], columns=["url_surtkey"])["url_surtkey"].to_pylist()
        assert (row["url_surtkey_min"], row["url_surtkey_max"]) == (min(values).encode(), max(values).encode())
        assert row["url_surtkey_source"] == "repaired"
    reader.asked.clear()
    assert repair_row_groups(CRAWL, keys, reader, store).requests == 0
    assert not reader.asked


def test_the_footer_says_which_file_bounds_are_of(tmp_path: Path):
    key = key_of(0)
    first, second = unmarked(), unmarked(75)
    reader, store = harvested(tmp_path, {key: first})
    footers = {data: data[-8 - int.from_bytes(data[-8:-4], "little") :] for data in (first, second)}

    def is_now(data: bytes) -> None:
        with store.write(CRAWL) as writer:
            writer.put(key, len(data), None, footers[data])

    is_now(first)
    repair_row_groups(CRAWL, [key], reader, store)
    digest = footers_digest(CRAWL, [key], store)
    assert set(crawl_tables(CRAWL, [key], store).row_groups["url_surtkey_source"].to_pylist()) == {"repaired"}
    # an older file, or a newer one, at the same key: what was read of the other says nothing of it
    is_now(second)
    assert set(crawl_tables(CRAWL, [key], store).row_groups["url_surtkey_source"].to_pylist()) == {None}
    groups = pq.ParquetFile(io.BytesIO(second)).metadata.num_row_groups
    assert len(plan_repair(CRAWL, [key], store).row_groups) == groups
    is_now(first)
    assert not plan_repair(CRAWL, [key], store).row_groups
    assert footers_digest(CRAWL, [key], store) == digest


def test_what_cannot_be_read_stays_and_is_named(tmp_path: Path):
    keys = [key_of(0), key_of(1), key_of(2)]
    damaged = bytearray(unmarked(60, compression="gzip"))
    damaged[30:60] = bytes(30)
    objects = {
        keys[0]: bytes(damaged),
        keys[1]: encrypted_bytes(index_table(), plaintext_footer=True),
        keys[2]: unmarked(),
    }
    reader, store = harvested(tmp_path, objects)
    report = repair_row_groups(CRAWL, keys, reader, store)
    assert report.repaired == 2 + 3
    assert {path for path, _, _ in report.failed} == {keys[0], keys[1]}
    assert all(reason for _, _, reason in report.failed)
    again = crawl_tables(CRAWL, keys, store)
    assert again.coverage["without_statistics"].to_pylist() == [report.remaining]


def test_a_sick_place_stops_the_repair_and_what_was_read_is_kept(tmp_path: Path):
    keys = [key_of(number) for number in range(6)]
    reader, store = harvested(tmp_path, dict.fromkeys(keys, unmarked()))
    for key in keys[2:]:
        reader.faults[key] = range_fault(FaultKind.TIMEOUT, key, 0, 1, "silence", 6)
    with pytest.raises(EnvironmentFault, match="repair of key bounds stopped"):
        repair_row_groups(CRAWL, keys, reader, store)
    reader.faults.clear()
    report = repair_row_groups(CRAWL, keys, reader, store)
    assert report.repaired == 12


@needs_corpus
def test_the_old_crawl_of_the_corpus(tmp_path: Path):
    bucket = CORPUS / "realcrawl" / "bucket"
    paths = [str(path.relative_to(bucket)) for path in sorted(bucket.rglob("crawl=CC-MAIN-2018-05/**/*.parquet"))]
    store = FooterStore(tmp_path)
    with Transport(str(bucket)) as reader:
        harvest_crawl("CC-MAIN-2018-05", paths, reader, store)
        report = repair_row_groups("CC-MAIN-2018-05", paths, reader, store)
    assert (report.repaired, report.remaining) == (7, 0)
    for row in crawl_tables("CC-MAIN-2018-05", paths, store).row_groups.to_pylist():
        values = pq.ParquetFile(bucket / row["path"]).read_row_group(row["row_group"], columns=["url_surtkey"])
        keys = sorted(value.encode() for value in values["url_surtkey"].to_pylist())
        assert (row["url_surtkey_min"], row["url_surtkey_max"]) == (keys[0], keys[-1])
