"""The Spark engine without Spark: its driver, and tasks that run in this process."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cc_pipeline.errors import EnvironmentFault, Incomplete, PlaceFault, UserInputError
from cc_pipeline.extensions.spark import driver as engine
from cc_pipeline.extensions.spark import plans as cutting
from cc_pipeline.extensions.spark import tasks
from cc_pipeline.extensions.spark.driver import SparkEngine, run_job
from cc_pipeline.extraction import fetch
from cc_pipeline.extraction.engine import LOCAL
from cc_pipeline.extraction.fetch import fetch_captures
from cc_pipeline.extraction.run import TABLES
from cc_pipeline.lake.slice import FETCH
from cc_pipeline.lake.slices import read_notes
from cc_pipeline.maintenance.stored_files import list_named_files
from cc_pipeline.records.locations import LocationIndex
from cc_pipeline.records.orders import RecordOptions
from cc_pipeline.records.range_plan import Coalescing
from cc_pipeline.records.reading import read_members
from cc_pipeline.records.sweep import sweep
from cc_pipeline.settings.reading import as_texts
from cc_pipeline.transport import host_state
from cc_pipeline.transport.ranges import RetryPolicy
from cc_pipeline.workspace.workspace import Workspace
from cc_pipeline_tests.extensions.spark.compared import Bucket, located, made, slugs_of
from cc_pipeline_tests.extensions.spark.inprocess import InProcess
from cc_pipeline_tests.extraction.engine_tests import (
    EngineTests,
    assert_same,
    find_leftovers,
    find_unnamed_files,
    read_rows,
)
from cc_pipeline_tests.faultserver import FaultServer, Rule
from cc_pipeline_tests.world import NEW, Killed, workspace_of

pytestmark = pytest.mark.process

PAGES = TABLES[1:]


@pytest.fixture(autouse=True)
def _small_tasks_in_a_folder_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "executor").mkdir()
    monkeypatch.chdir(tmp_path / "executor")
    monkeypatch.setattr(cutting, "MIN_ROWS", 10)
    monkeypatch.setattr(RetryPolicy, "is_exhausted", lambda *_: True)
    monkeypatch.setattr(cutting, "MIN_BYTES", 100_000)


def spark(context: InProcess | None = None, workers: int = 2) -> SparkEngine:
    return SparkEngine(context or InProcess(), workers)


class TestSpark(EngineTests):
    @contextmanager
    def open_engine(self) -> Iterator[SparkEngine]:
        yield spark()


@pytest.fixture(scope="module")
def targets(bucket: Bucket) -> list[str]:
    # captures of one place are asked for by several
    return [*sorted(bucket[1].domains()), "host:www.example.com", "absent.example"]


@pytest.fixture(scope="module")
def slugs(targets: list[str]) -> list[str]:
    return slugs_of(targets)


@pytest.fixture(scope="module")
def before(bucket: Bucket, targets: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home in which captures are located."""
    home = tmp_path_factory.mktemp("before") / "home"
    located(bucket[0], home, targets).close()
    return home


