"""The row-group catalog of a home, kept in step with the lake: only crawls whose rows there have changed are built.

The version of a crawl's index, by which look-ups tell whether it has changed, comes from the same rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from cc_pipeline.commoncrawl.crawls import SUBSETS
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.index.catalog.build import FORMAT
from cc_pipeline.index.catalog.catalog import open_catalog
from cc_pipeline.index.catalog.contents import catalog_exists
from cc_pipeline.index.catalog.keep import CatalogChange, CrawlSources, stale_crawls, update_catalog
from cc_pipeline.index.gaps import IndexGaps, find_gaps
from cc_pipeline.lake.digests.digest import NOTHING, content_versions, input_digest, together
from cc_pipeline.lake.evolution import with_columns
from cc_pipeline.lake.lake import Lake, PinnedTable
from cc_pipeline.lake.slice import GONE, HARVEST, Slice
from cc_pipeline.locks import locked
from cc_pipeline.workspace.workspace import Workspace

#: What identifies a file's bytes. Bounds are not among them: a repair reads them later, and answers stay as they are.
_ROW_GROUP: Final = (
    "subset", "path", "row_group", "rows", "total_bytes", "compressed_bytes", "data_offset", "data_end",
    "fetch_time_min", "fetch_time_max",
)  # fmt: skip
#: How many files there are, and how many of them were read: what lacks is no part of an answer.
_COVERAGE: Final = ("subset", "expected", "harvested")

#: What the ``reason`` of coverage begins with where rows came from a file, whose sha256 follows.
IMPORTED: Final = "imported:"

#: Rows held at a time, and bytes of a column chunk read at a time.
_BATCH_ROWS: Final = 8_192
_BUFFER: Final = 1 << 16


def columnar_versions(lake: Lake, crawls: Collection[str]) -> dict[tuple[str, str], str]:
    """The version of each (crawl, subset) that was harvested. One reading of the log, and no rows.

    Subsets that no harvest asked for are not in it; one that the path list names no file of is, once it was asked for.
    Homes of layouts up to 3 have none. Raises ``EnvironmentFault`` when the lake cannot be read.
    """
    names = {version_name(crawl, subset): (crawl, subset) for crawl in crawls for subset in SUBSETS}
    return {names[name]: digest for name, digest in _noted(lake, names).items()}


def versions_of_rows(lake: Lake, crawl: str) -> dict[str, str]:
    """The same digests by subset, from the rows that the lake has of ``crawl``. Raises ``EnvironmentFault``."""
    row_groups = lake.read("row_groups", {"crawl": crawl}, _ROW_GROUP)
    return versions_of(row_groups, lake.read("coverage", {"crawl": crawl}, _COVERAGE))


def versions_of(row_groups: pa.Table, coverage: pa.Table) -> dict[str, str]:
    """The same digests by subset, from the rows of a crawl in these two tables, in any order."""
    groups = content_versions(row_groups.select(_ROW_GROUP).to_batches(), "subset", ())
    covered = content_versions(coverage.select(_COVERAGE).to_batches(), "subset", ())
    return {subset: together([digest, groups.get(subset, NOTHING)]) for subset, digest in covered.items()}


def version_name(crawl: str, subset: str) -> str:
    """The name under which a version is committed, with the rows of ``row_groups``."""
    return f"index:{crawl}:{subset}"


def footers_made_from(lake: Lake, crawl: str, subsets: Collection[str]) -> dict[str, str]:
    """Of which footers the rows of each subset were made, where that was written down."""
    names = {_footers_name(crawl, subset): subset for subset in subsets}
    return {names[name]: digest for name, digest in _noted(lake, names).items()}


def imported_subsets(lake: Lake, crawl: str, subsets: Collection[str]) -> set[str]:
    """Those of ``subsets`` whose rows were imported and not harvested."""
    names = {_imported_name(crawl, subset): subset for subset in subsets}
    return {names[name] for name in _noted(lake, names)}


def notes_beside(
    crawl: str, versions: Mapping[str, str], footers: Mapping[str, str], *, imported: bool = False
) -> dict[str, str]:
    """The digests to commit with the rows of ``row_groups``: ``versions`` of all subsets that the crawl has there then,
    ``footers`` of those that were made now, or were ``imported``: then digests of the file. Subsets that are in neither
    are taken as never harvested."""
    noted = {version_name(crawl, subset): versions.get(subset, GONE) for subset in {*SUBSETS, *versions}}
    made_now = {*SUBSETS, *footers} - (versions.keys() - footers.keys())
    came = {_imported_name(crawl, subset): footers.get(subset, GONE) if imported else GONE for subset in made_now}
    return noted | came | {_footers_name(crawl, subset): footers.get(subset, GONE) for subset in made_now}


def _imported_name(crawl: str, subset: str) -> str:
    return f"imported:{crawl}:{subset}"


def _footers_name(crawl: str, subset: str) -> str:
    return f"footers:{crawl}:{subset}"


def _noted(lake: Lake, names: Collection[str]) -> dict[str, str]:
    found = lake.digests("row_groups", list(names))
    return {name: digest for name, digest in found.items() if digest is not None and digest != GONE}


def follow_catalog(workspace: Workspace, crawl: str) -> bool:
    """Builds this home's catalog of ``crawl`` where another home on the same lake has harvested it since; gives whether
    it did. It reads tables of the lake, and asks the source for nothing.

    Nothing is done for a crawl that nobody has harvested, and in a home whose lake is its own: there the harvest does
    it. Raises ``EnvironmentFault`` while another home is at it, since the answer would not be of what the lake says.
    """
    if not workspace.settings.lake_is_apart:
        return False
    if catalog_has(workspace, crawl) or crawl not in _by_crawl(workspace.lake.pin("coverage")):
        return False
    rebuild_catalog(workspace, only=crawl)
    if not catalog_has(workspace, crawl):
        raise EnvironmentFault(
            f"the index of {crawl} is being harvested by another home on this lake, or its harvest was killed",
            f"Wait for its end, or harvest it again: cc-pipeline index harvest --crawl {crawl}. Then run this again.",
        )
    return True


def rebuild_catalog(workspace: Workspace, only: str | None = None) -> CatalogChange:
    """Builds the catalog's files of crawls that changed in the lake, drops those that are gone, merges when it is due.

    A crawl is taken as changed when the lake keeps its rows in other files. One whose tables a killed harvest left at
    different states stays as it is until the harvest has run again. ``only`` one crawl is built where it is named. One
    builder at a time on a host. False where there was nothing to do. Raises ``EnvironmentFault`` when the lake cannot
    be read or the disk does not take it.
    """
    lake, folder = workspace.lake, workspace.settings.catalog_path
    with locked(workspace.settings.home / "catalog.lock"):
        pinned = {name: lake.pin(name) for name in HARVEST.tables}
        files = {name: _by_crawl(table) for name, table in pinned.items()}
        wanted = {crawl: _made_from(crawl, files) for crawl in files["coverage"]}
        stale = [Slice(crawl) for crawl in stale_crawls(folder, wanted)]
        versions = {name: table.version for name, table in pinned.items()}
        later = {slice_ for slice_ in stale if only is not None and slice_.crawl != only}
        halves = HARVEST.torn(lake, [slice_ for slice_ in stale if slice_ not in later], versions)
        held_back = frozenset(slice_.crawl for slice_ in [*halves, *later])

        def rows_of(crawl: str) -> CrawlSources:
            def stream(name: str) -> pa.RecordBatchReader:
                return _stream(lake, pinned[name], crawl, files[name].get(crawl, {}))

            return {
                "index_files": stream("index_files"),
                "row_groups": stream("row_groups"),
                "column_chunks": stream("column_chunks"),
                "coverage": stream("coverage"),
            }

        return update_catalog(folder, wanted, rows_of, held_back=held_back)


def catalog_has(workspace: Workspace, crawl: str) -> bool:
    """Whether the catalog was built from the rows that the lake has of ``crawl`` now."""
    files = {name: _by_crawl(workspace.lake.pin(name)) for name in HARVEST.tables}
    wanted = {crawl: _made_from(crawl, files)}
    return crawl in files["coverage"] and not stale_crawls(workspace.settings.catalog_path, wanted)


def _by_crawl(table: PinnedTable) -> dict[str, dict[str, str]]:
    """The table's files of each crawl: their names, which stay when a home is moved, and their addresses."""
    found: dict[str, dict[str, str]] = {}
    for address in table.files:
        folder, _, name = address.rpartition("/")
        found.setdefault(folder.rpartition("/crawl=")[2], {})[name] = address
    return found


