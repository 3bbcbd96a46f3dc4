"""``cc-pipeline ui`` asked to end: nothing that it started lives on, and no run is left under way. While it runs, it
obeys no foreign page and runs nothing of the folder that it was started in."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import dagster as dg
import pytest

from cc_pipeline.defs.instance import open_instance_in
from cc_pipeline_tests.defs.test_dagster_process import (
    BIN,
    PATIENCE_SECONDS,
    Server,
    checkout,
    environment,
)
from cc_pipeline_tests.defs.test_webserver import status as answer_of
from cc_pipeline_tests.faultserver import FaultServer, Rule
from cc_pipeline_tests.ports import free_port
from cc_pipeline_tests.test_children import ran, traps
from cc_pipeline_tests.world import NEW, Bucket

__all__ = ["checkout", "traps"]

pytestmark = [pytest.mark.process, pytest.mark.xdist_group("dagster_process"), pytest.mark.timeout(600)]


def descendants(parent: int) -> set[int]:
    """Ids of the processes below a process."""
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(path.parent.name)] = int(path.read_text("utf-8").rpartition(")")[2].split()[1])
        except OSError:
            continue
    found = {parent}
    while more := {child for child, above in parents.items() if above in found} - found:
        found |= more
    return found - {parent}


def test_the_ui_ends_all_it_started(bucket: Bucket, checkout: Path, tmp_path: Path, traps: Path) -> None:
    home, port, log = tmp_path / "home", free_port(), tmp_path / "log"
    with FaultServer(bucket[0], rules=(Rule("stall", key="*.parquet", times=None),)) as source, log.open("wb") as out:
        env = environment(Path("unused"), checkout) | {"CC_PIPELINE_SOURCE": source.url}
        ui = subprocess.Popen(
            [str(BIN / "cc-pipeline"), "ui", "--port", str(port), "--home", str(home)],
            cwd=traps, env=env, stdout=out, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        started: set[int] = set()
        try:
            server = Server(ui, port, log)
            server.wait_until_loaded()
            assert answer_of(port, "GET /server_info", host="evil.example") == 403
            assert answer_of(port, "POST /graphql", "{}", content_type="application/json", origin="null") == 403
            server.add_partition("crawl", NEW)
            run = server.launch("harvest_crawl", {"dagster/partition": NEW})
            deadline = time.monotonic() + PATIENCE_SECONDS
            while not any(hit.fault for hit in source.hits):
                assert time.monotonic() < deadline, log.read_text("utf-8")[-3000:]
                time.sleep(0.2)
            started = descendants(ui.pid)
            assert len(started) >= 3
            ui.send_signal(signal.SIGTERM)
            assert ui.wait(PATIENCE_SECONDS) == 143
            left = {pid for pid in started if Path(f"/proc/{pid}").exists()}
            assert left == set()
        finally:
            for pid in {ui.pid, *started}:
                if Path(f"/proc/{pid}").exists():
                    subprocess.run(["kill", "-9", str(pid)], check=False)
            ui.wait()
    assert ran(traps) == []
    assert "stopped. Committed work is kept" in log.read_text("utf-8")
    instance = open_instance_in(home / "dagster")
    try:
        ended = instance.get_run_by_id(run)
        assert ended is not None
        assert ended.status in (dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED)
    finally:
        instance.dispose()
