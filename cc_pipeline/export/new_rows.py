"""``export --new``: the rows that were committed since an earlier export of the same file.

The document ``provenance.json`` beside that file names the commits of its slices (crawl × target). Slices with another
commit are new, with all their rows. The lake remembers no exports.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow as pa

from cc_pipeline.advice import option
from cc_pipeline.capture_columns import CAPTURE
from cc_pipeline.errors import UserInputError
from cc_pipeline.export.files import PROVENANCE, document_path
from cc_pipeline.export.table_files import Selection
from cc_pipeline.lake.quoting import is_one_of
from cc_pipeline.lake.slice import FETCH, LOCATE, PARSE
from cc_pipeline.lake.slices import SLICES_SCHEMA
from cc_pipeline.publish.views import WHOLE_TARGET

#: The stage that commits the rows of each table whose new rows can be exported.
STAGES: Final = {table: stage.label for stage in (LOCATE, FETCH, PARSE) for table in stage.tables} | {
    "page_html": PARSE.label
}
_COMMITS: Final = pa.schema(
    [SLICES_SCHEMA.field(name).with_nullable(True) for name in ("crawl", "target", "stage", "epoch", "seq")]
)
_SELECT_COMMITS: Final = (
    f"SELECT {', '.join(_COMMITS.names)} FROM lake.slices ANTI JOIN lake.left_out USING (crawl, target, epoch)"
)
_EARLIER: Final = "memory.main.commits_of_earlier_export"
_ROW: Final = (*CAPTURE, "url")


@dataclass(frozen=True, slots=True)
class ExportedRows:
    """What an export contains: ``tables``, the condition ``where``, and the ``commits`` of all slices that it chose
    from, with the columns of ``slices`` that name one."""

    tables: Sequence[str]
    where: str
    commits: pa.Table

    def as_json(self) -> dict[str, Any]:
        """Returns the value of ``exported`` in ``provenance.json``."""
        commits = [list(commit.values()) for commit in self.commits.to_pylist()]
        return {"tables": list(self.tables), "where": self.where, "commits": commits}


def list_exported_rows(
    connection: duckdb.DuckDBPyConnection,
    tables: Sequence[str],
    where: str,
    targets: Sequence[str],
    crawls: Sequence[str],
) -> ExportedRows:
    """Lists the commits that a published file shows of ``targets`` (slugs; none: all) in ``crawls`` (none: all)."""
    conditions = [is_one_of("stage", sorted({STAGES.get(table, "") for table in tables}))]
    conditions += [is_one_of(WHOLE_TARGET, targets)] if targets else []
    conditions += [is_one_of("crawl", crawls)] if crawls else []
    query = f"{_SELECT_COMMITS} WHERE {' AND '.join(conditions)} ORDER BY ALL"
    return ExportedRows(tables, where, connection.sql(query).to_arrow_table().cast(_COMMITS))


def read_exported_rows(out: Path, tables: Sequence[str], where: str) -> ExportedRows:
    """Reads the commits of the earlier export of ``out``. Raises ``UserInputError`` if its document is missing, or if
    it exported other tables, or with another condition."""
    path = document_path(out, PROVENANCE)
    try:
        document: Mapping[str, Any] = json.loads(path.read_bytes())["exported"]
        rows = [dict(zip(_COMMITS.names, commit, strict=True)) for commit in document["commits"]]
        earlier = ExportedRows(tuple(document["tables"]), document["where"], pa.Table.from_pylist(rows, _COMMITS))
    except (OSError, ValueError, KeyError, TypeError):
        raise UserInputError(
            f"{path} names no earlier export of tables: {option(new=True)} exports the rows that were committed since "
            "that export; export once without it"
        ) from None
    if (set(earlier.tables), earlier.where) != (set(tables), where):
        raise UserInputError(
            f"the earlier export of {out} was of {', '.join(earlier.tables)}, where {earlier.where or 'true'}; repeat "
            "its tables and its condition, or name another file"
        )
    return earlier


def select_new_rows(
    connection: duckdb.DuckDBPyConnection, selection: Selection, table: str, earlier: ExportedRows
) -> Selection:
    """Returns the rows of ``selection`` whose slices were not committed as ``earlier`` has them; ``table`` is the table
    that tells. Raises ``UserInputError`` for a table whose rows no slice commits."""
    if table not in STAGES:
        raise UserInputError(
            f"--new is for tables of captures and pages ({', '.join(sorted(STAGES))}), not for {table}"
        )
    # a table, since other cursors do not see what this one has registered
    connection.register("_commits", earlier.commits)
    connection.execute(f"CREATE OR REPLACE TABLE {_EARLIER} AS FROM _commits")
    connection.unregister("_commits")
    names = ", ".join(_COMMITS.names)
    new_slices = f"{_SELECT_COMMITS} ANTI JOIN {_EARLIER} USING ({names}) WHERE stage = '{STAGES[table]}'"
    new_rows = f"SELECT DISTINCT {', '.join(_ROW)} FROM lake.{table} SEMI JOIN ({new_slices}) USING (crawl, target)"
    # texts of files that were read whole have no offset
    is_same = " AND ".join(f"chosen.{name} IS NOT DISTINCT FROM new.{name}" for name in _ROW)
    return replace(
        selection, sql=f"SELECT * FROM ({selection.sql}) AS chosen SEMI JOIN ({new_rows}) AS new ON {is_same}"
    )
