"""A generated month of CC-NEWS: priced, indexed file by file, killed, resumed; what is found equals the truth."""

from __future__ import annotations

import gzip
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from cc_pipeline.cli.commands.doctor import _invalidate
from cc_pipeline.commoncrawl.paths import path_list_key
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.errors import DataFault, Incomplete, IndexIncomplete, UserInputError
from cc_pipeline.extraction.locate import find_captures, locate_captures
from cc_pipeline.harvesting.archives import BuiltIndex, built_index
from cc_pipeline.harvesting.build_index import build_index, estimate_build, refuse_unpriced
from cc_pipeline.harvesting.crawl_index import commit_manifest, is_harvested, refused_gaps
from cc_pipeline.index.archive_rows import BUILT_SCHEMA, Tally, index_rows
from cc_pipeline.index.shards import shard_of
from cc_pipeline.lake.slice import BUILT, Slice
from cc_pipeline.testing.mini_crawl import spec as seeded
from cc_pipeline.testing.mini_crawl.truth import Capture
from cc_pipeline.transport.client import Transport
from cc_pipeline.transport.ranges import ObjectInfo
from cc_pipeline.workspace.workspace import Workspace
from cc_pipeline_tests.checks.changed_slices import lose_rows
from cc_pipeline_tests.harvesting.killed_build import MOMENTS
from cc_pipeline_tests.testing.mini_crawl.news import PUBLISHERS, NewsSpec, NewsTruth, write_news
from cc_pipeline_tests.world import extract, harvest, workspace_of

SPEC = NewsSpec(files=3, fetches=11)
MONTH = SPEC.month
#: Columns of the index that nobody found out about, and those that a lookup adds.
EMPTY = {"content_mime_detected", "content_charset", "content_languages"}


@pytest.fixture(scope="module")
def news(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, NewsTruth]:
    root = tmp_path_factory.mktemp("news") / "bucket"
    return root, write_news(root, SPEC)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, news: tuple[Path, NewsTruth]) -> Workspace:
    """A workspace with the month indexed and harvested; tests only read it."""
    workspace = workspace_of(news[0], tmp_path_factory.mktemp("home"))
    build_index(workspace, MONTH)
    harvest(workspace, MONTH)
    return workspace


def shards(workspace: Workspace) -> list[Path]:
    return sorted(Path(workspace.settings.lake).glob("built-index/**/*.parquet"))


def rows_of(workspace: Workspace) -> list[dict[str, Any]]:
    return [row for path in shards(workspace) for row in pq.read_table(path).to_pylist()]


def said(capture: Capture) -> dict[str, Any]:
    """What an index row says of a capture, as far as the truth knows."""
    names = [name for name in BUILT_SCHEMA.names if name in Capture.__slots__ and name != "warc_record_id"]
    return {name: getattr(capture, name) for name in names}


def place(row: dict[str, Any]) -> tuple[str, int]:
    return row["warc_filename"], row["warc_record_offset"]


def test_nothing_is_read_before_somebody_agrees_to_the_price(news: tuple[Path, NewsTruth], tmp_path: Path) -> None:
    workspace = workspace_of(news[0], tmp_path)
    price = estimate_build(workspace, built_index(workspace, MONTH))
    with pytest.raises(UserInputError, match=r"3 archive files .* KB in \d+ requests.*--yes"):
        refuse_unpriced(price)
    assert (
        shards(workspace) == []
        and workspace.transport.stats.bytes == (news[0] / path_list_key(MONTH, "warc")).stat().st_size
    )
    sizes = [(news[0] / file).stat().st_size for file in news[1].files]
    assert (price.files, price.bytes, price.is_estimated) == (3, sum(sizes), False)
    assert estimate_build(workspace, built_index(workspace, MONTH), 2).bytes == sum(sizes[:2])


