"""Texts by name that runs leave for other processes, in a table of our own beside Dagster's state.

The table is in the PostgreSQL database that ``dagster.yaml`` names, so that all hosts see it. Otherwise it is in a
SQLite file in the instance's folder.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final

import dagster as dg
import sqlalchemy as sql
import yaml
from sqlalchemy.pool import NullPool

_FILE: Final = "cc_pipeline.db"
_TABLES: Final = sql.MetaData()
_NOTES: Final = sql.Table(
    "cc_pipeline_notes", _TABLES, sql.Column("name", sql.Text, primary_key=True), sql.Column("said", sql.Text)
)
#: One statement, since several processes may store the same name at once.
_KEEP: Final = sql.text(
    "INSERT INTO cc_pipeline_notes (name, said) VALUES (:name, :said) "
    "ON CONFLICT (name) DO UPDATE SET said = excluded.said"
)
#: The most names in one statement.
_NAMES_PER_STATEMENT: Final = 400
#: Seconds that SQLite waits for another writer.
_WRITE_TIMEOUT: Final = 20


def write_notes(instance: dg.DagsterInstance, notes: Mapping[str, str]) -> None:
    """Stores texts under names. They replace earlier texts of the same names."""
    with _connect(instance) as connection:
        for names in _split_batches(notes):
            # in a fixed order, so that two writers cannot wait for each other
            connection.execute(_KEEP, [{"name": name, "said": notes[name]} for name in names])


def read_notes(instance: dg.DagsterInstance, names: Collection[str]) -> dict[str, str]:
    """Returns the texts of those ``names`` that have one."""
    if not names:
        return {}
    with _connect(instance) as connection:
        return {
            row.name: row.said
            for batch in _split_batches(names)
            for row in connection.execute(_NOTES.select().where(_NOTES.c.name.in_(batch)))
        }


def list_note_names(instance: dg.DagsterInstance, prefix: str) -> list[str]:
    """Returns the names that begin with ``prefix``."""
    with _connect(instance) as connection:
        return [*connection.scalars(sql.select(_NOTES.c.name).where(_NOTES.c.name.startswith(prefix, autoescape=True)))]


def delete_notes(instance: dg.DagsterInstance, names: Collection[str]) -> None:
    """Deletes texts by their names."""
    with _connect(instance) as connection:
        for batch in _split_batches(names):
            connection.execute(_NOTES.delete().where(_NOTES.c.name.in_(batch)))


def _split_batches(names: Collection[str]) -> Iterator[list[str]]:
    ordered = sorted(names)
    return (ordered[first : first + _NAMES_PER_STATEMENT] for first in range(0, len(ordered), _NAMES_PER_STATEMENT))


@contextmanager
def _connect(instance: dg.DagsterInstance) -> Iterator[sql.Connection]:
    """Opens a transaction on the table. Creates the table if it does not exist."""
    engine = _engine(_address(Path(instance.root_directory)))
    with engine.begin() as connection:
        if not engine.dialect.has_table(connection, _NOTES.name):
            if engine.dialect.name == "postgresql":  # two hosts may create it at once
                connection.exec_driver_sql("SELECT pg_advisory_xact_lock(hashtext('cc_pipeline_notes'))")
            connection.execute(sql.schema.CreateTable(_NOTES, if_not_exists=True))
        yield connection


@cache
def _engine(address: sql.URL) -> sql.Engine:
    # the plugin of ``database.py`` keeps connections to PostgreSQL; a SQLite file may be replaced between two calls
    options: dict[str, Any] = {"connect_args": {"timeout": _WRITE_TIMEOUT}} if address.drivername == "sqlite" else {}
    return sql.create_engine(address, poolclass=NullPool, **options)


def _address(folder: Path) -> sql.URL:
    """Returns the database URL of the instance in ``folder``."""
    file = folder / "dagster.yaml"
    config = (yaml.safe_load(file.read_text("utf-8")) if file.is_file() else None) or {}
    postgres = (config.get("storage") or {}).get("postgres") or {}
    if url := _value(postgres.get("postgres_url")):
        return sql.make_url(url)
    if postgres_db := postgres.get("postgres_db"):
        port, url_parts = (
            _value(postgres_db.get("port")),
            {name: _value(postgres_db.get(name)) for name in postgres_db if name != "params"},
        )
        return sql.URL.create(
            url_parts.get("scheme") or "postgresql", url_parts.get("username"), url_parts.get("password"),
            url_parts.get("hostname"), int(port) if port else None, url_parts.get("db_name"),
            postgres_db.get("params") or {},
        )  # fmt: skip
    return sql.URL.create("sqlite", database=str(folder / _FILE))


def _value(configured: Any) -> str | None:
    """Returns a value of ``dagster.yaml``: a text or number, or the content of the environment variable that it
    names."""
    if isinstance(configured, Mapping):
        return os.environ.get(str(configured.get("env")))
    return None if configured is None else str(configured)
