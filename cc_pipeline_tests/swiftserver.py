"""A real S3 server on loopback: OpenStack Swift with its s3api, from a virtual environment that has ``swift``.

    python3 -m venv ~/swift && ~/swift/bin/pip install swift
    CC_PIPELINE_TEST_SWIFT=~/swift make test

Four processes, no memcached, data in a folder that must take extended attributes. Checks signatures, which mock
servers do not.
"""

from __future__ import annotations

import http.client
import os
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ACCOUNT, USER, SECRET = "test", "tester", "testing"
PARTS = ("account", "container", "object")
_PIPELINE = "catch_errors gatekeeper healthcheck listing_formats bulk s3api tempauth slo dlo proxy-server"
_START_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class S3Server:
    """Where a server is and who may use it."""

    endpoint: str
    key: str
    secret: str


def swift_environment() -> Path | None:
    """The virtual environment ``CC_PIPELINE_TEST_SWIFT`` names, if it has Swift."""
    named = os.environ.get("CC_PIPELINE_TEST_SWIFT")
    path = Path(named).expanduser() if named else None
    return path if path is not None and (path / "bin" / "swift-proxy-server").exists() else None


@contextmanager
def swift_server(environment: Path, folder: Path) -> Iterator[S3Server]:
    """Runs Swift with its data in ``folder`` until the block is left."""
    ports = {part: _free_port() for part in (*PARTS, "proxy")}
    _configure(environment, folder, ports)
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for part in (*PARTS, "proxy"):
            log = (folder / f"{part}.log").open("wb")
            command = [str(environment / "bin" / f"swift-{part}-server"), str(folder / f"{part}-server.conf")]
            processes.append(subprocess.Popen(command, stdout=log, stderr=log, cwd=folder))
            log.close()
        _wait_until_up(ports["proxy"], folder)
        yield S3Server(f"http://127.0.0.1:{ports['proxy']}", f"{ACCOUNT}:{USER}", SECRET)
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()


def _configure(environment: Path, folder: Path, ports: Mapping[str, int]) -> None:
    (folder / "disks" / "d1").mkdir(parents=True)
    common = (
        f"[DEFAULT]\nbind_ip = 127.0.0.1\nworkers = 0\nuser = {_user()}\nswift_dir = {folder}\nlog_level = WARNING\n"
    )
    (folder / "swift.conf").write_text(
        "[swift-hash]\nswift_hash_path_suffix = tests\n[storage-policy:0]\nname = one\ndefault = yes\n"
    )
    for part in PARTS:
        builder = str(folder / f"{part}.builder")
        ring = [str(environment / "bin" / "swift-ring-builder"), builder]
        for command in (
            ("create", "4", "1", "1"),
            ("add", f"r1z1-127.0.0.1:{ports[part]}/d1", "1"),
            ("rebalance",),
        ):
            subprocess.run([*ring, *command], check=True, stdout=subprocess.DEVNULL)
        (folder / f"{part}-server.conf").write_text(
            f"{common}bind_port = {ports[part]}\ndevices = {folder / 'disks'}\nmount_check = false\n"
            f"[pipeline:main]\npipeline = {part}-server\n[app:{part}-server]\nuse = egg:swift#{part}\n"
        )
    filters = "".join(f"[filter:{name}]\nuse = egg:swift#{name}\n" for name in _PIPELINE.split()[:-1])
    filters = filters.replace("use = egg:swift#s3api\n", "use = egg:swift#s3api\nlocation = us-east-1\n").replace(
        "use = egg:swift#tempauth\n", f"use = egg:swift#tempauth\nuser_{ACCOUNT}_{USER} = {SECRET} .admin\n"
    )
    (folder / "proxy-server.conf").write_text(
        f"{common}bind_port = {ports['proxy']}\n[pipeline:main]\npipeline = {_PIPELINE}\n"
        f"[app:proxy-server]\nuse = egg:swift#proxy\naccount_autocreate = true\n{filters}"
    )


def _wait_until_up(port: int, folder: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
        try:
            connection.request("GET", "/healthcheck")
            if connection.getresponse().status == 200:
                return
        except OSError:
            time.sleep(0.2)
        finally:
            connection.close()
    raise RuntimeError(f"Swift did not come up: {(folder / 'proxy.log').read_text()[-2000:]}")


def _user() -> str:
    return os.environ.get("USER") or str(Path.home().owner())


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
