"""The catalog of a crawl as one Parquet file, to hand on: a row for each row group, by path and number.

``file`` has what is known of the index file, repeated in each of its rows; ``chunks`` where the look-up columns of the
row group lie. A file that could not be read is one row without a row group. The other columns are those of
``row_groups``. All of it is a stranger's claim until it was compared with the source (``indexing/imported.py``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cc_pipeline.commoncrawl.crawls import validate_crawl_id
from cc_pipeline.errors import DataFault, DataKind, UserInputError
from cc_pipeline.index.catalog.from_footers import DECODER, FooterTables
from cc_pipeline.index.catalog.schemas import (
    COLUMN_CHUNKS_SCHEMA,
    DECODED,
    INDEX_FILES_SCHEMA,
    KEY_COLUMN,
    ROW_GROUPS_SCHEMA,
)
from cc_pipeline.index.footers.decode import place

_NOTE: Final = b"cc_pipeline.catalog"
#: Raised when an older program would read a newer file wrongly.
FORMAT: Final = 1
#: Real crawls have some 15,000 row groups in 900 files.
_MOST_ROWS: Final = 1_000_000
_MOST_PLAIN_BYTES: Final = 4 << 30

_PLACE: Final = ("crawl", "subset", "path", "part")
_FILE: Final = pa.struct([field for field in INDEX_FILES_SCHEMA if field.name not in _PLACE])
_CHUNK: Final = pa.struct([field for field in COLUMN_CHUNKS_SCHEMA if field.name not in ("crawl", "path", "row_group")])
_GROUP: Final = [field.with_nullable(True) for field in ROW_GROUPS_SCHEMA if field.name not in _PLACE]
SCHEMA: Final = pa.schema(
    [
        *(INDEX_FILES_SCHEMA.field(name) for name in _PLACE[1:]),
        pa.field("file", _FILE, nullable=False),
        *_GROUP,
        pa.field("chunks", pa.list_(_CHUNK)),
    ]
)


@dataclass(frozen=True, slots=True)
class HandedOn:
    """The rows of one crawl in three tables, and of what they were made: a digest by subset."""

    crawl: str
    tables: FooterTables
    made_from: Mapping[str, str]

    @property
    def paths(self) -> dict[str, list[str]]:
        """The index files of each subset, in order."""
        files = self.tables.index_files
        found: dict[str, list[str]] = {}
        for subset, path in zip(files["subset"].to_pylist(), files["path"].to_pylist(), strict=True):
            found.setdefault(subset, []).append(path)
        return found


def write_catalog_file(to: Path, handed: HandedOn) -> None:
    """Writes the file. Raises ``OSError`` as it comes."""
    note = {"format": FORMAT, "decoder": DECODER, "crawl": handed.crawl, "made_from": dict(handed.made_from)}
    table = _nested(handed.tables).replace_schema_metadata({_NOTE: json.dumps(note, sort_keys=True)})
    pq.write_table(table, to, compression="zstd", compression_level=9, row_group_size=4096)


def read_catalog_file(path: Path) -> HandedOn:
    """Reads such a file, and believes none of its sums: row groups are numbered without holes, as many and with as many
    rows as their files have, each within its file.

    Raises ``DataFault`` for any other file, ``UserInputError`` for one of a later version, ``OSError`` as it comes.
    """
    path.open("rb").close()  # what is wrong with the place, and not with the bytes
    try:
        with pq.ParquetFile(path) as file:
            crawl, made_from = _note(path, (file.schema_arrow.metadata or {}).get(_NOTE))
            plain = sum(file.metadata.row_group(n).total_byte_size for n in range(file.num_row_groups))
            if file.metadata.num_rows > _MOST_ROWS or plain > _MOST_PLAIN_BYTES:
                raise _no(path, f"{file.metadata.num_rows:,} rows in {plain:,} bytes are more than a crawl has")
            if not file.schema_arrow.remove_metadata().equals(SCHEMA):
                raise _no(path, "its columns are not those of a catalog")
            table = file.read()
    # pyarrow raises UnicodeDecodeError for a column's name that is no UTF-8
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise _no(path, str(error).splitlines()[0]) from error
    handed = HandedOn(crawl, _flat(path, crawl, table), made_from)
    _check(path, handed)
    return handed


def _no(path: Path, why: str) -> DataFault:
    return DataFault(DataKind.MALFORMED, path.name, None, f"it is no catalog of a crawl: {why}")


def _note(path: Path, raw: bytes | None) -> tuple[str, dict[str, str]]:
    try:
        note = json.loads(raw or b"null")
        if not isinstance(note, dict) or not isinstance(note["made_from"], dict):
            raise ValueError("nothing says what it is of")
        if (note["format"], note["decoder"]) != (FORMAT, DECODER):
            raise UserInputError(f"{path.name} was written by another version of cc_pipeline: export it anew")
        crawl, made_from = note["crawl"], {str(key): str(value) for key, value in note["made_from"].items()}
        validate_crawl_id(crawl)
    except (ValueError, KeyError, TypeError) as error:
        raise _no(path, "nothing says which crawl it is of") from error
    return crawl, made_from


def _nested(tables: FooterTables) -> pa.Table:
    """The three tables as one, a row for each row group, and one for each file without any."""
    files = tables.index_files.sort_by("path").combine_chunks()
    groups = tables.row_groups.sort_by([("path", "ascending"), ("row_group", "ascending")]).combine_chunks()
    places = pc.index_in(groups["path"], files["path"]).combine_chunks().to_numpy(zero_copy_only=False)
    alone = np.setdiff1d(np.arange(len(files)), places)
    of_file = np.concatenate([places, alone])
    rows = pa.concat_tables([groups, pa.table({"path": files["path"].take(alone)})], promote_options="default")
    described = pa.StructArray.from_arrays(
        [files[field.name].combine_chunks() for field in _FILE], fields=list(_FILE)
    ).take(pa.array(of_file))
    columns = {name: files[name].take(of_file) for name in _PLACE[1:]} | {"file": described}
    columns |= {field.name: rows[field.name] for field in _GROUP} | {"chunks": _chunks(tables, files, groups, places)}
    columns["chunks"] = pa.concat_arrays([columns["chunks"], pa.nulls(len(alone), pa.list_(_CHUNK))])
    whole = pa.table([columns[name] for name in SCHEMA.names], schema=SCHEMA)
    return whole.take(pc.sort_indices(pa.table({"file": of_file}), [("file", "ascending")]))


def _chunks(tables: FooterTables, files: pa.Table, groups: pa.Table, places: np.ndarray) -> pa.Array:
    """The chunks of each of the sorted row ``groups``."""
    chunks = tables.column_chunks
    width = int(pc.max(groups["row_group"]).as_py() or 0) + 1
    wanted = places.astype(np.int64) * width + groups["row_group"].to_numpy()
    of_chunk = pc.index_in(chunks["path"], files["path"]).to_numpy().astype(np.int64) * width
    of_chunk = of_chunk + chunks["row_group"].to_numpy()
    order = np.argsort(of_chunk, kind="stable")
    starts = np.searchsorted(of_chunk[order], np.append(wanted, np.iinfo(np.int64).max))
    sorted_chunks = chunks.take(order).combine_chunks()
    structs = pa.StructArray.from_arrays([_one(sorted_chunks[field.name]) for field in _CHUNK], fields=list(_CHUNK))
    return pa.ListArray.from_arrays(pa.array(starts, pa.int32()), structs)


def _one(column: pa.ChunkedArray) -> pa.Array:
    combined = column.combine_chunks()
    return combined if isinstance(combined, pa.Array) else pa.concat_arrays(combined.chunks)


def _flat(path: Path, crawl: str, table: pa.Table) -> FooterTables:
    """The three tables that :func:`_nested` made one of."""
    names = table["path"].to_pylist()
    firsts = np.array([row for row, name in enumerate(names) if not row or name != names[row - 1]], np.int64)
    if len(firsts) != len(set(names)) or names != sorted(names):
        raise _no(path, "its rows are not in the order of its files")
    of_file = np.searchsorted(firsts, np.arange(len(names)), side="right") - 1
    file = _one(table["file"])
    if not file.take(pa.array(firsts[of_file])).equals(file):
        raise _no(path, "rows of one index file say different things of it")
    first = table.take(firsts)
    described = dict(zip([field.name for field in _FILE], _one(first["file"]).flatten(), strict=True))
    described |= {name: first[name] for name in _PLACE[1:]}
    with_group = table.filter(pc.is_valid(table["row_group"]))
    lists = _one(with_group["chunks"])
    inside = dict(zip([field.name for field in _CHUNK], lists.flatten().flatten(), strict=True))
    parent = pc.list_parent_indices(lists)
    inside |= {name: with_group[name].take(parent) for name in ("path", "row_group")}
    grouped = {name: with_group[name] for name in ROW_GROUPS_SCHEMA.names if name != "crawl"}
    try:
        return FooterTables(
            _table(crawl, described, len(first), INDEX_FILES_SCHEMA),
            _table(crawl, grouped, len(with_group), ROW_GROUPS_SCHEMA),
            _table(crawl, inside, len(parent), COLUMN_CHUNKS_SCHEMA),
        )
    except (pa.ArrowException, ValueError) as error:
        raise _no(path, str(error).splitlines()[0]) from error


def _table(crawl: str, columns: Mapping[str, pa.Array], rows: int, schema: pa.Schema) -> pa.Table:
    every = {**columns, "crawl": pa.repeat(pa.scalar(crawl), rows)}
    table = pa.table([every[name] for name in schema.names], schema=schema)
    for field in schema:
        if not field.nullable and table[field.name].null_count:
            raise ValueError(f"{field.name} is missing somewhere")
    return table


def _check(path: Path, handed: HandedOn) -> None:
    """Raises ``DataFault`` where counts do not add up, or something lies outside of its file."""
    files, groups, chunks = handed.tables.index_files, handed.tables.row_groups, handed.tables.column_chunks
    for row in files.select(["subset", "path", "part"]).to_pylist():
        if place(row["path"]) != (handed.crawl, row["subset"], row["part"]):
            raise _no(path, f"{row['path']} is no index file of {handed.crawl}, {row['subset']}")
    if {*handed.made_from} != {*files["subset"].to_pylist()}:
        raise _no(path, "its files are not of the subsets that it is said to be of")
    counted = groups.group_by("path").aggregate([("rows", "sum"), ("row_group", "count"), ("row_group", "max")])
    found = {row["path"]: row for row in counted.to_pylist()}
    for row in files.select(["path", "outcome", "rows", "row_groups"]).to_pylist():
        own = found.get(row["path"], {"rows_sum": 0, "row_group_count": 0, "row_group_max": -1})
        said = (row["rows"], row["row_groups"]) if row["outcome"] == DECODED else (0, 0)
        if said != (own["rows_sum"], own["row_group_count"]) or own["row_group_max"] != own["row_group_count"] - 1:
            raise _no(path, f"{row['path']} has {said[1]} row groups of {said[0]} rows, and others are in the catalog")
    sizes = dict(zip(files["path"].to_pylist(), files["file_size"].to_pylist(), strict=True))
    ends = pc.add(chunks["chunk_offset"], chunks["compressed_bytes"])
    limits = pa.array([sizes[name] for name in chunks["path"].to_pylist()], pa.int64())
    least = pc.min_element_wise(chunks["chunk_offset"], chunks["compressed_bytes"])
    if pc.any(pc.or_(pc.greater(ends, limits), pc.less(least, 0))).as_py():
        raise _no(path, "a column chunk lies outside of its file")
    low, high = groups[f"{KEY_COLUMN}_min"], groups[f"{KEY_COLUMN}_max"]
    if pc.any(pc.greater(low, high)).as_py():
        raise _no(path, "the smallest key of a row group is above its largest")
