"""A real PostgreSQL on loopback: the server that Debian's package brings, with data of its own for the test."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg2
import pytest

from cc_pipeline_tests.ports import free_port

_START_SECONDS = 60.0
#: A secret that has to be quoted in a URL, so that a place that does not quote it fails.
_PASSWORD = "p@ss/w:rd%20"


@dataclass(frozen=True, slots=True)
class Postgres:
    """Where the server answers, and its one database. ``stop`` ends its process as a restart does, ``start`` begins a
    new one at the same address."""

    host: str
    port: int
    user: str
    password: str
    database: str
    stop: Callable[[], None]
    start: Callable[[], None]

    @property
    def storage(self) -> dict[str, object]:
        """Dagster's state there, as ``dagster.yaml`` names it."""
        return {
            "postgres": {
                "postgres_db": {
                    "scheme": "postgresql+psycopg2", "hostname": self.host, "port": self.port,
                    "db_name": self.database, "username": self.user, "password": self.password,
                }
            }
        }  # fmt: skip

    @property
    def environment(self) -> dict[str, str]:
        """The variables that PostgreSQL's own programs read."""
        return {
            "PGHOST": self.host, "PGPORT": str(self.port), "PGUSER": self.user,
            "PGPASSWORD": self.password, "PGDATABASE": self.database,
        }  # fmt: skip


def programs() -> Path | None:
    """The folder of the newest server that is installed, or ``None``."""
    found = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    on_path = shutil.which("initdb")
    if on_path:
        found.append(Path(on_path).resolve().parent)
    return max(
        found, key=lambda path: [int(part) for part in path.parent.name.split(".") if part.isdigit()], default=None
    )


@contextmanager
def postgres_server() -> Iterator[Postgres]:
    """Runs a server with an empty database until the block is left.

    The server refuses to be root, so for root it runs as ``nobody``. Skips the test where there is no server, or no way
    to be somebody else.
    """
    found = programs()
    if found is None:
        pytest.skip("no PostgreSQL here: install Debian's package postgresql (initdb and postgres are looked for)")
    become = _unprivileged()
    # not below pytest's folders, which are their owner's alone
    folder = Path(tempfile.mkdtemp(prefix="postgres-"))
    try:
        folder.chmod(0o755)
        data, secret = folder / "data", folder / "secret"
        data.mkdir()
        secret.write_text(_PASSWORD, "utf-8")
        if os.getuid() == 0:
            shutil.chown(data, "nobody")
        made = subprocess.run(
            [*become, found / "initdb", "-D", data, "-U", "dagster", "-A", "scram-sha-256", f"--pwfile={secret}",
             "-E", "UTF8", "--locale=C", "--no-sync"],
            cwd="/", capture_output=True, text=True, check=False,
        )  # fmt: skip
        if made.returncode:
            raise RuntimeError(made.stderr)
        with _running([*become, str(found / "postgres"), "-D", str(data)], folder) as server:
            yield server
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _running(command: list[str], folder: Path) -> Iterator[Postgres]:
    port = free_port()
    # as a server for a test: no sockets in a common folder, and nothing waits for the disk
    command = [*command, "-h", "127.0.0.1", "-p", str(port), "-k", "", "-c", "fsync=off"]
    with (folder / "log").open("wb") as log:
        processes: list[subprocess.Popen[bytes]] = []

        def start() -> None:
            processes.append(subprocess.Popen(command, stdout=log, stderr=log, cwd="/"))
            _wait(server, processes[-1], folder / "log")

        def stop(how: signal.Signals = signal.SIGINT) -> None:
            processes[-1].send_signal(how)
            processes[-1].wait(480)

        server = Postgres("127.0.0.1", port, "dagster", _PASSWORD, "postgres", stop, start)
        try:
            start()
            yield server
        finally:
            stop(signal.SIGQUIT)  # its data goes too


def _wait(server: Postgres, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            psycopg2.connect(
                host=server.host, port=server.port, user=server.user, password=server.password, dbname=server.database
            ).close()
        except psycopg2.OperationalError:
            time.sleep(0.1)
        else:
            return
    raise RuntimeError(f"PostgreSQL did not come up: {log.read_text(errors='replace')[-2000:]}")


def _unprivileged() -> list[str]:
    """What to put before a command so that it does not run as root; nothing for who is not root."""
    if os.getuid() != 0:
        return []
    if shutil.which("setpriv") is None:
        pytest.skip("PostgreSQL refuses to run as root, and there is no setpriv (util-linux) to run it as nobody")
    nobody = pwd.getpwnam("nobody")
    return ["setpriv", f"--reuid={nobody.pw_uid}", f"--regid={nobody.pw_gid}", "--clear-groups"]
