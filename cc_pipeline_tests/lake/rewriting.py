"""A migration that writes all rows of a table anew: what the dearest one could be. None of the product's does."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from deltalake import CommitProperties, Schema, WriterProperties, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.lake.lake import Lake, TableSpec, lake_fault
from cc_pipeline.lake.layout import FILE_BYTES


def _types(schema: Schema) -> dict[str, object]:
    return {field.name: field.type for field in schema.fields}


def rewrite(lake: Lake, table: str, change: Callable[[pa.RecordBatch], pa.RecordBatch]) -> None:
    """Writes every row of a table anew, in the schema of its spec, in one commit; for migrations.

    ``change`` takes batches as they are stored (with the partition column) and returns them in the new schema.
    Digests stay. A table that already has the new schema is left as it is, so a killed rewrite can run again.
    Raises ``EnvironmentFault`` where another process commits meanwhile; nothing is lost then.
    """
    spec = lake.specs[table]
    handle = lake.open(spec)
    if handle is None or _types(handle.schema()) == _types(Schema.from_arrow(spec.schema)):
        return
    try:
        stored = handle.to_pyarrow_dataset(filesystem=_file_system(lake, spec))
        # a fragment ahead at most: a row group may be all the pages of a slice
        batches = stored.to_batches(batch_size=1_000, batch_readahead=1, fragment_readahead=1)
        changed = (change(batch).cast(spec.schema) for batch in batches)
        # the version that was read, and no second try: rows that another process commits meanwhile must not go
        write_deltalake(
            handle,
            pa.RecordBatchReader.from_batches(spec.schema, changed),
            mode="overwrite",
            schema_mode="overwrite",
            partition_by=["crawl"] if "crawl" in spec.slice_columns else None,
            target_file_size=FILE_BYTES,
            writer_properties=WriterProperties(compression="ZSTD"),
            commit_properties=CommitProperties(max_commit_retries=0),
        )
    except CommitFailedError as error:
        raise EnvironmentFault(
            f"{table} was written by another process while it was being rewritten",
            "End all runs on this home, then run it again. Nothing was changed.",
        ) from error
    except (OSError, DeltaError) as error:
        raise lake_fault(f"could not rewrite {lake.address(table)}", error) from error


def _file_system(lake: Lake, spec: TableSpec) -> SubTreeFileSystem | None:
    # Delta's own file system is a Python object that pyarrow's threads may still hold when a process ends,
    # which then aborts; a folder needs none of it
    address = lake.address(spec.name)
    return None if "://" in address else SubTreeFileSystem(address, LocalFileSystem())
