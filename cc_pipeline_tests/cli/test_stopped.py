"""Ctrl-C and SIGTERM: one sentence, the status shells expect, and nothing is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cc_pipeline import interruption
from cc_pipeline.testing.mini_crawl import MiniCrawlTruth
from cc_pipeline_tests.cli.conftest import NEW, OLD, split_source
from cc_pipeline_tests.faultserver import FaultServer, Rule

SENTENCE = "stopped. Committed work is kept; run the same command again to continue\n"
REPOSITORY = Path(__file__).resolve().parents[2]
COMMAND = str(Path(sys.executable).with_name("cc-pipeline"))
#: Waiting ends here on the slowest machine.
PATIENCE_SECONDS = 480.0


@pytest.fixture
def bucket(bucket: tuple[Path, MiniCrawlTruth]) -> Path:
    return bucket[0]


def start(home: Path, source: str, *words: str) -> subprocess.Popen[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("CC_PIPELINE_", "DAGSTER_"))}
    told = {"CC_PIPELINE_HOME": str(home), "CC_PIPELINE_SOURCE": source, "COLUMNS": "200", "NO_COLOR": "1"}
    return subprocess.Popen(
        [COMMAND, *words], env=kept | told | {"PYTHONPATH": str(REPOSITORY)}, text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.PIPE,
    )  # fmt: skip


def stopped(process: subprocess.Popen[str], number: signal.Signals) -> tuple[int, str, str]:
    process.send_signal(number)
    try:
        out, err = process.communicate(timeout=PATIENCE_SECONDS)
    finally:
        process.kill()
    return process.returncode, out, err


def wait_until(server: FaultServer, fault: str | None, key: str, process: subprocess.Popen[str]) -> None:
    """Until a request for something whose key has ``key`` in it met the fault."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not any(hit.fault == fault and key in hit.key for hit in server.hits):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.process
def test_a_stopped_run_keeps_what_is_complete(bucket: Path, tmp_path: Path) -> None:
    words = ("run", "-c", "2018..2024", "example.com")
    with FaultServer(bucket, rules=[Rule("stall", key=f"*{OLD}*/warc/*", times=None)]) as server:
        process = start(tmp_path / "home", server.url, *words)
        # a crawl comes after the other: the newer one is complete
        wait_until(server, "stall", OLD, process)
        status, _, err = stopped(process, signal.SIGTERM)
        assert (status, err.endswith(SENTENCE)) == (143, True), err
        asked = len(server.hits)
        server.set_rules(())
        again = start(tmp_path / "home", server.url, *words)
        again.communicate(timeout=PATIENCE_SECONDS)
        assert again.returncode == 0
        later = [hit.key for hit in server.hits[asked:] if "/warc/" in hit.key]
    assert later and not [key for key in later if NEW in key]


@pytest.mark.process
@pytest.mark.parametrize(
    ("words", "number"),
    [(("crawls",), signal.SIGINT), (("doctor",), signal.SIGTERM), (("index", "harvest", "-c", NEW), signal.SIGTERM)],
)
def test_every_command_stops_with_a_sentence(
    bucket: Path, tmp_path: Path, words: tuple[str, ...], number: signal.Signals
) -> None:
    with FaultServer(bucket, rules=(Rule("stall", times=None),)) as server:
        process = start(tmp_path / "home", server.url, *words)
        wait_until(server, "stall", "", process)
        status, out, err = stopped(process, number)
    assert (status, out, split_source(err)[1]) == (128 + number, "", SENTENCE)


def test_a_signal_that_somebody_else_took_still_stops(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGINT)  # a test run in the background may ignore it
    with interruption.catch_signals():
        handler = signal.signal(signal.SIGTERM, lambda *_: None)
        assert interruption.received_signal() is None
        interruption.check()
        signal.raise_signal(signal.SIGTERM)
        assert interruption.received_signal() == signal.SIGTERM
        with pytest.raises(interruption.Interrupted) as raised:
            interruption.check()
        assert raised.value.number == signal.SIGTERM
        signal.signal(signal.SIGTERM, handler)
    assert interruption.received_signal() is None
    assert signal.getsignal(signal.SIGINT) is before


def test_a_second_signal_ends_a_slow_end_at_once() -> None:
    program = (
        "import os, signal, time\nfrom cc_pipeline import interruption\n"
        "with interruption.catch_signals():\n"
        "    try:\n        print('ready', flush=True); time.sleep(60)\n"
        "    finally:\n        print('ending', flush=True); time.sleep(60)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, cwd=REPOSITORY)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    assert process.stdout.readline() == "ending\n"
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE_SECONDS) == -signal.SIGINT
    process.stdout.close()
