"""Files of a catalog as the lake has them, without a lake."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cc_pipeline.index.catalog.schemas import CATALOG_ROW_GROUP


def write_catalog_rows(folder: Path, rows: pa.Table) -> dict[str, list[str]]:
    """Writes stored rows to files below ``folder``; gives the files by crawl."""
    files = {}
    for crawl in pc.unique(rows["crawl"]).to_pylist():
        path = folder / f"crawl={crawl}" / f"{uuid4()}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        own = rows.filter(pc.equal(rows["crawl"], crawl)).drop_columns("crawl")
        pq.write_table(own, path, compression="zstd", row_group_size=CATALOG_ROW_GROUP, coerce_timestamps="us")
        files[crawl] = [str(path)]
    return files
