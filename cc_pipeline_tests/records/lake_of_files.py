"""A place for stored files in memory, with a clock of its own: the protocol of sweeping without a disk."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, cast

from cc_pipeline.records.storage import RecordStorage
from cc_pipeline.stores.answer import ListedObject
from cc_pipeline.transport.client import Transport
from cc_pipeline.transport.faults import FaultKind, RangeFault, range_fault
from cc_pipeline.transport.ranges import ByteRange, ObjectInfo, RangeBytes

CRAWL = "CC-MAIN-2024-22"
DAY = 86_400.0


class Place:
    """What ``RecordStorage`` and its neighbours ask of a transport. ``before`` is called before each request."""

    source = "memory"
    store = None

    def __init__(self) -> None:
        self.objects: dict[str, tuple[bytes, float]] = {}
        self.now = 1_700_000_000.0
        self.before: Callable[[str, str], None] = lambda action, key: None

    def clock(self) -> float:
        return self.now

    def put(self, key: str, data: bytes, *, only_if_absent: bool = False) -> bool:
        self.before("put", key)
        self.objects[key] = (data, self.now)
        return True

    def delete(self, key: str) -> None:
        self.before("delete", key)
        self.objects.pop(key, None)

    def head(self, key: str) -> ObjectInfo | None:
        self.before("head", key)
        return ObjectInfo(key, len(self.objects[key][0]), None) if key in self.objects else None

    def exists(self, key: str) -> bool:
        return self.head(key) is not None

    def listing(self, prefix: str) -> list[ListedObject]:
        self.before("list", prefix)
        found = sorted(self.objects.items())
        return [ListedObject(key, len(data), None, when) for key, (data, when) in found if key.startswith(prefix)]

    def read_all(self, key: str, limit: int = 0) -> RangeBytes:
        self.before("read", key)
        if key not in self.objects:
            raise range_fault(FaultKind.NOT_FOUND, key, None, None, "gone", 1)
        data = self.objects[key][0]
        return RangeBytes(key, 0, data, len(data), None, 1)

    def read_many(self, requests: Iterable[ByteRange]) -> Iterator[RangeBytes | RangeFault]:
        for asked in requests:
            self.before("read", asked.key)
            if asked.key not in self.objects:
                yield range_fault(FaultKind.NOT_FOUND, asked.key, 0, asked.length, "gone", 1, tag=asked.tag)
                continue
            data = self.objects[asked.key][0]
            yield RangeBytes(asked.key, 0, data, len(data), None, 1, asked.tag)

    def storage(self, spool: Path) -> RecordStorage:
        return _Storage(cast("Transport", cast("Any", self)), spool=spool)

    def files(self) -> set[str]:
        """Names of the data files that are there."""
        names = (key.split("/") for key in self.objects)
        return {parts[-1] for parts in names if len(parts) == 3 and parts[-1].endswith(".warc.gz")}


class _Storage(RecordStorage):
    """Makes no folder each time it is asked for one: tests ask ten thousands of times."""

    def open_folder(self, crawl: str) -> Path:
        assert self._spool is not None
        return self._spool


def file(name: str) -> str:
    """The key of a stored file of the crawl."""
    return f"records/{CRAWL}/{CRAWL}-{name}-00000.warc.gz"
