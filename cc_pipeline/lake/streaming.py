"""The rows of one slice in small batches, whatever the size of the table's files.

pyarrow's datasets decode a row group whole, and a row group may be all the pages of a slice; a Parquet file read
batch by batch decodes page by page.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.lake.evolution import with_columns
from cc_pipeline.lake.lake import Lake

#: Rows held at a time: a row may hold a whole page.
_BATCH_ROWS = 64
#: Bytes of a column chunk that are read at a time.
_BUFFER = 1 << 16


def stream_slice(lake: Lake, table: str, crawl: str, target: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """``columns`` of the rows of (``crawl``, ``target``) as the table is now, in no order.

    Raises ``EnvironmentFault`` when the lake cannot be read.
    """
    schema = pa.schema([lake.specs[table].schema.field(name) for name in columns])
    files = lake.file_system()
    for address in lake.pin(table).files:
        if f"/crawl={crawl}/" not in address:
            continue
        try:
            with files.open_input_file(address.removeprefix("s3://")) as source:
                yield from _file_rows(source, target, schema)
        except (OSError, pa.ArrowException) as error:
            raise EnvironmentFault(
                f"could not read {address}: {error}", "Check the place and its permissions, then run it again."
            ) from error


def _file_rows(source: pa.NativeFile, target: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    reader = pq.ParquetFile(source, pre_buffer=False, buffer_size=_BUFFER)
    place = reader.schema_arrow.get_field_index("target")
    groups = [
        number
        for number in range(reader.num_row_groups)
        if _may_have(reader.metadata.row_group(number).column(place), target)
    ]
    # a column that was added later is in no file of before
    names = ["target", *(name for name in schema.names if name in reader.schema_arrow.names)]
    for batch in reader.iter_batches(_BATCH_ROWS, groups, names, use_threads=False):
        own = batch.filter(pc.equal(batch.column("target"), target))
        if own.num_rows:
            yield from with_columns(pa.Table.from_batches([own]), schema).to_batches()


def _may_have(column: pq.ColumnChunkMetaData, target: str) -> bool:
    statistics = column.statistics
    if column.path_in_schema != "target" or statistics is None or not statistics.has_min_max:
        return True
    return bool(statistics.min <= target <= statistics.max)
