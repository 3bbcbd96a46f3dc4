"""Converts metrics of a stage to metadata for the UI."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import dagster as dg

from cc_pipeline.lake.slice import StageReport

#: Characters with a meaning in Markdown; an underline inside of a word has none.
_MARKS: Final = re.compile(r"[\\`*\[\]<>#!~&]|(?<![^\W_])_|_(?![^\W_])")
_ESCAPED: Final = r"\\\g<0>"


def row_counts(rows: int) -> dict[str, dg.MetadataValue]:
    """Returns the number of rows of a partition."""
    return to_metadata({"dagster/partition_row_count": rows})


def stage_metadata(report: StageReport) -> dict[str, dg.MetadataValue]:
    """Returns the rows that a stage wrote, its bytes, requests and seconds."""
    values: dict[str, dg.MetadataValue] = {
        "rows written": dg.MetadataValue.int(report.written),
        "bytes read": dg.MetadataValue.int(report.bytes),
        "requests": dg.MetadataValue.int(report.requests),
        "seconds": dg.MetadataValue.float(round(report.seconds, 3)),
    }
    if report.reused_slices:
        values["partitions reused"] = dg.MetadataValue.int(report.reused_slices)
    if report.notes:
        values["notes"] = format_list(report.notes)
    return values


def to_metadata(values: Mapping[str, int | float | str]) -> dict[str, dg.MetadataValue]:
    """Converts plain metrics (of one partition) to metadata."""
    return {name: _value(value) for name, value in values.items()}


def as_table(columns: Sequence[str], rows: Iterable[Sequence[str | int | float]]) -> dg.MetadataValue:
    """Returns rows as a table for the UI in which text stays text: text of a page may be Markdown, and make a browser
    load an address of a stranger."""
    schema = dg.TableSchema([dg.TableColumn(name) for name in columns])
    return dg.MetadataValue.table([dg.TableRecord(dict(zip(columns, row, strict=True))) for row in rows], schema)


def format_list(lines: Iterable[str]) -> dg.MetadataValue:
    """Returns lines as a list, with Markdown escaped."""
    return dg.MetadataValue.md("\n".join(f"- {escape_markdown(line)}" for line in lines))


def escape_markdown(text: str) -> str:
    """Escapes text for a field that the UI renders as Markdown; each line stays a line of its own."""
    return "  \n".join(_MARKS.sub(_ESCAPED, line) for line in text.splitlines())


def _value(value: float | str) -> dg.MetadataValue:
    if isinstance(value, bool | str):
        return dg.MetadataValue.text(str(value))
    return dg.MetadataValue.int(value) if isinstance(value, int) else dg.MetadataValue.float(value)
