"""A backfill with one bad partition in it, whose worker is killed, and then everything: all but the bad one gets done,
and nothing is asked for twice but what was on its way."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from cc_pipeline.defs.launch import Launcher
from cc_pipeline.settings import load_settings
from cc_pipeline.testing.mini_crawl.generate import ensure
from cc_pipeline.testing.mini_crawl.spec import CrawlSpec, MiniCrawlSpec
from cc_pipeline.workspace.workspace import open_workspace
from cc_pipeline_tests.defs.backfills import backfill, wait_for_backfill
from cc_pipeline_tests.defs.published import published_rows
from cc_pipeline_tests.defs.test_dagster_process import (
    BIN,
    PATIENCE_SECONDS,
    Server,
    environment,
    free_port,
)
from cc_pipeline_tests.defs.test_ui_stopped import descendants
from cc_pipeline_tests.faultserver import FaultServer, Hit
from cc_pipeline_tests.world import NEW, extract, harvest, publish, workspace_of

pytestmark = [pytest.mark.process, pytest.mark.xdist_group("dagster_process"), pytest.mark.timeout(900)]

#: Many archive files, so that fetching takes many requests.
SPEC = MiniCrawlSpec(pages=160, sites=5, crawls=(CrawlSpec(NEW, segments=6, files_per_segment=4),))
_FILES = 24
#: A key that somebody typed into the dialog and that means nothing.
BAD = "../x"
#: Requests in flight. After a kill as many may be asked for again, and as many whose answers had not been written yet.
_CONCURRENCY = 2
#: Fetches after which something is killed.
_BEFORE_A_KILL = 4
#: Seconds that each request takes, so that there is a middle of a fetch to be killed in.
_LATENCY = 0.5


@contextmanager
def running(home: Path, env: dict[str, str], log: Path) -> Iterator[tuple[Server, int]]:
    """``cc-pipeline ui`` on a home, and its process id; whatever of it is left is killed when the block ends."""
    port = free_port()
    with log.open("ab") as output:
        ui = subprocess.Popen(
            [str(BIN / "cc-pipeline"), "ui", "--port", str(port), "--home", str(home)],
            cwd=home, env=env, stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    try:
        server = Server(ui, port, log)
        server.wait_until_loaded()
        yield server, ui.pid
    finally:
        kill_all(ui.pid)
        ui.wait()


def kill_all(parent: int) -> None:
    """Ends a process and everything it started, as a power cut would."""
    for pid in (parent, *descendants(parent)):
        kill(pid)


def kill(pid: int) -> None:
    """SIGKILL, for a process that may be gone."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def workers(ui: int) -> list[int]:
    """The processes of runs: what a code server started."""
    found = []
    for pid in descendants(ui):
        try:
            command = Path(f"/proc/{pid}/cmdline").read_text("utf-8").split("\0")
        except OSError:
            continue
        if "grpc" in command and "api" in command:
            found += [child for child in descendants(pid) if is_worker(child)]
    return found


def is_worker(pid: int) -> bool:
    """Whether a process of a code server runs a job: multiprocessing's helpers beside it do not."""
    try:
        return "spawn_main" in Path(f"/proc/{pid}/cmdline").read_text("utf-8")
    except OSError:
        return False


def wait_until(true: Callable[[], bool], log: Path) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not true():
        assert time.monotonic() < deadline, log.read_text("utf-8")[-4_000:]
        time.sleep(0.05)


def fetched(hits: list[Hit]) -> Counter[tuple[str, str | None]]:
    """How often each range of an archive file was asked for."""
    return Counter((hit.key, hit.range) for hit in hits if hit.key.endswith(".warc.gz"))


def test_a_killed_worker_and_a_killed_daemon_leave_nothing_undone(tmp_path: Path) -> None:
    home, log, bucket = tmp_path / "home", tmp_path / "log", tmp_path / "bucket"
    good = ensure(bucket, SPEC).domains()[:4]
    keys = (*good[:2], BAD, *good[2:])
    with FaultServer(bucket) as source:
        env = environment(bucket, tmp_path)
        env |= {
            "CC_PIPELINE_SOURCE": source.url,
            "CC_PIPELINE_CONCURRENCY": str(_CONCURRENCY),
            "CC_PIPELINE_RATE": "50",
        }
        settings = load_settings({}, source=source.url, home=str(home))
        with open_workspace(settings) as workspace, Launcher(workspace) as launcher:
            launcher.harvest([NEW])
        # the daemon would look for lost workers every half a minute
        config = settings.dagster_home / "dagster.yaml"
        monitored = config.read_text("utf-8").replace("poll_interval_seconds: 30", "poll_interval_seconds: 5")
        assert "poll_interval_seconds: 5" in monitored
        config.write_text(monitored, "utf-8")
        source.hits.clear()
        source.scene.latency = _LATENCY

        with running(home, env, log) as (ui, process):
            for key in keys:
                ui.add_partition("target", key)
            asked = backfill(ui, tuple(f"{NEW}|{key}" for key in keys))
            wait_until(lambda: sum(fetched(source.hits).values()) >= _BEFORE_A_KILL, log)
            killed = workers(process)
            assert killed
            for pid in killed:
                kill(pid)
            before = sum(fetched(source.hits).values())
            # the daemon has it done again by itself
            wait_until(lambda: sum(fetched(source.hits).values()) >= before + _BEFORE_A_KILL, log)
        with running(home, env, log) as (ui, _):
            assert wait_for_backfill(ui, asked) == "COMPLETED_FAILED"
            stats = ui.ask(
                """{ assetNodeOrError(assetKey: {path: ["page_metadata"]}) { ... on AssetNode {
                    partitionStats { numMaterialized numFailed numMaterializing } } } }"""
            )["assetNodeOrError"]["partitionStats"]
            assert stats == {"numMaterialized": len(good), "numFailed": 1, "numMaterializing": 0}
        times = fetched(source.hits)
    assert len(times) >= _FILES - 4
    again = sum(times.values()) - len(times)
    assert again <= 2 * 2 * _CONCURRENCY, times.most_common(9)

    alone = workspace_of(bucket, tmp_path / "alone")
    harvest(alone)
    extract(alone, *good)
    # publishing asks no source, but a home belongs to the one that it remembers
    for workspace in (workspace_of(source.url, home), alone):
        publish(workspace)
    ours, theirs = published_rows(home), published_rows(tmp_path / "alone")
    # what these two have came over HTTP here: other tags of files, other addresses in what was stored
    for table in ours.keys() - {"index_files", "records"}:
        assert ours[table] == theirs[table], table
    assert ours["records"].total() == theirs["records"].total() > 0
