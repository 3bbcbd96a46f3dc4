"""What a job tells comes back as it was: reports that partitions share, errors of their class with kind and cause."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cc_pipeline.errors import DataFault, DataKind, EnvironmentFault, Incomplete, UserInputError
from cc_pipeline.extensions.spark.messages import Failed, Inbox, Outbox, RemoteError
from cc_pipeline.extensions.spark.messages import error_as_json as as_json
from cc_pipeline.extensions.spark.messages import error_from_json as from_json
from cc_pipeline.extraction.failure_isolation import affects_all_targets
from cc_pipeline.transport.faults import FaultKind, RangeFault, range_fault


def told(*messages: Any) -> list[Any]:
    """Messages after a way as JSON text."""
    sent: list[str] = []
    out = Outbox(lambda payload: sent.append(json.dumps(payload)))
    for name, *arguments in messages:
        getattr(out, name)(*arguments)
    inbox = Inbox()
    return [message for text in sent if (message := inbox.read(json.loads(text))) is not None]


@pytest.mark.parametrize(
    "error",
    [
        EnvironmentFault("it broke", "mend it"),
        Incomplete("not all came", "again"),
        UserInputError("what is that"),
        DataFault(DataKind.GZIP_CORRUPT, "a.warc.gz", 17, "bad"),
        DataFault(FaultKind.NOT_FOUND, "a.warc.gz", None, "gone"),
        range_fault(FaultKind.REFUSED, "a.warc.gz", 1, 2, "refused", 3),
        range_fault(FaultKind.SHORT_BODY, "a.warc.gz", 1, 2, "short", 3, tag=object()),
    ],
)
def test_errors_of_ours_keep_their_class_kind_and_fields(error: Exception) -> None:
    [found] = told(("failed", error))
    assert isinstance(found, Failed)
    assert type(found.error) is type(error)
    assert str(found.error) == str(error)
    for name in ("kind", "source", "offset", "what", "advice", "key", "attempts"):
        assert getattr(found.error, name, None) == getattr(error, name, None)
    if isinstance(error, RangeFault):
        assert isinstance(found.error, RangeFault)
        assert isinstance(found.error.kind, FaultKind)


def test_whose_fault_it_is_can_be_told_from_the_cause() -> None:
    error = EnvironmentFault("it broke", "mend it")
    error.__cause__ = range_fault(FaultKind.UNREACHABLE, "a", 1, 2, "nobody", 3)
    assert affects_all_targets(from_json(as_json(error)))
    error.__cause__ = range_fault(FaultKind.NOT_FOUND, "a", 1, 2, "gone", 3)
    assert not affects_all_targets(from_json(as_json(error)))


def test_no_message_makes_an_object_of_a_class_it_names() -> None:
    """Whatever lies in the mailbox: classes are looked for among ours."""
    made_up = {"class": "Popen", "ours": True, "arguments": ["true"], "state": {}, "cause": None, "trace": ""}
    assert isinstance(from_json(made_up), RemoteError)
    assert Inbox().read({"method": "something else"}) is None
