"""The rows of one slice in small batches, whatever the size of the table's files.

pyarrow's datasets decode a row group whole, and a row group may be all the pages of a slice; a Parquet file read
batch by batch decodes page by page.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow.fs import FileSystem, LocalFileSystem, S3FileSystem

from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.extraction.workspace import Workspace
from cc_pipeline.settings import Settings

_BATCH_ROWS = 64
_BUFFER = 1 << 16


def stream_slice(
    workspace: Workspace, table: str, crawl: str, slug: str, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """``columns`` of the rows of (``crawl``, ``slug``) as the table is now, in no order.

    Raises ``EnvironmentFault`` when the lake cannot be read.
    """
    files = file_system(workspace.settings)
    for address in workspace.lake.pin(table).files:
        if f"/crawl={crawl}/" not in address:
            continue
        try:
            with files.open_input_file(address.removeprefix("s3://")) as source:
                yield from _file_rows(source, slug, columns)
        except (OSError, pa.ArrowException) as error:
            raise EnvironmentFault(
                f"could not read {address}: {error}", "Check the place and its permissions, then run it again."
            ) from error


def file_system(settings: Settings) -> FileSystem:
    """The file system of the lake; credentials of S3 come from the usual chain."""
    if not settings.lake.startswith("s3://"):
        return LocalFileSystem()
    return S3FileSystem(region=settings.s3_region, endpoint_override=settings.lake_endpoint)


def _file_rows(source: pa.NativeFile, slug: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    reader = pq.ParquetFile(source, pre_buffer=False, buffer_size=_BUFFER)
    target = reader.schema_arrow.get_field_index("target")
    groups = [
        number
        for number in range(reader.num_row_groups)
        if _may_have(reader.metadata.row_group(number).column(target), slug)
    ]
    names = ["target", *columns]
    for batch in reader.iter_batches(_BATCH_ROWS, groups, names, use_threads=False):
        own = batch.filter(pc.equal(batch.column("target"), slug))
        if own.num_rows:
            yield own.select(list(columns))


def _may_have(column: pq.ColumnChunkMetaData, slug: str) -> bool:
    statistics = column.statistics
    if column.path_in_schema != "target" or statistics is None or not statistics.has_min_max:
        return True
    return bool(statistics.min <= slug <= statistics.max)
