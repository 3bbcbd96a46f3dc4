"""Datasets with files that are cut, gone, changed, or lie: what is good answers, what is bad is named."""

from __future__ import annotations

import gzip
import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.errors import DataFault, EnvironmentFault, IndexIncomplete, UserInputError
from cc_pipeline.extensions.host_facts import dataset_files as harvest
from cc_pipeline.extensions.host_facts import keyed_lookup
from cc_pipeline.extensions.host_facts.dataset_question import Facts
from cc_pipeline.extensions.host_facts.datasets import Dataset, parse_dataset, shipped_datasets
from cc_pipeline.extensions.host_facts.fill import fill_facts
from cc_pipeline.extensions.host_facts.host_facts import estimate_host_lookups, facts_of_hosts, host_facts
from cc_pipeline.extensions.host_facts.host_keys import HostRanges
from cc_pipeline.index.footers.store import FooterStore
from cc_pipeline.index.parquet import read as read_pages
from cc_pipeline.index.parquet.decoding import ColumnLayout
from cc_pipeline.workspace.workspace import Workspace
from cc_pipeline_tests.extensions.host_facts.conftest import CRAWL
from cc_pipeline_tests.extensions.host_facts.keyed import HOST_INDEX_LIST, KeyedTruth
from cc_pipeline_tests.world import copy_of, replace_file, workspace_of

INDEX = [shipped_datasets()["host-index"]]
ALL = parse_target("set:all = tld:com, tld:org, tld:net, tld:de, tld:uk, tld:jp, tld:fr, tld:info")


@pytest.fixture
def broken(keyed: tuple[Path, KeyedTruth], tmp_path: Path) -> tuple[Path, list[str]]:
    """A copy of the bucket, and the keys of the host index's files in it."""
    return copy_of(keyed[0], tmp_path / "bucket"), keyed[1].files["host-index", CRAWL]


def asked(root: Path, home: Path, **settings: object) -> tuple[Workspace, Facts]:
    workspace = workspace_of(root, home, **settings)
    return workspace, facts_of_hosts(workspace, CRAWL, ALL, INDEX)


def keys_of(root: Path, paths: list[str]) -> set[str]:
    every = (key for path in paths for key in pq.read_table(root / path)["surt_host_name"].to_pylist())
    return {key for key in every if HostRanges(ALL).contains(key)}


def _cut(data: bytes) -> bytes:
    return data[:-100]


