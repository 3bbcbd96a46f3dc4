"""Parses Parquet's metadata: a reader of Thrift's compact protocol that checks every length, and the file's columns."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
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
#: Bytes of values that are passed over, by their types.
_PASSED_OVER: Final = {I8: 1, DOUBLE: 8, UUID: 16}
MAX_DEPTH: Final = 32
MAX_FIELD: Final = 32767
VARINT_BYTES: Final = 10
#: Maximum elements of a schema. The index has 30.
MAX_COLUMNS: Final = 256

Value: TypeAlias = bool | int | bytes | list["Value"] | dict[int, "Value"] | None


class FooterFault(ValueError):
    """Bytes that break the protocol; ``args`` are the offset into the metadata and the reason.

    A third, true, is set if the bytes may be valid but exceed a bound.
    """

    @property
    def offset(self) -> int:
        return int(self.args[0])

    @property
    def reason(self) -> str:
        return str(self.args[1])

    @property
    def too_large(self) -> bool:
        return len(self.args) > 2


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
        return self._take(1)[0]

    def varint(self) -> int:
        """Reads an unsigned number of at most 64 bits."""
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
        """Reads a signed number of at most 64 bits."""
        start = self.pos
        # nearly every number has one byte
        if start < self.end and (raw := self.data[start]) < 0x80:
            self.pos = start + 1
        else:
            raw = self.varint()
        return (raw >> 1) ^ -(raw & 1)

    def binary(self) -> bytes:
        start = self.pos
        length = self.varint()
        if length > self.end - self.pos:
            self.pos = start
            fault(start, "a string is longer than the metadata")
        first = self.pos
        self.pos += length
        return self.data[first : self.pos]

    def _take(self, length: int) -> bytes:
        start = self.pos
        if length > self.end - start:
            fault(start, "the metadata ends inside a structure")
        self.pos = start + length
        return self.data[start : self.pos]

    def collection(self) -> tuple[int, int]:
        """Reads count and element type of a list or set; the count is at most the number of remaining bytes."""
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

    def struct(self, depth: int = 0) -> dict[int, Value]:
        """Reads a structure as field number to value. Values of types that the format does not use are ``None``."""
        fields: dict[int, Value] = {}
        number = 0
        while True:
            start = self.pos
            if start >= self.end:
                fault(start, "the metadata ends inside a structure")
            octet = self.data[start]
            self.pos = start + 1
            if octet == STOP:
                return fields
            delta, kind = octet >> 4, octet & 15
            if kind == STOP or kind > UUID:
                fault(start, "a field of unknown type")
            number = number + delta if delta else self.zigzag()
            if not -MAX_FIELD <= number <= MAX_FIELD:
                fault(start, "a field number out of bounds")
            fields[number] = kind == TRUE if kind in BOOLEANS else self._element(kind, depth + 1)

    def _element(self, kind: int, depth: int) -> Value:
        """Reads a value, or one inside a collection, where a boolean takes a byte."""
        if depth > MAX_DEPTH:
            fault(self.pos, "structures are nested too deeply")
        if kind in INTEGERS:
            return self.zigzag()
        if kind == BINARY:
            return self.binary()
        if kind == STRUCT:
            return self.struct(depth)
        if kind in (LIST, SET):
            count, element = self.collection()
            return [self._element(element, depth + 1) for _ in range(count)]
        if kind in BOOLEANS:
            return self.byte() == TRUE
        if kind == MAP:
            self._pass_over_map(depth)
        else:
            self._take(_PASSED_OVER[kind])
        return None

    def _pass_over_map(self, depth: int) -> None:
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
            self._element(key, depth + 1)
            self._element(value, depth + 1)


PHYSICAL_TYPES: Final = ("BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")
_REPETITIONS: Final = ("required", "optional", "repeated")
_CONVERTED: Final = (
    "UTF8", "MAP", "MAP_KEY_VALUE", "LIST", "ENUM", "DECIMAL", "DATE", "TIME_MILLIS", "TIME_MICROS",
    "TIMESTAMP_MILLIS", "TIMESTAMP_MICROS", "UINT_8", "UINT_16", "UINT_32", "UINT_64", "INT_8", "INT_16", "INT_32",
    "INT_64", "JSON", "BSON", "INTERVAL",
)  # fmt: skip
_LOGICAL: Final = {
    1: "UTF8", 2: "MAP", 3: "LIST", 4: "ENUM", 5: "DECIMAL", 6: "DATE", 7: "TIME", 8: "TIMESTAMP", 10: "INTEGER",
    11: "NULL", 12: "JSON", 13: "BSON", 14: "UUID", 15: "FLOAT16", 16: "VARIANT", 17: "GEOMETRY", 18: "GEOGRAPHY",
}  # fmt: skip
_UNITS: Final = {1: "MILLIS", 2: "MICROS", 3: "NANOS"}
_MAX_NESTING: Final = 64
_LONGEST_PATH: Final = 4096


@dataclass(frozen=True, slots=True)
class SchemaColumn:
    """One leaf column: dotted name, physical type, repetition, and what its values mean (``""`` if not said)."""

    name: str
    physical: str
    repetition: str
    meaning: str

    def __str__(self) -> str:
        return " ".join(part for part in (self.name, self.physical, self.repetition, self.meaning) if part)


@dataclass(frozen=True, slots=True)
class FooterSchema:
    """The leaf columns in file order; ``digest`` is equal for equal columns, whatever the writer's encoding."""

    digest: str
    columns: tuple[SchemaColumn, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    def column(self, name: str) -> SchemaColumn | None:
        return next((column for column in self.columns if column.name == name), None)


def read_schema(elements: Value) -> FooterSchema:
    """Returns the columns of a list of schema elements, at most ``MAX_COLUMNS`` of them. Raises ``FooterFault``."""
    if not isinstance(elements, list) or not elements:
        fault(0, "the schema is no list of elements")
    if len(elements) > MAX_COLUMNS:
        raise FooterFault(0, "more columns than are read here", True)
    columns: list[SchemaColumn] = []
    pending: list[tuple[int, str]] = []
    for index, element in enumerate(elements):
        if not isinstance(element, dict):
            fault(0, "the schema is no list of elements")
        while pending and pending[-1][0] == 0:
            pending.pop()
        if index and not pending:
            fault(0, "the schema has elements outside its root")
        prefix = pending[-1][1] if pending else ""
        if pending:
            pending[-1] = (pending[-1][0] - 1, prefix)
        name = prefix + decode_text(element.get(4)) if index else ""
        if len(name) > _LONGEST_PATH:
            fault(0, "a column name is too long")
        children = read_number(element.get(5), 0)
        if children > len(elements) or children < 0 or len(pending) > _MAX_NESTING:
            fault(0, "the schema's nesting is impossible")
        if children or index == 0:
            pending.append((children, f"{name}." if index else ""))
        else:
            columns.append(_leaf(name, element))
    if any(missing_children for missing_children, _ in pending):
        fault(0, "the schema ends before its last column")
    lines = "\n".join(str(column) for column in columns)
    return FooterSchema(hashlib.sha256(lines.encode()).hexdigest()[:16], tuple(columns))


def _leaf(name: str, element: dict[int, Value]) -> SchemaColumn:
    physical = _name_of(PHYSICAL_TYPES, element.get(1))
    if physical == "FIXED_LEN_BYTE_ARRAY":
        physical = f"{physical}({read_number(element.get(2), 0)})"
    return SchemaColumn(name, physical, _name_of(_REPETITIONS, element.get(3)), _meaning(element))


def _meaning(element: dict[int, Value]) -> str:
    """Returns the logical type in the old names if there is one, so that old and new writers compare equal."""
    converted = element.get(6)
    if isinstance(converted, int) and 0 <= converted < len(_CONVERTED):
        name = _CONVERTED[converted]
        digits, scale = read_number(element.get(8), 0), read_number(element.get(7), 0)
        return f"DECIMAL({digits},{scale})" if name == "DECIMAL" else name
    logical = element.get(10)
    if not isinstance(logical, dict) or not logical:
        return ""
    number, details = next(iter(logical.items()))
    name = _LOGICAL.get(number, f"LOGICAL_{number}")
    inner = details if isinstance(details, dict) else {}
    if name in ("TIME", "TIMESTAMP"):
        unit = inner.get(2)
        unit_number = next(iter(unit), 0) if isinstance(unit, dict) else 0
        return f"{name}_{_UNITS.get(unit_number, 'UNKNOWN')}"
    if name == "INTEGER":
        return f"{'INT' if inner.get(2) is not False else 'UINT'}_LOGICAL"
    return name


def _name_of(names: tuple[str, ...], value: Value) -> str:
    return names[value] if isinstance(value, int) and 0 <= value < len(names) else "UNKNOWN"


def read_number(value: Value, default: int = -1) -> int:
    """Returns a number, or ``default`` for a field of another type: every reader skips those."""
    return value if isinstance(value, int) and not isinstance(value, bool) else default


def decode_text(value: Value) -> str:
    """Returns a text; empty for a field of another type."""
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else ""
