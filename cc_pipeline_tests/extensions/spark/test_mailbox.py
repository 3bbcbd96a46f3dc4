"""A job's mailbox: nothing stays in it, and a driver that nobody listens to ends."""

from __future__ import annotations

import io
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from cc_pipeline.extensions.spark.messages import mailbox_in, watch_sign_of_life


class Store:
    """An S3 client over a dictionary; ``down`` is raised in place of an answer."""

    def __init__(self) -> None:
        self.objects: dict[str, tuple[bytes, datetime]] = {}
        self.down: Exception | None = None
        self.asked = threading.Semaphore(0)

    def put_object(self, *, Bucket: str, Key: str, Body: bytes) -> None:
        if self.down:
            raise self.down
        self.objects[Key] = Body, datetime.now(UTC)

    def get_object(self, *, Bucket: str, Key: str) -> dict[str, Any]:
        self.asked.release()
        if self.down:
            raise self.down
        if Key not in self.objects:
            raise ClientError({"ResponseMetadata": {"HTTPStatusCode": 404}}, "GetObject")
        return {"Body": io.BytesIO(self.objects[Key][0])}

    def delete_object(self, *, Bucket: str, Key: str) -> None:
        del self.objects[Key]

    def get_paginator(self, name: str) -> Store:
        return self

    def paginate(self, *, Bucket: str, Prefix: str) -> list[dict[str, Any]]:
        found = [{"Key": key, "LastModified": at} for key, (_, at) in self.objects.items() if key.startswith(Prefix)]
        return [{"Contents": found}]


def test_a_mailbox_is_below_the_lake_and_empty_afterwards() -> None:
    store = Store()
    mail = mailbox_in(store, "s3://bucket/some/lake", "run-1")
    assert (mail.bucket, mail.prefix) == ("bucket", "some/lake/jobs/run-1")
    assert mailbox_in(store, "s3://bucket", "run-1").prefix == "jobs/run-1"
    store.objects["some/lake/records/x"] = b"", datetime.now(UTC) - timedelta(days=9)
    store.objects["some/lake/jobs/killed/alive"] = b"", datetime.now(UTC) - timedelta(days=9)
    store.objects["some/lake/jobs/other/alive"] = b"", datetime.now(UTC)
    with mail.open():
        assert mail.read(mail.sign_of_life_key) == b"0"
        store.put_object(Bucket="bucket", Key=f"{mail.prefix}/messages/1.json", Body=b"")
    assert sorted(store.objects) == ["some/lake/jobs/other/alive", "some/lake/records/x"]


@pytest.mark.parametrize("gone", [False, True])
def test_a_driver_ends_when_the_sign_of_life_stands_still(gone: bool) -> None:
    store = Store()
    if not gone:
        store.put_object(Bucket="b", Key="alive", Body=b"7")
    ended = threading.Event()
    with watch_sign_of_life(store, "b", "alive", ended.set, beat=0.01, max_silence=0.05):
        assert ended.wait(480)


def test_a_driver_goes_on_while_the_sign_changes_or_cannot_be_read() -> None:
    store = Store()
    ended = threading.Event()
    with watch_sign_of_life(store, "b", "alive", ended.set, beat=0.001, max_silence=30.0):
        for number in range(5):
            store.put_object(Bucket="b", Key="alive", Body=str(number).encode())
            assert store.asked.acquire(timeout=480)
    store.down = EndpointConnectionError(endpoint_url="http://nowhere")
    with watch_sign_of_life(store, "b", "alive", ended.set, beat=0.001, max_silence=0.0):
        for _ in range(20):
            assert store.asked.acquire(timeout=480)
    assert not ended.is_set()
