"""Building a crawl's URL index from what a workspace has: its catalog and source, or a list of ARC files."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Sequence
from pathlib import Path

from cc_pipeline.commoncrawl.crawls import ARC_CRAWLS
from cc_pipeline.commoncrawl.keyrange import KeyRange
from cc_pipeline.commoncrawl.paths import parse_path_list
from cc_pipeline.errors import DataFault, EnvironmentFault
from cc_pipeline.extraction.look_up import index_sources
from cc_pipeline.extraction.url_index import UrlIndexReport, build_from_arcs, build_from_columnar
from cc_pipeline.extraction.workspace import Workspace
from cc_pipeline.index.catalog import Catalog, open_catalog
from cc_pipeline.index.footer_store import FooterStore
from cc_pipeline.index.parquet_catalog import CatalogFinder


def url_index_root(workspace: Workspace) -> Path:
    """The folder that holds a folder for each URL index built here."""
    return workspace.settings.home / "url-index"


def arc_list_path(workspace: Workspace, crawl: str) -> Path:
    """Where the list of ARC files of a crawl without an index is kept: one key a line, as in a path list."""
    return workspace.settings.home / "arc-lists" / f"{crawl}.paths.gz"


def keep_arc_list(workspace: Workspace, crawl: str, text: bytes) -> int:
    """Keeps a list of ARC files (plain or gzip, a key or old address a line) for ``crawl``; gives their number.

    Raises ``DataFault`` for a list that cannot be read or names something that is no key.
    """
    try:
        plain = gzip.decompress(text) if text[:2] == b"\x1f\x8b" else text
    except (OSError, EOFError, zlib.error) as error:
        raise DataFault("the list of ARC files", None, f"cannot be inflated ({error})") from error
    packed = gzip.compress(plain, mtime=0)
    count = len(parse_path_list(packed, "the list of ARC files"))
    path = arc_list_path(workspace, crawl)
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".new")
    beside.write_bytes(packed)
    beside.replace(path)
    return count


def build_url_index(workspace: Workspace, crawl: str) -> UrlIndexReport:
    """Builds (or replaces) the URL index of ``crawl``: by its columnar index, or by its ARC files.

    Raises ``EnvironmentFault`` for a crawl that has not been harvested, or of the ARC years without a list of files.
    """
    settings = workspace.settings
    root = url_index_root(workspace)
    if crawl in ARC_CRAWLS:
        listed = arc_list_path(workspace, crawl)
        if not listed.exists():
            raise EnvironmentFault(
                f"{crawl} has no columnar index, and which ARC files it has is not known here",
                f"List them, one key a line: cc-pipeline url-index build --crawl {crawl} --arcs LIST",
            )
        keys = parse_path_list(listed.read_bytes(), str(listed))
        with workspace.transport() as transport:
            return build_from_arcs(crawl, keys, transport, root)
    with index_sources(workspace) as sources, open_catalog(settings.catalog_path) as catalog:
        finder = CatalogFinder(catalog, sources.transport, FooterStore(settings.footers_path))
        _check_whole(finder, catalog, crawl, settings.subsets)
        return build_from_columnar(crawl, settings.subsets, sources.transport, finder, root)


def _check_whole(finder: CatalogFinder, catalog: Catalog, crawl: str, subsets: Sequence[str]) -> None:
    """An index of a part would answer as if it were the whole: refuse where rows are missing, for whatever reason."""
    coverage = [row for row in catalog.coverage(crawl).to_pylist() if row["subset"] in subsets]
    lost = sum(row["failed"] + row["missing"] for row in coverage)
    if lost:
        raise EnvironmentFault(
            f"{lost:,} index files of {crawl} are not harvested", f"Harvest them: cc-pipeline harvest --crawl {crawl}"
        )
    there = sum(place.rows for place in finder.find(crawl, subsets, (KeyRange(b"", None),), ("url",)))
    expected = sum(row["rows"] for row in coverage)
    if there != expected:
        raise EnvironmentFault(
            f"the catalog finds {there:,} rows of {crawl} where {expected:,} were harvested",
            "Build the catalog again: materialize row_groups.",
        )
