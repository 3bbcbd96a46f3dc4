"""Two hosts and the home share one rate by leases of a PostgreSQL on loopback, and one of them is killed: how much of
the rate the others use, and whether any second sees more. Part of ``make bench-refused``; left out where there is no
server."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from benchmarks.report import Report, sized
from cc_pipeline_tests.postgres import postgres_server, programs
from cc_pipeline_tests.transport.test_budget import most_in_a_second
from cc_pipeline_tests.transport.test_leases import one_of_three_killed

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
        for rate in _RATES:
            folder = Path(scratch) / f"{rate:g}"
            folder.mkdir()
            times, killed = one_of_three_killed(
                folder, rate, concurrency=_ASKED, seconds=_SECONDS + 5, after=int(rate * 2)
            )
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
