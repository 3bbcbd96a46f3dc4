"""Messages between a job and the process that started it, as JSON in the job's mailbox in the lake's bucket: finished
partitions, progress, errors.

Nothing is pickled: reading an object of a bucket must not run code. An error of one of our classes becomes an error of
the same class, with its kind and fields.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

from cc_pipeline.advice import Advice
from cc_pipeline.errors import CcPipelineError, Kind, PlaceFault
from cc_pipeline.extraction.run import PartitionResult
from cc_pipeline.lake.slice import StageReport

#: The folder in the lake's root that has one folder for each job that runs.
FOLDER: Final = "jobs"
#: Seconds between two signs of life, and seconds after which a driver without one ends.
_BEAT_SECONDS: Final = 20.0
_MAX_SILENCE_SECONDS: Final = 150.0
_HTTP_NOT_FOUND: Final = 404
#: Age after which folders of killed starters are deleted.
_MAX_LEFTOVER_AGE: Final = timedelta(days=2)

#: Any S3 client of botocore; it has no type of its own.
Client = Any

Payload: TypeAlias = dict[str, Any]
#: The field with the kind of a message.
_MESSAGE_FIELD: Final = "cc_pipeline"
_KIND_FIELD: Final = "kind of"


def s3_client(endpoint: str | None, region: str) -> Client:
    """A client for the lake's bucket, with credentials from the usual chain."""
    # slow imports, for these runs only
    import botocore.session  # noqa: PLC0415
    from botocore.config import Config  # noqa: PLC0415

    # servers that are not AWS have no name for each bucket
    style = Config(s3={"addressing_style": "path"}) if endpoint else None
    session = botocore.session.Session()
    return session.create_client("s3", endpoint_url=endpoint or None, region_name=region, config=style)


def s3_errors() -> tuple[type[Exception], ...]:
    """The exceptions of a client for a missing object, a refused request and an unreachable server."""
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415

    return BotoCoreError, ClientError


@dataclass(frozen=True, slots=True)
class Mailbox:
    """The folder of one job: its keys begin with ``prefix``."""

    client: Client
    bucket: str
    prefix: str

    @property
    def sign_of_life_key(self) -> str:
        """The key of the sign of life."""
        return f"{self.prefix}/alive"

    @contextmanager
    def open(self) -> Iterator[None]:
        """Writes signs of life while the block runs, and deletes the folder at its end.

        Raises ``PlaceFault`` if the first sign of life cannot be written.
        """
        try:
            self._beat(0)
        except s3_errors() as error:
            raise PlaceFault(
                f"s3://{self.bucket}/{self.prefix} (the mailbox of jobs) cannot be written: {error}",
                "Check the lake's address, CC_PIPELINE_LAKE_ENDPOINT and the credentials (cc-pipeline doctor).",
            ) from error
        self._delete_old_folders()
        ended = threading.Event()
        beating = threading.Thread(target=self._beats, args=(ended,), daemon=True)
        beating.start()
        try:
            yield
        finally:
            ended.set()
            beating.join()
            with suppress(*s3_errors()):
                self._delete([stored_object["Key"] for stored_object in self._list_objects(self.prefix)])

    def read(self, key: str) -> bytes | None:
        """The bytes of an object; ``None`` if it does not exist or the server does not answer."""
        try:
            body: bytes = self.client.get_object(Bucket=self.bucket, Key=key)["Body"].read()
        except s3_errors():
            return None
        return body

    def _beats(self, ended: threading.Event) -> None:
        number = 0
        while not ended.wait(_BEAT_SECONDS):
            number += 1
            with suppress(*s3_errors()):  # a driver tolerates missed signs of life
                self._beat(number)

    def _beat(self, number: int) -> None:
        self.client.put_object(Bucket=self.bucket, Key=self.sign_of_life_key, Body=str(number).encode())

    def _delete_old_folders(self) -> None:
        jobs_folder = self.prefix.rpartition("/")[0]
        oldest_kept = datetime.now(UTC) - _MAX_LEFTOVER_AGE
        with suppress(*s3_errors()):
            self._delete(
                [
                    stored_object["Key"]
                    for stored_object in self._list_objects(jobs_folder)
                    if stored_object["LastModified"] < oldest_kept
                ]
            )

    def _list_objects(self, prefix: str) -> Iterator[Any]:
        for page in self.client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=f"{prefix}/"):
            yield from page.get("Contents", ())

    def _delete(self, keys: list[str]) -> None:
        for key in keys:  # few keys, and not every server supports deleting many at once
            self.client.delete_object(Bucket=self.bucket, Key=key)


def mailbox_in(client: Client, lake: str, name: str) -> Mailbox:
    """The mailbox of the job ``name`` in a lake ``s3://bucket/prefix``."""
    place = urlsplit(lake)
    return Mailbox(client, place.netloc, "/".join(filter(None, (place.path.strip("/"), FOLDER, name))))


