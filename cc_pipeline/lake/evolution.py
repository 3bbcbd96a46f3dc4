"""Changes tables between releases: columns are added in place, every other change is a numbered migration.

An added column is null in older rows. Older files lack the column. A property of the table says so, for readers of the
bare Parquet files (``lake/snapshot.py``).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from deltalake import DeltaTable, Field, Schema

from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.home import read_note, refuse_unknown_layout, write_note
from cc_pipeline.locks import locked

if TYPE_CHECKING:
    from cc_pipeline.lake.lake import Lake

#: Set on a table whose older files lack columns; empty once all were rewritten.
COLUMNS_ADDED: Final = "cc_pipeline.columnsAdded"
#: Seconds to wait for another process that migrates: long for what only changes the log, short for a rewriting.
_LOCK_WAIT_SECONDS: Final = 60.0


def find_missing_columns(table: str, stored_schema: Schema, schema: pa.Schema) -> list[Field]:
    """The columns of ``schema`` that the table with the schema ``stored_schema`` does not have, made nullable so that
    they can be added.

    Raises ``EnvironmentFault`` if the table has columns of another type, or columns that ``schema`` does not know: then
    another version wrote it. Raises ``ValueError`` for a missing column that may not be null: older rows have no value
    for it, so it takes a migration.
    """
    stored = {field.name: field.type for field in stored_schema.fields}
    fields = Schema.from_arrow(schema).fields
    differing_columns = [field.name for field in fields if stored.get(field.name, field.type) != field.type]
    if differing_columns:
        raise EnvironmentFault(
            f"the table {table} has {', '.join(differing_columns)} in another type than the one this version writes",
            "Bring the home up to date with: cc-pipeline doctor --migrate. If that finds nothing to migrate, a newer "
            "version of cc_pipeline or another program wrote the table: install that version, or use another home.",
        )
    unknown_columns = sorted(stored.keys() - set(schema.names))
    if unknown_columns:
        raise EnvironmentFault(
            f"the table {table} has columns this version does not know: {', '.join(unknown_columns)}",
            "A newer version of cc_pipeline wrote the table. Install that version, or use another home.",
        )
    missing_fields = [field for field in fields if field.name not in stored]
    required = [field.name for field in missing_fields if not field.nullable]
    if required:
        raise ValueError(f"{table}: an added column must be nullable, and {', '.join(required)} is not")
    return missing_fields


def set_properties(lake: Lake, table: str, handle: DeltaTable, properties: dict[str, str]) -> None:
    """Sets properties of a table at the version of ``handle``, which follows.

    Raises ``CommitFailedError`` if another process has changed the table's properties or columns since.
    """
    alter = handle.alter.set_table_properties
    lake.commit_durably(
        table,
        handle.version(),
        lambda hooks: alter(properties, raise_if_not_exists=False, post_commithook_properties=hooks),
    )


def add_columns(lake: Lake, table: str, handle: DeltaTable, columns: Sequence[Field]) -> None:
    """Adds nullable columns to a table. It sets the table's property first, so that a kill in between does no harm."""
    old_names = handle.metadata().configuration.get(COLUMNS_ADDED, "")
    names = ",".join(filter(None, [old_names, *(column.name for column in columns)]))
    set_properties(lake, table, handle, {COLUMNS_ADDED: names})
    alter = handle.alter.add_columns
    lake.commit_durably(table, handle.version(), lambda hooks: alter(list(columns), post_commithook_properties=hooks))


def is_uneven(handle: DeltaTable) -> bool:
    """Whether some files of a table may lack columns of the table."""
    return bool(handle.metadata().configuration.get(COLUMNS_ADDED))


def note_even(lake: Lake, table: str, handle: DeltaTable) -> None:
    """Notes that every file has all columns at the version of ``handle``.

    Raises ``CommitFailedError`` where another process has changed the table's columns since.
    """
    set_properties(lake, table, handle, {COLUMNS_ADDED: ""})


def with_columns(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """``table`` in ``schema``: in its order and types, null where a column is missing. Raises ``pa.ArrowInvalid``."""
    if table.schema.equals(schema):
        return table
    columns = []
    for field in schema:
        position = table.schema.get_field_index(field.name)
        column = pa.nulls(table.num_rows, field.type) if position < 0 else table.column(position)
        if not field.nullable and column.null_count:
            raise pa.ArrowInvalid(f"no value in column {field.name}, which must have one")
        # to cast each column costs a millisecond a batch
        columns.append(column if column.type.equals(field.type) else column.cast(field.type))
    return pa.Table.from_arrays(columns, schema=schema)


@dataclass(frozen=True, slots=True)
class Migration:
    """A step from one layout to the next. ``layout`` is the one after it, ``description`` a clause for people.

    ``rewrites`` names the tables whose files it rewrites; their bytes are its cost. ``apply`` may be killed at any
    moment and run again. It makes Delta commits, so older versions can be read until maintenance deletes them.
    """

    layout: int
    description: str
    apply: Callable[[Lake], None]
    rewrites: tuple[str, ...] = ()

    def price(self, lake: Lake) -> int:
        """The bytes that the step rewrites. As many must be free, and stay in use until maintenance deletes the old
        files."""
        return sum(lake.pin(table).bytes for table in self.rewrites if table in lake.specs)


def find_pending(home: Path, migrations: Sequence[Migration]) -> list[Migration]:
    """The migrations that ``home`` still needs, in their order. Raises ``UnknownLayout``."""
    note = read_note(home)
    if note is None:
        return []
    refuse_unknown_layout(str(home), note)
    return sorted((step for step in migrations if step.layout > note.layout), key=lambda step: step.layout)


def migrate(home: Path, lake: Lake, migrations: Sequence[Migration], *, rewrite: bool = False) -> int:
    """Brings ``home`` to the layout of this version, one process at a time. Returns how many migrations ran.

    Raises ``EnvironmentFault``, and runs no migration, if one of them rewrites tables and ``rewrite`` is not set, and
    if the disk has too little room; ``UnknownLayout`` for a home of another layout.
    """
    if not find_pending(home, migrations):
        return 0
    with locked(home / "migrate.lock", _LOCK_WAIT_SECONDS):
        # another process may have done it while this one waited
        steps = find_pending(home, migrations)
        price = sum(step.price(lake) for step in steps)
        if price and not rewrite:
            raise EnvironmentFault(
                f"{home} has an older layout; migrating it to layout {steps[-1].layout} rewrites {_gigabytes(price)}",
                "This command shows the steps, then asks before it rewrites: cc-pipeline doctor --migrate",
            )
        _check_room(lake, price)
        for step in steps:
            step.apply(lake)
            note = read_note(home)
            assert note is not None
            write_note(home, replace(note, layout=step.layout))
    return len(steps)


def _check_room(lake: Lake, price: int) -> None:
    if not price or "://" in lake.root:
        return
    free = shutil.disk_usage(lake.root).free
    if free < price:
        raise EnvironmentFault(
            f"migrating needs {_gigabytes(price)} free, and {lake.root} has {_gigabytes(free)}",
            "Free some space, then run it again. Nothing was changed.",
        )


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:,.2f} GB"
