"""Figures of a stage as metadata for people who read them in the UI.

Belongs here: turning reports, tables and schemas into Dagster metadata. Not here: computing figures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg
import pyarrow as pa

from cc_pipeline.stages.questions.notes import COLUMN_NOTES
from cc_pipeline.stages.slice import StageReport

OWNERS = ["team:cc-pipeline"]
#: Rows of a preview, and characters of a cell, so that it fits a page of the UI.
PREVIEW_ROWS = 8
_PREVIEW_TEXT = 80


def column_schema(schema: pa.Schema) -> dg.TableSchema:
    """An Arrow schema as the UI shows columns."""
    return dg.TableSchema(
        columns=[
            dg.TableColumn(
                field.name,
                _type_name(field.type),
                description=COLUMN_NOTES.get(field.name),
                constraints=dg.TableColumnConstraints(nullable=field.nullable),
            )
            for field in schema
        ]
    )


def table_metadata(name: str, schema: pa.Schema) -> dict[str, Any]:
    """The name and columns of a table: metadata that is known before it is materialized."""
    return {"dagster/column_schema": column_schema(schema), "dagster/table_name": name}


def stage_metadata(report: StageReport, rows: int | None = None) -> dict[str, dg.MetadataValue]:
    """Rows, bytes, requests and seconds of a stage."""
    values: dict[str, dg.MetadataValue] = {
        "dagster/row_count": dg.MetadataValue.int(report.rows if rows is None else rows),
        "rows written": dg.MetadataValue.int(report.written),
        "bytes read": dg.MetadataValue.int(report.bytes),
        "requests": dg.MetadataValue.int(report.requests),
        "seconds": dg.MetadataValue.float(round(report.seconds, 3)),
    }
    if report.reused_slices:
        values["partitions reused"] = dg.MetadataValue.int(report.reused_slices)
    if report.notes:
        values["notes"] = dg.MetadataValue.md("\n".join(f"- {note}" for note in report.notes))
    return values


def figures(values: Mapping[str, int | float | str]) -> dict[str, dg.MetadataValue]:
    """Plain figures (of one partition) as metadata."""
    return {name: _value(value) for name, value in values.items()}


def preview(table: pa.Table, columns: Sequence[str] | None = None) -> dg.MetadataValue:
    """The first rows of ``table`` as a Markdown table."""
    shown = table.select([name for name in (columns or table.column_names) if name in table.column_names])
    rows = shown.slice(0, PREVIEW_ROWS).to_pylist()
    if not rows:
        return dg.MetadataValue.md("*no rows*")
    head = "| " + " | ".join(shown.column_names) + " |\n|" + "---|" * len(shown.column_names)
    lines = ("| " + " | ".join(_cell(row[name]) for name in shown.column_names) + " |" for row in rows)
    return dg.MetadataValue.md("\n".join([head, *lines]))


def _cell(value: object) -> str:
    text = "" if value is None else str(value)
    text = text.replace("|", "\\|").replace("\n", " ").replace("\r", " ")
    return text if len(text) <= _PREVIEW_TEXT else text[: _PREVIEW_TEXT - 1] + "…"


def _value(value: float | str) -> dg.MetadataValue:
    if isinstance(value, bool | str):
        return dg.MetadataValue.text(str(value))
    return dg.MetadataValue.int(value) if isinstance(value, int) else dg.MetadataValue.float(value)


def _type_name(kind: pa.DataType) -> str:
    text = str(kind)
    return text if len(text) <= _PREVIEW_TEXT else text[: _PREVIEW_TEXT - 1] + "…"
