"""Footers against pyarrow as an independent reader, against the corpus, and against files pyarrow dies of."""

from __future__ import annotations

from datetime import datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cc_pipeline.commoncrawl.index_schema import INDEX_COLUMN_NAMES
from cc_pipeline.errors import DataFault
from cc_pipeline.index.footers.decode import (
    DEFAULT_STAT_COLUMNS,
    MAX_FOOTER_BYTES,
    decode_footer,
    footer_length,
)
from cc_pipeline_tests.corpus import CORPUS, needs_corpus
from cc_pipeline_tests.index.footers.footer_files import PATH, encrypted_bytes, index_table, old_file, parquet_bytes

#: By number; those of Arrow, which reads no old LZ4.
CODECS = ("UNCOMPRESSED", "SNAPPY", "GZIP", "LZO", "BROTLI", "UNKNOWN", "ZSTD", "LZ4")
ENCODINGS = (
    "PLAIN", "", "PLAIN_DICTIONARY", "RLE", "BIT_PACKED", "DELTA_BINARY_PACKED", "DELTA_LENGTH_BYTE_ARRAY",
    "DELTA_BYTE_ARRAY", "RLE_DICTIONARY", "BYTE_STREAM_SPLIT",
)  # fmt: skip


def decode(data: bytes, path: str = PATH, **options: object):
    return decode_footer(data, len(data), path, **options)


@pytest.mark.parametrize(
    "options",
    [
        {"compression": "gzip"},
        {"compression": "zstd", "use_dictionary": False},
        {"write_page_index": True},
        {"version": "1.0"},
        {"version": "2.6", "column_encoding": {"url_surtkey": "DELTA_BYTE_ARRAY"}, "use_dictionary": False},
        {"data_page_version": "2.0", "write_page_index": True, "compression": "snappy"},
    ],
)
def test_positions_and_sizes_agree_with_pyarrow(options):
    data = parquet_bytes(index_table(), **options)
    found = decode(data, lookup_columns=INDEX_COLUMN_NAMES)
    agrees_with_pyarrow(found, pq.read_metadata(pa.BufferReader(data)))
    if options.get("write_page_index"):
        assert all(group.chunks["url_surtkey"].offset_index for group in found.row_groups)


def agrees_with_pyarrow(found, oracle):
    """Everything that both of them say of the same file is the same."""
    assert found.rows == oracle.num_rows
    assert len(found.row_groups) == oracle.num_row_groups
    for mine in found.row_groups:
        theirs = oracle.row_group(mine.row_group)
        assert mine.rows == theirs.num_rows
        columns = {theirs.column(at).path_in_schema: theirs.column(at) for at in range(theirs.num_columns)}
        for chunk in mine.chunks.values():
            column = columns[chunk.column]
            assert chunk.size == column.total_compressed_size
            assert CODECS[chunk.codec] == column.compression
            assert {ENCODINGS[number] for number in chunk.encodings} == set(column.encodings)
            assert (chunk.offset_index is not None) == column.has_offset_index
            assert (chunk.column_index is not None) == column.has_column_index


@needs_corpus
def test_every_file_of_the_corpus_gives_one_outcome():
    outcomes = {}
    for path in sorted((CORPUS / "parquet").rglob("*")):
        if path.is_file():
            data = path.read_bytes()
            name = str(path.relative_to(CORPUS))
            try:
                outcomes[name] = decode_footer(data, len(data), name)
            except DataFault as fault:
                assert fault.source == name
                assert fault.reason
                outcomes[name] = fault
    assert len(outcomes) > 200
    decoded = sum(not isinstance(outcome, DataFault) for outcome in outcomes.values())
    assert decoded >= 174
    for outcome in outcomes.values():
        if not isinstance(outcome, DataFault):
            assert [group.row_group for group in outcome.row_groups] == list(range(len(outcome.row_groups)))


@needs_corpus
def test_agrees_with_pyarrow_on_the_whole_corpus():
    compared, refused = 0, {}
    for path in sorted((CORPUS / "parquet").rglob("*")):
        if not path.is_file() or "encrypt" in path.name:
            continue
        data = path.read_bytes()
        try:
            oracle = pq.read_metadata(path)
        except (pa.ArrowException, OSError):
            continue
        flat = [column.path for column in (oracle.schema.column(i) for i in range(len(oracle.schema)))]
        if len(flat) != len(set(flat)) or path.name == "_metadata":
            continue
        try:
            found = decode_footer(data, len(data), str(path), columns=(), lookup_columns=flat[:200])
        except DataFault as fault:
            refused[path.name] = fault.reason
            continue
        agrees_with_pyarrow(found, oracle)
        compared += 1
    assert compared > 150
    # positions that point outside the file: pyarrow says so only when it reads the pages
    assert set(refused) == {
        "ARROW-RS-GH-6229-DICTHEADER.parquet",
        "bad_compressed_size.parquet",
        "bad_dict_page_offset.parquet",
    }
    assert set(refused.values()) == {"a column chunk lies outside the file"}


