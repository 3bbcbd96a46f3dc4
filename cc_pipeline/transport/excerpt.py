"""Takes the bytes of a range out of an answer with the whole object: some objects are served whole despite a range.

Belongs here: which bytes of such an answer are used. Not here: whether it is worth reading
(``ByteRange.max_object_bytes``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cc_pipeline.stores.answer import ERROR_BODY_BYTES, Answer
from cc_pipeline.transport.faults import (
    FaultKind,
    Finding,
    Verified,
    error_document,
    etag_in,
    judge_length,
    judge_status,
    matches_etag,
)

_OK = 200


class Excerpt:
    """An ``Intake`` that stores ``length`` bytes from ``offset`` of a whole object. The object must have this ETag and
    ``total`` bytes if these are given. Bytes before the range are read and dropped, bytes after it are not read."""

    def __init__(self, offset: int, length: int, etag: str | None, total: int | None) -> None:
        self._offset, self._length, self._etag, self._total = offset, length, etag, total
        self._begin = bytearray()
        self._range_bytes = bytearray()
        self._read = 0

    @property
    def bound(self) -> int:
        """The limit for ``Store.fetch``, which reads one byte more than its limit."""
        return self._offset + self._length - 1

    def begins(self, status: int, headers: Mapping[str, str]) -> bool:
        self._begin.clear()
        self._range_bytes.clear()
        self._read = 0
        return status == _OK

    def take(self, data: bytes) -> None:
        if self._read < ERROR_BODY_BYTES:
            self._begin += data[: ERROR_BODY_BYTES - self._read]
        start = max(0, self._offset - self._read)
        stop = self._offset + self._length - self._read
        if start < len(data):
            self._range_bytes += data[start:stop]
        self._read += len(data)

    @property
    def is_full(self) -> bool:
        return False

    def when_room(self, go_on: Callable[[], None]) -> None:
        go_on()

    def judge(self, answer: Answer) -> Verified | Finding:
        """Checks that the stored bytes are those of the range."""
        if answer.status != _OK:
            return judge_status(answer.status, answer.headers, answer.body)
        if document := error_document(bytes(self._begin)):
            return document
        declared = answer.headers.get("content-length", "")
        total = int(declared) if declared.isdecimal() else self._total
        if self._total is not None and total != self._total:
            return Finding(FaultKind.CHANGED_OBJECT, f"the object has {total} bytes where {self._total} were expected")
        if total is not None and total < self._offset + self._length:
            return Finding(FaultKind.RANGE_NOT_SATISFIABLE, f"the object ends at byte {total}, inside the range")
        etag = etag_in(answer.headers)
        if self._etag is not None and etag is not None and not matches_etag(etag, self._etag):
            return Finding(FaultKind.CHANGED_OBJECT, f"ETag {etag[:80]} where {self._etag[:80]} was expected")
        return judge_length(self._length, self._range_bytes) or Verified(self._offset, total, etag)

    def body(self) -> bytes:
        """The bytes of the range."""
        return bytes(self._range_bytes)