def _no_footer(data: bytes) -> bytes:
    return data[: len(data) // 2] + b"\0" * (len(data) - len(data) // 2)


def _long_footer(data: bytes) -> bytes:
    return data[:-8] + (len(data) * 2).to_bytes(4, "little") + b"PAR1"


def test_a_footer_that_is_none(broken: tuple[Path, list[str]], tmp_path: Path) -> None:
    root, paths = broken
    bad = dict(zip(paths, (_cut, _no_footer, _long_footer), strict=False))
    for path, change in bad.items():
        replace_file(root / path, change((root / path).read_bytes()))
    workspace, found = asked(root, tmp_path / "home")
    gaps = found.gaps["host-index"]
    assert sorted(gap.path for gap in gaps) == sorted(bad)
    assert all(gap.offset is not None for gap in gaps)
    assert set(found.table["surt_host_name"].to_pylist()) == keys_of(root, [path for path in paths if path not in bad])
    with pytest.raises(IndexIncomplete, match=rf"3 files of host-index.*{paths[0]}"):
        host_facts(workspace, CRAWL, ALL, INDEX)
    allowed = workspace_of(root, tmp_path / "home", max_index_gaps=0.75)
    assert host_facts(allowed, CRAWL, ALL, INDEX).equals(found.table)


def test_a_file_that_is_not_there(
    broken: tuple[Path, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, paths = broken
    aside = tmp_path / "aside"
    shutil.move(root / paths[0], aside)
    workspace, found = asked(root, tmp_path / "home")
    assert [gap.path for gap in found.gaps["host-index"]] == [paths[0]]
    before = workspace.transport.stats.requests
    assert facts_of_hosts(workspace, CRAWL, ALL, INDEX).gaps == found.gaps
    assert workspace.transport.stats.requests - before <= len(paths) * 4
    shutil.move(aside, root / paths[0])
    monkeypatch.setattr(harvest, "_RETRY_AFTER", harvest.timedelta(0))
    whole = facts_of_hosts(workspace, CRAWL, ALL, INDEX)
    assert not whole.gaps
    assert set(whole.table["surt_host_name"].to_pylist()) == keys_of(root, paths)


def test_a_gap_is_no_slice_unless_allowed_and_is_filled_later(
    broken: tuple[Path, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, paths = broken
    good = (root / paths[1]).read_bytes()
    replace_file(root / paths[1], _cut(good))
    workspace = workspace_of(root, tmp_path / "home")
    workspace.register_targets([ALL])
    with pytest.raises(IndexIncomplete):
        fill_facts(workspace, CRAWL, [ALL.slug], INDEX)
    assert not workspace.lake.read("host_facts").num_rows
    lenient = workspace_of(root, tmp_path / "home", max_index_gaps=0.5)
    assert fill_facts(lenient, CRAWL, [ALL.slug], INDEX).notes
    assert fill_facts(lenient, CRAWL, [ALL.slug], INDEX).fresh_slices == 0
    with pytest.raises(IndexIncomplete):
        fill_facts(workspace, CRAWL, [ALL.slug], INDEX)
    (root / paths[1]).write_bytes(good)
    monkeypatch.setattr(harvest, "_RETRY_AFTER", harvest.timedelta(0))
    assert fill_facts(workspace, CRAWL, [ALL.slug], INDEX).fresh_slices == 1
    assert set(workspace.lake.read("host_facts")["surt_host_name"].to_pylist()) == keys_of(root, paths)


def test_pages_that_are_damaged(broken: tuple[Path, list[str]], tmp_path: Path) -> None:
    root, paths = broken
    group = pq.ParquetFile(root / paths[2]).metadata.row_group(0)
    places = {group.column(at).path_in_schema: group.column(at) for at in range(group.num_columns)}
    at = places["surt_host_name"].dictionary_page_offset or places["surt_host_name"].data_page_offset
    data = bytearray((root / paths[2]).read_bytes())
    data[at : at + 40] = b"\xff" * 40
    replace_file(root / paths[2], bytes(data))
    _, found = asked(root, tmp_path / "home")
    (gap,) = found.gaps["host-index"]
    assert gap.path == paths[2]
    assert gap.offset == at
    assert set(found.table["surt_host_name"].to_pylist()) == keys_of(root, [p for p in paths if p != paths[2]])


def test_a_footer_that_lies_about_keys(keyed: tuple[Path, KeyedTruth], tmp_path: Path) -> None:
    """Two row groups' bounds are exchanged: where one is read, it says what the other holds."""
    root = tmp_path / "bucket"
    root.mkdir()
    low, high = [f"com,a{number:03d}" for number in range(50)], [f"com,z{number:03d}" for number in range(50)]
    schema = pa.schema([pa.field("h", pa.string()), pa.field("n", pa.int64())])
    with pq.ParquetWriter(root / "x.parquet", schema, compression="none", use_dictionary=False) as writer:
        for keys in (low, high):
            writer.write_table(pa.table({"h": keys, "n": list(range(50))}, schema=schema))
    data = (root / "x.parquet").read_bytes()
    length = int.from_bytes(data[-8:-4], "little")
    body, footer = data[: -8 - length], data[-8 - length :]
    for one, other in ((b"com,a000", b"com,\0000"), (b"com,a049", b"com,\0049")):
        footer = footer.replace(one, other)
    footer = footer.replace(b"com,z0", b"com,a0").replace(b"com,\0000", b"com,z000").replace(b"com,\0049", b"com,z049")
    assert len(footer) == length + 8
    (root / "x.parquet").write_bytes(body + footer)
    mine = parse_dataset(
        "name: mine\nwhere: {files: [x.parquet], crawl: none}\nkey: {column: h, form: surt_host}\ncolumns: {n: int64}",
        "mine.yaml",
    )
    workspace = workspace_of(root, tmp_path / "home")
    found = facts_of_hosts(workspace, CRAWL, parse_target("host:a007.com"), [mine])
    assert not found.table.num_rows
    (gap,) = found.gaps["mine"]
    assert gap.path == "x.parquet"
    assert gap.offset == pq.ParquetFile(root / "x.parquet").metadata.row_group(1).column(0).data_page_offset


def test_a_path_list_of_strange_lines(broken: tuple[Path, list[str]], tmp_path: Path) -> None:
    root, paths = broken
    first = f"{paths[0]}\n"
    listed = [first, "projects/host-index-testing/v2/README.md\n", "stray.parquet\n", *(f"{p}\n" for p in paths[1:])]
    replace_file(root / HOST_INDEX_LIST, gzip.compress("".join(listed).encode()))
    _, found = asked(root, tmp_path / "home")
    (gap,) = found.gaps["host-index"]
    assert (gap.path, gap.offset) == (HOST_INDEX_LIST, len(first) + len(listed[1]))
    assert set(found.table["surt_host_name"].to_pylist()) == keys_of(root, paths)
    replace_file(root / HOST_INDEX_LIST, gzip.compress(("../../etc/passwd\n" + "".join(listed[3:]) + first).encode()))
    workspace, found = asked(root, tmp_path / "one")
    assert set(found.table["surt_host_name"].to_pylist()) == keys_of(root, paths)
    assert not found.gaps
    assert "../../etc/passwd" in " ".join(found.notes)
    again = facts_of_hosts(workspace, CRAWL, ALL, INDEX)
    assert again.table.equals(found.table), "the copy of the list is read as the list was"
    replace_file(root / HOST_INDEX_LIST, gzip.compress((first + "../../etc/passwd\n" * 2).encode()))
    with pytest.raises(DataFault) as fault:
        asked(root, tmp_path / "other")
    assert (fault.value.source, fault.value.offset) == (HOST_INDEX_LIST, len(first))


def test_a_path_list_that_is_not_there(tmp_path: Path, broken: tuple[Path, list[str]]) -> None:
    root, _ = broken
    workspace, found = asked(root, tmp_path / "home")
    (root / HOST_INDEX_LIST).unlink()
    assert facts_of_hosts(workspace, CRAWL, ALL, INDEX).table.equals(found.table)
    for then in (0, time.time() + 10 * 86_400):
        # long ago, or by a clock that was wrong: in both cases it is asked for
        for copy in (tmp_path / "home" / "keyed").glob("*/paths-*"):
            os.utime(copy, (then, then))
        stale = facts_of_hosts(workspace, CRAWL, ALL, INDEX)
        assert stale.table.equals(found.table)
        assert any(HOST_INDEX_LIST in note for note in stale.notes)
    with pytest.raises(EnvironmentFault, match="host-index"):
        asked(root, tmp_path / "other")


def test_a_crawl_that_the_dataset_lacks(broken: tuple[Path, list[str]], tmp_path: Path) -> None:
    workspace = workspace_of(broken[0], tmp_path / "home")
    found = facts_of_hosts(workspace, "CC-MAIN-2018-05", ALL, INDEX)
    assert found.absent == ("host-index",)
    assert found.table.num_rows == 0
    assert found.table.schema.names[4:] == list(INDEX[0].columns or ())
    assert CRAWL in found.notes[0]


def test_a_price_above_what_is_allowed(broken: tuple[Path, list[str]], tmp_path: Path) -> None:
    workspace = workspace_of(broken[0], tmp_path / "home", max_bytes=1000)
    price = estimate_host_lookups(workspace, CRAWL, ALL, INDEX)["host-index"]
    before = workspace.transport.stats.bytes
    with pytest.raises(UserInputError, match=f"CC_PIPELINE_MAX_BYTES={price.likely_bytes}"):
        facts_of_hosts(workspace, CRAWL, ALL, INDEX)
    assert workspace.transport.stats.bytes == before
    assert price.bytes >= price.likely_bytes > 1000


def test_a_column_that_is_not_what_it_is_said_to_be(tmp_path: Path) -> None:
    root = tmp_path / "bucket"
    root.mkdir()
    pq.write_table(pa.table({"h": ["com,a", "com,b"], "n": ["1", "many"]}), root / "x.parquet")
    mine = parse_dataset(
        "name: mine\nwhere: {files: [x.parquet], crawl: none}\nkey: {column: h, form: surt_host}\ncolumns: {n: int64}",
        "mine.yaml",
    )
    workspace = workspace_of(root, tmp_path / "home")
    found = facts_of_hosts(workspace, CRAWL, parse_target("tld:com"), [mine])
    (gap,) = found.gaps["mine"]
    assert gap.path == "x.parquet"
    assert "column n" in gap.reason


def test_a_file_that_was_replaced_is_read_as_it_is_now(broken: tuple[Path, list[str]], tmp_path: Path) -> None:
    root, paths = broken
    workspace = workspace_of(root, tmp_path / "home")
    estimate_host_lookups(workspace, CRAWL, ALL, INDEX)
    table = pq.read_table(root / paths[2]).slice(1)
    replace_file(root / paths[2], b"")
    pq.write_table(table, root / paths[2])
    found = facts_of_hosts(workspace, CRAWL, ALL, INDEX)
    assert not found.gaps
    assert set(found.table["surt_host_name"].to_pylist()) == keys_of(root, paths)


def test_two_that_ask_at_once_share_one_harvest(broken: tuple[Path, list[str]], tmp_path: Path) -> None:
    root, paths = broken
    workspace = workspace_of(root, tmp_path / "home")
    told = harvest.estimate_harvest(workspace, INDEX[0], CRAWL)
    assert (told.files, told.requests) == (len(paths), len(paths))
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: facts_of_hosts(workspace, CRAWL, ALL, INDEX), range(4)))
    assert all(one.table.equals(found[0].table) for one in found)
    assert harvest.estimate_harvest(workspace, INDEX[0], CRAWL).files == 0
    (footers,) = (tmp_path / "home" / "keyed").glob("*/footers")
    assert len(FooterStore(footers).read(CRAWL).entries) == len(paths)


def of_keys(root: Path, more: str = "") -> Dataset:
    return parse_dataset(
        f"name: odd\nwhere: {{root: {root}, crawl: none, files: [odd.parquet]}}\n"
        f"key: {{column: k, form: surt_host}}\n{more}",
        "odd.yaml",
    )


def repeated(value: str, count: int) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), count), pa.array([value]))


