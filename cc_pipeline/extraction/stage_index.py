"""From a crawl's path list to the catalog: manifest, footers, row groups."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from cc_pipeline.commoncrawl.paths import IndexFile, parse_path_list, path_list_key
from cc_pipeline.errors import DataFault, EnvironmentFault
from cc_pipeline.extraction import progress
from cc_pipeline.extraction.crawls import find_crawl
from cc_pipeline.extraction.look_up import row_groups_digest_name
from cc_pipeline.extraction.report import StageReport
from cc_pipeline.extraction.workspace import Workspace
from cc_pipeline.index.catalog_build import build_catalog
from cc_pipeline.index.footers import decode_footer
from cc_pipeline.lake.digests import input_digest
from cc_pipeline.transport.faults import RangeFault
from cc_pipeline.transport.ranges import ByteRange

ARC_REASON = "a crawl of the ARC years has no columnar index: its captures are found through a B-tree"


def is_published(workspace: Workspace, crawl: str) -> bool:
    """Whether a crawl can be run: its path list answers, or it is of the ARC years, whose data never changes."""
    if find_crawl(workspace, crawl).era == "arc":
        return True
    with workspace.transport() as transport:
        return transport.exists(path_list_key(crawl, "cc-index-table"))


def commit_manifest(workspace: Workspace, crawl: str) -> StageReport:
    """Writes ``index_manifest``: one row per file of the crawl's columnar index; none, with the reason, for ARC years.

    Raises ``EnvironmentFault`` when the path list cannot be had.
    """
    started = time.monotonic()
    if find_crawl(workspace, crawl).era == "arc":
        files: list[IndexFile] = []
        notes: tuple[str, ...] = (ARC_REASON,)
        requests = size = 0
    else:
        files, requests, size = _listed(workspace, crawl)
        notes = ()
    rows = [{"crawl": file.crawl, "subset": file.subset, "part": file.part, "path": file.path} for file in files]
    digest = input_digest({"paths": [file.path for file in files]})
    name = f"index_manifest:{crawl}"
    written = 0
    if workspace.lake.digest("index_manifest", name) != digest:
        table = pa.Table.from_pylist(rows, schema=workspace.lake.specs["index_manifest"].schema)
        written = workspace.lake.commit("index_manifest", table, [{"crawl": crawl}], {name: digest})
    return StageReport(
        "manifest", len(rows), written, size, requests, time.monotonic() - started, fresh_slices=int(written > 0), notes=notes
    )


def _listed(workspace: Workspace, crawl: str) -> tuple[list[IndexFile], int, int]:
    key = path_list_key(crawl, "cc-index-table")
    with workspace.transport() as transport:
        try:
            data = transport.read_all(key).data
        except RangeFault as fault:
            raise EnvironmentFault(
                f"{crawl} has no path list at {key} ({fault.kind.value})",
                "It may not be published yet, or the source is another place than you think: cc-pipeline doctor.",
            ) from fault
    return [IndexFile.from_path(path) for path in parse_path_list(data, key)], 1, len(data)


_STORE = pa.schema([("path", pa.string()), ("size", pa.int64()), ("etag", pa.string()), ("tail", pa.binary()), ("fault", pa.string())])


def harvest_footers(workspace: Workspace, crawl: str) -> StageReport:
    started = time.monotonic()
    manifest = workspace.lake.read("index_manifest", {"crawl": crawl})
    paths = manifest.column("path").to_pylist()
    rows = []
    requests = size = 0
    with workspace.transport() as transport:
        for answer in transport.read_many(ByteRange(path, None, 128 << 10) for path in paths):
            if isinstance(answer, RangeFault):
                rows.append({"path": answer.key, "fault": answer.detail})
            else:
                rows.append({"path": answer.key, "size": answer.total, "etag": answer.etag, "tail": answer.data})
            progress.report("footers", len(rows), len(paths))
        requests, size = transport.stats.requests, transport.stats.bytes
    folder = workspace.settings.footers_path
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows, schema=_STORE), folder / f"{crawl}.parquet")
    return StageReport("footers", len(rows), len(rows), size, requests, time.monotonic() - started)


def commit_row_groups(workspace: Workspace, crawls: Sequence[str]) -> dict[str, StageReport]:
    reports = {}
    for crawl in crawls:
        started = time.monotonic()
        manifest = {row["path"]: row for row in workspace.lake.read("index_manifest", {"crawl": crawl}).to_pylist()}
        stored = pq.read_table(workspace.settings.footers_path / f"{crawl}.parquet").to_pylist()
        files, groups, chunks = [], [], []
        for row in stored:
            listed = manifest[row["path"]]
            base = {"crawl": crawl, "subset": listed["subset"], "path": row["path"], "part": listed["part"]}
            decoded = decode_footer(row["tail"], row["size"], row["path"])
            files.append(base | {"outcome": "decoded", "file_size": row["size"], "etag": row["etag"], "footer_bytes": decoded.footer_bytes, "rows": decoded.rows, "row_groups": len(decoded.row_groups), "created_by": decoded.created_by, "schema_digest": decoded.schema.digest, "columns": [str(c) for c in decoded.schema.columns], "harvested_at": datetime.now(UTC)})
            for g in decoded.row_groups:
                r = base | {"row_group": g.row_group, "rows": g.rows, "total_bytes": g.total_bytes, "compressed_bytes": g.compressed_bytes, "data_offset": g.data_offset, "data_end": g.data_end}
                for name, s in g.statistics.items():
                    r |= {f"{name}_min": s.minimum, f"{name}_max": s.maximum, f"{name}_source": s.source}
                groups.append(r)
                for c in g.chunks.values():
                    chunks.append({"crawl": crawl, "path": row["path"], "row_group": g.row_group, "column": c.column, "ordinal": c.ordinal, "physical_type": c.physical, "codec": c.codec, "encodings": ",".join(c.encodings), "chunk_offset": c.offset, "compressed_bytes": c.size, "uncompressed_bytes": c.uncompressed, "values": c.values, "data_page_offset": c.data_page_offset, "dictionary_page_offset": c.dictionary_page_offset, "offset_index_offset": c.offset_index[0] if c.offset_index else None, "offset_index_length": c.offset_index[1] if c.offset_index else None, "column_index_offset": c.column_index[0] if c.column_index else None, "column_index_length": c.column_index[1] if c.column_index else None})
        digest = input_digest({"files": sorted((f["path"], f["etag"] or "") for f in files)})
        lake = workspace.lake
        name = row_groups_digest_name(crawl)
        if lake.digest("row_groups", name) != digest:
            for table, rws in (("index_files", files), ("column_chunks", chunks), ("row_groups", groups)):
                lake.commit(table, pa.Table.from_pylist(rws, schema=lake.specs[table].schema), [{"crawl": crawl}], {name: digest})
        reports[crawl] = StageReport("row_groups", len(groups), len(groups), seconds=time.monotonic() - started)
    lake = workspace.lake
    cov = [{"crawl": f["crawl"], "subset": f["subset"], "expected": 1, "harvested": 1, "failed": 0, "missing": 0, "row_groups": 0, "rows": 0, "without_statistics": 0} for f in lake.read("index_files").to_pylist()]
    from cc_pipeline.index.catalog_tables import COVERAGE_SCHEMA
    build_catalog(workspace.settings.catalog_path, index_files=lake.read("index_files"), row_groups=lake.read("row_groups"), column_chunks=lake.read("column_chunks"), coverage=pa.Table.from_pylist(cov, schema=COVERAGE_SCHEMA))
    return reports
