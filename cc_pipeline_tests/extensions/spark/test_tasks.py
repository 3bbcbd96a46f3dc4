"""How work is cut into tasks, what travels to a worker, and which applications are refused."""

from __future__ import annotations

import os
import random
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cc_pipeline.addresses import Access
from cc_pipeline.capture_columns import PLACE
from cc_pipeline.errors import EnvironmentFault, UserInputError
from cc_pipeline.extensions.spark.code_check import describe_process
from cc_pipeline.extensions.spark.driver import SparkEngine, check_executor_count
from cc_pipeline.extensions.spark.plans import Plans, cut_tables, fetch_plans
from cc_pipeline.extensions.spark.task_workspace import open_task_workspace
from cc_pipeline.extensions.spark.tasks import Failed, Halting, Job, Task
from cc_pipeline.records.file_leases import lease, list_expired_leases
from cc_pipeline.records.schema import HELD_SCHEMA, RECORD_SCHEMA
from cc_pipeline.records.storage import RecordStorage
from cc_pipeline.settings import load_settings
from cc_pipeline.settings.reading import as_texts
from cc_pipeline.transport.client import Transport
from cc_pipeline_tests.extensions.spark.inprocess import InProcess
from cc_pipeline_tests.world import NEW

SCHEMA = pa.schema([pa.field(PLACE[0], pa.string()), pa.field(PLACE[1], pa.int64()), pa.field(PLACE[2], pa.int64())])


@pytest.fixture
def storage(tmp_path: Path) -> RecordStorage:
    return RecordStorage(Transport(str(tmp_path / "lake")))


def batches(rows: list[tuple[str | None, int | None, int]], size: int = 7) -> list[pa.RecordBatch]:
    table = pa.table([list(column) for column in zip(*rows, strict=True)], schema=SCHEMA)
    return table.to_batches(max_chunksize=size)


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


@pytest.mark.parametrize("seed", range(20))
def test_each_row_is_in_one_task_and_no_place_in_two(seed: int) -> None:
    dice = random.Random(seed)
    rows: list[tuple[str | None, int | None, int]] = [(None, None, 0)] * dice.randrange(4)
    for number in range(dice.randrange(1, 8)):
        offset = 0
        for _ in range(dice.randrange(1, 40)):
            length = dice.randrange(1, 90)
            rows += [(f"f{number}", offset, length)] * dice.choice([1, 1, 1, 3])
            offset += length + dice.choice([0, 0, 5, 10_000])
    most_bytes, most_rows, gap = dice.choice([100, 500, 5_000]), dice.choice([5, 30, 1_000]), 8
    tasks = [rows_of(task) for task in cut_tables(batches(rows), PLACE, most_bytes, most_rows, gap)]
    assert [row for task in tasks for row in task] == rows
    places = [{row[:2] for row in task if row[0] is not None} for task in tasks]
    assert sum(map(len, places)) == len(set().union(*places)), "a place is in one task"
    for task, own in zip(tasks, places, strict=True):
        lengths = {row[:2]: row[2] for row in task if row[0] is not None}
        # one place may be more than fits, and is then alone
        assert sum(lengths.values()) <= most_bytes or len(own) == 1
        assert len(task) <= most_rows or len(own) <= 1 or len(task) <= most_rows + 2
    ended = [task[-1][0] for task in tasks[:-1]]
    begun = [task[0][0] for task in tasks[1:]]
    for number, (last, first) in enumerate(zip(ended, begun, strict=True)):
        if last is not None and last == first:
            # a file is cut only where it fills the task alone
            assert {row[0] for row in tasks[number]} == {last}


def test_bytes_between_records_count_where_they_are_read() -> None:
    near = [("f", number * 60, 50) for number in range(4)]
    assert [task.num_rows for task in cut_tables(batches(near), PLACE, 200, 99, gap=10)] == [3, 1]
    assert [task.num_rows for task in cut_tables(batches(near), PLACE, 200, 99, gap=5)] == [4]


def test_what_is_known_of_a_capture_goes_with_it() -> None:
    rows = [("f", number * 60, 50) for number in range(6)]
    captures = [
        pa.RecordBatch.from_pylist(
            [
                dict(zip(PLACE, row, strict=True), crawl=NEW, subset="warc", target="t", archive_format="warc")
                for row in rows
            ],
            schema=pa.schema([RECORD_SCHEMA.field(name) for name in ("crawl", "subset", "target", *PLACE)]),
        )
    ]
    held = pa.Table.from_pylist(
        [{"warc_filename": "f", "warc_record_offset": offset} for offset in (0, 60, 300)], schema=HELD_SCHEMA
    )
    found = list(fetch_plans(captures, held.to_batches(), [], max_bytes=150))
    assert [task.num_rows for task, _, _ in found] == [2, 2, 2]
    assert [known.column("warc_record_offset").to_pylist() for _, known, _ in found] == [[0, 60], [], [300]]
    assert all(left.schema == HELD_SCHEMA for _, _, left in found)


def test_a_plan_reads_as_it_was_written_and_goes(storage: RecordStorage) -> None:
    tables = [pa.table({"a": [1, 2]}), pa.table({"b": pa.array([], pa.string())}), HELD_SCHEMA.empty_table()]
    mine = Plans(storage, NEW, "job")
    mine.write([tables, tables[::-1], *([tables] * 20)])
    assert mine.count == 22
    assert Plans(storage, NEW, "job").read(1) == tables[::-1]
    assert Plans(storage, NEW, "job").read(21) == tables
    mine.delete()
    assert not storage.transport.listing(f"records/{NEW}/plans/")