@pytest.mark.parametrize(
    ("bound", "most", "said", "read"),
    [("MAX_RESULT_ROWS", 2_000, "more than 2,000 rows", {"k"}), ("MAX_RESULT_BYTES", 300_000, "in memory", {"k", "n"})],
)
def test_a_few_bytes_that_stand_for_many_rows_are_left_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: str, most: int, said: str, read: set[str]
) -> None:
    groups = 100
    rows = pa.table({"k": repeated("com,example", 100), "n": repeated("x" * 1000, 100)})
    with pq.ParquetWriter(tmp_path / "odd.parquet", rows.schema, store_schema=False) as writer:
        for _ in range(groups):
            writer.write_table(rows, row_group_size=100)
    decoded: list[str] = []
    decode = read_pages.decode_pages

    def spied(layout: ColumnLayout, *arguments: Any, **named: Any) -> pa.ChunkedArray:
        decoded.append(layout.name)
        return decode(layout, *arguments, **named)

    monkeypatch.setattr(read_pages, "decode_pages", spied)
    monkeypatch.setattr(keyed_lookup, bound, most)
    with pytest.raises(UserInputError, match=said):
        facts_of_hosts(
            workspace_of(tmp_path, tmp_path / "home"), CRAWL, parse_target("example.com"), [of_keys(tmp_path)]
        )
    assert set(decoded) == read
    assert decoded.count(max(read)) < groups / 4, "it was all decoded before somebody counted"


