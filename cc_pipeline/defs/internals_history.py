"""Deleting what Dagster recorded, behind its public interface: see ``internals.py`` for the rest of that.

``instance.delete_run`` deletes all events of a run, also those by which everything knows what is there. It leaves the
evaluations of its checks and, with SQLite, its file. Here the tables of Dagster's storages are read and written, as
``_core.storage.event_log.schema`` and ``_core.storage.runs.schema`` describe them; ``_core.events`` makes an event that
no run has, and ``_core.execution.backfill`` says which backfills have ended.

On SQLite an id of an event that was the highest one is given again after its deletion, and cursors go by ids. So who
calls this does it in a run: the event that says it began is higher than all that are deleted.
"""

from __future__ import annotations

import json
import sqlite3
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any, Final, TypeAlias

import dagster as dg

from cc_pipeline.defs.internals import KEYS_AT_ONCE, VERSION_TAG

_MADE: Final = "ASSET_MATERIALIZATION"
_PLANNED: Final = "ASSET_MATERIALIZATION_PLANNED"
#: What Dagster has in the place of a run's id where an event is of none.
_NO_RUN: Final = ""
_POINTER_TAG: Final = "dagster/input_event_pointer/"
#: Metadata, and what of it stays when its run goes.
Shortening: TypeAlias = Callable[[Mapping[str, dg.MetadataValue]], Mapping[str, dg.MetadataValue]]
#: Free bytes of a SQLite file, or of a table in PostgreSQL, below which it is not written anew; above it a quarter of
#: the whole has to be free.
_WORTH_IT: Final = 1 << 20
#: Seconds that writing anew waits for others.
_PATIENCE: Final = 10
#: Bytes of a row in PostgreSQL beside its columns.
_ROW_HEAD: Final = 28
#: The tables that grow, in PostgreSQL.
_LARGE: Final = ("event_logs", "asset_event_tags", "asset_check_executions", "runs", "run_tags", "kvs", "job_ticks")


def _tables() -> Any:
    """Dagster's description of the tables of its event log."""
    return import_module("dagster._core.storage.event_log.schema")


def _newest_materialization(index: Any, asset: str) -> str | None:
    """What stands with an asset as its newest materialization."""
    events = _tables().SqlEventLogStorageTable
    made = (events.c.asset_key == asset) & (events.c.dagster_event_type == _MADE)
    columns = events.select().with_only_columns(events.c.id, events.c.event)
    row = index.execute(columns.where(made).order_by(events.c.id.desc()).limit(1)).first()
    if row is None:
        return None
    return dg.serialize_value(dg.EventLogRecord(row[0], dg.deserialize_value(row[1], dg.EventLogEntry)))


def pointers(instance: dg.DagsterInstance) -> dict[str, list[int]]:
    """The places in the event log up to which the newest records were made of others, in order, by the asset that they
    were made of (as it stands in the database).

    Dagster compares the version of an input at that place with its version now. So what was the newest there has to
    stay: without it the input would look changed. Assets whose newest record says nothing of that are left out.
    """
    storage: Any = instance.event_log_storage
    events = _tables().SqlEventLogStorageTable
    found: dict[str, set[int]] = {}
    for key in instance.get_asset_keys():
        newest = instance.fetch_materializations(key, limit=1).records
        if not any(_pointers(record.asset_materialization) for record in newest):
            continue
        of_partitions = instance.get_latest_storage_id_by_partition(key, dg.DagsterEventType.ASSET_MATERIALIZATION)
        for some in _several(sorted({*of_partitions.values(), newest[0].storage_id})):
            with storage.index_connection() as index:
                chosen = events.select().with_only_columns(events.c.event).where(events.c.id.in_(some))
                texts = [row[0] for row in index.execute(chosen).fetchall()]
            for text in texts:
                for of, place in _pointers(dg.deserialize_value(text, dg.EventLogEntry).asset_materialization):
                    found.setdefault(of, set()).add(place)
    return {of: sorted(places) for of, places in found.items()}


