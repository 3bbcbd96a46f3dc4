"""What a job tells whoever started it: partitions that are made, progress, errors, its workers, who refuses it; as JSON
in the job's mailbox in the lake's place, and back.

Nothing is pickled: messages lie in a bucket, and reading one must not run what somebody has put there. An error comes
back as an error of its own class, with its kind and fields, where the class is one of ours.
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

from cc_pipeline.errors import CcPipelineError, Kind, PlaceFault
from cc_pipeline.extraction.run import Made
from cc_pipeline.lake.slice import StageReport
from cc_pipeline.transport.budget import Opening

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

Payload: TypeAlias = dict[str, Any]
#: The field that says what a message is.
_WHAT: Final = "cc_pipeline"
_KIND: Final = "kind of"


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
                self._delete([stored_object["Key"] for stored_object in self._listed(self.prefix)])

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
        jobs_folder = self.prefix.rpartition("/")[0]
        oldest_kept = datetime.now(UTC) - _FORGOTTEN
        with suppress(*no_answer()):
            self._delete(
                [
                    stored_object["Key"]
                    for stored_object in self._listed(jobs_folder)
                    if stored_object["LastModified"] < oldest_kept
                ]
            )

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


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a stage is, as :func:`cc_pipeline.progress.report` takes it."""

    stage: str
    done: int
    total: int | None
    detail: str


@dataclass(frozen=True, slots=True)
class Failed:
    """The job ends with an error that is no partition's own."""

    error: Exception


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of the cluster: names and values, for a person."""

    values: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Refused:
    """Circuit breakers that the job knows of."""

    openings: tuple[Opening, ...]


Message: TypeAlias = Made | Progress | Failed | Facts | Refused


class Elsewhere(Exception):
    """An error of the job that is of no class of ours. It has the name of its class there, and its words."""

    def __repr__(self) -> str:
        return str(self)


@dataclass(slots=True)
class Outbox:
    """The job's side: ``send`` takes a JSON document. A report that many partitions share is sent once."""

    send: Callable[[Payload], object]
    _numbers: dict[int, int] = field(default_factory=dict)
    # held, so that no other report gets the same id
    _reports: list[StageReport] = field(default_factory=list)

    def made(self, partition_result: Made) -> None:
        """A partition that is done, or has failed."""
        numbers = {table: self._number(report) for table, report in partition_result.reports.items()}
        error = None if partition_result.error is None else error_as_json(partition_result.error)
        self.send(
            {
                _WHAT: "made",
                "crawl": partition_result.crawl,
                "slug": partition_result.slug,
                "reports": numbers,
                "error": error,
            }
        )

    def progress(self, stage: str, done: int, total: int | None, detail: str) -> None:
        """How far a stage is."""
        self.send({_WHAT: "progress", "stage": stage, "done": done, "total": total, "detail": detail})

    def failed(self, error: Exception) -> None:
        """Why the job ends."""
        self.send({_WHAT: "failed", "error": error_as_json(error)})

    def facts(self, values: Mapping[str, str]) -> None:
        """What is known of the cluster."""
        self.send({_WHAT: "facts", "values": dict(values)})

    def refused(self, openings: Sequence[Opening]) -> None:
        """Which hosts are left alone for now."""
        self.send({_WHAT: "refused", "openings": [asdict(opening) for opening in openings]})

    def _number(self, report: StageReport) -> int:
        number = self._numbers.get(id(report))
        if number is None:
            number = self._numbers[id(report)] = len(self._reports)
            self._reports.append(report)
            self.send({_WHAT: "report", "number": number, "report": asdict(report)})
        return number


@dataclass(slots=True)
class Inbox:
    """The other side: documents in the order in which they were sent. Partitions that shared a report share it here."""

    _reports: dict[int, StageReport] = field(default_factory=dict)

    def read(self, payload: Payload) -> Message | None:
        """The message of a document; ``None`` for one that is part of a later one, or of another kind."""
        match payload.get(_WHAT):
            case "report":
                report = StageReport(**payload["report"])
                self._reports[payload["number"]] = replace(report, notes=tuple(report.notes))
                return None
            case "made":
                reports = {table: self._reports[number] for table, number in payload["reports"].items()}
                error = payload["error"]
                return Made(payload["crawl"], payload["slug"], reports, error and error_from_json(error))
            case "progress":
                return Progress(payload["stage"], payload["done"], payload["total"], payload["detail"])
            case "failed":
                return Failed(error_from_json(payload["error"]))
            case "facts":
                return Facts(payload["values"])
            case "refused":
                return Refused(tuple(Opening(**fields) for fields in payload["openings"]))
        return None


def error_as_json(error: BaseException) -> Payload:
    """An error with the error that caused it."""
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
    """The error of :func:`error_as_json`. One of a class that is not known here is an :class:`Elsewhere` of its name,
    with the way to it as a note."""
    family = {error_class.__name__: error_class for error_class in _below(CcPipelineError)} if payload["ours"] else {}
    error_class_found = family.get(payload["class"])
    arguments = [_value(argument) for argument in payload["arguments"]]
    if error_class_found is not None:
        error: Exception = error_class_found(*arguments)
        error.__dict__.update({name: _value(value) for name, value in payload["state"].items()})
    else:
        error = type(payload["class"], (Elsewhere,), {})(*arguments)
        if payload["trace"]:
            error.add_note(f"In the job on Spark:\n{payload['trace']}")
    if payload["cause"] is not None:
        error.__cause__ = error_from_json(payload["cause"])
    return error


def _below(family: type[Any]) -> Iterator[type[Any]]:
    yield family
    for subclass in family.__subclasses__():
        yield from _below(subclass)


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, (str, int, float, bool))


def _plain(value: object) -> object:
    if isinstance(value, Kind):
        return {_KIND: type(value).__name__, "value": value.value}
    return value if _is_plain(value) else repr(value)


def _value(encoded: object) -> object:
    if not isinstance(encoded, Mapping):
        return encoded
    kinds: Sequence[type[Any]] = [kind_class for kind_class in _below(Kind) if kind_class.__name__ == encoded[_KIND]]
    return kinds[0](encoded["value"]) if kinds else encoded["value"]
