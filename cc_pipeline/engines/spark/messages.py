"""What a job tells whoever started it, as JSON and back: partitions that are made, progress, errors, its workers,
who refuses it.

Nothing is pickled: messages lie in a bucket, and reading one must not run what somebody has put there. An error comes
back as an error of its own class, with its kind and fields, where the class is one of ours.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, TypeAlias

from cc_pipeline.errors import CcPipelineError, Kind
from cc_pipeline.extraction.run import Made
from cc_pipeline.extraction.slice import StageReport
from cc_pipeline.transport.sharing import Opening

Payload: TypeAlias = dict[str, Any]

#: The field that says what a message is.
_WHAT: Final = "cc_pipeline"
_KIND: Final = "kind of"


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

    def made(self, made: Made) -> None:
        """A partition that is done, or has failed."""
        numbers = {table: self._number(report) for table, report in made.reports.items()}
        error = None if made.error is None else error_as_json(made.error)
        self.send({_WHAT: "made", "crawl": made.crawl, "slug": made.slug, "reports": numbers, "error": error})

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
        self.send({_WHAT: "refused", "openings": [asdict(one) for one in openings]})

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
                return Refused(tuple(Opening(**one) for one in payload["openings"]))
        return None


def error_as_json(error: BaseException) -> Payload:
    """An error with the error that caused it."""
    ours = isinstance(error, CcPipelineError)
    reduced: Any = error.__reduce__()
    state = error.__dict__ if ours else {}
    return {
        "class": type(error).__name__,
        "ours": ours,
        "arguments": [_plain(each) for each in reduced[1]] if ours else [repr(error)],
        "state": {name: _plain(value) for name, value in state.items() if _is_plain(value)},
        "cause": None if error.__cause__ is None else error_as_json(error.__cause__),
        "trace": "" if ours else "".join(traceback.format_exception(error)),
    }


def error_from_json(found: Payload) -> Exception:
    """The error of :func:`error_as_json`. One of a class that is not known here is an :class:`Elsewhere` of its name,
    with the way to it as a note."""
    family = {each.__name__: each for each in _below(CcPipelineError)} if found["ours"] else {}
    known = family.get(found["class"])
    arguments = [_value(each) for each in found["arguments"]]
    if known is not None:
        error: Exception = known(*arguments)
        error.__dict__.update({name: _value(value) for name, value in found["state"].items()})
    else:
        error = type(found["class"], (Elsewhere,), {})(*arguments)
        if found["trace"]:
            error.add_note(f"In the job on Spark:\n{found['trace']}")
    if found["cause"] is not None:
        error.__cause__ = error_from_json(found["cause"])
    return error


def _below(family: type[Any]) -> Iterator[type[Any]]:
    yield family
    for each in family.__subclasses__():
        yield from _below(each)


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, (str, int, float, bool))


def _plain(value: object) -> object:
    if isinstance(value, Kind):
        return {_KIND: type(value).__name__, "value": value.value}
    return value if _is_plain(value) else repr(value)


def _value(found: object) -> object:
    if not isinstance(found, Mapping):
        return found
    kinds: Sequence[type[Any]] = [each for each in _below(Kind) if each.__name__ == found[_KIND]]
    return kinds[0](found["value"]) if kinds else found["value"]
