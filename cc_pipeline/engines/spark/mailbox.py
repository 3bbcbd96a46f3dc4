"""Where a job and whoever started it exchange what they have to say: a folder of its own in the lake's place.

The starter rewrites one object there while it lives. A driver that finds the same words for minutes ends: nobody
listens any more, and the next run may be asking the same source already.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from urllib.parse import urlsplit

from cc_pipeline.errors import PlaceFault

#: The folder in the lake's root that has one folder for each job that runs.
FOLDER: Final = "jobs"
#: Seconds between two signs of life, and how long a driver goes on without one.
_BEAT: Final = 20.0
_PATIENCE: Final = 150.0
_NOT_FOUND: Final = 404
#: What killed starters left behind goes after this.
_FORGOTTEN: Final = timedelta(days=2)

#: Any S3 client of botocore; it has no type of its own.
Client = Any


def s3_client(endpoint: str | None, region: str) -> Client:
    """A client for the lake's place, with credentials from the usual chain."""
    # heavy, and for these runs only
    import botocore.session  # noqa: PLC0415
    from botocore.config import Config  # noqa: PLC0415

    # servers that are not AWS have no name for each bucket
    style = Config(s3={"addressing_style": "path"}) if endpoint else None
    session = botocore.session.Session()
    return session.create_client("s3", endpoint_url=endpoint or None, region_name=region, config=style)


def no_answer() -> tuple[type[Exception], ...]:
    """The errors with which a client says that something is not there, is refused, or that nobody answers."""
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415

    return BotoCoreError, ClientError


@dataclass(frozen=True, slots=True)
class Mailbox:
    """The folder of one job: keys begin with ``prefix``."""

    client: Client
    bucket: str
    prefix: str

    @property
    def alive(self) -> str:
        """The key of the sign of life."""
        return f"{self.prefix}/alive"

    @contextmanager
    def open(self) -> Iterator[None]:
        """Gives signs of life while the block runs, and deletes all that is in the folder when it ends.

        Raises ``PlaceFault`` where the first one cannot be written.
        """
        try:
            self._beat(0)
        except no_answer() as error:
            raise PlaceFault(
                f"s3://{self.bucket}/{self.prefix} cannot be written, where a job is told what to do: {error}",
                "Check the lake's address, CC_PIPELINE_LAKE_ENDPOINT and the credentials (cc-pipeline doctor).",
            ) from error
        self._forget_old()
        ended = threading.Event()
        beating = threading.Thread(target=self._beats, args=(ended,), daemon=True)
        beating.start()
        try:
            yield
        finally:
            ended.set()
            beating.join()
            with suppress(*no_answer()):
                self._delete([one["Key"] for one in self._listed(self.prefix)])

    def read(self, key: str) -> bytes | None:
        """An object; ``None`` where there is none, or nobody answers at this moment."""
        try:
            body: bytes = self.client.get_object(Bucket=self.bucket, Key=key)["Body"].read()
        except no_answer():
            return None
        return body

    def _beats(self, ended: threading.Event) -> None:
        number = 0
        while not ended.wait(_BEAT):
            number += 1
            with suppress(*no_answer()):  # a driver is patient
                self._beat(number)

    def _beat(self, number: int) -> None:
        self.client.put_object(Bucket=self.bucket, Key=self.alive, Body=str(number).encode())

    def _forget_old(self) -> None:
        others = self.prefix.rpartition("/")[0]
        before = datetime.now(UTC) - _FORGOTTEN
        with suppress(*no_answer()):
            self._delete([one["Key"] for one in self._listed(others) if one["LastModified"] < before])

    def _listed(self, prefix: str) -> Iterator[Any]:
        for page in self.client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=f"{prefix}/"):
            yield from page.get("Contents", ())

    def _delete(self, keys: list[str]) -> None:
        for key in keys:  # few, and not every server takes many at once
            self.client.delete_object(Bucket=self.bucket, Key=key)


def mailbox_in(client: Client, lake: str, name: str) -> Mailbox:
    """The folder for a job called ``name`` in a lake ``s3://bucket/prefix``."""
    place = urlsplit(lake)
    return Mailbox(client, place.netloc, "/".join(filter(None, (place.path.strip("/"), FOLDER, name))))


@contextmanager
def ends_when_alone(
    client: Client, bucket: str, key: str, end: Callable[[], object], beat: float = _BEAT, patience: float = _PATIENCE
) -> Iterator[None]:
    """Calls ``end`` in a thread of its own, once, when the sign of life under ``key`` has been the same, or has been
    gone, for ``patience`` seconds by this machine's clock. A store that does not answer says nothing."""
    ended = threading.Event()

    def watch() -> None:
        last, since = b"", time.monotonic()
        while not ended.wait(beat):
            try:
                seen = client.get_object(Bucket=bucket, Key=key)["Body"].read()
            except no_answer() as error:
                answer = getattr(error, "response", {}).get("ResponseMetadata", {})
                seen = last if answer.get("HTTPStatusCode") == _NOT_FOUND else None
            if seen is None or seen != last:
                last, since = last if seen is None else seen, time.monotonic()
            elif time.monotonic() - since > patience:
                end()
                return

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    try:
        yield
    finally:
        ended.set()
        watching.join()
