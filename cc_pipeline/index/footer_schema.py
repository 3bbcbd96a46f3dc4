"""The columns a Parquet file says it has, in a form that can be compared between files and crawls."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from cc_pipeline.index.footer_thrift import STRUCT, CompactReader, Value, fault

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


@lru_cache(maxsize=128)
def parse_schema(elements: bytes) -> FooterSchema:
    """Reads the thrift list of schema elements; raises ``FooterFault`` with offsets into ``elements``.

    Files of one crawl have the same bytes here, so the answer is remembered.
    """
    reader = CompactReader(elements)
    count, kind = reader.collection()
    if count == 0 or kind != STRUCT:
        fault(0, "the schema is no list of elements")
    columns: list[SchemaColumn] = []
    pending: list[tuple[int, str]] = []
    for index in range(count):
        at = reader.pos
        element = reader.struct()
        while pending and pending[-1][0] == 0:
            pending.pop()
        if index and not pending:
            fault(at, "the schema has elements outside its root")
        prefix = pending[-1][1] if pending else ""
        if pending:
            pending[-1] = (pending[-1][0] - 1, prefix)
        name = prefix + _text(element.get(4)) if index else ""
        if len(name) > _LONGEST_PATH:
            fault(at, "a column name is too long")
        children = _number(element.get(5), 0)
        if children > count or children < 0 or len(pending) > _MAX_NESTING:
            fault(at, "the schema's nesting is impossible")
        if children or index == 0:
            pending.append((children, f"{name}." if index else ""))
        else:
            columns.append(_leaf(name, element))
    if any(left for left, _ in pending):
        fault(reader.pos, "the schema ends before its last column")
    lines = "\n".join(str(column) for column in columns)
    return FooterSchema(hashlib.sha256(lines.encode()).hexdigest()[:16], tuple(columns))


def _leaf(name: str, element: dict[int, Value]) -> SchemaColumn:
    physical = _named(PHYSICAL_TYPES, element.get(1))
    if physical == "FIXED_LEN_BYTE_ARRAY":
        physical = f"{physical}({_number(element.get(2), 0)})"
    return SchemaColumn(name, physical, _named(_REPETITIONS, element.get(3)), _meaning(element))


def _meaning(element: dict[int, Value]) -> str:
    """The logical type in the old names where there is one, so that old and new writers compare equal."""
    converted = element.get(6)
    if isinstance(converted, int) and 0 <= converted < len(_CONVERTED):
        name = _CONVERTED[converted]
        return f"DECIMAL({_number(element.get(8), 0)},{_number(element.get(7), 0)})" if name == "DECIMAL" else name
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


def _named(names: tuple[str, ...], value: Value) -> str:
    return names[value] if isinstance(value, int) and 0 <= value < len(names) else "UNKNOWN"


def _number(value: Value, default: int) -> int:
    return value if isinstance(value, int) else default


def _text(value: Value) -> str:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else ""
