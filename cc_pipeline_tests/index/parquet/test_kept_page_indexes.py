"""Page indexes kept by a harvest: the same answers in fewer requests, and none from what is not of the very file."""

from __future__ import annotations

import shutil
import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.errors import DataFault, DataKind, EnvironmentFault
from cc_pipeline.index.footers.harvest import HarvestPolicy, harvest_crawl
from cc_pipeline.index.footers.store import FooterStore
from cc_pipeline.index.locator import LookupResult
from cc_pipeline.index.parquet import fetch, locator, read
from cc_pipeline.index.parquet.fetch import Cost, PageIndexes, Piece
from cc_pipeline.index.parquet.finder import Footers
from cc_pipeline.index.parquet.kept_page_indexes import (
    KeepReport,
    KeptIndexes,
    KeptWriter,
    copy_page_indexes,
    footer_digest,
    keep_page_indexes,
    write_page_indexes,
)
from cc_pipeline.index.parquet.locator import ParquetLocator
from cc_pipeline.index.parquet.places import FilePlace, RowGroupPlace
from cc_pipeline.index.parquet.read import Found
from cc_pipeline.indexing.crawl_index import commit_manifest, commit_row_groups, harvest_footers
from cc_pipeline.minicrawl.truth import MiniCrawlTruth
from cc_pipeline.transport.client import Transport
from cc_pipeline_tests.faultserver import FaultServer, Rule
from cc_pipeline_tests.world import NEW, extract, workspace_of

CRAWL = "CC-MAIN-2024-22"
PATHS = [f"cc-index/table/cc-main/warc/crawl={CRAWL}/subset=warc/part-{n:05d}-x.c000.gz.parquet" for n in range(2)]
GROUP = 2_000
#: In proportion to files of 8 row groups: the bounds of pages and their places lie further apart than this.
SMALL_GAP = 4 << 10


def write(path: Path, first: int, changed: str = "") -> None:
    """An index file of ten row groups, 200 hosts of 100 rows each."""
    hosts = [f"h{first + number // 100:04d}" for number in range(10 * GROUP)]
    rows = range(len(hosts))
    table = pa.table(
        {
            "url_surtkey": [f"com,{host})/p{row:05d}" for host, row in zip(hosts, rows, strict=True)],
            "url": [f"https://{host}.com/p{row:05d}{changed}" for host, row in zip(hosts, rows, strict=True)],
            "fetch_status": pa.array([200] * len(hosts), pa.int16()),
            "warc_filename": [f"crawl-data/x/segments/1.{row % 7}/warc/a.warc.gz" for row in rows],
            "warc_record_offset": pa.array(rows, pa.int32()),
        }
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, row_group_size=GROUP, write_page_index=True, max_rows_per_page=50, use_dictionary=False)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for number, path in enumerate(PATHS):
        write(tmp_path / "bucket" / path, 200 * number)
    return tmp_path / "bucket"


@pytest.fixture
def store(tmp_path: Path) -> FooterStore:
    return FooterStore(tmp_path / "footers")


def harvest(source: str, store: FooterStore, *, refresh: bool = False) -> KeepReport:
    """Footers and page indexes of both files."""
    with Transport(source) as transport:
        harvest_crawl(CRAWL, PATHS, transport, store, HarvestPolicy(refresh=refresh))
        return keep_page_indexes(CRAWL, PATHS, transport, store)


@contextmanager
def asking(server: FaultServer, kept_in: FooterStore | None) -> Iterator[ParquetLocator]:
    """A locator that knows the footers; hits of the server begin with its first question."""
    with Transport(server.url) as transport, pytest.MonkeyPatch.context() as patch:
        patch.setattr(fetch, "GAP", SMALL_GAP)
        finder = Footers(transport, PATHS)
        for path in PATHS:
            finder.file(path)
        server.hits.clear()
        if kept_in is None:
            yield ParquetLocator(transport, finder)
            return
        with closing(KeptIndexes(kept_in)) as indexes:
            yield ParquetLocator(transport, finder, indexes=PageIndexes(kept=indexes))


def ask(server: FaultServer, kept_in: FooterStore | None, *domains: str) -> tuple[LookupResult, int]:
    """An answer, and the requests it took."""
    with asking(server, kept_in) as locator:
        found = locator.locate(CRAWL, ["warc"], [parse_target(domain) for domain in domains])
    return found, len(server.hits)