def _pointers(made: dg.AssetMaterialization | None) -> list[tuple[str, int]]:
    tags = (made.tags if made is not None else None) or {}
    return [
        (dg.AssetKey.from_user_string(tag.removeprefix(_POINTER_TAG)).to_string(), int(value))
        for tag, value in tags.items()
        if tag.startswith(_POINTER_TAG) and value.isdecimal()
    ]


def take_out_what_counts(
    instance: dg.DagsterInstance, runs: Sequence[str], pointed: Mapping[str, Sequence[int]], short: Shortening
) -> int:
    """Makes the newest record of each partition, where one of ``runs`` made it, a record of no run; gives how many. So
    are those that ``pointed`` (:func:`pointers`) still needs.

    They keep their place in the event log, their time, tags, data version and inputs: for all who ask, nothing has
    changed. Of the metadata ``short`` stays, and of the table of tags the data version: Dagster asks it for others only
    where a database is of an old version. May be killed and called again.
    """
    import sqlalchemy as sql  # noqa: PLC0415  # 10 MB that a code server does not need

    storage: Any = instance.event_log_storage
    schema = _tables()
    events, tags, assets = schema.SqlEventLogStorageTable, schema.AssetEventTagsTable, schema.AssetKeyTable
    with storage.index_connection() as index:
        found = _made(index, events.c.run_id.in_(runs))
    ids = [place for place, asset, newer in found if _counts(pointed.get(asset, ()), place, newer)]
    for some in _several(ids):
        with storage.index_connection() as index:
            chosen = events.select().with_only_columns(events.c.id, events.c.event).where(events.c.id.in_(some))
            texts = {place: _of_no_run(text, short) for place, text in index.execute(chosen).fetchall()}
            values = {"event": sql.case(texts, value=events.c.id), "run_id": _NO_RUN, "step_key": None}
            index.execute(tags.delete().where(tags.c.event_id.in_(some), tags.c.key != VERSION_TAG))
            index.execute(events.update().where(events.c.id.in_(some)).values(**values))
    with storage.index_connection() as index:
        index.execute(assets.update().where(assets.c.last_run_id.in_(runs)).values(last_run_id=_NO_RUN))
        columns = assets.select().with_only_columns(assets.c.asset_key, assets.c.last_materialization)
        for asset, text in index.execute(columns).fetchall():
            if text and json.loads(text)["event_log_entry"]["run_id"] in runs:
                # not where a run records it at this moment
                same = (assets.c.asset_key == asset) & (assets.c.last_materialization == text)
                newest = _newest_materialization(index, asset)
                index.execute(assets.update().where(same).values(last_materialization=newest))
    return len(ids)


def _made(index: Any, which: Any, *, superseded: bool = False) -> list[tuple[int, str, int | None]]:
    """Materializations, or those that are ``superseded`` alone: place, asset, and the place of the next one of the same
    partition, if there is one."""
    import sqlalchemy as sql  # noqa: PLC0415  # as above

    events = _tables().SqlEventLogStorageTable
    later = events.alias("later")
    found: list[tuple[int, str, int | None]] = []
    # apart, so that each finds its index
    for mine, same in (
        (events.c.partition.is_not(None), later.c.partition == events.c.partition),
        (events.c.partition.is_(None), later.c.partition.is_(None)),
    ):
        following = sql.select(sql.func.min(later.c.id)).where(
            later.c.asset_key == events.c.asset_key, later.c.dagster_event_type == _MADE, same, later.c.id > events.c.id
        )
        made = (events.c.dagster_event_type == _MADE) & events.c.asset_key.is_not(None)
        chosen = sql.select(events.c.id, events.c.asset_key, following.scalar_subquery().label("newer"))
        rows = chosen.where(which, made, mine).subquery()
        asked = sql.select(rows)
        if superseded:
            asked = asked.where(rows.c.newer.is_not(None))
        found += [(row[0], row[1], row[2]) for row in index.execute(asked)]
    return found