@needs_corpus
def test_index_files_of_both_eras():
    files = sorted((CORPUS / "realcrawl" / "bucket").rglob("*.parquet"))
    assert len(files) == 8
    for path in files:
        data = path.read_bytes()
        found = decode_footer(data, len(data), str(path))
        old = "2018-05" in str(path)
        for group in found.row_groups:
            assert (group.statistics["url_surtkey"].source is None) == old
            assert (group.statistics["fetch_time"].minimum is None) == old  # INT96 has no order


def test_encrypted_columns_with_a_plaintext_footer_leave_the_process_alive():
    data = encrypted_bytes(index_table(), plaintext_footer=True)
    found = decode(data, lookup_columns=("url_surtkey", "warc_record_offset"))
    assert found.rows == 60
    for group in found.row_groups:
        assert group.statistics["url_surtkey"].source is None
        assert group.statistics["url_host_registered_domain"].minimum == b"example.com"
        assert group.chunks["url_surtkey"].is_unreadable
        assert not group.chunks["warc_record_offset"].is_unreadable


def test_encrypted_footer_is_a_fault():
    with pytest.raises(DataFault, match="encrypted"):
        decode(encrypted_bytes(index_table(), plaintext_footer=False))


@pytest.mark.parametrize(
    ("tail", "size", "reason"),
    [
        (b"", 100, "missing"),
        (b"PAR1", 100, "missing"),
        (b"PAR1", 4, "too short"),
        (b"\xff\xff\xff\xffPAR1", 10_000, "does not fit"),
        (b"\xff\xff\xff\xffPAR1", 2**40, "above"),
        ((MAX_FOOTER_BYTES + 1).to_bytes(4, "little") + b"PAR1", 2**40, "above"),
        (b"\x10\0\0\0PAR1", 1000, "8 bytes were read"),
        (b"\0\0\0\0PAR1", 1000, "ends inside"),
        (b"<html>503</html>", 16, "does not end as Parquet"),
    ],
)
def test_lengths_are_not_believed(tail, size, reason):
    with pytest.raises(DataFault, match=reason):
        decode_footer(tail, size, PATH)


def test_a_longer_footer_is_seen_before_it_is_there():
    assert footer_length(b"\x10\0\0\0PAR1", 1000, PATH) == 16


@pytest.mark.parametrize(
    ("low", "high", "bounds"),
    [
        (b"com,a)/", b"com,c)/x", (b"com,a)/", b"com,d")),
        (b"com,a)/", b"com,a)/", (b"com,a)/", b"com,a)/")),
        (b"com,a", b"com,a)/x", (b"com,a", b"com,b")),
        ("com,é".encode(), b"com,z", (b"com,", b"com-")),
    ],
)
def test_deprecated_statistics_bound_in_unsigned_order(low, high, bounds):
    tail, size = old_file(low, high)
    found = decode_footer(tail, size, PATH).row_groups[0].statistics["url_surtkey"]
    assert (found.minimum, found.maximum) == bounds
    assert found.source == "deprecated_statistics"


def test_contradicting_statistics_are_not_used():
    tail, size = old_file(b"b", b"a")
    assert decode_footer(tail, size, PATH).row_groups[0].statistics["url_surtkey"].source is None


def test_all_statistics_of_all_columns_against_pyarrow():
    data = parquet_bytes(index_table())
    found = decode(data)
    oracle = pq.read_metadata(pa.BufferReader(data))
    for group in found.row_groups:
        for index, name in enumerate(DEFAULT_STAT_COLUMNS):
            theirs = oracle.row_group(group.row_group).column(index).statistics
            mine = group.statistics[name]
            low = mine.minimum.decode() if isinstance(mine.minimum, bytes) else mine.minimum
            expected = theirs.min if not isinstance(theirs.min, datetime) else int(theirs.min.timestamp() * 1000)
            assert low == expected
