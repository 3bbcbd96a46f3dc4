"""Reads many small ranges of many files in few requests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from cc_pipeline.errors import CcPipelineError
from cc_pipeline.transport.ranges import ByteRange, RangeBytes

#: Unwanted bytes read to save a request. The public mirror is asked ten times a second at most (``transport.limits``):
#: a request costs 100 ms of that, in which so much comes over a link of 42 Mbit/s.
GAP = 512 << 10
#: A request asks for no more than this, so that one lost connection costs little.
SPAN = 16 << 20


class Piece(NamedTuple):
    """Bytes wanted: ``length`` bytes from ``offset`` of ``key``."""

    key: str
    offset: int
    length: int


class ManyReader(Protocol):
    """What of a ``Transport`` is needed here: answers or faults as they complete."""

    def read_many(self, requests: Iterable[ByteRange]) -> Iterator[RangeBytes | CcPipelineError]: ...


@dataclass(slots=True)
class Cost:
    """Requests and bytes counted by the side that asked."""

    requests: int = 0
    bytes: int = 0


def fetch_pieces(
    reader: ManyReader, pieces: Iterable[Piece], etags: dict[str, str | None], cost: Cost
) -> dict[Piece, bytes]:
    """The bytes of every piece, neighbours read together. Raises the first fault: there is no partial answer."""
    runs = coalesce(pieces)
    ranges = [
        ByteRange(run[0].key, run[0].offset, run_end(run) - run[0].offset, etags.get(run[0].key), run) for run in runs
    ]
    found: dict[Piece, bytes] = {}
    for answer in reader.read_many(ranges):
        if not isinstance(answer, RangeBytes):
            raise answer
        cost.requests += 1
        cost.bytes += len(answer.data)
        run = answer.tag
        assert isinstance(run, list)
        if len(run) == 1:
            found[run[0]] = answer.data
            continue
        view = memoryview(answer.data)
        for piece in run:
            start = piece.offset - answer.offset
            found[piece] = bytes(view[start : start + piece.length])
    return found


def coalesce(pieces: Iterable[Piece], gap: int | None = None, span: int = SPAN) -> list[list[Piece]]:
    """Pieces in runs that one request serves: at most ``gap`` bytes (``GAP``) apart, ``span`` bytes long unless one
    piece is."""
    gap = GAP if gap is None else gap
    runs: list[list[Piece]] = []
    end = 0
    for piece in sorted(set(pieces)):
        last = runs[-1] if runs else None
        here = piece.offset + piece.length
        if (
            last is not None
            and last[0].key == piece.key
            and piece.offset - end <= gap
            and max(end, here) - last[0].offset <= span
        ):
            last.append(piece)
            end = max(end, here)
        else:
            runs.append([piece])
            end = here
    return runs


def run_end(run: list[Piece]) -> int:
    """The byte behind the last one of a run."""
    return max(piece.offset + piece.length for piece in run)