@pytest.fixture(scope="module")
def local(bucket: Bucket, slugs: list[str], before: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home that the local engine has made."""
    home = tmp_path_factory.mktemp("local") / "home"
    workspace = again(bucket, before, home)
    assert all(one.error is None for one in made(workspace, slugs, LOCAL, PAGES).values())
    workspace.close()
    return home


def again(bucket: Bucket, home: Path, to: Path) -> Workspace:
    """A copy of a home."""
    shutil.copytree(home, to)
    return workspace_of(bucket[0], to)


@pytest.mark.smoke
def test_a_job_needs_no_home_and_tells_of_each_partition(
    bucket: Bucket, slugs: list[str], before: Path, local: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = again(bucket, before, tmp_path / "spark")
    known = {path for path in mine.settings.home.iterdir() if path.name != "lake"}
    monkeypatch.setenv("CC_PIPELINE_HOME", str(tmp_path / "nowhere"))
    monkeypatch.setenv("CC_PIPELINE_MARKDOWN", "yes")
    told: list[tuple[str, int, int | None, str]] = []
    wanted = [(NEW, slug) for slug in slugs]
    job = run_job(InProcess(), as_texts(mine.settings), wanted, PAGES, 2, lambda *word: told.append(word))
    assert sorted(one.slug for one in job if one.error is None and set(one.reports) == set(PAGES)) == slugs
    assert {stage for stage, done, total, _ in told if done == total} == {"fetch", "parse"}
    assert {path for path in mine.settings.home.iterdir() if path.name != "lake"} == known
    assert not (tmp_path / "nowhere").exists()
    assert_same(again(bucket, local, tmp_path / "local"), mine, slugs)


def test_files_of_this_machine_are_not_asked_of_workers(
    bucket: Bucket, slugs: list[str], before: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = again(bucket, before, tmp_path / "spark")
    monkeypatch.setattr(LocationIndex, "files", ["file:///home/me/my.warc.gz", None])
    with pytest.raises(UserInputError, match=r"my\.warc\.gz"):
        fetch_captures(mine, NEW, slugs, engine=spark())


def run_twice(task: Callable[[], Any], number: int) -> Any:
    del number
    task()
    return task()


def test_every_task_run_twice_in_groups_counts_once_and_what_was_stored_twice_is_swept(
    bucket: Bucket, slugs: list[str], before: Path, local: Path, tmp_path: Path
) -> None:
    mine = again(bucket, before, tmp_path / "spark")
    found = made(mine, slugs, replace(spark(InProcess(run_twice)), captures=40), PAGES)
    commits = {id(one.reports["records"]) for one in found.values()}
    assert 1 < len(commits) < len(slugs), "partitions of many captures are done in groups"
    # the files of the first attempts are there, and no commit names them
    table = tmp_path / "spark" / "lake" / "tables" / "records"
    assert len([*table.rglob("*.parquet")]) > len(mine.lake.pin("records").files) >= len(commits)
    assert_same(again(bucket, local, tmp_path / "local"), mine, slugs)
    assert not find_leftovers(mine)
    assert find_unnamed_files(mine)
    sweep(mine.storage, NEW, lambda: list_named_files(mine.lake, NEW), retention=0)
    assert not find_unnamed_files(mine)
    rows = mine.lake.read("records").to_pylist()
    assert all(isinstance(found, bytes) for _, found in read_members(rows, mine.storage))


@pytest.mark.parametrize("at", ["its commit", "a task"])
def test_what_a_killed_driver_left_is_taken_over(
    bucket: Bucket,
    slugs: list[str],
    before: Path,
    local: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    at: str,
) -> None:
    mine = again(bucket, before, tmp_path / "spark")

    def killed(*_: object) -> None:
        raise Killed

    def third(task: Callable[[], Any], number: int) -> Any:
        return killed() if number == 2 else task()

    with monkeypatch.context() as patched, pytest.raises(Killed):
        if at == "its commit":
            patched.setattr(engine, "_merge_task_results", killed)
        made(mine, slugs, spark(InProcess(third if at == "a task" else None)), PAGES)
    assert read_rows(mine, "records") == []
    assert len(find_unnamed_files(mine)) >= 2
    found = made(mine, slugs, spark(), PAGES)
    reports = [one.reports["records"] for one in found.values()]
    assert all("that a stopped run had fetched" in note for report in reports for note in report.notes[:1])
    if at == "its commit":
        assert {report.requests for report in reports} == {0}
    assert_same(again(bucket, local, tmp_path / "local"), mine, slugs)
    assert not find_leftovers(mine)
    assert not find_unnamed_files(mine)


def test_a_source_that_refuses_one_worker_stops_all(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slugs = sorted(bucket[1].domains())
    monkeypatch.setattr(host_state, "FIRST_PAUSE", 200.0)
    # a request for each record, one after the other
    monkeypatch.setattr(fetch, "RecordOptions", partial(RecordOptions, coalescing=Coalescing(gap=-1)))

    def elsewhere(task: Callable[[], Any], number: int) -> Any:
        # each task on an executor of its own: none finds the other's budget
        folder = tmp_path / f"executor-{number}"
        folder.mkdir(exist_ok=True)
        with monkeypatch.context() as moved:
            moved.chdir(folder)
            return task()

    with FaultServer(bucket[0]) as server:
        workspace = located(server.url, tmp_path / "home", slugs, concurrency=1, wait=0.0)
        server.set_rules([Rule("503", key="*/warc/*", times=None)])
        before = len(server.hits)
        context = InProcess(elsewhere)
        with pytest.raises(Incomplete):
            fetch_captures(workspace, NEW, slugs, engine=spark(context))
        asked = [task[0].result.requests for task in context.tasks]
        assert len(asked) > 2
        # on a busy machine the first may end before it knows that the source refuses; the second then finds out
        assert 0 < sum(asked[:2]) < 12
        assert not any(asked[2:])
        assert len(server.hits) - before == sum(asked)
        # the ledger balances all the same, and what was not asked for is asked for by the next run
        lacking = [row.note for row in read_notes(workspace.lake, (FETCH,))]
        assert sum(row["planned"] for row in lacking) == sum(row["pending"] for row in lacking)
        assert not find_leftovers(workspace)


def test_a_task_is_tried_again_and_its_last_error_is_told_as_it_was(
    bucket: Bucket, slugs: list[str], before: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = again(bucket, before, tmp_path / "home")

    def full(*_: object, **__: object) -> None:
        raise PlaceFault("the disk is full", "Free some space")

    with monkeypatch.context() as patched:
        patched.setattr(tasks, "fetch_planned", full)
        with pytest.raises(PlaceFault, match="the disk is full") as told:
            fetch_captures(workspace, NEW, slugs, engine=spark())
        # where it arose is told too
        assert "fetch_task" in "".join(told.value.__notes__)
        with pytest.raises(EnvironmentFault, match="could not run a task"):
            fetch_captures(workspace, NEW, slugs, engine=spark(InProcess(tries=2)))
    assert not find_leftovers(workspace)


def test_a_target_that_breaks_a_task_fails_alone(
    bucket: Bucket, slugs: list[str], before: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace, slugs = again(bucket, before, tmp_path / "home"), slugs[:5]
    bad = slugs[3]
    plain = tasks.spill_pages

    def broken(records: list[Any], *rest: Any) -> Any:
        if any(bad in batch.column("target").to_pylist() for batch in records):
            raise RuntimeError("cannot be parsed")
        return plain(records, *rest)

    monkeypatch.setattr(tasks, "spill_pages", broken)
    found = made(workspace, slugs, spark(), PAGES)
    assert [slug for slug, one in found.items() if one.error is not None] == [bad]
    assert set(found[bad].reports) == {"records"}
