"""Thrift's compact protocol, read from bytes nobody vouches for.

Every length is compared with what is left before it is believed, every nesting has a depth limit, and every
step takes at least one byte: work and memory are linear in the input. Format: ``thrift-compact-protocol.md``
of apache/thrift. ``_footerwalk.c`` follows these rules to the letter, faults included.
"""

from __future__ import annotations

from typing import Final, NoReturn, TypeAlias

STOP: Final = 0
TRUE: Final = 1
FALSE: Final = 2
I8: Final = 3
I16: Final = 4
I32: Final = 5
I64: Final = 6
DOUBLE: Final = 7
BINARY: Final = 8
LIST: Final = 9
SET: Final = 10
MAP: Final = 11
STRUCT: Final = 12
UUID: Final = 13

INTEGERS: Final = (I16, I32, I64)
BOOLEANS: Final = (TRUE, FALSE)
MAX_DEPTH: Final = 32
MAX_FIELD: Final = 32767
VARINT_BYTES: Final = 10

Value: TypeAlias = bool | int | bytes | list["Value"] | dict[int, "Value"] | None


class FooterFault(ValueError):
    """Bytes that break the protocol; ``args`` are the offset into the metadata and the reason."""

    @property
    def offset(self) -> int:
        return int(self.args[0])

    @property
    def reason(self) -> str:
        return str(self.args[1])


def fault(offset: int, reason: str) -> NoReturn:
    raise FooterFault(offset, reason)


class CompactReader:
    """A cursor over ``data``. Nothing is consumed by a read that faults."""

    __slots__ = ("data", "end", "pos")

    def __init__(self, data: bytes, pos: int = 0) -> None:
        self.data = data
        self.pos = pos
        self.end = len(data)

    def byte(self) -> int:
        if self.pos >= self.end:
            fault(self.pos, "the metadata ends inside a structure")
        value = self.data[self.pos]
        self.pos += 1
        return value

    def varint(self) -> int:
        """An unsigned number of at most 64 bits."""
        start, value = self.pos, 0
        for index in range(VARINT_BYTES):
            if start + index >= self.end:
                fault(start, "a number runs past the end")
            octet = self.data[start + index]
            if index == VARINT_BYTES - 1 and octet > 1:
                break
            value |= (octet & 0x7F) << (7 * index)
            if octet < 0x80:
                self.pos = start + index + 1
                return value
        fault(start, "a number is longer than 64 bits")

    def zigzag(self) -> int:
        """A signed number of at most 64 bits."""
        raw = self.varint()
        return (raw >> 1) ^ -(raw & 1)

    def span(self) -> tuple[int, int]:
        """Start and end of a string of bytes, skipped."""
        start = self.pos
        length = self.varint()
        if length > self.end - self.pos:
            self.pos = start
            fault(start, "a string is longer than the metadata")
        first = self.pos
        self.pos += length
        return first, self.pos

    def binary(self) -> bytes:
        first, end = self.span()
        return self.data[first:end]

    def field(self, last: int) -> tuple[int, int]:
        """The next field's id and type; type ``STOP`` ends the structure."""
        start = self.pos
        octet = self.byte()
        if octet == STOP:
            return 0, STOP
        kind = octet & 15
        if kind == STOP or kind > UUID:
            fault(start, "a field of unknown type")
        delta = octet >> 4
        number = last + delta if delta else self.zigzag()
        if not -MAX_FIELD <= number <= MAX_FIELD:
            fault(start, "a field number out of bounds")
        return number, kind

    def collection(self) -> tuple[int, int]:
        """Count and element type of a list or set; the count is at most the bytes that are left."""
        start = self.pos
        octet = self.byte()
        count, kind = octet >> 4, octet & 15
        if count == 15:
            count = self.varint()
        if count > self.end - self.pos:
            fault(start, "a list is longer than the metadata")
        if count and (kind == STOP or kind > UUID):
            fault(start, "a list of unknown type")
        return count, kind

    def skip(self, kind: int, depth: int = 0) -> None:
        """Steps over one field's value."""
        if kind in BOOLEANS:
            return
        self.skip_element(kind, depth)

    def skip_element(self, kind: int, depth: int) -> None:
        """Steps over one value inside a collection, where a boolean takes a byte."""
        if depth > MAX_DEPTH:
            fault(self.pos, "structures are nested too deeply")
        if kind in (TRUE, FALSE, I8):
            self.byte()
        elif kind in INTEGERS:
            self.varint()
        elif kind in (DOUBLE, UUID):
            self._leap(8 if kind == DOUBLE else 16)
        elif kind == BINARY:
            self.span()
        elif kind in (LIST, SET):
            count, element = self.collection()
            for _ in range(count):
                self.skip_element(element, depth + 1)
        elif kind == MAP:
            self._skip_map(depth)
        else:
            self._skip_struct(depth)

    def _leap(self, length: int) -> None:
        if length > self.end - self.pos:
            fault(self.pos, "the metadata ends inside a structure")
        self.pos += length

    def _skip_map(self, depth: int) -> None:
        start = self.pos
        count = self.varint()
        if count == 0:
            return
        if count > (self.end - self.pos) // 2:
            fault(start, "a map is longer than the metadata")
        kinds = self.byte()
        key, value = kinds >> 4, kinds & 15
        if STOP in (key, value) or key > UUID or value > UUID:
            fault(start, "a map of unknown type")
        for _ in range(count):
            self.skip_element(key, depth + 1)
            self.skip_element(value, depth + 1)

    def _skip_struct(self, depth: int) -> None:
        last = 0
        while True:
            last, kind = self.field(last)
            if kind == STOP:
                return
            self.skip(kind, depth + 1)

    def value(self, kind: int, depth: int = 0) -> Value:
        """One field's value as Python has it: for small parts where the schema is not known in advance."""
        if kind in BOOLEANS:
            return kind == TRUE
        return self._element(kind, depth)

    def _element(self, kind: int, depth: int) -> Value:
        if depth > MAX_DEPTH:
            fault(self.pos, "structures are nested too deeply")
        if kind in BOOLEANS:
            return self.byte() == TRUE
        if kind in INTEGERS:
            return self.zigzag()
        if kind == BINARY:
            return self.binary()
        if kind in (LIST, SET):
            count, element = self.collection()
            return [self._element(element, depth + 1) for _ in range(count)]
        if kind == STRUCT:
            return self.struct(depth)
        self.skip_element(kind, depth)
        return None

    def struct(self, depth: int = 0) -> dict[int, Value]:
        """A structure as field number to value."""
        fields: dict[int, Value] = {}
        last = 0
        while True:
            last, kind = self.field(last)
            if kind == STOP:
                return fields
            fields[last] = self.value(kind, depth + 1)
