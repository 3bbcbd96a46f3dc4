"""Notes of when stored files stopped being needed: ``records/<crawl>/superseded/<time>-<id>.json``.

A commit that replaces rows writes down beforehand which files its slices no longer name. So sweeping knows what the
versions of the last days still name, without opening every version. A file that nothing names and no note mentions
(homes of before have none) gets its note from the sweep that finds it.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection, Iterable
from datetime import UTC, datetime

from cc_pipeline.errors import DataFault, PlaceFault
from cc_pipeline.records.storage import RecordStorage
from cc_pipeline.stores.answer import Listed
from cc_pipeline.transport.faults import FaultKind, RangeFault
from cc_pipeline.transport.ranges import ByteRange

NOTES = "superseded"
_TIME = "%Y%m%dT%H%M%S.%fZ"


def note(storage: RecordStorage, crawl: str, files: Iterable[str], now: float) -> None:
    """Writes down that a commit, or its own absence, ends the need for ``files`` at ``now`` (seconds since the epoch).

    Writes nothing where there are none. Raises ``EnvironmentFault``.
    """
    named = sorted(set(files))
    if not named:
        return
    when = datetime.fromtimestamp(now, UTC).strftime(_TIME)
    key = f"{storage.folder(crawl)}/{NOTES}/{when}-{uuid.uuid4().hex}.json"
    try:
        storage.transport.put(key, json.dumps({"files": named}).encode())
    except OSError as error:
        raise PlaceFault(
            f"{key} cannot be written: {error.strerror or error}", "Check the place and its free space."
        ) from error


def noted_at(one: Listed) -> float:
    """When a note was written (seconds since the epoch): by its name or by the place's own clock, whichever is later,
    since the clock of the machine that wrote it may be behind."""
    try:
        when = datetime.strptime(one.key.rpartition("/")[2].partition("-")[0], _TIME).replace(tzinfo=UTC).timestamp()
    except ValueError:
        when = 0.0
    return max(when, one.modified)


def last_mentions(storage: RecordStorage, notes: Collection[Listed], files: Collection[str]) -> dict[str, float]:
    """When each of ``files`` was last noted as no longer needed; those that no note mentions are left out.

    A note that cannot be understood may be about any of them: it makes none older. Raises ``EnvironmentFault`` where
    the place does not answer.
    """
    last: dict[str, float] = {}
    unclear = 0.0
    requests = (ByteRange(one.key, 0, one.size, tag=noted_at(one)) for one in notes)
    for got in storage.transport.read_many(requests):
        when = got.tag
        assert isinstance(when, float)
        mentioned: Collection[str] | None = None
        if isinstance(got, RangeFault):
            if got.kind is FaultKind.NOT_FOUND:
                continue  # another sweep has removed it, which it does with old ones only
            if not isinstance(got, DataFault):
                raise got
        else:
            mentioned = _mentioned(got.data)
        if mentioned is None:
            unclear = max(unclear, when)
            continue
        for file in mentioned:
            if file in files:
                last[file] = max(when, last.get(file, 0.0))
    return {file: max(when, unclear) for file, when in last.items()}


def _mentioned(data: bytes) -> list[str] | None:
    try:
        return [str(file) for file in json.loads(data)["files"]]
    except (ValueError, KeyError, TypeError):
        return None
