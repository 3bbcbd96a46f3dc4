"""A purge of what Spark's lost tasks and killed drivers left."""

from __future__ import annotations

from pathlib import Path

import pytest

from cc_pipeline.documents.schemas import PARSER_VERSION
from cc_pipeline.extensions.spark import driver as engine
from cc_pipeline.extensions.spark.plans import Plans
from cc_pipeline.extraction import plan
from cc_pipeline.extraction.fetch import fetch_captures
from cc_pipeline.extraction.parse import parse_records
from cc_pipeline.maintenance.purge import purge
from cc_pipeline.maintenance.purge_plan import plan_purge
from cc_pipeline.records.file_leases import lease
from cc_pipeline_tests.extensions.spark.compared import Bucket, located, made
from cc_pipeline_tests.extensions.spark.inprocess import InProcess
from cc_pipeline_tests.extensions.spark.test_engine import PAGES, run_twice, spark
from cc_pipeline_tests.extraction.engine_tests import find_unnamed_files
from cc_pipeline_tests.extraction.stored import dangling
from cc_pipeline_tests.maintenance.test_purge import needles, traces
from cc_pipeline_tests.world import NEW, Killed

pytestmark = pytest.mark.process


def test_a_purge_takes_what_lost_tasks_and_killed_drivers_left(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes, stays = "example.com", "example.org"
    mine = located(bucket[0], tmp_path / "home", [goes, stays])
    made(mine, [goes, stays], spark(InProcess(run_twice)), PAGES)
    wanted = needles(mine)

    def killed(*_: object, **__: object) -> None:
        raise Killed

    plans = tmp_path / "home" / "lake" / "records" / NEW / "plans"
    for room, step in ((engine, "_merge_task_results"), (engine, "write_rows")):
        with monkeypatch.context() as patched, pytest.raises(Killed):
            # as one that is killed: its process does none of this
            patched.setattr(Plans, "delete", lambda _: None)
            patched.setattr(room, step, killed)
            if step == "_merge_task_results":
                fetch_captures(mine, NEW, [goes], engine=spark(), refetch=True)
            else:
                patched.setattr(plan, "PARSER_VERSION", str(int(PARSER_VERSION) + 1))
                parse_records(mine, NEW, [goes], engine=spark())
    assert len(list(plans.rglob("*.arrow"))) >= 2
    assert find_unnamed_files(mine)
    with lease(mine.storage, NEW, "f" * 32, [stays]) as running:
        running.hold(())
        # of a job that runs, for another target
        beside = plans / ("f" * 32) / "000000.arrow"
        beside.parent.mkdir()
        beside.write_bytes(b"")
        table = next((tmp_path / "home" / "lake" / "tables" / "records").rglob("*.parquet")).parent
        file = table / f"part-00000-{'f' * 32}-000000-000-c000.zstd.parquet"
        file.write_bytes(b"")
        report = purge(mine, plan_purge(mine, goes, goes), now=True)
        assert beside.exists()
        assert file.exists()
        file.unlink()
    assert report.fetches == 0
    # plans and files of killed drivers are in no table, and may be those of a job that runs: they are kept for a week
    named = {Path(file).name for table in PAGES for file in mine.lake.pin(table).files}
    left = [trace.partition(":")[0] for trace in traces(tmp_path / "home", wanted)]
    assert [
        path for path in left if not any(part in path for part in ("tables/", "plans/")) or Path(path).name in named
    ] == []
    assert dangling(mine) == []
    assert set(mine.lake.read("records").column("target").to_pylist()) == {stays}
