"""Pages, row groups and whole lookups in Parquet files of many shapes, against a read of everything."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cc_pipeline.commoncrawl.key_ranges import KeyRange, prefix_range
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.errors import DataFault, EnvironmentFault
from cc_pipeline.index.parquet import fetch, read
from cc_pipeline.index.parquet import pages as page_index
from cc_pipeline.index.parquet.chunk_locations import KEY
from cc_pipeline.index.parquet.fetch import Cost, PageIndexes, Piece, coalesce
from cc_pipeline.index.parquet.locator import ParquetLocator
from cc_pipeline.index.parquet.pages import read_column_index, read_offset_index
from cc_pipeline.index.parquet.read import RowGroupQuery, read_rows, rows_in_ranges
from cc_pipeline.transport.client import Transport
from cc_pipeline_tests.faultserver import FaultServer
from cc_pipeline_tests.index.parquet.file_finder import FileFinder
from cc_pipeline_tests.index.parquet.test_unread_columns import looked_up

PATH = "cc-index/table/cc-main/warc/crawl=CC-MAIN-2024-22/subset=warc/part-00000-x.c000.gz.parquet"
COLUMNS = ("url_surtkey", "url", "fetch_time", "fetch_status", "warc_filename", "warc_record_offset")
_START = datetime(2024, 5, 18, tzinfo=UTC)


def _table(hosts: list[str], *, pages_each: int = 1) -> pa.Table:
    """Index rows of some pages of each host, in the order given."""
    named = [(host, page) for host in hosts for page in range(pages_each)]
    return pa.table(
        {
            "url_surtkey": [f"com,{host})/p{page:05d}" for host, page in named],
            "url": [f"https://www.{host}.com/p{page:05d}" for host, page in named],
            "fetch_time": pa.array(
                [_START + timedelta(seconds=number) for number in range(len(named))], pa.timestamp("ms", tz="UTC")
            ),
            "fetch_status": pa.array([200 if number // 9 % 3 else None for number in range(len(named))], pa.int16()),
            "warc_filename": [
                f"crawl-data/x/segments/1.{number // 8 % 5}/warc/a.warc.gz" for number in range(len(named))
            ],
            "warc_record_offset": pa.array(range(len(named)), pa.int32()),
        }
    )


def _write(root: Path, table: pa.Table, **options: Any) -> None:
    path = root / PATH
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, **options)


def _rows(root: Path, ranges: tuple[KeyRange, ...]) -> list[dict[str, Any]]:
    with Transport(str(root)) as transport:
        places = FileFinder(transport, [PATH]).find("CC-MAIN-2024-22", ["warc"], ranges, COLUMNS)
        wanted = [RowGroupQuery(place, ranges, COLUMNS) for place in places]
        rows: list[dict[str, Any]] = []
        for found in read_rows(transport, wanted, PageIndexes(), Cost()):
            if len(found.rows):
                rows += pa.table({name: found.columns[name] for name in COLUMNS}).to_pylist()
    return rows


def _expected(
    table: pa.Table, ranges: tuple[KeyRange, ...], columns: tuple[str, ...] = COLUMNS
) -> list[dict[str, Any]]:
    rows = [row for row in table.to_pylist() if any(row[KEY].encode() in keys for keys in ranges)]
    for row in rows:
        row["fetch_time"] = row["fetch_time"].replace(tzinfo=None)
        for name in ("url_surtkey", "url", "warc_filename"):
            row[name] = row[name].encode()
    return rows


hosts = st.lists(st.text("abc", min_size=1, max_size=3), min_size=1, max_size=60)


@given(
    hosts,
    st.lists(st.sampled_from(["com,a", "com,ab", "com,b)", "com,c,", "com,", "com,ca)/p00001", "x"]), min_size=1),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.sampled_from(["gzip", "zstd", "snappy", "none"]),
    st.sampled_from(["1.0", "2.0"]),
    st.integers(1, 40),
    st.booleans(),
)
@settings(max_examples=60)
def test_rows_of_any_file_are_those_of_a_full_read(
    tmp_path_factory: pytest.TempPathFactory,
    names: list[str],
    prefixes: list[str],
    in_order: bool,
    index: bool,
    dictionary: bool,
    codec: str,
    version: str,
    group: int,
    int96: bool,
) -> None:
    root = tmp_path_factory.mktemp("shape")
    table = _table(sorted(names) if in_order else names, pages_each=3)
    _write(
        root,
        table,
        row_group_size=group,
        max_rows_per_page=4,
        write_page_index=index,
        use_dictionary=dictionary,
        dictionary_pagesize_limit=40 if group % 3 else 1 << 20,
        compression=codec,
        data_page_version=version,
        use_deprecated_int96_timestamps=int96,
        write_statistics=[KEY] if group % 2 else True,
    )
    ranges = tuple(prefix_range(prefix.encode()) for prefix in prefixes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(read, "_SMALL_DICTIONARY", group % 2)
        patch.setattr(page_index, "REPEATING_BITS", 1 if group % 5 == 0 else 1 << 20)
        found = _rows(root, ranges)
    for row in found:
        if isinstance(row["fetch_time"], int):
            row["fetch_time"] = datetime.fromtimestamp(row["fetch_time"] / 1000, UTC).replace(tzinfo=None)
    assert found == _expected(table, ranges)


@given(
    st.lists(st.none() | st.binary(max_size=3), max_size=50),
    st.lists(st.tuples(st.binary(max_size=2), st.none() | st.binary(max_size=2)), max_size=40),
    st.booleans(),
)
def test_rows_in_ranges_is_what_looking_at_each_key_gives(
    keys: list[bytes | None], bounds: list[tuple[bytes, bytes | None]], in_order: bool
) -> None:
    if in_order:
        keys = sorted(key for key in keys if key is not None)
    ranges = [KeyRange(start, end) for start, end in bounds]
    expected = [n for n, key in enumerate(keys) if key is not None and any(key in each for each in ranges)]
    assert rows_in_ranges(pa.array(keys, pa.binary()), ranges).tolist() == expected


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 500), st.integers(1, 60)), max_size=40))
def test_coalesced_pieces_are_all_there_and_not_far_apart(pieces: list[tuple[str, int, int]]) -> None:
    wanted = [Piece(*piece) for piece in pieces]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fetch, "GAP", 20)
        patch.setattr(fetch, "SPAN", 150)
        runs = coalesce(wanted)
    assert sorted(piece for run in runs for piece in run) == sorted(set(wanted))
    for run in runs:
        assert len({piece.key for piece in run}) == 1
        end = max(piece.offset + piece.length for piece in run)
        assert end - run[0].offset <= 150 or len(run) == 1
        reached = run[0].offset
        for piece in run:
            assert piece.offset - reached <= 20
            reached = max(reached, piece.offset + piece.length)


def test_only_pages_that_can_match_are_read(tmp_path: Path) -> None:
    table = _table([f"h{number:03d}" for number in range(400)], pages_each=25)
    _write(tmp_path, table, write_page_index=True, max_rows_per_page=100, use_dictionary=False, compression="none")
    size = (tmp_path / PATH).stat().st_size
    target = parse_target("h200.com")
    with FaultServer(tmp_path) as server, Transport(server.url) as transport:
        finder = FileFinder(transport, [PATH])
        finder.file(PATH)
        server.hits.clear()
        locator = ParquetLocator(transport, finder)
        first = locator.locate("CC-MAIN-2024-22", ["warc"], [target])
        assert first.captures[target.slug].num_rows == 25
        assert (first.requests, first.bytes) == (len(server.hits), sum(hit.body_bytes for hit in server.hits))
        read = sum(hit.body_bytes for hit in server.hits)
        server.hits.clear()
        again = locator.locate("CC-MAIN-2024-22", ["warc"], [target])
        assert again.captures[target.slug].equals(first.captures[target.slug])
        assert again.requests == first.requests - 1
        bound = locator.price("CC-MAIN-2024-22", ["warc"], [target])
    assert read < size
    assert bound.bytes >= read
    assert bound.requests >= first.requests
    assert bound.likely_bytes is not None and bound.likely_bytes < bound.bytes


def test_without_a_page_index_the_key_goes_first_and_the_rest_follows_where_rows_match(tmp_path: Path) -> None:
    """Five overlapping row groups, one with a match: the others cost their key column only."""
    groups = [_table(sorted([f"a{n}", f"m{n}" + "x" * 20, f"z{n}"]), pages_each=3000) for n in range(5)]
    _write(tmp_path, pa.concat_tables(groups), row_group_size=9000, use_dictionary=False, compression="none")
    target = parse_target("m3" + "x" * 20 + ".com")
    with FaultServer(tmp_path) as server, Transport(server.url) as transport:
        finder = FileFinder(transport, [PATH])
        metadata = pq.read_metadata(tmp_path / PATH)
        found = [group.number for group in finder.find("CC-MAIN-2024-22", ["warc"], target.ranges, None)]
        assert found == [0, 1, 2, 3, 4]
        server.hits.clear()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(fetch, "GAP", 64 << 10)  # in proportion to the file
            result = ParquetLocator(transport, finder).locate("CC-MAIN-2024-22", ["warc"], [target])
        read = sum(hit.body_bytes for hit in server.hits)
    assert result.captures[target.slug].num_rows == 3000
    whole = [metadata.row_group(n).total_byte_size for n in range(5)]
    keys = sum(metadata.row_group(n).column(0).total_compressed_size for n in range(5))
    assert read <= keys + whole[3]
    assert read <= 2 / 5 * sum(whole) + keys / 5


def test_a_file_that_was_replaced_is_an_error(tmp_path: Path) -> None:
    _write(tmp_path, _table([f"h{n}" for n in range(50)], pages_each=20))
    with FaultServer(tmp_path) as server, Transport(server.url) as transport:
        finder = FileFinder(transport, [PATH])
        finder.file(PATH)
        _write(tmp_path, _table([f"h{n}" for n in range(60)], pages_each=20))
        with pytest.raises(EnvironmentFault, match="harvest --crawl CC-MAIN-2024-22 --refresh"):
            ParquetLocator(transport, finder).locate("CC-MAIN-2024-22", ["warc"], [parse_target("h7.com")])


def test_kept_page_indexes_survive_the_process_and_rot_is_noticed(tmp_path: Path) -> None:
    piece, etags = Piece("some/file.parquet", 100, 5), {"some/file.parquet": '"e1"'}
    PageIndexes(tmp_path).keep({piece: b"index"}, etags)
    assert PageIndexes(tmp_path).cached_pieces([piece], etags) == {piece: b"index"}
    assert PageIndexes(tmp_path).cached_pieces([piece], {"some/file.parquet": '"e2"'}) == {}
    assert PageIndexes(tmp_path).cached_pieces([piece], {}) == {}
    (stored,) = (path for path in tmp_path.rglob("*") if path.is_file())
    stored.write_bytes(stored.read_bytes()[:-1] + b"X")
    assert PageIndexes(tmp_path).cached_pieces([piece], etags) == {}
    small = PageIndexes(None, memory=8)
    small.keep({piece: b"index"}, etags)
    small.keep({Piece("some/file.parquet", 200, 5): b"other"}, etags)
    assert len(small.cached_pieces([piece, Piece("some/file.parquet", 200, 5)], etags)) == 1


def _offset_index(*pages: tuple[int, int, int]) -> bytes:
    def number(value: int) -> bytes:
        out, value = bytearray(), value << 1
        while value > 127:
            out.append(value & 127 | 128)
            value >>= 7
        return bytes([*out, value])

    entries = [b"\x16" + number(o) + b"\x15" + number(s) + b"\x16" + number(r) + b"\0" for o, s, r in pages]
    return b"\x19" + bytes([len(entries) << 4 | 12]) + b"".join(entries) + b"\0"


def test_an_offset_index_is_believed_only_where_it_can_be() -> None:
    sound = read_offset_index(_offset_index((100, 10, 0), (110, 20, 7)), 12, 90, 130, "f", 0)
    assert (sound.offsets, sound.sizes, sound.row_count(0), sound.row_count(1)) == ((100, 110), (10, 20), 7, 5)
    for pages in (
        [(100, 10, 1)],
        [(100, 10, 0), (105, 20, 7)],
        [(100, 10, 0), (110, 21, 7)],
        [(89, 10, 0)],
        [(100, 10, 0), (110, 20, 0)],
        [(100, 10, 0), (110, 20, 12)],
        [(100, 0, 0)],
        [],
    ):
        with pytest.raises(DataFault):
            read_offset_index(_offset_index(*pages), 12, 90, 130, "f", 0)
    with pytest.raises(DataFault, match="page index"):
        read_offset_index(b"\x19\xfc", 12, 90, 130, "f", 0)
    with pytest.raises(DataFault, match="missing or no list"):
        read_column_index(b"\0", 1, "f", 0)


def _column_index(low: list[bytes], high: list[bytes], order: int) -> bytes:
    def texts(values: list[bytes]) -> bytes:
        return b"\x19" + bytes([len(values) << 4 | 8]) + b"".join(bytes([len(v)]) + v for v in values)

    return (
        b"\x19" + bytes([len(low) << 4 | 2, *[2] * len(low)]) + texts(low) + texts(high) + bytes([0x15, order << 1, 0])
    )


def test_bounds_that_contradict_each_other_are_refused() -> None:
    assert read_column_index(_column_index([b"a", b"c"], [b"b", b"d"], 1), 2, "f", 0).low == (b"a", b"c")
    assert read_column_index(_column_index([b"c", b"a"], [b"d", b"b"], 0), 2, "f", 0).low == (b"c", b"a")
    for index in (_column_index([b"c", b"a"], [b"d", b"b"], 1), _column_index([b"b"], [b"a"], 0)):
        with pytest.raises(DataFault, match="contradict"):
            read_column_index(index, index[1] >> 4, "f", 0)
    with pytest.raises(DataFault, match="bounds of 1 pages"):
        read_column_index(_column_index([b"a"], [b"b"], 1), 2, "f", 0)


def test_keys_outside_the_bounds_of_their_page_are_noticed(tmp_path: Path) -> None:
    _write(
        tmp_path, _table([f"h{n:02d}" for n in range(30)], pages_each=2), write_page_index=True, max_rows_per_page=10
    )
    path = tmp_path / PATH
    content = path.read_bytes()
    data_end = content.rindex(b"com,h10)/p00000")  # the last time: in the column index, as a page's lowest key
    path.write_bytes(content[:data_end] + b"com,h10)/p00001" + content[data_end + 15 :])
    with pytest.raises(DataFault, match="page 2 has keys outside the bounds in its column index"):
        _rows(tmp_path, parse_target("h11.com").ranges)


@pytest.mark.parametrize("catalog", [False, True])
def test_an_empty_row_group_is_passed_over(tmp_path: Path, catalog: bool) -> None:
    table = _table(["example", "other"], pages_each=5)
    path = tmp_path / PATH
    path.parent.mkdir(parents=True)
    with pq.ParquetWriter(path, table.schema) as writer:
        for rows in (table.slice(0, 0), table.slice(0, 5), table.slice(0, 0), table.slice(5)):
            writer.write_table(rows)
    assert [pq.ParquetFile(path).metadata.row_group(number).num_rows for number in range(4)] == [0, 5, 0, 5]
    found = looked_up(tmp_path, PATH, None, catalog=catalog)
    assert [rows.num_rows for rows in found.captures.values()] == [5]
