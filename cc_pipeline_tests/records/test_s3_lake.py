"""Records of a lake in a bucket: written on the local disk, uploaded whole, read back, adopted by the next run."""

from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow as pa
import pytest

from cc_pipeline.errors import UserInputError
from cc_pipeline.records.file_leases import lease, list_active_leases
from cc_pipeline.records.orders import RecordOptions
from cc_pipeline.records.range_plan import Coalescing
from cc_pipeline.records.segments import retire_journals
from cc_pipeline.records.storage import RecordStorage, StoredSizes
from cc_pipeline.records.sweep import NamedFiles, crawls_with_files, sweep
from cc_pipeline.transport.client import Transport
from cc_pipeline_tests.records.fetching import fetch_table
from cc_pipeline_tests.records.planned import read_stored, shelf_at, write_archives

CRAWL = "CC-MAIN-2024-22"


def test_a_lake_in_a_bucket(endpoint: str, tmp_path: Path) -> None:
    bucket, spool = tmp_path / "bucket", tmp_path / "spool"
    captures = write_archives(bucket, {"a.warc.gz": [b"x" * 300 * number for number in range(1, 30)]}, CRAWL)
    options = RecordOptions(coalescing=Coalescing(gap=0), rotation=2_000)
    with shelf_at("s3://lake/home", spool=spool, s3_endpoint=endpoint) as storage, Transport(str(bucket)) as source:
        first = fetch_table(captures, source, storage, crawl=CRAWL, commit="c1", options=options)
        assert first.outcomes == {"fetched": 29}
        assert len(first.files) > 2
        # everything is in the bucket, nothing is left on the disk
        assert [path for path in spool.rglob("*") if path.is_file()] == []
        for number, row in enumerate(first.table.to_pylist(), 1):
            assert b"x" * 300 * number in gzip.decompress(read_stored(storage, row))
        again = fetch_table(captures, source, storage, crawl=CRAWL, commit="c2", options=options)
        assert (again.adopted, again.requests) == (29, 0)
        assert again.table == first.table
        retire_journals(storage, again.settled)
        assert storage.journals(CRAWL) == []


def test_leases_notes_and_sweeping_in_a_bucket(endpoint: str, tmp_path: Path) -> None:
    with shelf_at("s3://lake/other", spool=tmp_path / "spool", s3_endpoint=endpoint) as storage:
        place = storage.transport
        held, free, named = (f"records/{CRAWL}/{CRAWL}-{name}-00000.warc.gz" for name in ("held", "free", "named"))
        for key in (held, free, named):
            place.put(key, b"12345")
        rows = pa.table(
            {
                "stored_file": [held, free, named, "records/CC/gone.warc.gz", None],
                "stored_offset": [0, 4, 5, 0, None],
                "stored_length": [5, 1, 1, 1, None],
            }
        )
        for few in (32, 0):
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr("cc_pipeline.records.storage._LISTING_THRESHOLD", few)
                assert StoredSizes(storage, CRAWL).lost(rows).to_pylist() == [False, False, True, True, False]
        with lease(storage, CRAWL, "c1") as mine:
            assert sweep(storage, CRAWL, lambda: NamedFiles({named}, 1), 0) == 0
            mine.hold([held])
            assert sweep(storage, CRAWL, lambda: NamedFiles({named}, 1)) == 0
            assert sweep(storage, CRAWL, lambda: NamedFiles({named}, 1)) == 0
            assert sweep(storage, CRAWL, lambda: NamedFiles({named}, 1), 0) == 1
        assert list_active_leases(storage, CRAWL) == []
        assert [one.key for one in place.listing(f"records/{CRAWL}/") if one.key.endswith(".gz")] == [held, named]
        assert crawls_with_files(storage) == [CRAWL]


def test_a_lake_in_a_bucket_needs_a_folder_for_open_files() -> None:
    with pytest.raises(UserInputError, match="local folder"):
        RecordStorage(Transport("s3://lake/home"))


@pytest.mark.parametrize("crawl", ["../x", "", "a/b", ".", "a b"])
def test_a_crawl_that_cannot_name_a_folder_is_refused(tmp_path: Path, crawl: str) -> None:
    with shelf_at(tmp_path) as storage, pytest.raises(UserInputError):
        storage.open_folder(crawl)