def change(store: FooterStore, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(store.crawl_folder(CRAWL) / "page-indexes.sqlite")) as con:
        con.execute(statement, values)
        con.commit()


def test_a_lookup_knows_its_pages_before_its_first_request(root: Path, store: FooterStore) -> None:
    with FaultServer(root) as server:
        report = harvest(server.url, store)
        assert (report.kept, report.without, report.failed) == (2, 0, [])
        assert 0 < report.stored < report.bytes
        server.hits.clear()
        assert harvest(server.url, store).requests == 0
        assert not server.hits
        for domains in (["h0123.com"], ["h0007.com", "h0333.com"], ["nothing.org"]):
            plain, before = ask(server, None, *domains)
            found, after = ask(server, store, *domains)
            assert found.captures.keys() == plain.captures.keys()
            assert all(found.captures[slug].equals(plain.captures[slug]) for slug in plain.captures)
            assert found.requests == after
            assert not found.notes
            assert before - after == (2 * len(domains) if "nothing.org" not in domains else 0)
    assert plain.captures["nothing.org"].num_rows == 0


def test_a_file_that_changed_is_asked_and_one_under_another_etag_is_known(root: Path, store: FooterStore) -> None:
    with FaultServer(root) as server:
        harvest(server.url, store)
        # the same bytes under another ETag, footers of that one: as a mirror gives them
        for path in PATHS:
            data = (root / path).read_bytes()
            (root / path).unlink()
            (root / path).write_bytes(data)
        shutil.copyfile(store.crawl_folder(CRAWL) / "page-indexes.sqlite", root / "kept")
        shutil.rmtree(store.crawl_folder(CRAWL))
        with Transport(server.url) as transport:
            harvest_crawl(CRAWL, PATHS, transport, store)
        shutil.copyfile(root / "kept", store.crawl_folder(CRAWL) / "page-indexes.sqlite")
        plain, before = ask(server, None, "h0123.com")
        found, after = ask(server, store, "h0123.com")
        assert found.captures["h0123.com"].equals(plain.captures["h0123.com"])
        assert before - after == 2
        server.hits.clear()
        assert harvest(server.url, store).requests == 0
        assert not server.hits
        # other rows: the home has neither a footer nor a page index of that file
        write(root / PATHS[0], 0, changed="-and-more")
        found, after = ask(server, store, "h0123.com")
        assert after == before
        assert found.captures["h0123.com"]["url"][0].as_py().endswith("-and-more")
        # a harvest that looks for changed files asks for the page index of that one alone
        assert harvest(server.url, store, refresh=True).kept == 1
        assert ask(server, store, "h0123.com")[1] == before - 2


