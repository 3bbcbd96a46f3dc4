"""A mock of S3 on loopback: moto, which lets in whoever asks. All servers of one process share their buckets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import boto3
from moto.server import ThreadedMotoServer

#: What lets somebody in, in words that AWS' libraries read.
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing"}


def client_of(endpoint: str, key: str = "testing", secret: str = "testing") -> Any:
    """boto3's client, which is another program than the one tested."""
    return boto3.client(
        "s3", endpoint_url=endpoint, aws_access_key_id=key, aws_secret_access_key=secret, region_name="us-east-1"
    )


@contextmanager
def moto_server(*buckets: str) -> Iterator[str]:
    """The address of a server that has ``buckets`` and runs until the block is left."""
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        endpoint = f"http://{host}:{port}"
        for bucket in buckets:
            client_of(endpoint).create_bucket(Bucket=bucket)
        yield endpoint
    finally:
        server.stop()
