"""Building URL indexes: what goes in comes out, in bounded memory, whole or not at all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cc_pipeline.commoncrawl.key_ranges import btree_key, url_of_btree_key
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.errors import DataFault, EnvironmentFault
from cc_pipeline.index.btree import build
from cc_pipeline.index.btree.build import UrlIndexReport, build_from_arcs, build_from_columnar
from cc_pipeline.index.btree.files import FILES, METADATA_FILE, SORT_PREFIX, TREE, open_url_index
from cc_pipeline.index.btree.format import UnfitItem, unpack_pointer
from cc_pipeline.index.btree.locator import unpack_names
from cc_pipeline.index.btree.source import LocalRanges
from cc_pipeline.index.btree.tree import BTree
from cc_pipeline.processes import this_process
from cc_pipeline.transport.client import Transport
from cc_pipeline_tests.index.btree.verifying import items_below
from cc_pipeline_tests.index.parquet.file_finder import FileFinder

CRAWL = "CC-MAIN-2024-22"
PATH = f"cc-index/table/cc-main/warc/crawl={CRAWL}/subset=warc/part-00000-x.c000.gz.parquet"
FILE = "crawl-data/CC-MAIN-2024-22/segments/1715971057216.39/warc/CC-MAIN-20240517233122-20240518023122-{:05d}.warc.gz"


def _write(root: Path, urls: list[str | None], *, offset: int = 0) -> None:
    path = root / PATH
    path.parent.mkdir(parents=True, exist_ok=True)
    numbers = range(len(urls))
    table = pa.table(
        {
            "url_surtkey": [f"com,example)/{number}" for number in numbers],
            "url": urls,
            "warc_filename": [FILE.format(number % 3) for number in numbers],
            "warc_record_offset": pa.array([offset + number * 10 for number in numbers], pa.int64()),
            "warc_record_length": pa.array([10] * len(urls), pa.int64()),
        }
    )
    pq.write_table(table, path, row_group_size=100)


def _build(root: Path, home: Path, **options: int) -> UrlIndexReport:
    with Transport(str(root)) as transport:
        finder = FileFinder(transport, [PATH])
        return build_from_columnar(CRAWL, ["warc"], transport, finder, home, **options)


def test_every_capture_is_in_the_index_with_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "_SORT_MEMORY", 4096)
    monkeypatch.setattr(build, "_ITEMS_AT_ONCE", 16)
    urls = [f"https://www.example.com/{number % 70}" for number in range(250)]
    _write(tmp_path, list(urls))
    report = _build(tmp_path, tmp_path / "home", block_size=512)
    assert (report.metadata.items, report.metadata.files, report.metadata.skipped) == (250, 3, 0)
    folder = tmp_path / "home" / CRAWL
    assert report.folder == folder
    files = unpack_names((folder / FILES).read_bytes(), FILES)
    tree = BTree(LocalRanges(folder), TREE)
    found = set()
    for item in items_below(tree, b""):
        pointer = unpack_pointer(item.value)
        assert (pointer.segment, pointer.date) == (1715971057216, 1715988682000)
        found.add((url_of_btree_key(item.key), files[pointer.partition], pointer.offset, pointer.size))
    assert found == {(url, FILE.format(n % 3), n * 10, 10) for n, url in enumerate(urls)}
    assert {path.name for path in (tmp_path / "home").iterdir()} == {CRAWL}


def test_what_fits_no_item_is_counted_and_left_out(tmp_path: Path) -> None:
    _write(tmp_path, ["https://example.com/a", "https://example.com/" + "x" * 600, None, "https://example.com/b"])
    report = _build(tmp_path, tmp_path / "home", block_size=512)
    assert (report.metadata.items, report.metadata.skipped) == (2, 2)
    assert "too long: 618 bytes" in report.faults[0]
    assert "without URL" in report.faults[1]


def test_a_new_index_replaces_the_old_one_and_a_failed_one_does_not(tmp_path: Path) -> None:
    home = tmp_path / "home"
    _write(tmp_path, ["https://example.com/a"])
    _build(tmp_path, home)
    _write(tmp_path, ["https://example.com/a", "https://example.com/b"])
    _build(tmp_path, home)
    locator = open_url_index(home, CRAWL)
    assert locator is not None
    target = parse_target("example.com")
    assert locator.locate(CRAWL, ["warc"], [target]).captures[target.slug].num_rows == 2
    path = tmp_path / PATH
    path.write_bytes(path.read_bytes().replace(b"PAR1", b"PAR2"))
    with pytest.raises(DataFault):
        _build(tmp_path, home)
    again = open_url_index(home, CRAWL)
    assert again is not None
    assert again.locate(CRAWL, ["warc"], [target]).captures[target.slug].num_rows == 2
    assert {found.name for found in home.iterdir()} == {CRAWL}


def test_an_index_that_is_not_whole_is_an_error(tmp_path: Path) -> None:
    home = tmp_path / "home"
    assert open_url_index(home, CRAWL) is None
    _write(tmp_path, [f"https://example.com/{n}" for n in range(100)])
    _build(tmp_path, home, block_size=512)
    folder = home / CRAWL
    tree, files, about = ((folder / name).read_bytes() for name in (TREE, FILES, METADATA_FILE))
    for name, content in (
        (TREE, tree[:-512]),
        (FILES, files[:-1]),
        (METADATA_FILE, b"{}"),
        (METADATA_FILE, about.replace(b'"format": 1', b'"format": 9')),
        (METADATA_FILE, about.replace(b'"files": 3', b'"files": 4')),
    ):
        (folder / name).write_bytes(content)
        with pytest.raises(DataFault):
            open_url_index(home, CRAWL)
        for whole, original in ((TREE, tree), (FILES, files), (METADATA_FILE, about)):
            (folder / whole).write_bytes(original)
    assert open_url_index(home, CRAWL) is not None


def test_a_folder_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    _write(tmp_path, ["https://example.com/a"])
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentFault, match="cannot write"):
        _build(tmp_path, tmp_path / "file")


def test_nothing_stands_in_for_an_index_while_the_source_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    seen: list[str] = []

    def fail(*_: object) -> None:
        seen.extend(path.name for path in home.iterdir())
        raise ConnectionResetError("the source hung up")

    monkeypatch.setattr(build, "scan_columns", fail)
    _write(tmp_path, ["https://example.com/a"])
    # an error of the source is not said to be one of the disk
    with pytest.raises(ConnectionResetError):
        _build(tmp_path, home)
    assert len(seen) == 1 and seen[0].startswith(SORT_PREFIX)
    assert list(home.iterdir()) == []


def test_a_build_deletes_the_folders_of_killed_builds(tmp_path: Path) -> None:
    home, own_mark = tmp_path / "home", this_process()
    number, _, machine = own_mark.split("-", 2)
    killed_mark = f"{number}-1-{machine}"
    for mark in (own_mark, killed_mark):
        (home / f"{SORT_PREFIX}{mark}.abc").mkdir(parents=True)
        (home / f".{CRAWL}.0123abcd.{mark}.part").mkdir()
    (home / f"{SORT_PREFIX}unknown").mkdir()
    _write(tmp_path, ["https://example.com/a"])
    _build(tmp_path, home)
    kept = {f"{SORT_PREFIX}{own_mark}.abc", f".{CRAWL}.0123abcd.{own_mark}.part", f"{SORT_PREFIX}unknown", CRAWL}
    assert {path.name for path in home.iterdir()} == kept


_MEMORY = """
import sys
from pathlib import Path
from cc_pipeline.index.btree import build
from cc_pipeline_tests.peak import own_peak
items = (b"com.example/%08d" % (number * 7919 % 3000) + b"a" * 60_000 + bytes(33) for number in range(3000))
build._sort_and_write(Path(sys.argv[1]), "CC-MAIN-2024-22", ["warc"], items, [], "listed", 65536, build._Faults())
print(own_peak())
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")
def test_memory_stays_below_the_figure_of_the_docstring(tmp_path: Path) -> None:
    """Wide items are held by their bytes and not by their number: these 180 MB would fit one batch."""
    found = subprocess.run([sys.executable, "-c", _MEMORY, str(tmp_path)], capture_output=True, text=True, check=True)
    assert int(found.stdout) < 400 << 10
    assert (tmp_path / CRAWL / TREE).stat().st_size > 180_000_000


def test_an_arc_file_of_another_crawl_is_refused(tmp_path: Path) -> None:
    with Transport(str(tmp_path)) as transport, pytest.raises(DataFault, match="is built for CC-MAIN-2012"):
        build_from_arcs("CC-MAIN-2012", ["crawl-002/2009/11/13/5/1258123331000_5.arc.gz"], transport, tmp_path / "home")


@given(st.from_regex(r"https?://[a-zA-Z0-9.:@-]{1,20}(/[ -~\n]{0,20})?", fullmatch=True) | st.text(max_size=20))
@settings(max_examples=150)
def test_the_short_way_to_a_key_leads_to_the_same_key(url: str) -> None:
    try:
        found = build._item(url, b"", 65536)
    except UnfitItem:
        return
    assert found == btree_key(url) + b"\0"
