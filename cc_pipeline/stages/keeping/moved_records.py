"""Stored records that stay move to new files when the others of their files are to go, and their rows follow them."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline.commoncrawl.parts import whole_slug
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.lake.lake import Lake
from cc_pipeline.lake.replacing import change_rows
from cc_pipeline.records.lost import STORED
from cc_pipeline.records.places import Places, PlacesFound
from cc_pipeline.records.rewriting import holds_more, write_again
from cc_pipeline.records.segments import Row, adopt, forget_journals, journal_rows
from cc_pipeline.records.storage import JOURNAL_SUFFIX, RecordStorage
from cc_pipeline.records.superseded import note
from cc_pipeline.stages.keeping.purge_plan import as_places, rows_of_files

#: How often files are written again because a fetch took over more of their records meanwhile.
_TRIES: Final = 5


class _TakenOver(Exception):
    """A row names a record that no row named when the files were written again."""


@dataclass(frozen=True, slots=True)
class _Moved:
    """Stored places (``places``) and, by their numbers, the file and offset they moved to."""

    places: Places
    names: pa.Array
    files: Any
    offsets: Any

    def follow(self, rows: pa.RecordBatch, gone: pa.Array) -> pa.RecordBatch:
        """The rows, those of moved records with new places. Raises ``_TakenOver`` for others of ``gone`` files."""
        at = self.places.positions(as_places(rows))
        here = at >= 0
        if np.any(pc.is_in(rows.column("stored_file"), value_set=gone).to_numpy(zero_copy_only=False) & ~here):
            raise _TakenOver
        if not np.any(here):
            return rows
        mask = pa.array(here)
        at = np.where(here, at, 0)
        file = pc.if_else(mask, self.names.take(pa.array(self.files[at])), rows.column("stored_file"))
        offset = pc.if_else(mask, pa.array(self.offsets[at]), rows.column("stored_offset"))
        columns = [
            file if name == "stored_file" else offset if name == "stored_offset" else rows.column(name)
            for name in rows.schema.names
        ]
        return pa.RecordBatch.from_arrays(columns, schema=rows.schema)


def move_records(
    lake: Lake,
    storage: RecordStorage,
    crawl: str,
    files: Mapping[str, int],
    name: str,
    scratch: Path,
    slug: str,
    killed: Collection[str],
) -> int:
    """Has no row name any of ``files`` (keys of stored files and their sizes in bytes) that has records which no row
    names; gives how many were written again.

    ``name`` begins the names of new files and is used once. ``killed`` are files with a journal of a killed run that
    names records of the target ``slug``: those records go too, and what it has of others moves along. Raises
    ``EnvironmentFault``.
    """
    for again in range(_TRIES):
        kept = _kept(lake, crawl, files)
        written: dict[str, tuple[str, Any, Any]] = {}
        freed: list[str] = []
        for number, (file, size) in enumerate(sorted(files.items())):
            offsets, lengths = kept.get(file, (np.zeros(0, np.int64), np.zeros(0, np.int64)))
            rows = _journal_of(storage, file, slug) if file in killed else []
            if rows:
                offsets, lengths = _with_journal(offsets, lengths, rows)
            if not len(offsets):
                freed.append(file)
            elif file in killed or holds_more(storage, file, size, lengths):
                new, places = write_again(storage, file, size, f"{name}-{again}{number:04d}", offsets, lengths, scratch)
                if rows:
                    _write_journal(storage, new, rows, dict(zip(offsets.tolist(), places.tolist(), strict=True)))
                written[file] = (new, offsets, places)
        try:
            if written:
                note(storage, crawl, written, time.time())
                _follow(lake, crawl, written)
        except _TakenOver:
            continue
        forget_journals(storage, [file for file in (*written, *freed) if file in killed])
        return len(written)
    raise EnvironmentFault(
        f"stored records of {crawl} were taken over by a running fetch again and again",
        "Wait for its end, then run this again: it goes on where it stopped.",
    )


def left_by_killed_runs(storage: RecordStorage, crawl: str, slug: str) -> list[str]:
    """Stored files with the journal of a killed run that has records of a target: no row may ever name those.

    A journal of a running fetch of other targets has none. Raises ``EnvironmentFault``.
    """
    rows = adopt(storage, crawl)
    return sorted({str(row["stored_file"]) for row in rows if whole_slug(str(row.get("target"))) == slug})


def _kept(lake: Lake, crawl: str, files: Collection[str]) -> dict[str, tuple[Any, Any]]:
    """Offsets and lengths of the records that rows name, by file, in the order of the file."""
    nothing = pa.schema([("stored_file", pa.string()), ("stored_offset", pa.int64()), ("stored_length", pa.int64())])
    found = [pa.Table.from_batches([rows]).select(list(STORED)) for rows in rows_of_files(lake, crawl, files)]
    table = pa.concat_tables([nothing.empty_table(), *found]).group_by(list(STORED)).aggregate([])
    table = table.sort_by([("stored_file", "ascending"), ("stored_offset", "ascending")])
    by_file = {}
    for file in pc.unique(table.column("stored_file")).to_pylist():
        own = table.filter(pc.equal(table.column("stored_file"), file))
        by_file[file] = tuple(own.column(name).to_numpy().astype(np.int64) for name in STORED[1:])
    return by_file


def _follow(lake: Lake, crawl: str, written: Mapping[str, tuple[str, Any, Any]]) -> None:
    found = PlacesFound()
    old = [
        pa.RecordBatch.from_arrays(
            [pa.array([file] * len(offsets), pa.string()), pa.array(offsets)], names=list(STORED[:2])
        )
        for file, (_, offsets, _) in written.items()
    ]
    for rows in old:
        found.add(as_places(rows))
    places = found.places()
    names = pa.array([new for new, _, _ in written.values()], pa.string())
    files, moved_to = np.zeros(len(places), np.int32), np.zeros(len(places), np.int64)
    for number, (rows, (_, _, new)) in enumerate(zip(old, written.values(), strict=True)):
        at = places.positions(as_places(rows))
        files[at], moved_to[at] = number, new
    moved, gone = _Moved(places, names, files, moved_to), pa.array([*written], pa.string())
    change_rows(lake, "records", crawl, "stored_file", gone, lambda rows: moved.follow(rows, gone))


def _journal_of(storage: RecordStorage, file: str, slug: str) -> list[Row]:
    """What the journal of a stored file has of other targets."""
    return [row for row in journal_rows(storage, file) if whole_slug(str(row.get("target"))) != slug]


def _with_journal(offsets: Any, lengths: Any, rows: Collection[Row]) -> tuple[Any, Any]:
    also = {int(row["stored_offset"]): int(row["stored_length"]) for row in rows}
    every = dict(sorted({**also, **dict(zip(offsets.tolist(), lengths.tolist(), strict=True))}.items()))
    return np.array([*every], np.int64), np.array([*every.values()], np.int64)


def _write_journal(storage: RecordStorage, new: str, rows: Collection[Row], places: Mapping[int, int]) -> None:
    lines = (
        json.dumps({**row, "stored_file": new, "stored_offset": places[row["stored_offset"]]}, separators=(",", ":"))
        for row in rows
    )
    storage.transport.put(new + JOURNAL_SUFFIX, ("\n".join(lines) + "\n").encode())
