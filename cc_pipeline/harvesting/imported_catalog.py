"""Exports the catalog of a crawl to a file, and imports such files after comparing them with the source.

An import compares the whole path list of the crawl, and the footers of some index files, which are drawn at random each
time. The other rows are believed, and the digest of the file is stored with them. Each lookup checks the ETags of the
imported rows, so an index file that was published again is refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import file_digest
from pathlib import Path
from random import SystemRandom
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline.atomic import written_whole
from cc_pipeline.commoncrawl.crawls import ARC_CRAWLS, index_is_built
from cc_pipeline.errors import DataFault, DataKind, EnvironmentFault, UserInputError
from cc_pipeline.harvesting.catalog import (
    IMPORTED,
    digests_to_commit,
    footers_made_from,
    harvest_digest,
    is_harvest_current,
    read_subsets,
    versions_of,
)
from cc_pipeline.harvesting.crawl_index import commit_manifest, with_subsets
from cc_pipeline.index.catalog.catalog_file import CatalogFile, read_catalog_file, write_catalog_file
from cc_pipeline.index.catalog.from_footers import FooterTables, crawl_tables
from cc_pipeline.index.catalog.rows import sort_rows
from cc_pipeline.index.catalog.schemas import CATALOG_SCHEMA, DECODED, KEY_COLUMN
from cc_pipeline.index.footers.harvest import harvest_crawl
from cc_pipeline.index.footers.statistics import REPAIRED
from cc_pipeline.index.footers.store import FooterStore
from cc_pipeline.lake.digests.digest import compute_input_digest
from cc_pipeline.lake.slice import HARVEST, Slice
from cc_pipeline.transport.faults import is_changed_etag
from cc_pipeline.workspace.workspace import Workspace

#: Footers that are compared: if a tenth of the files were changed, one import in nine misses it.
FOOTERS: Final = 20
#: Columns of ``index_files`` that describe a harvest, and not a file.
_HARVEST_COLUMNS: Final = ("etag", "harvested_at", "footer_bytes")
_BOUNDS: Final = [f"{KEY_COLUMN}_{part}" for part in ("min", "max", "source", "min_truncated", "max_truncated")]


@dataclass(frozen=True, slots=True)
class Exported:
    """A catalog file: ``sha256`` names it, ``subsets`` are in it with their row groups."""

    sha256: str
    bytes: int
    row_groups: int
    subsets: tuple[str, ...]


def export_catalog(workspace: Workspace, crawl: str, target_path: Path) -> Exported:
    """Writes the catalog of ``crawl`` to the file ``target_path``.

    Raises ``EnvironmentFault`` if the crawl was not harvested, and ``OSError``.
    """
    lake = workspace.lake
    # the order in which a large table is read varies, and equal rows must give equal files
    rows = sort_rows(lake.read("row_groups", Slice(crawl).where))
    # a subset without index files has nothing to export
    subsets = sorted(set(rows.filter(pc.is_valid(rows["file"]))["subset"].to_pylist()))
    if not subsets:
        raise EnvironmentFault(
            f"there is no catalog of {crawl} to export", f"Harvest it first: cc-pipeline index harvest --crawl {crawl}"
        )
    footer_digests = dict.fromkeys(subsets, "") | footers_made_from(lake, crawl, subsets)
    with written_whole(target_path) as partial_path:
        write_catalog_file(partial_path, CatalogFile(crawl, _select_subsets(rows, subsets), footer_digests))
        with partial_path.open("rb") as written:
            sha256 = file_digest(written, "sha256").hexdigest()
        size = partial_path.stat().st_size
    return Exported(sha256, size, len(rows) - rows["row_group"].null_count, tuple(subsets))


@dataclass(frozen=True, slots=True)
class Imported:
    """The result of an import: ``subsets`` are new in the catalog, ``compared`` footers equal those of the source.
    ``unread`` of their ``files`` were not harvested where the catalog was made: they are gaps in the index.
    ``unbounded`` row groups lost bounds that no footer confirms. ``requests`` and ``bytes`` were spent."""

    crawl: str
    sha256: str
    subsets: tuple[str, ...]
    compared: int
    files: int
    unread: int
    unbounded: int
    requests: int
    bytes: int


def import_catalog(workspace: Workspace, file: Path, *, sha256: str = "", believe_repaired: bool = False) -> Imported:
    """Imports the catalog in ``file`` into the home, if it agrees with the source; existing subsets stay.

    ``sha256`` is the expected digest of the file, if given. Bounds that a repair read from values are left out, so that
    lookups read those row groups, unless ``believe_repaired``. Raises ``DataFault`` for a file that is no catalog or
    not that of the source, and ``EnvironmentFault`` if the source does not answer or has other ETags.
    """
    stats = workspace.transport.stats
    requests, read = stats.requests, stats.bytes
    with file.open("rb") as handle:
        digest = file_digest(handle, "sha256").hexdigest()
    if sha256 and digest != sha256.lower():
        raise DataFault(DataKind.MISMATCH, file.name, None, f"the SHA-256 of the file is {digest}, not {sha256}")
    content = read_catalog_file(file)
    crawl, slice_, lake = content.crawl, Slice(content.crawl), workspace.lake
    if crawl in ARC_CRAWLS or index_is_built(crawl):
        raise UserInputError(f"{crawl} has no published columnar index, so there is no catalog of it to import")
    commit_manifest(workspace, crawl)
    stored_subsets = [harvested.subset for harvested in read_subsets(lake, crawl)]
    if stored_subsets and not is_harvest_current(lake, crawl):
        raise EnvironmentFault(
            f"the existing catalog of {crawl} is out of date",
            f"Harvest the crawl first: cc-pipeline index harvest --crawl {crawl}",
        )
    new = [subset for subset in content.paths if subset not in stored_subsets]
    if not new:
        return Imported(crawl, digest, (), 0, 0, 0, 0, stats.requests - requests, stats.bytes - read)
    _compare_lists(workspace, file, content, new)
    rows, unbounded = _select_subsets(content.rows, new), 0
    if not believe_repaired:
        # bounds that a repair read from values are in no footer
        repaired = _is_repaired(rows)
        rows, unbounded = _without_bounds(rows, repaired), pc.sum(repaired).as_py() or 0
    tables = replace(content, rows=rows).tables()
    drawn = _sample_files(tables.index_files)
    with workspace.scratch_folder("import") as folder:
        store = FooterStore(folder)
        for path, reason in harvest_crawl(crawl, drawn, workspace.index_place(crawl), store).failed:
            raise EnvironmentFault(
                f"{path} could not be compared with the source: {reason}",
                "Run the same command again. If it fails again, harvest this source: cc-pipeline index harvest --crawl "
                f"{crawl}",
            )
        _compare_footers(file, crawl, drawn, store, tables)
    _commit(workspace, slice_, rows, new, stored_subsets, digest)
    files = tables.index_files
    unread = len(files.filter(pc.not_equal(files["outcome"], DECODED)))
    spent = stats.requests - requests, stats.bytes - read
    return Imported(crawl, digest, tuple(new), len(drawn), len(files), unread, unbounded, *spent)


def _sample_files(index_files: pa.Table) -> list[str]:
    """Returns the files whose footers are compared: some of the harvested files, and all without a row group."""
    files = index_files.filter(pc.equal(index_files["outcome"], DECODED))
    decoded = files["path"].to_pylist()
    empty = files.filter(pc.equal(files["row_groups"], 0))["path"].to_pylist()
    return [*dict.fromkeys([*empty, *SystemRandom().sample(decoded, min(FOOTERS, len(decoded)))])]


def _compare_lists(workspace: Workspace, file: Path, content: CatalogFile, subsets: Sequence[str]) -> None:
    manifest = workspace.lake.read("index_manifest", {"crawl": content.crawl}, ["subset", "path"])
    for subset in subsets:
        listed_paths = {*manifest.filter(pc.equal(manifest["subset"], subset))["path"].to_pylist()}
        differing = sorted(listed_paths ^ {*content.paths[subset]})
        if differing:
            raise DataFault(
                DataKind.MISMATCH, file.name, None,
                f"the path list of {content.crawl} has {len(listed_paths):,} files of {subset}, the catalog "
                f"{len(content.paths[subset]):,}; {differing[0]} is in one of them only",
            )  # fmt: skip


def _select_subsets(rows: pa.Table, subsets: Sequence[str]) -> pa.Table:
    return rows.filter(pc.is_in(rows["subset"], pa.array(subsets, pa.string())))


def _compare_footers(file: Path, crawl: str, drawn: Sequence[str], store: FooterStore, tables: FooterTables) -> None:
    """Raises ``DataFault`` if the footers of the source differ from the ``tables``."""
    footer_tables = crawl_tables(crawl, drawn, store)
    paths = pa.array(drawn, pa.string())
    etags = {row["path"]: row["etag"] for row in footer_tables.index_files.select(["path", "etag"]).to_pylist()}
    for path, etag in zip(*(tables.index_files[name].to_pylist() for name in ("path", "etag")), strict=True):
        if is_changed_etag(etags.get(path, etag), etag):
            raise EnvironmentFault(
                f"{path} has another ETag at this source than at the source of the catalog",
                "This source is a copy of the other, or the file was published again. Lookups compare ETags, so "
                f"harvest this source: cc-pipeline index harvest --crawl {crawl}",
            )
    for name, order in (("index_files", ["path"]), ("row_groups", ["path", "row_group"]),
                        ("column_chunks", ["path", "row_group", "column"])):  # fmt: skip
        catalog_table, footer_table = (
            _comparable(getattr(tables_of_side, name), paths, order) for tables_of_side in (tables, footer_tables)
        )
        if name == "row_groups":
            # bounds that a repair read from values are in no footer
            believed = _is_repaired(catalog_table)
            catalog_table, footer_table = (_without_bounds(table, believed) for table in (catalog_table, footer_table))
        if not catalog_table.equals(footer_table):
            raise DataFault(DataKind.MISMATCH, file.name, None, _first_difference(catalog_table, footer_table, name))


def _is_repaired(rows: pa.Table) -> pa.ChunkedArray:
    return pc.fill_null(pc.equal(rows[f"{KEY_COLUMN}_source"], REPAIRED), False)


def _without_bounds(table: pa.Table, where: pa.ChunkedArray) -> pa.Table:
    """Returns ``table`` without key bounds in the rows ``where``; unchanged if it has another number of rows."""
    if len(table) != len(where):
        return table
    for name in _BOUNDS:
        field = table.schema.field(name)
        bounds = pc.if_else(where, pa.scalar(None, field.type), table[name])
        table = table.set_column(table.schema.get_field_index(name), field, bounds)
    return table


def _comparable(table: pa.Table, paths: pa.Array, order: Sequence[str]) -> pa.Table:
    compared_rows = table.filter(pc.is_in(table["path"], paths)).sort_by([(name, "ascending") for name in order])
    return compared_rows.drop_columns(
        [name for name in _HARVEST_COLUMNS if name in compared_rows.column_names]
    ).combine_chunks()


def _first_difference(catalog_table: pa.Table, footer_table: pa.Table, table: str) -> str:
    for catalog_row, footer_row in zip(catalog_table.to_pylist(), footer_table.to_pylist(), strict=False):
        for name, value in footer_row.items():
            if catalog_row[name] != value:
                row_group = f"{catalog_row['path']}" + (
                    f" row group {catalog_row['row_group']}" if "row_group" in catalog_row else ""
                )
                return f"{row_group}: {name} is {catalog_row[name]!r} in the catalog and {value!r} in the footer"
    counts = f"{len(catalog_table):,} rows of {table}, their footers {len(footer_table):,}"
    return f"for the compared files, the catalog has {counts}"


def _commit(
    workspace: Workspace, slice_: Slice, rows: pa.Table, new: Sequence[str], stored_subsets: Sequence[str], sha256: str
) -> None:
    """Commits the ``new`` subsets with the existing ones, as a harvest does."""
    input_digests = dict.fromkeys(new, compute_input_digest({"imported": sha256}))
    imported_rows = _select_subsets(rows, new)
    imported_rows = imported_rows.filter(pc.is_null(imported_rows["coverage"]))
    expected = Counter(imported_rows.filter(pc.is_valid(imported_rows["file"]))["subset"].to_pylist())
    coverage_rows = [
        {"crawl": slice_.crawl, "subset": subset, "coverage": {"expected": n, "reason": f"{IMPORTED}{sha256}"}}
        for subset, n in expected.items()
    ]
    imported_rows = sort_rows(
        pa.concat_tables([pa.Table.from_pylist(coverage_rows, schema=CATALOG_SCHEMA), imported_rows])
    )
    all_rows = with_subsets(imported_rows, workspace.lake.read("row_groups", slice_.where), stored_subsets)
    digest = harvest_digest(footers_made_from(workspace.lake, slice_.crawl, stored_subsets) | input_digests)
    digests_to_store = digests_to_commit(slice_.crawl, versions_of(all_rows), input_digests, imported=True)
    HARVEST.commit(workspace.lake, {slice_: digest}, {"row_groups": all_rows}, {"row_groups": digests_to_store})
