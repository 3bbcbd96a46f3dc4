"""Every real capture of the corpus is fetched, verified and stored so that anyone can read it."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import pyarrow.compute as pc
import pytest
from fastwarc.warc import ArchiveIterator as FastIterator
from warcio.archiveiterator import ArchiveIterator

from cc_pipeline.archive import arc, warc
from cc_pipeline.records.locations import PLACE_NAME
from cc_pipeline.records.schema import RECORD_SCHEMA
from cc_pipeline.transport.client import Transport
from cc_pipeline_tests.corpus import CORPUS, needs_corpus
from cc_pipeline_tests.records.fetching import Fetched, fetch_table
from cc_pipeline_tests.records.planned import read_stored, real_captures, shelf_at
from cc_pipeline_tests.records.unwrapping import unwrap_content

CRAWLS = ("CC-MAIN-2024-22", "CC-MAIN-2018-05", "CC-MAIN-2012")
BUCKET = CORPUS / "realcrawl" / "bucket"


@pytest.fixture(scope="module", params=CRAWLS)
def fetched(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path, Fetched]:
    """A crawl, the lake that has its records, and the result."""
    crawl, lake = request.param, tmp_path_factory.mktemp("lake")
    captures = real_captures(CORPUS, crawl).sort_by([(name, "ascending") for name in PLACE_NAME])
    with Transport(str(BUCKET)) as transport, shelf_at(lake) as storage:
        return crawl, lake, fetch_table(captures, transport, storage, crawl=crawl, commit="c1")


@needs_corpus
def test_every_capture_is_verified_and_stored_as_the_source_has_it(fetched: tuple[str, Path, Fetched]) -> None:
    crawl, lake, result = fetched
    assert result.table.schema == RECORD_SCHEMA
    assert result.outcomes == {"fetched": real_captures(CORPUS, crawl).num_rows}
    checks = pc.unique(result.table.column("digest_check")).to_pylist()
    assert checks == (["absent"] if crawl == "CC-MAIN-2012" else ["match"])
    for name in ("fetch_time", "fetch_status", "content_digest", "url", "stored_file", "payload_length"):
        if name == "fetch_status" and crawl == "CC-MAIN-2012":
            continue  # some records of that year have no status line
        assert result.table.column(name).null_count == 0, name
    with shelf_at(lake) as storage:
        for row in result.table.to_pylist():
            stored = read_stored(storage, row)
            with open(BUCKET / row["warc_filename"], "rb") as file:
                file.seek(row["warc_record_offset"])
                member = file.read(row["warc_record_length"])
            if crawl == "CC-MAIN-2012":
                assert stored == member
                assert arc.read_record(stored, "x", 0).payload_digest == row["content_digest"]
                continue
            assert gzip.decompress(stored) == gzip.decompress(member)
            assert warc.read_record(stored, "x", 0).payload_digest == row["content_digest"]
            kept = storage.transport.read(row["stored_file"], row["stored_offset"], row["stored_length"]).data
            content, uri, offset, length = unwrap_content(gzip.decompress(kept))
            assert content == gzip.decompress(member)
            assert uri is not None and uri.endswith(row["warc_filename"])
            assert (offset, length) == (row["warc_record_offset"], row["warc_record_length"])


@needs_corpus
def test_stored_files_open_with_warcio_fastwarc_and_gzip(fetched: tuple[str, Path, Fetched]) -> None:
    crawl, lake, result = fetched
    by_place = {(row["stored_file"], row["stored_offset"]): row for row in result.table.to_pylist()}
    for name in result.files:
        data = (lake / name).read_bytes()
        assert gzip.decompress(data)
        expected = {place: row for place, row in by_place.items() if place[0] == name}
        found = {}
        iterator = ArchiveIterator(io.BytesIO(data), arc2warc=False)
        for record in iterator:
            record.content_stream().read()
            length = iterator.get_record_length()
            found[name, iterator.get_record_offset()] = (record.rec_headers, length)
            if iterator.get_record_offset() == 0:
                assert record.rec_type in ("warcinfo", "arc_header")
        assert found.keys() - {(name, 0)} == expected.keys()
        for place, row in expected.items():
            headers, length = found[place]
            assert length == row["stored_length"]
            if crawl != "CC-MAIN-2012":
                assert headers.get_header("WARC-Target-URI") == row["url"]
                first = row["warc_record_offset"]
                assert (
                    headers.get_header("WARC-Source-Range") == f"bytes={first}-{first + row['warc_record_length'] - 1}"
                )
        if name.endswith(".warc.gz"):
            seen = {record.headers.get("WARC-Target-URI") for record in FastIterator(io.BytesIO(data))}
            assert seen >= {row["url"] for row in expected.values()}