def _counts(pointed: Sequence[int], place: int, newer: int | None) -> bool:
    """Whether a record is the newest of its partition, or was when something that still counts was made of it."""
    if newer is None:
        return True
    at = bisect_left(pointed, place)
    return at < len(pointed) and pointed[at] < newer


def _of_no_run(text: str, short: Shortening) -> str:
    """A materialization as ``report_runless_asset_event`` writes one, with the time that it has."""
    entry: Any = dg.deserialize_value(text, dg.EventLogEntry)
    made = entry.asset_materialization
    kept = dg.AssetMaterialization(
        made.asset_key, metadata=dict(short(made.metadata)), partition=made.partition, tags=made.tags
    )
    events = import_module("dagster._core.events")
    event = events.DagsterEvent(_MADE, _NO_RUN, event_specific_data=events.StepMaterializationData(kept))
    anew = entry._replace(run_id=_NO_RUN, job_name=_NO_RUN, step_key=None, user_message="", dagster_event=event)
    # these stay for ever, so they are written without blanks
    plain = json.loads(dg.serialize_value(anew))
    text = json.dumps(plain, separators=(",", ":"), ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # half a character, which only escaped can be written
        return json.dumps(plain, separators=(",", ":"))
    return text


def _superseded(checks: Any) -> Any:
    """Whether a check was evaluated again, after the evaluation of a row."""
    import sqlalchemy as sql  # noqa: PLC0415  # as above

    newer = checks.alias("newer")
    same = (newer.c.asset_key == checks.c.asset_key) & (newer.c.check_name == checks.c.check_name)
    same &= newer.c.partition.is_not_distinct_from(checks.c.partition)
    return sql.exists().where(same, newer.c.id > checks.c.id, _evaluated(newer))


def _evaluated(checks: Any) -> Any:
    return checks.c.execution_status.in_(("SUCCEEDED", "FAILED"))


def delete_run(instance: dg.DagsterInstance, run: dg.DagsterRun) -> None:
    """Deletes an ended run and all that it recorded and printed, but for what was taken out of it, and for the newest
    evaluations of checks: those stay its own, since Dagster compares the runs of a check and of what it looked at. Its
    own row goes last, so that it is found again after a kill."""
    storage: Any = instance.event_log_storage
    _logs(instance).delete_logs(prefix=[run.run_id])
    schema = _tables()
    events, assets, checks = schema.SqlEventLogStorageTable, schema.AssetKeyTable, schema.AssetCheckExecutionsTable
    with storage.index_connection() as index:
        if run.status is dg.DagsterRunStatus.FAILURE:
            # what is kept there of failed partitions is only ever added to
            planned = (events.c.run_id == run.run_id) & (events.c.dagster_event_type == _PLANNED)
            keys = index.execute(events.select().with_only_columns(events.c.asset_key).where(planned).distinct())
            named = assets.c.asset_key.in_([key for (key,) in keys])
            index.execute(assets.update().where(named).values(cached_status_data=None))
        index.execute(checks.delete().where(checks.c.run_id == run.run_id, ~_evaluated(checks) | _superseded(checks)))
        storage.delete_events_for_run(index, run.run_id)
    storage.free_concurrency_slots_for_run(run.run_id)
    if index.dialect.name == "sqlite":
        _delete_file(storage, run.run_id)
    instance.run_storage.delete_run(run.run_id)


def _logs(instance: dg.DagsterInstance) -> Any:
    """What keeps the output of runs. The instance of a command copies none (``instance_in``): that of a UI in the same
    home does."""
    if type(instance.compute_log_manager).__name__ != "NoOpComputeLogManager":
        return instance.compute_log_manager
    managers = import_module("dagster._core.storage.local_compute_log_manager")
    return managers.LocalComputeLogManager(instance.storage_directory())


def _delete_file(storage: Any, run_id: str) -> None:
    """Deletes the SQLite file of a run, without opening it: that would make one where it is gone."""
    file = Path(storage.path_for_shard(run_id))
    for path in (file, file.with_name(f"{file.name}-wal"), file.with_name(f"{file.name}-shm")):
        path.unlink(missing_ok=True)


def delete_superseded(instance: dg.DagsterInstance, before: datetime, pointed: Mapping[str, Sequence[int]]) -> int:
    """Deletes events of no run from ``before`` that a newer one has superseded, with ``pointed`` as in
    :func:`take_out_what_counts`, and such evaluations of checks; gives how many events."""
    import sqlalchemy as sql  # noqa: PLC0415  # as above

    storage: Any = instance.event_log_storage
    schema = _tables()
    events, tags, checks = schema.SqlEventLogStorageTable, schema.AssetEventTagsTable, schema.AssetCheckExecutionsTable
    old = (events.c.run_id == _NO_RUN) & (events.c.timestamp < _naive(before))
    with storage.index_connection() as index:
        found = _made(index, old, superseded=True)
        ids = [place for place, asset, newer in found if not _counts(pointed.get(asset, ()), place, newer)]
        # of observations, and of states, the last one of each asset stays; evaluations have a table of their own
        others = (events.c.run_id == _NO_RUN) & (events.c.dagster_event_type != _MADE)
        newest = sql.select(sql.func.max(events.c.id)).where(others, events.c.asset_key.is_not(None))
        last = newest.group_by(events.c.dagster_event_type, events.c.asset_key)
        chosen = events.select().with_only_columns(events.c.id).where(old, others, events.c.id.not_in(last))
        ids += [row[0] for row in index.execute(chosen).fetchall()]
    for some in _several(ids):
        with storage.index_connection() as index:
            index.execute(tags.delete().where(tags.c.event_id.in_(some)))
            index.execute(events.delete().where(events.c.id.in_(some)))
    with storage.index_connection() as index:
        stale = checks.c.evaluation_event_timestamp < _naive(before)
        index.execute(checks.delete().where(stale, _evaluated(checks), _superseded(checks)))
    if index.dialect.name == "sqlite":
        # copies, which nobody asks for who asks for assets
        with storage.run_connection(_NO_RUN) as copies:
            copies.execute(events.delete().where(events.c.timestamp < _naive(before)))
    return len(ids)


def delete_backfills(instance: dg.DagsterInstance, before: datetime) -> int:
    """Deletes backfills that were asked for before then and have ended; gives how many."""
    storage: Any = instance.run_storage
    schema = import_module("dagster._core.storage.runs.schema")
    ended = import_module("dagster._core.execution.backfill").BULK_ACTION_TERMINAL_STATUSES
    table, tags = schema.BulkActionsTable, schema.BackfillTagsTable
    old = table.c.status.in_([status.value for status in ended]) & (table.c.timestamp < _naive(before))
    with storage.connect() as connection:
        keys = [row[0] for row in connection.execute(table.select().with_only_columns(table.c.key).where(old))]
        for some in _several(keys):
            connection.execute(tags.delete().where(tags.c.backfill_id.in_(some)))
            connection.execute(table.delete().where(table.c.key.in_(some)))
    return len(keys)


def names_of_notes(instance: dg.DagsterInstance, prefix: str) -> list[str]:
    """The names of the instance's texts (``internals.note``) that begin so."""
    storage: Any = instance.run_storage
    table = import_module("dagster._core.storage.runs.schema").KeyValueStoreTable
    with storage.connect() as connection:
        chosen = table.select().with_only_columns(table.c.key).where(table.c.key.startswith(prefix, autoescape=True))
        return [row[0] for row in connection.execute(chosen).fetchall()]


def delete_notes(instance: dg.DagsterInstance, names: Iterable[str]) -> None:
    """Deletes texts by their names."""
    storage: Any = instance.run_storage
    table = import_module("dagster._core.storage.runs.schema").KeyValueStoreTable
    for some in _several(sorted(names)):
        with storage.connect() as connection:
            connection.execute(table.delete().where(table.c.key.in_(some)))


def existing_runs(instance: dg.DagsterInstance, runs: Sequence[str]) -> set[str]:
    """Those of ``runs`` that are there."""
    return {run_id for some in _several(runs) for run_id in instance.get_run_ids(dg.RunsFilter(run_ids=list(some)))}


def delete_ticks(instance: dg.DagsterInstance, before: datetime, logs: tuple[datetime | None, datetime]) -> None:
    """Deletes the ticks of sensors and schedules from ``before``, and what was logged in those between ``logs``: to be
    called before Dagster itself deletes the ticks, since it leaves that."""
    first, last = logs
    for state in instance.all_instigator_state():
        which = state.instigator_origin_id, state.selector_id
        for tick in instance.get_ticks(*which, before=last.timestamp(), after=first.timestamp() if first else None):
            if tick.log_key:
                _logs(instance).delete_logs(log_key=tick.log_key)
        instance.purge_ticks(*which, before.timestamp())


def give_back(instance: dg.DagsterInstance, *, alone: bool) -> int:
    """Gives the space of what was deleted back to the disk, where that is a good part of a file or table; gives how
    many bytes. In PostgreSQL that locks a table, so it is done only where this run is ``alone``; otherwise, and where
    others are in the way, new rows take the space.
    """
    storages: list[Any] = [instance.run_storage, instance.schedule_storage]
    event_log: Any = instance.event_log_storage
    connecting = [event_log.index_connection, *(storage.connect for storage in storages)]
    with event_log.index_connection() as index:
        if index.dialect.name != "sqlite":
            return sum(_vacuumed(index, table, full=alone) for table in _LARGE)
    files = [event_log.path_for_shard(_NO_RUN)]
    for connect in connecting:
        with connect() as connection:
            files.append(connection.engine.url.database)
    return sum(_written_anew(Path(file)) for file in files if Path(file).exists())


def _written_anew(file: Path) -> int:
    connection = sqlite3.connect(file, timeout=_PATIENCE, isolation_level=None)
    try:
        pages, free, size = (
            connection.execute(f"PRAGMA {what}").fetchone()[0] for what in ("page_count", "freelist_count", "page_size")
        )
        # others are at it, or the disk is full: the next ones who write take the space
        with suppress(sqlite3.OperationalError):
            pays = _pays(free * size, pages * size)
            if pays:
                connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            return int(free * size) if pays else 0
    finally:
        connection.close()
    return 0


def _vacuumed(index: Any, table: str, *, full: bool) -> int:
    from sqlalchemy.exc import DBAPIError  # noqa: PLC0415  # as above

    index.exec_driver_sql(f"VACUUM (ANALYZE) {table}")
    if not full:
        return 0
    counted = f"SELECT pg_table_size('{table}'), count(*), coalesce(sum(pg_column_size(t.*)), 0) FROM {table} t"
    size, rows, used = index.exec_driver_sql(counted).one()
    free = int(size) - int(used) - rows * _ROW_HEAD
    if not _pays(free, size):
        return 0
    index.exec_driver_sql(f"SET lock_timeout = '{_PATIENCE}s'")
    try:
        index.exec_driver_sql(f"VACUUM (FULL, ANALYZE) {table}")
    except DBAPIError:
        return 0
    finally:
        # the connection is used again
        index.exec_driver_sql("RESET lock_timeout")
    return free


def _pays(free: int, size: int) -> bool:
    return free >= _WORTH_IT and free * 4 >= size


def _several(keys: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for first in range(0, len(keys), KEYS_AT_ONCE):
        yield keys[first : first + KEYS_AT_ONCE]


def _naive(moment: datetime) -> datetime:
    """As Dagster's tables have it: in UTC, and without saying so."""
    return moment.astimezone(UTC).replace(tzinfo=None)
