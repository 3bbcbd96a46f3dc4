"""The types of export formats and of their requests and results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from cc_pipeline.errors import Incomplete
    from cc_pipeline.export.cards import DatasetDescription
    from cc_pipeline.export.provenance import Provenance
    from cc_pipeline.export.stored_state import StoredState
    from cc_pipeline.export.table_files import Selection
    from cc_pipeline.workspace.workspace import Workspace


@dataclass(frozen=True, slots=True)
class RowsRequest:
    """Rows to write to ``out``: queries of an open ``connection``. ``description`` and ``provenance`` are for the
    documents beside it. With ``guards_formulas``, no text is a formula in a spreadsheet."""

    connection: DuckDBPyConnection
    selections: Sequence[Selection]
    format: str
    out: Path
    description: DatasetDescription
    provenance: Provenance
    guards_formulas: bool = False


@dataclass(frozen=True, slots=True)
class RecordsRequest:
    """Stored records to write to ``out``: those that ``state`` has of its targets in ``crawls``."""

    workspace: Workspace
    state: StoredState
    crawls: Sequence[str]
    out: Path
    description: DatasetDescription
    provenance: Provenance


@dataclass(frozen=True, slots=True)
class Written:
    """The result of a format: all ``files``, documents included; a summary table (``columns``, ``rows``); ``notes`` for
    people; and the error about planned captures that are missing, if any."""

    files: tuple[Path, ...]
    columns: tuple[str, ...]
    rows: tuple[tuple[str | int, ...], ...]
    notes: tuple[str, ...] = ()
    incomplete: Incomplete | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFormat:
    """A format of tables and queries.

    ``summary`` follows the name in the help of ``export``; formats with the same summary share a line. A file with one
    of ``suffixes`` has this format unless another is named. ``only_table`` is the table of a format that has only one.
    """

    summary: str
    write: Callable[[RowsRequest], Written]
    suffixes: tuple[str, ...] = ()
    only_table: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFormat:
    """A format of the stored records of targets; ``summary`` and ``suffixes`` as in :class:`RowFormat`."""

    summary: str
    write: Callable[[RecordsRequest], Written]
    suffixes: tuple[str, ...] = ()


ExportFormat = RowFormat | RecordFormat