def test_the_price_of_a_real_month_is_told_from_a_few_sizes(
    news: tuple[Path, NewsTruth], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def head(_: Transport, key: str) -> ObjectInfo:
        asked.append(key)
        return ObjectInfo(key, 1_073_741_824 if len(asked) % 6 else 300_000_000, None)

    monkeypatch.setattr(Transport, "head", head)
    workspace = workspace_of("https://data.commoncrawl.org", tmp_path)
    listed = tuple(shard_of(MONTH, f"crawl-data/CC-NEWS/2026/05/CC-NEWS-{n}.warc.gz") for n in range(350))
    price = estimate_build(workspace, BuiltIndex(MONTH, listed, frozenset()))
    assert len(asked) <= 12 and price.is_estimated
    assert 300e9 < price.bytes < 376e9 and 40_000 < price.requests < 47_000
    assert price.seconds > price.requests / 10, "Common Crawl's host takes ten requests a second"
    with pytest.raises(
        UserInputError, match=r"350 archive files .*: about 3\d\d\.\d GB in 4\d,\d+ requests, \d\.\d hours"
    ):
        refuse_unpriced(price)


def test_a_crawl_with_an_index_of_its_own_gets_none(news: tuple[Path, NewsTruth], tmp_path: Path) -> None:
    with pytest.raises(UserInputError, match="harvest --crawl CC-MAIN-2024-22"):
        build_index(workspace_of(news[0], tmp_path), "CC-MAIN-2024-22")


def test_every_response_that_can_be_read_is_a_row_and_nothing_else(
    built: Workspace, news: tuple[Path, NewsTruth]
) -> None:
    found = {place(row): row for row in rows_of(built)}
    truth = {(one.warc_filename, one.warc_record_offset): one for one in news[1].truth.captures}
    assert found.keys() == truth.keys()
    for where, capture in truth.items():
        wanted = said(capture)
        assert {name: found[where][name] for name in wanted} == wanted
        assert found[where]["warc_record_id"].hex() == str(capture.warc_record_id).replace("-", "")
        assert all(found[where][name] is None for name in EMPTY)
    for path in shards(built):
        file = pq.ParquetFile(path)
        keys = file.read(["url_surtkey"]).column(0).to_pylist()
        assert keys == sorted(keys), "each file is sorted by key"
        assert file.metadata.row_group(0).column(0).has_column_index
        assert file.schema_arrow.names == BUILT_SCHEMA.names


def test_what_is_damaged_is_a_row_with_its_place(built: Workspace, news: tuple[Path, NewsTruth]) -> None:
    [(file, offset, url)] = news[1].damaged
    [fault] = built.lake.read("source_faults").to_pylist()
    assert (fault["crawl"], fault["source_kind"], fault["source_file"], fault["byte_offset"]) == (
        MONTH, "warc", file, offset,
    )  # fmt: skip
    around = [row["warc_record_offset"] for row in rows_of(built) if row["warc_filename"] == file]
    assert min(around) < offset < max(around) and url not in {
        r["url"] for r in rows_of(built) if r["warc_filename"] == file
    }


@pytest.mark.parametrize("domain", [*PUBLISHERS])
def test_a_publisher_is_found_as_in_any_crawl(built: Workspace, news: tuple[Path, NewsTruth], domain: str) -> None:
    target = parse_target(domain)
    found = find_captures(built, MONTH, [target])
    assert found.gaps is None
    rows = found.captures[target.slug].to_pylist()
    wanted = news[1].of(domain)
    assert len(rows) == len(wanted) > 0
    by_place = {place(row): row for row in rows}
    for capture in wanted:
        row = by_place[capture.warc_filename, capture.warc_record_offset]
        assert {name: row[name] for name in said(capture)} == said(capture)
        assert (row["domain"], row["subset"], row["archive_format"]) == (domain, "warc", "warc")


@pytest.fixture
def copied(built: Workspace, tmp_path: Path) -> Workspace:
    """The same in a home that a test may change."""
    return workspace_of(built.settings.source, Path(shutil.copytree(built.settings.home, tmp_path / "home")))


def test_a_second_run_reads_the_list_and_nothing_else(copied: Workspace) -> None:
    workspace = copied
    before = [(path.name, path.stat().st_mtime_ns) for path in shards(workspace)]
    requests = workspace.transport.stats.requests
    report = build_index(workspace, MONTH)
    assert (report.written, report.rows) == (0, 3) and workspace.transport.stats.requests == requests + 1
    assert is_harvested(workspace, MONTH)
    assert [(path.name, path.stat().st_mtime_ns) for path in shards(workspace)] == before


def test_a_look_up_before_it_is_whole_says_which_files_are_missing(
    news: tuple[Path, NewsTruth], tmp_path: Path
) -> None:
    workspace = workspace_of(news[0], tmp_path)
    assert build_index(workspace, MONTH, max_files=2).written == 2
    harvest(workspace, MONTH)
    [gaps] = refused_gaps(workspace, [MONTH])
    assert (gaps.unread, gaps.expected) == (1, 3) and news[1].files[2] in gaps.file_summary
    target = parse_target("hafenbote-example.de")
    with pytest.raises(IndexIncomplete, match="index build --crawl CC-NEWS-2026-05"):
        find_captures(workspace, MONTH, [target])
    allowing = workspace_of(news[0], tmp_path, max_index_gaps=0.5)
    found = find_captures(allowing, MONTH, [target])
    there = [one for one in news[1].of("hafenbote-example.de") if one.warc_filename != news[1].files[2]]
    assert found.gaps is not None and found.captures[target.slug].num_rows == len(there)
    # the rest is built for the same yes, and what was located over the hole is located again
    extract(allowing, "hafenbote-example.de", crawl=MONTH)
    assert build_index(allowing, MONTH).written == 1
    harvest(allowing, MONTH)
    assert locate_captures(allowing, MONTH, [target.slug]).rows == len(news[1].of("hafenbote-example.de"))


def test_a_month_that_grows_keeps_what_is_built(tmp_path: Path) -> None:
    root = tmp_path / "bucket"
    write_news(root, replace(SPEC, files=2))
    workspace = workspace_of(root, tmp_path / "home")
    build_index(workspace, MONTH)
    harvest(workspace, MONTH)
    before = {path.name: path.stat().st_mtime_ns for path in shards(workspace)}
    truth = write_news(root, SPEC)
    assert not is_harvested(workspace, MONTH)
    with pytest.raises(UserInputError, match=r"1 archive file .*2 of 3 are done"):
        refuse_unpriced(estimate_build(workspace, built_index(workspace, MONTH)))
    assert build_index(workspace, MONTH).written == 1
    harvest(workspace, MONTH)
    after = {path.name: path.stat().st_mtime_ns for path in shards(workspace)}
    assert len(after) == 3 and before.items() <= after.items()
    assert len(rows_of(workspace)) == len(truth.truth.captures)
    listed = root / path_list_key(MONTH, "warc")
    listed.write_bytes(listed.read_bytes() + gzip.compress(b"crawl-data/CC-NEWS/2026/05/README\n"))
    assert is_harvested(workspace, MONTH), "an odd line costs itself"
    assert "README" in " ".join(commit_manifest(workspace, MONTH).notes)
    # a list that lacks a file for a day takes nothing away
    write_news(root, replace(SPEC, files=1))
    build_index(workspace, MONTH)
    assert len(shards(workspace)) == 3


@pytest.mark.process
@pytest.mark.parametrize(
    "moment", [pytest.param(one, marks=pytest.mark.smoke if "half" in one else ()) for one in MOMENTS]
)
def test_killed_anywhere_a_shard_is_whole_or_absent_and_the_next_run_goes_on(
    news: tuple[Path, NewsTruth], built: Workspace, tmp_path: Path, moment: str
) -> None:
    command = [sys.executable, "-m", "cc_pipeline_tests.harvesting.killed_build", str(news[0]), str(tmp_path), MONTH]
    killed = subprocess.run([*command, moment], capture_output=True, text=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    workspace = workspace_of(news[0], tmp_path)
    there = shards(workspace)
    folder = there[0].parent
    assert any(folder.glob(".*")) is (moment == "with its index half in place")
    assert 1 <= len(there) < 3
    wanted = {path.name: pq.read_table(path) for path in shards(built)}
    assert all(pq.read_table(path) == wanted[path.name] for path in there)
    done = len(there)
    report = build_index(workspace, MONTH)
    assert (report.written, report.rows) == (3 - done, 3)
    assert not any(folder.glob(".*"))
    assert {path.name: pq.read_table(path) for path in shards(workspace)} == wanted
    [fault] = workspace.lake.read("source_faults").to_pylist()
    assert fault["byte_offset"] == news[1].damaged[0][1]


def test_lost_rows_on_what_is_damaged_come_back_with_the_next_build(
    news: tuple[Path, NewsTruth], tmp_path: Path
) -> None:
    workspace = workspace_of(news[0], tmp_path)
    build_index(workspace, MONTH)
    faults = workspace.lake.read("source_faults").to_pylist()
    slice_ = Slice(MONTH, faults[0]["target"])
    lose_rows(workspace.lake, "source_faults", slice_)
    assert _invalidate(workspace) == {BUILT: [slice_]}
    assert build_index(workspace, MONTH).written == 1
    assert workspace.lake.read("source_faults").to_pylist() == faults
    assert _invalidate(workspace) == {}


def lacking(folder: Path) -> Workspace:
    """A workspace on a month of five files of which the source does not have the first three."""
    write_news(folder / "bucket", NewsSpec(files=5, fetches=2, damaged=None))
    workspace = workspace_of(folder / "bucket", folder / "home")
    for shard in built_index(workspace, MONTH).shards[:3]:
        (folder / "bucket" / shard.filename).unlink()
    return workspace


def test_some_files_of_a_month_are_some_that_are_there(tmp_path: Path) -> None:
    """Files that the source does not have stand in front: each call builds as many as it was asked for behind them."""
    workspace = lacking(tmp_path)
    size = (tmp_path / "bucket" / built_index(workspace, MONTH).shards[3].filename).stat().st_size
    price = estimate_build(workspace, built_index(workspace, MONTH), 1)
    assert (price.files, price.is_estimated) == (1, True) and size / 2 < price.bytes < size * 2
    for number in (1, 2):
        with pytest.raises(Incomplete, match="3 of 5 archive files"):
            build_index(workspace, MONTH, max_files=1)
        assert len(shards(workspace)) == number


@pytest.mark.parametrize(
    ("kind", "url", "reason"),
    [
        ("response", "", "no URL"),
        ("response", "https://www.gazette-example.fr/" + "x" * 20_000, "URL has 20,031 characters"),
        ("continuation", "https://www.gazette-example.fr/", "only the first segment"),
    ],
)
def test_what_no_index_can_hold_is_a_fault_of_its_record(kind: str, url: str, reason: str) -> None:
    record = f"WARC/1.0\r\nWARC-Type: {kind}\r\nWARC-Target-URI: {url}\r\nContent-Length: 0\r\n\r\n\r\n\r\n"
    tally = Tally()
    [fault] = index_rows(seeded.gzip_member(record.encode()), "a.warc.gz", None, tally)
    assert isinstance(fault, DataFault) and reason in fault.reason and fault.offset == 0
    assert (tally.rows, tally.faults) == (0, 1)
