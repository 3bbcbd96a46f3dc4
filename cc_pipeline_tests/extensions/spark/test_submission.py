"""A Dagster run whose records and pages are made by a job: recorded while it runs, and whatever its end.

The driver is a stand-in with the local engine; the mailbox is on a real S3 server. "test_on_cluster.py" has a real one.
"""

from __future__ import annotations

import fcntl
import os
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import dagster as dg
import pytest

from cc_pipeline import locks
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.defs.partitions import ENGINE_TAG
from cc_pipeline.defs.recording import PartitionsFailed
from cc_pipeline.defs.stage_runner import StageRunner
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.extensions.spark import submission
from cc_pipeline.extensions.spark.messages import FOLDER, s3_client
from cc_pipeline.extraction.run import TABLES
from cc_pipeline.home import read_note
from cc_pipeline.workspace.workspace import Workspace
from cc_pipeline_tests.closing import closed_later
from cc_pipeline_tests.defs.graph import recorded
from cc_pipeline_tests.extensions.spark import stand_in_driver
from cc_pipeline_tests.weedserver import REGION, S3Server
from cc_pipeline_tests.world import NEW, Bucket, harvest, workspace_of

pytestmark = pytest.mark.process

TWO = ("example.com", "example.org")


@pytest.fixture(autouse=True)
def _stand_in(weed: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith(("AWS_", "CC_PIPELINE_", "SPARK_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", weed.key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", weed.secret)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    program = tmp_path / "spark" / "bin" / "spark-submit"
    program.parent.mkdir(parents=True)
    program.write_text(
        f'#!/bin/sh\necho "$@" > {tmp_path}/arguments\necho "first line of the log"\n'
        f'exec {sys.executable} {stand_in_driver.__file__} "$@"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho 'openjdk version \"21.0.2\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    monkeypatch.setenv("STAND_IN_MARK", str(tmp_path / "mark"))


@pytest.fixture
def workspace(bucket: Bucket, weed: S3Server, tmp_path: Path) -> Workspace:
    """A harvested home with the engine spark, on a lake of its own."""
    place = {"lake": f"s3://lake/{tmp_path.name}", "lake_endpoint": weed.endpoint, "s3_region": REGION}
    made = workspace_of(
        bucket[0], tmp_path / "home", **place, engine="spark", spark_master="local[2]", spark_workers=2, publish="copy"
    )
    harvest(made)
    return made


def left_in_mailboxes(workspace: Workspace) -> list[str]:
    client = s3_client(workspace.settings.lake_endpoint, REGION)
    _, _, prefix = workspace.settings.lake.removeprefix("s3://").partition("/")
    found = client.list_objects_v2(Bucket="lake", Prefix=f"{prefix}/{FOLDER}/")
    return [one["Key"] for one in found.get("Contents", ())]


def said_in(instance: dg.DagsterInstance, run: dg.DagsterRun) -> str:
    return "\n".join(entry.user_message for entry in instance.all_logs(run.run_id))


def test_partitions_are_recorded_with_their_figures_and_nothing_stays(workspace: Workspace, tmp_path: Path) -> None:
    targets = [parse_target(text) for text in TWO]
    with StageRunner(workspace) as runner:
        runner.extract([NEW], targets)
        for table in TABLES:
            found = recorded(runner.instance, table)
            assert sorted(found) == [f"{NEW}|{text}" for text in TWO]
            for one in found.values():
                assert "dagster/partition_row_count" in one.metadata
                assert ("engine" in one.metadata) == (table != "captures")
                assert one.tags is not None
                assert one.tags["dagster/data_version"]
        assert all(
            one.metadata["dagster/partition_row_count"].value for one in recorded(runner.instance, "records").values()
        )
        [run] = runner.instance.get_runs(dg.RunsFilter(job_name="extract_targets"))
        assert run.tags[ENGINE_TAG] == "spark"
        # the folder goes with the run
        [log] = (Path(runner.instance.root_directory) / "storage" / run.run_id).glob("spark_driver-*.log")
        assert log.read_text().startswith("first line of the log\n")
        assert "experimental" in said_in(runner.instance, run)
        assert "stand-in" in said_in(runner.instance, run)
        arguments = (tmp_path / "arguments").read_text()
        assert "spark.speculation=false" in arguments
        assert "spark.cores.max=2" in arguments
        assert left_in_mailboxes(workspace) == []
        # what pages were parsed with belongs to this home, and not to that of the job
        note = read_note(workspace.settings.home)
        assert note is not None
        assert note.choices["markdown"] is False
        # and the local engine finds nothing to do
        near = closed_later(Workspace(replace(workspace.settings, engine="local")))
        with StageRunner(near) as again:
            assert list(again.extract([NEW], targets)) == []


@pytest.mark.parametrize("how", ["raises", "dies"])
def test_what_was_made_before_a_bad_end_is_recorded(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setenv("STAND_IN", how)
    targets = [parse_target(text) for text in TWO]
    with StageRunner(workspace) as runner:
        with pytest.raises((PartitionsFailed, EnvironmentFault)):
            runner.extract([NEW], targets)
        assert sorted(recorded(runner.instance, "page_metadata")) == [f"{NEW}|{TWO[0]}"]
        # it was located, which stays
        assert sorted(recorded(runner.instance, "captures")) == [f"{NEW}|{text}" for text in TWO]
    assert left_in_mailboxes(workspace) == []


def test_the_end_of_a_run_ends_its_job(workspace: Workspace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("STAND_IN", "hangs")
    mark = tmp_path / "mark"

    def interrupt() -> None:
        if mark.exists():
            raise KeyboardInterrupt

    monkeypatch.setattr(submission.interruption, "check", interrupt)
    with StageRunner(workspace) as runner, pytest.raises(BaseException) as ended:
        runner.extract([NEW], [parse_target(text) for text in TWO])
    assert not isinstance(ended.value, AssertionError)
    driver = int(mark.read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(driver, 0)
    assert left_in_mailboxes(workspace) == []
    assert not [thread for thread in threading.enumerate() if thread.name == "job on Spark"]


def test_jobs_of_one_home_come_one_after_the_other(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    other = (workspace.settings.home / "spark.lock").open("w")
    fcntl.flock(other, fcntl.LOCK_EX)

    def another_ends(seconds: float) -> None:
        # workers of the other one share the whole budget: no driver is started beside it
        assert not (tmp_path / "arguments").exists()
        other.close()

    monkeypatch.setattr(locks, "time", SimpleNamespace(sleep=another_ends, monotonic=time.monotonic))
    with StageRunner(workspace) as runner:
        runner.extract([NEW], [parse_target(TWO[0])])
        assert sorted(recorded(runner.instance, "page_metadata")) == [f"{NEW}|{TWO[0]}"]
    assert other.closed
