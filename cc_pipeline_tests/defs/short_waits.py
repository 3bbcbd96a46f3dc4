"""Waits of Dagster's daemon that tests need not wait for: until it looks again for queued runs, for workers that are
gone, for runs to try again, and at backfills.

``python -m cc_pipeline_tests.defs.short_waits ARGUMENTS`` is ``dagster-daemon``, which looks at backfills every five
seconds instead of every thirty; nothing configures that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

#: Environment of a daemon.
DAEMON_ENVIRONMENT: Final[Mapping[str, str]] = {"DAGSTER_EVENT_LOG_CONSUMER_DAEMON_INTERVAL_SECONDS": "1"}


def with_short_waits(config: dict[str, Any]) -> dict[str, Any]:
    """Changes the content of a ``dagster.yaml``, and returns it."""
    config.setdefault("run_queue", {})["dequeue_interval_seconds"] = 1
    config.setdefault("run_monitoring", {})["poll_interval_seconds"] = 2
    return config


def main() -> None:
    """Runs the daemon."""
    from dagster._daemon import controller  # noqa: PLC0415 -- only this process needs it
    from dagster._daemon.cli import main as run_daemon  # noqa: PLC0415

    controller.DEFAULT_DAEMON_INTERVAL_SECONDS = 5
    run_daemon()


if __name__ == "__main__":
    main()
