"""Writes the Parquet files of an index that is built here: one for each archive file, sorted by key."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from cc_pipeline.errors import disk_trouble
from cc_pipeline.index.built.rows import BUILT_SCHEMA

#: Under which a file says, in its footer, what it was made of.
ABOUT: Final = b"cc_pipeline.built"
#: Columns without a dictionary: nearly every value is its own.
_PLAIN: Final = frozenset({"url_surtkey", "url", "content_digest", "warc_record_offset", "warc_record_id", "url_path"})
#: An archive file of 1 GB holds some 40,000 pages: one row group or two, of whose pages a look-up reads two or three.
_GROUP_ROWS: Final = 32_768
#: Bytes of rows in a row group, where that is fewer of them.
_GROUP_BYTES: Final = 16 << 20
_PAGE_ROWS: Final = 1_000


def write_shard(batches: Iterable[pa.RecordBatch], about: Mapping[str, Any], path: Path) -> None:
    """Writes sorted rows to a new Parquet file with a page index, a row group at a time.

    ``about`` are JSON-like values for its footer. Raises ``EnvironmentFault`` when the disk refuses.
    """
    schema = BUILT_SCHEMA.with_metadata({ABOUT: json.dumps(dict(about), sort_keys=True).encode()})
    with (
        disk_trouble(path),
        pq.ParquetWriter(
            str(path),
            schema,
            compression="zstd",
            compression_level=6,
            use_dictionary=[name for name in schema.names if name not in _PLAIN],
            write_statistics=True,
            write_page_index=True,
            max_rows_per_page=_PAGE_ROWS,
            write_batch_size=_PAGE_ROWS,
            store_schema=False,
        ) as writer,
    ):
        # a file without rows has no row group: readers do not take one that is empty
        for group in _groups(batches):
            writer.write_table(group, row_group_size=_GROUP_ROWS)


def _groups(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if held and (rows + batch.num_rows > _GROUP_ROWS or size + batch.nbytes > _GROUP_BYTES):
            yield pa.Table.from_batches(held)
            held, rows, size = [], 0, 0
        held.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
    if held:
        yield pa.Table.from_batches(held)
