"""The open ``cluster.idx`` files of crawls: opened once per run, and cached from one run to the next.

A file is identified by its place, length and ETag; without an ETag nothing is cached. The cache is
a folder of ``AnswerCache``: a list of all spans, and the lines of each under its own name. The folder may be deleted at
any time. If processes write the list at the same time, only the spans of one of them are lost.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa

from cc_pipeline.commoncrawl.paths import cluster_key
from cc_pipeline.index.answer_cache import AnswerCache
from cc_pipeline.index.parquet.fetch import PageIndexes
from cc_pipeline.index.zipnum.cluster import Cluster, Mark, Marks, Span
from cc_pipeline.transport.client import Transport
from cc_pipeline.transport.faults import FaultKind, RangeFault
from cc_pipeline.transport.ranges import ByteRange, RangeBytes

#: A ``cluster.idx`` that comes whole despite a range is read as far as it is needed: it has some 110 MB.
_MAX_WHOLE_OBJECT: Final = 256 << 20
#: Bytes at the end of the file: they bring its length, its ETag, and its last line.
_TAIL: Final = 4096
#: Bytes on disk, spans in the list (of all crawls), and members in memory.
_MAX_FOLDER_BYTES: Final = 64 << 20
_MAX_SPANS: Final = 4096
_MAX_MEMBER_BYTES: Final = 32 << 20
_SPANS: Final = "spans"
_SCHEMA: Final = pa.schema(
    {
        "object": pa.string(),
        "size": pa.int64(),
        "at": pa.int64(),
        "end": pa.int64(),
        "first": pa.binary(),
        "last": pa.binary(),
    }
)
_LINES: Final = pa.schema([("lines", pa.binary())])


@dataclass(frozen=True, slots=True)
class OpenCluster:
    """An existing ``cluster.idx`` of ``size`` bytes. ``version`` names its content (``cluster_version``). ``object`` is
    its name in the cache; ``None`` if it must not be cached."""

    cluster: Cluster
    size: int
    version: str
    object: str | None


class Clusters:
    """The ``cluster.idx`` files that a run has opened; each costs one request, the first time.

    ``folder`` caches spans for later runs (``None``: nothing is cached). ``members`` caches gzip members, so that a
    second lookup of the same keys need not request them. Safe to share between threads.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.members = PageIndexes(memory=_MAX_MEMBER_BYTES)
        self._answers = None if folder is None else AnswerCache(folder, _MAX_FOLDER_BYTES)
        self._open: dict[tuple[str, str], OpenCluster | None] = {}
        self._lock = threading.RLock()

    def find(
        self, transport: Transport, crawl: str, read_marks: Callable[[], Iterable[Mark]] = tuple
    ) -> OpenCluster | None:
        """Returns the ``cluster.idx`` of ``crawl``; ``None`` if the source has none.

        ``read_marks`` returns key positions in a similar index (shares of all its rows). It is called before the first
        guess, which uses these marks or the cached ones of another crawl, whichever are more. Raises ``RangeFault``.
        """
        with self._lock:
            name = (transport.source, crawl)
            if name not in self._open:
                try:
                    tail = transport.read_suffix(cluster_key(crawl), _TAIL, _MAX_WHOLE_OBJECT)
                except RangeFault as fault:
                    if fault.kind not in (FaultKind.NOT_FOUND, FaultKind.RANGE_NOT_SATISFIABLE):
                        raise
                    self._open[name] = None
                else:
                    self._open[name] = self._opened(transport, tail, read_marks)
            return self._open[name]

    def keep(self) -> None:
        """Caches the spans that were read since the last call. If they cannot be written, the next run reads them
        again."""
        with self._lock:
            for open_cluster in self._open.values():
                if (
                    open_cluster is None
                    or open_cluster.object is None
                    or self._answers is None
                    or not open_cluster.cluster.learnt
                ):
                    continue
                learnt = list(open_cluster.cluster.learnt)
                open_cluster.cluster.learnt.clear()
                for span in learnt:
                    name = _lines_of(open_cluster.object, span)
                    self._answers.keep(name, pa.table({"lines": [span.data]}, schema=_LINES))
                rows = [
                    {
                        "object": open_cluster.object,
                        "size": open_cluster.size,
                        "at": span_.at,
                        "end": span_.end,
                        "first": span_.first,
                        "last": span_.last,
                    }
                    for span_ in reversed(learnt)
                ]
                spans = pa.concat_tables([pa.Table.from_pylist(rows, schema=_SCHEMA), self._spans()])
                self._answers.keep(_SPANS, spans.slice(0, _MAX_SPANS))

    def _opened(self, transport: Transport, tail: RangeBytes, read_marks: Callable[[], Iterable[Mark]]) -> OpenCluster:
        identity = (transport.source, tail.key, str(tail.total), tail.etag)
        name = None if tail.etag is None else hashlib.sha256("\n".join(map(str, identity)).encode()).hexdigest()
        own_rows = [row for row in self._spans().to_pylist() if row["object"] == name]
        cluster = Cluster(
            _SameObject(transport, tail),
            tail.key,
            tail.total,
            stored_spans=[Span(row["at"], row["end"], row["first"], row["last"]) for row in own_rows],
            load=lambda span: self._lines(name, span),
            guide=lambda: self._guide(name, read_marks()),
        )
        cluster.reads, cluster.bytes_read = 1, len(tail.data)
        return OpenCluster(cluster, tail.size, cluster_version(tail.size, tail.data), name)

    def _guide(self, name: str | None, marks_elsewhere: Iterable[Mark]) -> Marks:
        by_object: dict[str | None, list[Mark]] = {name: list(marks_elsewhere)}
        for row in self._spans().to_pylist():
            if row["object"] != name:
                marks = by_object.setdefault(row["object"], [])
                marks += [(row["first"], row["at"] / row["size"]), (row["last"], row["end"] / row["size"])]
        max_marks = max(len(marks) for marks in by_object.values())
        return Marks(next(marks for marks in by_object.values() if len(marks) == max_marks))

    def _spans(self) -> pa.Table:
        stored = None if self._answers is None else self._answers.find(_SPANS)
        return stored if stored is not None and stored.schema.equals(_SCHEMA) else _SCHEMA.empty_table()

    def _lines(self, name: str | None, span: Span) -> bytes | None:
        if name is None or self._answers is None:
            return None
        stored = self._answers.find(_lines_of(name, span))
        lines = None if stored is None or not stored.schema.equals(_LINES) else stored["lines"][0].as_py()
        return lines if lines is not None and len(lines) == span.end - span.at else None


def cluster_version(size: int, tail: bytes) -> str:
    """Returns a digest that identifies a ZipNum index: of the ``size`` and the last bytes of its ``cluster.idx``, which
    have the last key, the place of the last member and the number of lines. ETags are not part of it: a copied file
    is the same index."""
    return hashlib.sha256(b"%d\n%s" % (size, tail)).hexdigest()


@dataclass(frozen=True, slots=True)
class _SameObject:
    """Reads an object that must still be the one whose ``tail`` was read."""

    transport: Transport
    tail: RangeBytes

    def read(self, key: str, offset: int, length: int) -> RangeBytes:
        byte_range = ByteRange(
            key, offset, length, self.tail.etag, total=self.tail.total, max_object_bytes=_MAX_WHOLE_OBJECT
        )
        [answer] = self.transport.read_many([byte_range])
        if isinstance(answer, RangeFault):
            raise answer
        return answer


def _lines_of(name: str, span: Span) -> str:
    return f"{name} {span.at} {span.end}"