def test_a_page_index_that_lies_is_put_aside_and_no_row_is_lost(root: Path, store: FooterStore) -> None:
    with FaultServer(root) as server:
        harvest(server.url, store)
        plain, _ = ask(server, None, "h0123.com")
        footers = store.read(CRAWL)
        entry, footer = footers.entries[PATHS[0]], footers.footer(PATHS[0])
        sound = _pieces(store, PATHS[0])
        row = next(number for number in range(12_300, 12_400) if number % 50 == 0)
        low, above = f"com,h0123)/p{row:05d}".encode(), f"com,h0123)/p{row + 1:05d}".encode()
        assert any(low in data for data in sound.values())
        for lie in (
            {piece: data.replace(low, above, 1) for piece, data in sound.items()},
            {piece: bytes(piece.length) for piece in sound},
            {piece: data[: piece.length // 2].ljust(piece.length, b"\0") for piece, data in sound.items()},
        ):
            with KeptWriter(store, CRAWL) as writer:
                writer.put(PATHS[0], entry.file_size or 0, footer_digest(footer), entry.etag, lie)
            found, _ = ask(server, store, "h0123.com", "h0323.com")
            assert found.captures["h0123.com"].equals(plain.captures["h0123.com"])
            assert found.captures["h0323.com"].num_rows == 100
            assert [note for note in found.notes if PATHS[0] in note and "not used" in note]
            assert len(found.notes) == 1


def test_what_was_found_before_a_page_index_led_astray_is_given_once(
    root: Path, store: FooterStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ("h0123.com", "h0323.com")
    with FaultServer(root) as server:
        harvest(server.url, store)
        plain, _ = ask(server, None, *asked)
        monkeypatch.setattr(locator, "_PIECE_ROWS", 30)
        decode = read._decode
        left: list[int] = []

        def astray(place: RowGroupPlace, *given: Any) -> pa.Array:
            left[0] -= 1
            if not left[0]:
                raise DataFault(DataKind.MALFORMED, place.file.path, 0, "led astray")
            return decode(place, *given)

        monkeypatch.setattr(read, "_decode", astray)
        given = []
        for fails_at in (1, 10, 20, 30):
            left[:] = [fails_at]
            found, _ = ask(server, store, *asked)
            assert all(found.captures[slug].equals(plain.captures[slug]) for slug in asked)
            given.append(len(found.notes))
        assert given == [1] * 4, "each time a page index was put aside"


def _pieces(store: FooterStore, path: str) -> dict[Piece, bytes]:
    with closing(KeptIndexes(store)) as indexes:
        here = indexes._pieces(CRAWL, path, store.read(CRAWL).entries[path].etag)
    return {Piece(path, *place): data for place, data in here.items()}


@pytest.mark.parametrize("damage", ["rot", "garbage", "older"])
def test_damage_on_this_disk_costs_requests_alone(root: Path, store: FooterStore, damage: str) -> None:
    with FaultServer(root) as server:
        harvest(server.url, store)
        plain, before = ask(server, None, "h0123.com")
        if damage == "rot":
            change(store, "UPDATE kept SET pieces = zeroblob(length(pieces))")
        elif damage == "garbage":
            (store.crawl_folder(CRAWL) / "page-indexes.sqlite").write_bytes(b"no database" * 1000)
        else:
            change(store, "DROP TABLE kept")
            change(store, "CREATE TABLE kept (path TEXT)")
            change(store, "PRAGMA user_version = 0")
        found, after = ask(server, store, "h0123.com")
        assert found.captures["h0123.com"].equals(plain.captures["h0123.com"])
        assert after == before
        assert len(found.notes) == 1
        assert harvest(server.url, store).kept == (0 if damage == "rot" else 2)
        assert ask(server, store, "h0123.com")[1] == (before if damage == "rot" else before - 2)


JUNK: dict[str, tuple[bytes, int]] = {
    "no zstd": (b"junk that is no zstd", 50),
    "nothing in it": (pa.Codec("zstd").compress(b"", asbytes=True), 0),
    "more pieces than bytes": (pa.Codec("zstd").compress(b"\xff" * 28, asbytes=True), 28),
    "shorter than it says": (pa.Codec("zstd").compress(bytes(4), asbytes=True), 5),
}


@pytest.mark.parametrize("name", JUNK)
def test_junk_under_a_right_checksum_costs_requests_and_is_not_copied(
    name: str, root: Path, store: FooterStore
) -> None:
    junk, plain = JUNK[name]
    with FaultServer(root) as server:
        harvest(server.url, store)
        good, before = ask(server, None, "h0123.com")
        change(store, "UPDATE kept SET pieces = ?, crc = ?, plain = ?", junk, zlib.crc32(junk), plain)
        found, after = ask(server, store, "h0123.com")
    assert found.captures["h0123.com"].equals(good.captures["h0123.com"])
    assert (after, len(found.notes)) == (before, 1)
    write_page_indexes(store, CRAWL, root / "handed")
    entries = store.read(CRAWL).entries
    files = [{"path": path, "file_size": entries[path].file_size, "etag": entries[path].etag} for path in PATHS]
    with pytest.raises(DataFault, match=f"what it has of {PATHS[0]} cannot be read"):
        copy_page_indexes(root / "handed", FooterStore(root / "other"), CRAWL, pa.Table.from_pylist(files))


def test_a_fault_costs_the_page_index_of_its_file_until_the_next_harvest(root: Path, store: FooterStore) -> None:
    with FaultServer(root) as server:
        with Transport(server.url) as transport:
            harvest_crawl(CRAWL, PATHS, transport, store)
        server.set_rules([Rule("404", key=PATHS[1], times=None)])
        report = harvest(server.url, store)
        assert (report.kept, [path for path, _ in report.failed]) == (1, [PATHS[1]])
        server.set_rules([])
        assert (again := harvest(server.url, store)).kept == 1
        assert not again.failed


def test_files_without_a_page_index_or_with_a_boundless_one_are_not_asked_again(
    root: Path, store: FooterStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    pq.write_table(pq.read_table(root / PATHS[0]), root / PATHS[0], write_page_index=False)
    monkeypatch.setattr("cc_pipeline.index.parquet.kept_page_indexes.MOST_BYTES", 100)
    for without in (2, 0):
        report = harvest(str(root), store)
        assert (report.kept, report.without, report.requests) == (0, without, 0)


def test_a_setting_lets_a_harvest_keep_them_and_lookups_use_them(
    bucket: tuple[Path, MiniCrawlTruth], tmp_path: Path
) -> None:
    with FaultServer(bucket[0]) as server:
        rows, asked = {}, {}
        for keeps in (False, True):
            workspace = workspace_of(server.url, tmp_path / str(keeps), page_indexes=keeps, via="parquet")
            commit_manifest(workspace, NEW)
            notes = harvest_footers(workspace, NEW).notes
            commit_row_groups(workspace, [NEW])
            folder = FooterStore(workspace.settings.footers_path).crawl_folder(NEW)
            assert (folder / "page-indexes.sqlite").exists() == keeps == bool(notes)
            asked[keeps] = extract(workspace, "example.com")[0].requests
            rows[keeps] = workspace.lake.read("captures", {"crawl": NEW}).to_pylist()
        with closing(sqlite3.connect(folder / "page-indexes.sqlite")) as con:
            assert {path.split("subset=")[1].split("/")[0] for (path,) in con.execute("SELECT path FROM kept")} == {
                "warc"
            }
    assert rows[True] == rows[False] != []
    assert asked[True] < asked[False]


def test_a_disk_that_refuses_is_named(root: Path, store: FooterStore) -> None:
    with Transport(str(root)) as transport:
        harvest_crawl(CRAWL, PATHS, transport, store)
        (store.crawl_folder(CRAWL) / "page-indexes.sqlite").mkdir()
        with pytest.raises(EnvironmentFault, match="page indexes could not be kept") as refused:
            keep_page_indexes(CRAWL, PATHS, transport, store)
    assert "disk" in refused.value.advice


@pytest.mark.parametrize(
    ("first", "then", "lost"),
    [
        # the same windows; a page that was hidden, before and behind those that were given; a window of other rows
        ([[0, 1], [2, 3]], [[0, 1], [2, 3], [4]], False),
        ([[2, 3], [6, 7]], [[0, 1], [2, 3], [4, 5], [6, 7], [8]], False),
        ([[1, 2, 3]], [[0, 1], [2, 3], [4]], False),
        ([], [[0, 1]], False),
        # the file does not have what was given
        ([[2, 3]], [[0, 1], [3, 4]], True),
    ],
)
def test_what_is_given_after_a_page_index_was_put_aside_is_what_the_file_has(
    monkeypatch: pytest.MonkeyPatch, first: list[list[int]], then: list[list[int]], lost: bool
) -> None:
    at = RowGroupPlace(FilePlace(CRAWL, "warc", "part", 1, None, 1, {}), 0, 9, {})
    answers = [first, then]

    def read_rows(*_: object, **__: object) -> Iterator[Found]:
        windows = answers.pop(0)
        for rows in windows:
            yield Found(
                at, np.array(rows, np.int64), {"url_surtkey": pa.array([str(row) for row in rows], pa.binary())}
            )
        if answers:
            raise DataFault(DataKind.MALFORMED, "part", 0, "led astray")

    monkeypatch.setattr(locator, "read_rows", read_rows)
    monkeypatch.setattr(PageIndexes, "refuse", lambda *_: True)
    asked = ParquetLocator(None, None)  # type: ignore[arg-type]  # nothing is read
    given: list[int] = []
    with pytest.raises(EnvironmentFault, match="1 rows of row group 0") if lost else nullcontext():
        for found in asked._read([], Cost()):
            given += found.rows.tolist()
            assert found.columns["url_surtkey"].to_pylist() == [str(row).encode() for row in found.rows]
    if not lost:
        assert sorted(given) == [row for rows in then for row in rows]