@contextmanager
def watch_sign_of_life(
    client: Client,
    bucket: str,
    key: str,
    end: Callable[[], object],
    beat: float = _BEAT_SECONDS,
    max_silence: float = _MAX_SILENCE_SECONDS,
) -> Iterator[None]:
    """Calls ``end`` once, in a thread, when the sign of life under ``key`` has not changed, or was missing, for
    ``max_silence`` seconds by this machine's clock. A server that does not answer has no effect.
    """
    ended = threading.Event()

    def watch() -> None:
        last, since = b"", time.monotonic()
        while not ended.wait(beat):
            try:
                seen = client.get_object(Bucket=bucket, Key=key)["Body"].read()
            except s3_errors() as error:
                answer = getattr(error, "response", {}).get("ResponseMetadata", {})
                seen = last if answer.get("HTTPStatusCode") == _HTTP_NOT_FOUND else None
            if seen is None or seen != last:
                last, since = last if seen is None else seen, time.monotonic()
            elif time.monotonic() - since > max_silence:
                end()
                return

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    try:
        yield
    finally:
        ended.set()
        watching.join()


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a stage, with the arguments of :func:`cc_pipeline.progress.report`."""

    stage: str
    done: int
    total: int | None
    detail: str


@dataclass(frozen=True, slots=True)
class Failed:
    """The job ends with an error that belongs to no partition."""

    error: Exception


Message: TypeAlias = PartitionResult | Progress | Failed


class RemoteError(Exception):
    """An error of the job that is of no class of ours. It has the name of the original class, and its message."""

    def __repr__(self) -> str:
        return str(self)


@dataclass(slots=True)
class Outbox:
    """The job's side: ``send`` takes a JSON document. A report of several partitions is sent once."""

    send: Callable[[Payload], object]
    _numbers: dict[int, int] = field(default_factory=dict)
    # keeps the reports alive, so that no other report gets the same id
    _reports: list[StageReport] = field(default_factory=list)

    def send_partition(self, partition_result: PartitionResult) -> None:
        """Sends a partition that is done or has failed."""
        numbers = {table: self._number(report) for table, report in partition_result.reports.items()}
        error = None if partition_result.error is None else error_as_json(partition_result.error)
        self.send(
            {
                _MESSAGE_FIELD: "made",
                "crawl": partition_result.crawl,
                "slug": partition_result.slug,
                "reports": numbers,
                "error": error,
            }
        )

    def progress(self, stage: str, done: int, total: int | None, detail: str) -> None:
        """Sends the progress of a stage."""
        self.send({_MESSAGE_FIELD: "progress", "stage": stage, "done": done, "total": total, "detail": detail})

    def failed(self, error: Exception) -> None:
        """Sends the error that ends the job."""
        self.send({_MESSAGE_FIELD: "failed", "error": error_as_json(error)})

    def _number(self, report: StageReport) -> int:
        number = self._numbers.get(id(report))
        if number is None:
            number = self._numbers[id(report)] = len(self._reports)
            self._reports.append(report)
            self.send({_MESSAGE_FIELD: "report", "number": number, "report": asdict(report)})
        return number


@dataclass(slots=True)
class Inbox:
    """The starter's side: gets documents in the order in which they were sent. Partitions with a common report share
    it.
    """

    _reports: dict[int, StageReport] = field(default_factory=dict)

    def read(self, payload: Payload) -> Message | None:
        """The message of a document; ``None`` for a part of a later message, and for another kind of document."""
        match payload.get(_MESSAGE_FIELD):
            case "report":
                report = StageReport(**payload["report"])
                self._reports[payload["number"]] = replace(report, notes=tuple(report.notes))
                return None
            case "made":
                reports = {table: self._reports[number] for table, number in payload["reports"].items()}
                error = payload["error"]
                return PartitionResult(payload["crawl"], payload["slug"], reports, error and error_from_json(error))
            case "progress":
                return Progress(payload["stage"], payload["done"], payload["total"], payload["detail"])
            case "failed":
                return Failed(error_from_json(payload["error"]))
        return None


def error_as_json(error: BaseException) -> Payload:
    """An error as JSON, with the error that caused it."""
    is_own_class = isinstance(error, CcPipelineError)
    reduced: Any = error.__reduce__()
    state = error.__dict__ if is_own_class else {}
    return {
        "class": type(error).__name__,
        "ours": is_own_class,
        "arguments": [_plain(argument) for argument in reduced[1]] if is_own_class else [repr(error)],
        "state": {name: _plain(value) for name, value in state.items() if _is_plain(value)},
        "cause": None if error.__cause__ is None else error_as_json(error.__cause__),
        "trace": "" if is_own_class else "".join(traceback.format_exception(error)),
    }


def error_from_json(payload: Payload) -> Exception:
    """The error of :func:`error_as_json`. An error of an unknown class becomes an :class:`RemoteError` with the name of
    the class, and its traceback as a note.
    """
    family = (
        {error_class.__name__: error_class for error_class in _subclass_tree(CcPipelineError)}
        if payload["ours"]
        else {}
    )
    error_class_found = family.get(payload["class"])
    arguments = [_value(argument) for argument in payload["arguments"]]
    if error_class_found is not None:
        error: Exception = error_class_found(*arguments)
        error.__dict__.update({name: _value(value) for name, value in payload["state"].items()})
    else:
        error = type(payload["class"], (RemoteError,), {})(*arguments)
        if payload["trace"]:
            error.add_note(f"In the job on Spark:\n{payload['trace']}")
    if payload["cause"] is not None:
        error.__cause__ = error_from_json(payload["cause"])
    return error


def _subclass_tree(family: type[Any]) -> Iterator[type[Any]]:
    yield family
    for subclass in family.__subclasses__():
        yield from _subclass_tree(subclass)


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, (str, int, float, bool))


def _plain(value: object) -> object:
    if isinstance(value, Kind):
        return {_KIND_FIELD: type(value).__name__, "value": value.value}
    if isinstance(value, Advice):
        return str(value)
    return value if _is_plain(value) else repr(value)


def _value(encoded: object) -> object:
    if not isinstance(encoded, Mapping):
        return encoded
    kinds: Sequence[type[Any]] = [
        kind_class for kind_class in _subclass_tree(Kind) if kind_class.__name__ == encoded[_KIND_FIELD]
    ]
    return kinds[0](encoded["value"]) if kinds else encoded["value"]
