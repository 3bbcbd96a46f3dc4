"""Two hosts and the home share one rate by leases of a PostgreSQL on loopback, and one of them is killed: how much of
the rate the others use, and whether any second sees more. Part of ``make bench-refused``; left out where there is no
server."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import time
from pathlib import Path

from benchmarks.report import Report, sized
from cc_pipeline.transport.client import Transport
from cc_pipeline.transport.place import PlaceOptions
from cc_pipeline.transport.ranges import ByteRange, RangeBytes
from cc_pipeline_tests.faultserver import FaultServer
from cc_pipeline_tests.postgres import postgres_server, programs
from cc_pipeline_tests.transport.test_budget import most_in_a_second

_RATES = sized((20.0,), (10.0, 100.0))
_SECONDS = sized(3.0, 30.0)
_ASKED = 32


def tell_leased(report: Report) -> None:
    """Adds the figures to ``report``."""
    if programs() is None:
        print("no PostgreSQL here: what is leased from one is left out")
        return
    with postgres_server() as postgres, tempfile.TemporaryDirectory() as scratch:
        os.environ.update(postgres.environment)
        (Path(scratch) / "f").write_bytes(bytes(1_000))
        for rate in _RATES:
            times, killed = _one_is_killed(Path(scratch), rate)
            left = [at for at in times if at > killed]
            used = (len(left) - 1) / (max(left) - min(left))
            # shares of three leave two thirds
            report.figure(
                f"leased_{rate:g}_used", used / rate, None, 0.95, unit="of the rate",
                note=f"{used:.2f} requests/s after one of three was killed",
            )  # fmt: skip
            report.figure(
                f"leased_{rate:g}_most", most_in_a_second(times) / rate, None, 1, unit="of the rate in any second",
                higher_is_better=False,
            )  # fmt: skip


def _one_is_killed(folder: Path, rate: float) -> tuple[list[float], float]:
    """When requests came, and when one of the three that sent them was killed."""
    context = multiprocessing.get_context("spawn")
    with FaultServer(folder) as server:
        asking = [
            context.Process(target=_ask, args=(server.url, folder / f"{rate:g}-{number}", rate)) for number in range(3)
        ]
        for one in asking:
            one.start()
        while len(server.hits) < rate * 2:
            time.sleep(0.05)
        dead = asking.pop()
        dead.kill()
        killed = time.time()
        for one in asking:
            one.join()
        return [hit.at for hit in server.hits], killed


def _ask(url: str, home: Path, rate: float) -> None:
    options = PlaceOptions(rate=rate, leases=True, concurrency=_ASKED, budget_path=home / "budget.sqlite")
    with Transport(url, options) as transport:
        end = time.monotonic() + _SECONDS + 5
        while time.monotonic() < end:
            for outcome in transport.read_many([ByteRange("f", n, 3) for n in range(_ASKED)]):
                assert isinstance(outcome, RangeBytes)