def test_a_note_to_stop_is_looked_for_now_and_then(storage: RecordStorage) -> None:
    now = [0.0]
    one, other = (Halting(storage, NEW, "commit", lambda: now[0]) for _ in range(2))
    with lease(storage, NEW, "commit"):
        assert not one(False)
        assert not other(False)
        assert one(True)
        assert not other(False), "it has just looked"
        now[0] += 60
        assert other(False)
        assert list_expired_leases(storage, NEW) == [], "its fetch goes on"
    # one that nobody took away goes with what its run left
    assert [key.rpartition("/")[2] for key in list_expired_leases(storage, NEW)] == ["commit.stopped"]


def test_nothing_secret_travels_and_nothing_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environ = {"CC_PIPELINE_WEBHOOK": "https://hooks.example/secret", "CC_PIPELINE_MARKDOWN": "yes"}
    settings = load_settings(
        environ, source="https://me:pa55word@data.example/cc", home=str(tmp_path / "home"), lake="s3://lake/here"
    )
    assert settings.source_access
    sent = as_texts(settings)
    assert "pa55word" not in repr(sent)
    assert "secret" not in repr(sent)
    assert str(tmp_path) not in repr(sent)
    (tmp_path / "executor").mkdir()
    monkeypatch.chdir(tmp_path / "executor")
    monkeypatch.setenv("CC_PIPELINE_MARKDOWN", "no")
    monkeypatch.setenv("CC_PIPELINE_RATE", "1000")
    for name, text in (("SOURCE", "https://me:pa55word@data.example/cc"), ("SOURCE_USER", "me")):
        with monkeypatch.context() as here:
            here.setenv(f"CC_PIPELINE_{name}", text)
            here.setenv("CC_PIPELINE_SOURCE_PASSWORD", "pa55word")
            with open_task_workspace(sent, 2) as workspace:
                mine = workspace.settings
                assert mine.source_access == Access("me", "pa55word")
                assert mine.home == tmp_path / "executor" / "cc-pipeline"
                assert mine.budget_path.is_relative_to(mine.home), "its share is its own"
                apart = {"home", "rate_shares", "budget", "source_access", "webhook"}
                for one in fields(settings):
                    assert one.name in apart or getattr(mine, one.name) == getattr(settings, one.name)


def test_each_worker_has_its_share_and_none_starts_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = load_settings({}, source="https://data.example/cc", home=str(tmp_path), rate=12.0, concurrency=12)
    sent = as_texts(settings)
    with open_task_workspace(sent, 3) as workspace:
        limits = workspace.transport.limits
        assert (limits.rate, limits.concurrency) == (4.0, 4)
        assert workspace.settings.budget_path.is_relative_to(tmp_path)
    with pytest.raises(UserInputError, match="number of workers"), open_task_workspace(sent, 0):
        pass


def test_tasks_of_a_process_share_a_budget_wherever_they_may_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    # folders of somebody else
    monkeypatch.setattr(os, "access", lambda *_: False)
    sent = as_texts(load_settings({}, source="https://data.example/cc", home=str(tmp_path)))
    budgets = set()
    for _ in range(2):
        with open_task_workspace(sent, 2) as workspace:
            budgets.add(workspace.settings.budget_path)
    assert len(budgets) == 1


def test_a_worker_that_was_not_asked_and_parses_otherwise_does_nothing() -> None:
    def work(job: Job, number: int, count: object) -> int:
        return number

    own = describe_process()
    job = Job(sent={}, workers=1, tries=1, crawl=NEW, commit="c", driver=own, generations={})
    assert list(Task(work, job, lambda more: None)(iter([7]))) == [7]
    other = replace(job, driver=own | {"parser": "0"})
    [failed] = Task(work, other, lambda more: None)(iter([7]))
    assert isinstance(failed, Failed)
    assert isinstance(failed.error, EnvironmentFault)


def test_more_executors_than_were_told_are_refused_before_anything_is_fetched() -> None:
    context = InProcess()
    check_executor_count(context, 2)
    context.executors = 3
    with pytest.raises(UserInputError, match="3 executors"):
        check_executor_count(context, 2)


@pytest.mark.parametrize(
    ("conf", "word"),
    [
        ({"spark.speculation": "true"}, "speculation"),
        ({"spark.speculation": "TRUE"}, "speculation"),
        ({"spark.executor.instances": "3"}, "executor.instances"),
        ({"spark.dynamicAllocation.enabled": "true"}, "maxExecutors"),
        ({"spark.dynamicAllocation.enabled": "true", "spark.dynamicAllocation.maxExecutors": "3"}, "maxExecutors"),
    ],
)
def test_an_application_that_would_ask_too_often_is_refused(conf: dict[str, str], word: str) -> None:
    with pytest.raises(UserInputError, match=word):
        SparkEngine(InProcess(conf=conf), 2)
    with pytest.raises(UserInputError, match="SPARK_WORKERS"):
        SparkEngine(InProcess(), 0)
    SparkEngine(
        InProcess(conf={"spark.dynamicAllocation.enabled": "true", "spark.dynamicAllocation.maxExecutors": "2"}), 2
    )
