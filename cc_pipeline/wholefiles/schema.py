"""Tables about files read whole: the registered files, and the stretches of them that could not be read."""

from __future__ import annotations

from typing import Final, Literal, get_args

import pyarrow as pa

FileKind = Literal["sequencefile", "wat", "wet"]
FILE_KINDS: Final[tuple[FileKind, ...]] = get_args(FileKind)

#: ``location`` is an absolute path or a key of the source; ``slug`` the partition key, and the ``target`` of its rows.
SOURCE_FILES_SCHEMA = pa.schema(
    [
        pa.field("slug", pa.string(), nullable=False),
        pa.field("source_kind", pa.string(), nullable=False),
        pa.field("source_file", pa.string(), nullable=False),
        pa.field("crawl", pa.string(), nullable=False),
    ]
)

#: ``byte_offset`` is where in the file reading failed; null when the whole file is meant.
SOURCE_FAULTS_SCHEMA = pa.schema(
    [
        pa.field("crawl", pa.string(), nullable=False),
        pa.field("target", pa.string(), nullable=False),
        pa.field("source_kind", pa.string(), nullable=False),
        pa.field("source_file", pa.string(), nullable=False),
        pa.field("byte_offset", pa.int64()),
        pa.field("reason", pa.string(), nullable=False),
    ]
)
