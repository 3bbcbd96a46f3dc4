"""Tasks that somebody else runs: `cc-pipeline task` in this process, and in processes that Dagster Pipes starts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest

from cc_pipeline.errors import EnvironmentFault, UserInputError
from cc_pipeline.extensions.spark import plans as cutting
from cc_pipeline.extensions.spark import task_json
from cc_pipeline.extensions.spark.code_check import describe_process
from cc_pipeline.extensions.spark.commands import task
from cc_pipeline.extensions.spark.external_tasks import ExternalTaskEngine
from cc_pipeline.extensions.spark.task_json import as_json, from_json, read_result, run_task
from cc_pipeline.extensions.spark.tasks import FetchJob, FetchTaskResult, Written
from cc_pipeline.extraction.engine import LOCAL
from cc_pipeline.extraction.fetch_counts import Tally
from cc_pipeline.lake.adding import AddedFile
from cc_pipeline.records.fetch import RecordsResult
from cc_pipeline.records.orders import RecordOptions
from cc_pipeline.settings.reading import as_texts
from cc_pipeline.testing.engines import assert_same, find_leftovers, find_unnamed_files
from cc_pipeline.transport.budget import OpenBreaker
from cc_pipeline_tests.extensions.spark.compared import Bucket, located, made
from cc_pipeline_tests.extensions.spark.pipes_example import site
from cc_pipeline_tests.extensions.spark.test_engine import PAGES, twins
from cc_pipeline_tests.weedserver import REGION, S3Server
from cc_pipeline_tests.world import NEW

TARGETS = ["example.com", "example.org", "host:www.example.com"]
SLUGS = ["example.com", "example.org", "host_www.example.com"]


@pytest.fixture(autouse=True)
def _tasks_in_a_folder_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path / "there")
    monkeypatch.setattr(cutting, "MIN_ROWS", 10)
    monkeypatch.setattr(cutting, "MIN_BYTES", 100_000)


def run_here(address: str) -> None:
    task(address, out=None, endpoint="", region=REGION)


def test_tasks_run_by_the_command_make_the_same_tables(bucket: Bucket, tmp_path: Path) -> None:
    theirs, mine = twins(bucket[0], tmp_path, TARGETS)
    started: list[str] = []

    def start(address: str) -> None:
        # a task that is run twice is committed once
        for _ in range(2 if not started else 1):
            run_here(address)
        started.append(address)

    assert all(one.error is None for one in made(theirs, SLUGS, LOCAL, PAGES).values())
    assert all(one.error is None for one in made(mine, SLUGS, ExternalTaskEngine(start, 2), PAGES).values())
    assert len(started) > 4
    assert_same(theirs, mine, SLUGS)
    assert not find_leftovers(mine)
    assert not [path for path in Path(mine.settings.lake).rglob("*.json") if "plans" in path.parts]


def test_a_task_that_fails_ends_with_its_own_error(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = located(bucket[0], tmp_path / "home", TARGETS)
    own = describe_process()
    monkeypatch.setattr(task_json, "describe_process", lambda: own | {"libraries": own["libraries"] | {"lxml": "5.0"}})
    found = made(mine, SLUGS, ExternalTaskEngine(run_here, 2), PAGES)
    assert all("lxml is 5.0 there" in str(one.error) for one in found.values())
    # one that nobody ran
    found = made(mine, SLUGS, ExternalTaskEngine(lambda address: None, 2), PAGES)
    assert all(isinstance(one.error, EnvironmentFault) and "left no result" in str(one.error) for one in found.values())
    assert not find_leftovers(mine)
    assert not find_unnamed_files(mine)


def test_an_engine_without_workers_is_refused() -> None:
    with pytest.raises(UserInputError):
        ExternalTaskEngine(run_here, 0)


def test_tasks_and_results_are_the_same_after_they_were_json() -> None:
    opening = OpenBreaker("h", 1.0, 2.0, 1, "403")
    job = FetchJob({"LAKE": "s3://b/l"}, 2, 1, NEW, "c", describe_process(), RecordOptions(), "p", (opening,))
    assert from_json(FetchJob, json.loads(json.dumps(as_json(job)))) == job
    tally = Tally()
    tally._counts["a", "fetched"] = 3
    for reason in (None, "gone"):
        tally._get_pending("a", reason).add(tally._get_pending("b", reason))
    result = RecordsResult(1, 2, 3, 4, ("f",), frozenset({"g"}), (), 1, True, True, {"fetched": 1}, 0)
    added = AddedFile("records", "p", NEW, 1, 2, "a", "b", {"x": "y"}, {"x": 1})
    done = FetchTaskResult(result, 1, Written([added], tally), None, (opening,))
    back = from_json(FetchTaskResult, json.loads(json.dumps(as_json(done))))
    assert back == done
    # a tally goes on counting
    back.counted.tally.include(tally)
    assert back.counted.tally._counts["a", "fetched"] == 6


@pytest.mark.parametrize(
    "document",
    [b"", b"[]", b"{}", b'{"stage": "fetch"}', b'{"stage": "x", "number": 1, "job": {}}',
     b'{"stage": "parse", "number": 0, "job": {"sent": 3, "workers": 1, "tries": 1, "crawl": "c", "commit": "c"}}'],
)  # fmt: skip
def test_what_is_no_task_is_refused(document: bytes) -> None:
    with pytest.raises(UserInputError, match="not a task"):
        run_task(document, lambda more: None)


def test_a_result_that_is_none_is_not_taken_for_one() -> None:
    with pytest.raises(ValueError, match="no result"):
        read_result("parse", b'{"cc_pipeline": "task"}')


def test_what_a_worker_loads_has_neither_dagster_nor_spark() -> None:
    asked = (
        "import sys; import cc_pipeline.extensions.spark.task_json;"
        "sys.exit(', '.join({'dagster', 'pyspark'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.process
def test_the_example_runs_tasks_by_dagster_pipes_over_s3(
    bucket: Bucket, weed: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = {"lake": f"s3://lake/{tmp_path.name}", "lake_endpoint": weed.endpoint, "s3_region": REGION}
    for name in [name for name in os.environ if name.startswith(("AWS_", "CC_PIPELINE_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", weed.key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", weed.secret)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    theirs = located(bucket[0], tmp_path / "local", TARGETS[:1])
    mine = located(bucket[0], tmp_path / "home", TARGETS[:1], **place)
    for name, text in as_texts(mine.settings).items():
        monkeypatch.setenv(f"CC_PIPELINE_{name}", text)
    monkeypatch.setenv("CC_PIPELINE_HOME", str(tmp_path / "home"))
    # one task a stage: each is a process
    monkeypatch.setattr(cutting, "MIN_ROWS", 1_000)
    monkeypatch.setattr(cutting, "MIN_BYTES", 10_000_000)
    with dg.DagsterInstance.ephemeral() as instance:
        done = dg.materialize(
            [site],
            instance=instance,
            resources={"pipes": dg.PipesSubprocessClient()},
            run_config={"ops": {"site": {"config": {"crawl": NEW, "slug": SLUGS[0]}}}},
            raise_on_error=False,
        )
        told = "\n".join(entry.user_message for entry in instance.all_logs(done.run_id))
    assert done.success, told
    assert ".json: " in told
    assert all(one.error is None for one in made(theirs, SLUGS[:1], LOCAL, PAGES).values())
    assert_same(theirs, mine, SLUGS[:1])
    assert not find_leftovers(mine)
