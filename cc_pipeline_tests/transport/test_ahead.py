"""An object read from begin to end, a few ranges ahead."""

from __future__ import annotations

import threading

import pytest

from cc_pipeline.errors import DataFault, EnvironmentFault
from cc_pipeline.transport.faults import FaultKind, range_fault
from cc_pipeline.transport.ranges import RangeBytes
from cc_pipeline.transport.read_ahead import ReadAheadStream

DATA = bytes(range(256)) * 40


class Source:
    """``DATA``; ``lost`` is a byte whose range never comes. Counts how many ranges lie between asked and taken."""

    def __init__(self, lost: int = -1) -> None:
        self.lost = lost
        self.asked: list[tuple[int, int]] = []
        self.lock = threading.Lock()

    def read(self, key: str, offset: int, length: int, etag: str | None = None) -> RangeBytes:
        with self.lock:
            self.asked.append((offset, length))
        if offset <= self.lost < offset + length:
            raise range_fault(FaultKind.CHANGED_OBJECT, key, offset, length, "another ETag", 1)
        assert etag == "one"
        return RangeBytes(key, offset, DATA[offset : offset + length], len(DATA), etag, 1)


@pytest.mark.parametrize("piece", [1, 7, 1000, len(DATA), 1 << 20])
def test_every_byte_comes_in_its_order(piece: int) -> None:
    size = 300 if piece == 1 else len(DATA)
    source = Source()
    with ReadAheadStream(source, "a", size, "one", piece) as stream:
        found = b""
        while got := stream.read(640):
            found += got
    assert found == DATA[:size] and stream.bytes == size and stream.read(1) == b""
    assert sorted(source.asked) == [(start, min(piece, size - start)) for start in range(0, size, piece)]


def test_a_range_that_does_not_come_is_never_taken_for_damage() -> None:
    source = Source(lost=250)
    with ReadAheadStream(source, "a", len(DATA), "one", 100) as stream:
        assert stream.read(100) + stream.read(100) == DATA[:200]
        assert len(source.asked) <= 5, "no more than a few pieces wait"
        with pytest.raises(EnvironmentFault, match="a cannot be read at byte 200") as raised:
            stream.read(100)
    assert not isinstance(raised.value, DataFault)
    assert stream.fault is not None and stream.fault.kind is FaultKind.CHANGED_OBJECT
