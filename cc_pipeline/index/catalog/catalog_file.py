"""The catalog of a crawl as one Parquet file for export: the rows of the lake, as they are stored.

Its content is untrusted until it was compared with the source (``harvesting/imported_catalog.py``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cc_pipeline.commoncrawl.crawls import validate_crawl_id
from cc_pipeline.errors import DataFault, DataKind, UserInputError
from cc_pipeline.index.catalog.from_footers import DECODER, FooterTables
from cc_pipeline.index.catalog.rows import read_view
from cc_pipeline.index.catalog.schemas import (
    CATALOG_ROW_GROUP,
    CATALOG_SCHEMA,
    DECODED,
    KEY_COLUMN,
    ROW_GROUPS_SCHEMA,
)
from cc_pipeline.index.footers.decode import place

_NOTE: Final = b"cc_pipeline.catalog"
#: Increased when an older program would read a newer file wrongly.
FORMAT: Final = 1
#: Real crawls have some 15,000 row groups in 900 files.
_MAX_ROWS: Final = 1_000_000
_MAX_PLAIN_BYTES: Final = 4 << 30

#: The crawl is in the note, as it is in the name of the lake's folder.
SCHEMA: Final = pa.schema([field for field in CATALOG_SCHEMA if field.name != "crawl"])


@dataclass(frozen=True, slots=True)
class CatalogFile:
    """The stored rows of one crawl (``CATALOG_SCHEMA``), and the digest of their footers by subset."""

    crawl: str
    rows: pa.Table
    footer_digests: Mapping[str, str]

    def tables(self) -> FooterTables:
        """Returns the rows as three tables. Raises ``ValueError`` if a row has a missing value."""
        view_tables = [read_view(name, self.rows) for name in ("index_files", "row_groups", "column_chunks")]
        return FooterTables(view_tables[0], view_tables[1].select(ROW_GROUPS_SCHEMA.names), view_tables[2])

    @property
    def paths(self) -> dict[str, list[str]]:
        """The index files of each subset, in order."""
        files = self.rows.filter(pc.is_valid(self.rows["file"]))
        paths_by_subset: dict[str, list[str]] = {}
        for subset, path in zip(files["subset"].to_pylist(), files["path"].to_pylist(), strict=True):
            paths_by_subset.setdefault(subset, []).append(path)
        return paths_by_subset


def write_catalog_file(path: Path, content: CatalogFile) -> None:
    """Writes the file. Raises ``OSError``."""
    note = {"format": FORMAT, "decoder": DECODER, "crawl": content.crawl, "input_digest": dict(content.footer_digests)}
    table = content.rows.select(SCHEMA.names).replace_schema_metadata({_NOTE: json.dumps(note, sort_keys=True)})
    pq.write_table(table, path, compression="zstd", compression_level=9, row_group_size=CATALOG_ROW_GROUP)


def read_catalog_file(path: Path) -> CatalogFile:
    """Reads such a file and checks its counts: row groups are numbered without gaps, in the numbers and with the rows
    of their files, each within its file.

    Raises ``DataFault`` for any other file, ``UserInputError`` for one of another version, and ``OSError``.
    """
    path.open("rb").close()  # raises an error of the path itself, and not of the bytes
    try:
        with pq.ParquetFile(path) as file:
            crawl, footer_digests = _note(path, (file.schema_arrow.metadata or {}).get(_NOTE))
            plain = sum(file.metadata.row_group(n).total_byte_size for n in range(file.num_row_groups))
            if file.metadata.num_rows > _MAX_ROWS or plain > _MAX_PLAIN_BYTES:
                raise _malformed(
                    path,
                    f"{file.metadata.num_rows:,} rows in {plain:,} bytes are more than the catalog of any crawl has",
                )
            if not file.schema_arrow.remove_metadata().equals(SCHEMA):
                raise _malformed(path, "its columns differ from those of a catalog")
            table = file.read()
    # pyarrow raises UnicodeDecodeError for a column's name that is no UTF-8
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise _malformed(path, str(error).splitlines()[0]) from error
    rows = table.append_column(CATALOG_SCHEMA.field("crawl"), pa.repeat(pa.scalar(crawl), table.num_rows))
    content = CatalogFile(crawl, rows.select(CATALOG_SCHEMA.names), footer_digests)
    try:
        _check_kinds(path, content)
        _check(path, content, content.tables())
    except (pa.ArrowException, ValueError) as error:
        raise _malformed(path, str(error).splitlines()[0]) from error
    return content


def _malformed(path: Path, reason: str) -> DataFault:
    return DataFault(DataKind.MALFORMED, path.name, None, f"no valid catalog file ({reason}); export it again")


def _note(path: Path, raw: bytes | None) -> tuple[str, dict[str, str]]:
    try:
        note = json.loads(raw or b"null")
        if not isinstance(note, dict) or not isinstance(note["input_digest"], dict):
            raise ValueError("it has no note")
        if (note["format"], note["decoder"]) != (FORMAT, DECODER):
            raise UserInputError(f"{path.name} was written by another version of cc_pipeline: export it again")
        crawl, footer_digests = note["crawl"], {str(key): str(value) for key, value in note["input_digest"].items()}
        validate_crawl_id(crawl)
    except (ValueError, KeyError, TypeError) as error:
        raise _malformed(path, "it has no valid note that names its crawl") from error
    return crawl, footer_digests


def _check_kinds(path: Path, content: CatalogFile) -> None:
    """Raises ``DataFault`` if a row is of no kind or of two, or if two rows are of the same object."""
    kinds = {name: pc.is_valid(content.rows[name]) for name in ("coverage", "file", "row_group")}
    # one of three, or all three
    has_odd_count = pc.xor(pc.xor(kinds["coverage"], kinds["file"]), kinds["row_group"])
    if not pc.all(pc.and_(has_odd_count, pc.invert(pc.and_(kinds["coverage"], kinds["file"])))).as_py():
        raise _malformed(path, "a row describes none or several of: subset, index file, row group")
    if pc.any(pc.equal(kinds["coverage"], pc.is_valid(content.rows["path"]))).as_py():
        raise _malformed(path, "the row of an index file or row group has no path, or the row of a subset has one")
    for kind, names in (("coverage", ["subset"]), ("file", ["path"]), ("row_group", ["path", "row_group"])):
        kind_rows = content.rows.filter(kinds[kind]).select(names)
        if len(kind_rows.group_by(names).aggregate([])) != len(kind_rows):
            raise _malformed(path, f"two rows describe the same {kind.replace('_', ' ')}")


def _check(path: Path, content: CatalogFile, tables: FooterTables) -> None:
    """Raises ``DataFault`` if counts do not add up, or a chunk lies outside of its file."""
    files, groups, chunks = tables.index_files, tables.row_groups, tables.column_chunks
    for row in files.select(["subset", "path", "part"]).to_pylist():
        if place(row["path"]) != (content.crawl, row["subset"], row["part"]):
            raise _malformed(path, f"{row['path']} is not an index file of {content.crawl}, {row['subset']}")
    if {*content.footer_digests} != {*files["subset"].to_pylist()}:
        raise _malformed(path, "its index files belong to other subsets than its metadata lists")
    group_counts = groups.group_by("path").aggregate([("rows", "sum"), ("row_group", "count"), ("row_group", "max")])
    counts_by_path = {row["path"]: row for row in group_counts.to_pylist()}
    for row in files.select(["path", "outcome", "rows", "row_groups"]).to_pylist():
        file_counts = counts_by_path.pop(row["path"], {"rows_sum": 0, "row_group_count": 0, "row_group_max": -1})
        expected_counts = (row["rows"], row["row_groups"]) if row["outcome"] == DECODED else (0, 0)
        if (
            expected_counts != (file_counts["rows_sum"], file_counts["row_group_count"])
            or file_counts["row_group_max"] != file_counts["row_group_count"] - 1
        ):
            rows, row_groups = expected_counts
            raise _malformed(
                path, f"{row['path']} should have {row_groups} row groups with {rows} rows; the catalog has others"
            )
    if counts_by_path:
        raise _malformed(path, f"{min(counts_by_path)} has row groups, but is not among the index files of the catalog")
    places = {(row["path"], row["subset"], row["part"]) for row in files.select(["path", "subset", "part"]).to_pylist()}
    group_places = groups.select(["path", "subset", "part"]).group_by(["path", "subset", "part"]).aggregate([])
    if not {(row["path"], row["subset"], row["part"]) for row in group_places.to_pylist()} <= places:
        raise _malformed(path, "a row group has another subset or part than its file")
    sizes = dict(zip(files["path"].to_pylist(), files["file_size"].to_pylist(), strict=True))
    ends = pc.add(chunks["chunk_offset"], chunks["compressed_bytes"])
    limits = pa.array([sizes[name] for name in chunks["path"].to_pylist()], pa.int64())
    smallest_values = pc.min_element_wise(chunks["chunk_offset"], chunks["compressed_bytes"])
    if pc.any(pc.or_(pc.greater(ends, limits), pc.less(smallest_values, 0))).as_py():
        raise _malformed(path, "a column chunk lies outside its file")
    low, high = groups[f"{KEY_COLUMN}_min"], groups[f"{KEY_COLUMN}_max"]
    if pc.any(pc.greater(low, high)).as_py():
        raise _malformed(path, "the smallest key of a row group is above its largest")