def test_columns_of_strangers_may_be_called_anything(tmp_path: Path) -> None:
    names = ["_key", "_later", "_place", "0", "later", "place", "0_first", "surt_host_name"]
    rows = {"k": ["com,example"] * 2} | {name: [None, at] for at, name in enumerate(names)}
    pq.write_table(pa.table(rows), tmp_path / "odd.parquet")
    workspace = workspace_of(tmp_path, tmp_path / "home")
    found = facts_of_hosts(workspace, CRAWL, parse_target("example.com"), [of_keys(tmp_path)]).table
    assert found["surt_host_name"].to_pylist() == ["com,example"], "the answer's own"
    assert {name: found[name].to_pylist() for name in names[:-1]} == {name: [at] for at, name in enumerate(names[:-1])}


@pytest.mark.parametrize("values", [["a", "b"], [2**63 - 1, 1]])
def test_what_cannot_be_summed_is_said(tmp_path: Path, values: list[object]) -> None:
    pq.write_table(pa.table({"k": ["com,example"] * 2, "n": values}), tmp_path / "odd.parquet")
    summed = of_keys(tmp_path, "columns: [n]\nfold: {n: sum}")
    with pytest.raises(UserInputError, match="cannot be merged by the field fold"):
        facts_of_hosts(workspace_of(tmp_path, tmp_path / "home"), CRAWL, parse_target("example.com"), [summed])


def test_a_footer_longer_than_any_is_not_fetched(tmp_path: Path) -> None:
    with (tmp_path / "odd.parquet").open("wb") as file:
        file.write(b"PAR1")
        file.truncate(300 << 20)
        file.seek(0, os.SEEK_END)
        file.write((200 << 20).to_bytes(4, "little") + b"PAR1")
    found = facts_of_hosts(
        workspace_of(tmp_path, tmp_path / "home"), CRAWL, parse_target("example.com"), [of_keys(tmp_path)]
    )
    [gap] = found.gaps["odd"]
    assert "a footer of 209715200 bytes is above" in gap.reason
    assert found.bytes < 1 << 20
