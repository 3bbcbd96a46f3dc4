"""The test suite for engines: inherit :class:`EngineTests`, and open the engine.

An engine fetches records and parses pages; the homes of all engines must be equal.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final, TypeAlias

import pytest

from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.errors import Incomplete
from cc_pipeline.extraction.engine import LOCAL, Engine
from cc_pipeline.extraction.run import TABLES, PartitionResult, extract
from cc_pipeline.lake.slice import FETCH, PARSE, slices_of
from cc_pipeline.lake.slices import read_slice_rows
from cc_pipeline.records.storage import COMMITTED
from cc_pipeline.settings import load_settings
from cc_pipeline.testing.mini_crawl.generate import ensure
from cc_pipeline.testing.mini_crawl.spec import TEST
from cc_pipeline.testing.mini_crawl.truth import Capture, MiniCrawlTruth
from cc_pipeline.workspace.workspace import Workspace
from cc_pipeline_tests.world import notes_of

CRAWL: Final = "CC-MAIN-2024-22"
#: The tables that an engine writes.
ENGINE_TABLES: Final = ("records", "page_metadata", "page_text", "page_links", "feed_items")
#: Columns of ``fetches`` that depend on the time of the run, or hold one of many examples.
_OF_A_MOMENT: Final = {"last_attempt_at", "next_ask_at", "example", "stored_files"}
#: Columns of ``records`` that are no part of its content, and are compared all the same.
_OF_RECORDS: Final = ("outcome", "reason", "asks")
_BAD_BYTES: Final = b"\xff" * 8
#: A bucket's root and its truth.
Bucket: TypeAlias = tuple[Path, MiniCrawlTruth]


def read_rows(workspace: Workspace, table: str) -> list[str]:
    """Returns rows as texts, in an order independent of the engine, without the columns about time and location."""
    spec = workspace.lake.specs[table]
    columns = [name for name in spec.schema.names if name not in spec.provenance_columns or name in _OF_RECORDS]
    return sorted(map(repr, workspace.lake.read(table, columns=columns).to_pylist()))


def assert_same(first: Workspace, second: Workspace, slugs: Iterable[str]) -> None:
    """Raises ``AssertionError`` unless two homes have the same tables of ``CRAWL``, and the same digests of them."""
    for table in ENGINE_TABLES:
        assert read_rows(first, table) == read_rows(second, table), table
    slices = slices_of(CRAWL, slugs)
    states = [
        {key: (row.input, row.metrics) for key, row in read_slice_rows(home.lake, slices, (FETCH, PARSE)).items()}
        for home in (first, second)
    ]
    assert states[0] == states[1]
    assert _read_fetches(first) == _read_fetches(second)


def _read_fetches(workspace: Workspace) -> list[str]:
    rows = notes_of(workspace, FETCH)
    return sorted(repr({name: value for name, value in row.items() if name not in _OF_A_MOMENT}) for row in rows)


def find_leftovers(workspace: Workspace) -> list[str]:
    """Returns keys below the stored records that no running fetch needs: journals, plans, leases, notes to stop.

    Journals of committed records are kept for a week and do not count.
    """
    keys = [
        stored_object.key
        for stored_object in workspace.place.listing("records/")
        if f"/{COMMITTED}/" not in stored_object.key
    ]
    return [key for key in keys if key.endswith(".jsonl") or "/plans/" in key or "/leases/" in key]


def find_unnamed_files(workspace: Workspace) -> set[str]:
    """Returns the stored files that no row refers to."""
    named_files = set(workspace.lake.read("records", columns=["stored_file"]).column(0).to_pylist())
    return {
        stored_object.key for stored_object in workspace.place.listing("records/") if stored_object.key.endswith(".gz")
    } - named_files


class EngineTests:
    """Tests an engine: ``open_engine`` opens it. Homes, their lakes and the source are local folders."""

    def open_engine(self) -> AbstractContextManager[Engine]:
        """Opens the engine, ready to fetch and parse."""
        raise NotImplementedError

    @pytest.fixture
    def engine(self) -> Iterator[Engine]:
        """The engine under test."""
        with self.open_engine() as opened:
            yield opened

    @pytest.fixture(scope="class")
    def source(self, tmp_path_factory: pytest.TempPathFactory) -> Bucket:
        """A crawl with pages of every kind."""
        root = tmp_path_factory.mktemp("source") / "bucket"
        return root, ensure(root, TEST)

    @pytest.fixture(scope="class")
    def targets(self, source: Bucket) -> list[str]:
        """All domains, a target that shares captures with one of them, and one without captures."""
        return [*sorted(source[1].domains(CRAWL)), "host:www.example.com", "absent.example"]

    @pytest.fixture(scope="class")
    def located(self, source: Bucket, targets: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
        """A home with the located captures of all targets, as a template."""
        home = tmp_path_factory.mktemp("located") / "home"
        _locate(source[0], home, targets)
        return home

    @pytest.fixture(scope="class")
    def local(
        self, source: Bucket, targets: list[str], located: Path, tmp_path_factory: pytest.TempPathFactory
    ) -> Path:
        """The same home after a run of the local engine, as a template."""
        home = tmp_path_factory.mktemp("local") / "home"
        shutil.copytree(located, home)
        with _opened(source[0], home) as workspace:
            _finish(workspace, targets, LOCAL)
        return home

    def test_every_capture_is_fetched_and_parsed(
        self, engine: Engine, source: Bucket, targets: list[str], located: Path, tmp_path: Path
    ) -> None:
        """Each row has the archived payload, and each capture has a page."""
        expected = {
            (capture.warc_filename, capture.warc_record_offset): ("fetched", capture.payload_length)
            for capture in source[1].captures_of(CRAWL, subset="warc")
        }
        home = shutil.copytree(located, tmp_path / "home")
        with _opened(source[0], home) as workspace:
            _finish(workspace, targets, engine)
            rows = workspace.lake.read("records").to_pylist()
            pages = workspace.lake.read("page_metadata", columns=["warc_filename", "warc_record_offset"]).to_pylist()
            assert not find_leftovers(workspace) and not find_unnamed_files(workspace)
        records = {
            (row["warc_filename"], row["warc_record_offset"]): (row["outcome"], row["payload_length"]) for row in rows
        }
        assert records == expected
        assert {(page["warc_filename"], page["warc_record_offset"]) for page in pages} == expected.keys()

    def test_tables_are_those_of_the_local_engine_and_neither_makes_them_again(
        self, engine: Engine, source: Bucket, targets: list[str], located: Path, local: Path, tmp_path: Path
    ) -> None:
        """The digests are equal too, so that the next run of either engine has nothing to do."""
        homes = [shutil.copytree(located, tmp_path / "mine"), shutil.copytree(local, tmp_path / "theirs")]
        slugs = _slugs(targets)
        with _opened(source[0], homes[0]) as engine_home, _opened(source[0], homes[1]) as local_home:
            _finish(engine_home, targets, engine)
            assert_same(engine_home, local_home, slugs)
            for workspace, runner in ((engine_home, LOCAL), (local_home, engine)):
                second_results = _finish(workspace, targets, runner)
                assert all(report.written == 0 for partition in second_results for report in partition.reports.values())
                assert all(partition.reports["records"].requests == 0 for partition in second_results)
            assert_same(engine_home, local_home, slugs)

    def test_each_subset_of_a_target_has_its_rows(self, engine: Engine, source: Bucket, tmp_path: Path) -> None:
        """Web pages and robots.txt files have separate rows of records and pages."""
        subsets = ("warc", "robotstxt")
        truth = source[1]
        slug = next(
            domain
            for domain in truth.domains(CRAWL)
            if all(truth.captures_of(CRAWL, subset=subset, domain=domain) for subset in subsets)
        )
        counts = {slug: len(truth.captures_of(CRAWL, subset="warc", domain=slug))}
        counts[f"{slug}~robotstxt"] = len(truth.captures_of(CRAWL, subset="robotstxt", domain=slug))
        with _opened(source[0], tmp_path / "home", subsets=subsets) as workspace:
            workspace.register_targets([parse_target(slug)])
            _finish(workspace, [slug], engine, TABLES)
            record_targets = workspace.lake.read("records", columns=["target"]).column(0).to_pylist()
            assert {target: record_targets.count(target) for target in record_targets} == counts
            pages = workspace.lake.read("page_metadata", columns=["target"]).column(0).to_pylist()
            assert {*pages} == counts.keys()
            assert not find_leftovers(workspace)

    def test_captures_of_another_target_are_not_fetched_again(
        self, engine: Engine, source: Bucket, located: Path, tmp_path: Path
    ) -> None:
        """Rows are made of stored records, whichever engine fetched them. A target without captures costs nothing."""
        home = shutil.copytree(located, tmp_path / "home")
        with _opened(source[0], home) as workspace:
            _finish(workspace, ["example.com"], LOCAL)
            later_results = _finish(workspace, ["host:www.example.com", "absent.example"], engine)
            reports = {partition.slug: partition.reports["records"] for partition in later_results}
            assert reports["host_www.example.com"].requests == 0
            assert reports["host_www.example.com"].written > 0
            assert reports["absent.example"].per_target["absent.example"]["rows:records"] == 0
            assert not find_leftovers(workspace)

    def test_damaged_or_missing_captures_have_a_row_with_the_outcome(
        self, engine: Engine, source: Bucket, tmp_path: Path
    ) -> None:
        """The rows equal the local engine's, and all other captures are fetched."""
        root = shutil.copytree(source[0], tmp_path / "bucket", copy_function=os.link)
        captures = source[1].captures_of(CRAWL, subset="warc", domain="example.com")
        _damage(root, captures[len(captures) // 2])
        (root / min(capture.warc_filename for capture in captures)).unlink()
        with _opened(root, tmp_path / "mine") as engine_home, _opened(root, tmp_path / "theirs") as local_home:
            for workspace, runner in ((engine_home, engine), (local_home, LOCAL)):
                workspace.register_targets([parse_target("example.com")])
                _make(workspace, ["example.com"], runner, TABLES)
            assert_same(engine_home, local_home, ["example.com"])
            outcomes = engine_home.lake.read("records", columns=["outcome"]).column(0).to_pylist()
            assert set(outcomes) == {"fetched", "pending"}
            assert len(outcomes) == len(captures)
            assert not find_leftovers(engine_home)

    def test_a_source_without_answers_is_tried_again(self, engine: Engine, source: Bucket, tmp_path: Path) -> None:
        """The partition fails as incomplete, and the next run fetches all of it."""
        root = shutil.copytree(source[0], tmp_path / "bucket", copy_function=os.link)
        count = len(source[1].captures_of(CRAWL, subset="warc", domain="example.com"))
        segments = root / "crawl-data" / CRAWL / "segments"
        with _opened(root, tmp_path / "home") as workspace:
            workspace.register_targets([parse_target("example.com")])
            segments.rename(tmp_path / "away")
            [partition] = _make(workspace, ["example.com"], engine, TABLES)
            assert isinstance(partition.error, Incomplete)
            assert "fetched" not in workspace.lake.read("records", columns=["outcome"]).column(0).to_pylist()
            (tmp_path / "away").rename(segments)
            _finish(workspace, ["example.com"], engine, TABLES)
            assert workspace.lake.read("records", columns=["outcome"]).column(0).to_pylist() == ["fetched"] * count
            assert workspace.lake.read("page_metadata").num_rows == count
            assert not find_leftovers(workspace) and not find_unnamed_files(workspace)


@contextmanager
def _opened(source: Path, home: Path, **choices: object) -> Iterator[Workspace]:
    # ZipNum needs no catalog
    settings = load_settings({}, source=str(source), home=str(home), index="zipnum", **choices)
    workspace = Workspace(settings)
    try:
        yield workspace
    finally:
        workspace.close()


def _locate(source: Path, home: Path, targets: Sequence[str]) -> None:
    with _opened(source, home) as workspace:
        workspace.register_targets([parse_target(target) for target in targets])
        _finish(workspace, targets, LOCAL, ["captures"])


def _slugs(targets: Iterable[str]) -> list[str]:
    return sorted(parse_target(target).slug for target in targets)


def _make(workspace: Workspace, targets: Iterable[str], engine: Engine, tables: Sequence[str]) -> list[PartitionResult]:
    return [*extract(workspace, [(CRAWL, slug) for slug in _slugs(targets)], tables, engine)]


def _finish(
    workspace: Workspace, targets: Iterable[str], engine: Engine, tables: Sequence[str] = TABLES[1:]
) -> list[PartitionResult]:
    """Runs all ``targets``; returns their results, or raises the error of a failed one."""
    partitions = _make(workspace, targets, engine, tables)
    for partition in partitions:
        if partition.error is not None:
            raise partition.error
    return partitions


def _damage(root: Path, capture: Capture) -> None:
    """Changes bytes in the middle of a capture's gzip member, in a copy of its file."""
    path = root / capture.warc_filename
    data = bytearray(path.read_bytes())
    middle = capture.warc_record_offset + capture.warc_record_length // 2
    data[middle : middle + len(_BAD_BYTES)] = _BAD_BYTES
    path.unlink()
    path.write_bytes(data)