def _made_from(crawl: str, files: Mapping[str, Mapping[str, Mapping[str, str]]]) -> str:
    names = {table: sorted(by_crawl.get(crawl, ())) for table, by_crawl in files.items()}
    return input_digest({"format": FORMAT, "files": names})


def _stream(lake: Lake, table: PinnedTable, crawl: str, files: Mapping[str, str]) -> pa.RecordBatchReader:
    """The rows of a crawl, batch by batch: a dataset would decode whole row groups."""
    return pa.RecordBatchReader.from_batches(table.spec.schema, _batches(lake, table, crawl, files))


def _batches(lake: Lake, table: PinnedTable, crawl: str, files: Mapping[str, str]) -> Iterator[pa.RecordBatch]:
    schema, place = table.spec.schema, lake.file_system()
    for address in files.values():
        try:
            with place.open_input_file(address.removeprefix("s3://")) as source:
                reader = pq.ParquetFile(source, pre_buffer=False, buffer_size=_BUFFER)
                # a column that was added later is in no file of before, and the crawl is in the path
                here = [column for column in schema.names if column in reader.schema_arrow.names]
                for batch in reader.iter_batches(_BATCH_ROWS, columns=here, use_threads=False):
                    rows = pa.Table.from_batches([batch])
                    if "crawl" not in here:
                        rows = rows.append_column("crawl", pa.repeat(pa.scalar(crawl), rows.num_rows))
                    yield from with_columns(rows, schema).to_batches()
            # what decoding leaves behind would stay until the process ends
            pa.default_memory_pool().release_unused()
        except (OSError, pa.ArrowException) as error:
            raise EnvironmentFault(
                f"could not read {address}: {error}", "Check the place and its permissions, then run it again."
            ) from error


def catalog_gaps(workspace: Workspace, crawls: Sequence[str], subsets: Sequence[str] | None = None) -> list[IndexGaps]:
    """The holes in the index of each of ``crawls``, in the ``subsets`` (default: the settings'), as the catalog knows
    them."""
    settings = workspace.settings
    if not catalog_exists(settings.catalog_path):
        return []
    with open_catalog(settings.catalog_path) as catalog:
        found = [find_gaps(catalog, crawl, settings.subsets if subsets is None else subsets) for crawl in crawls]
    return [gaps for gaps in found if gaps is not None]
