"""Brings a catalog's folder up to date crawl by crawl: adds, replaces, drops, and merges when it is due.

One process at a time, which the caller sees to. Each step leaves a catalog that can be read; one that was killed goes
on where it stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypedDict

from cc_pipeline import progress
from cc_pipeline.index.catalog.build import TableSource, build_catalog
from cc_pipeline.index.catalog.contents import (
    Contents,
    base_file,
    crawl_file,
    file_of_before,
    read_contents,
    recent_file,
    write_contents,
)
from cc_pipeline.index.catalog.merge import merge_crawls, merged_crawls

#: Crawls that may change before all are merged again, which takes some 0.1 s a crawl.
MOST_UNMERGED: Final = 9
#: Of them, those not yet in the file of recent ones: a question about all crawls asks so many files beside the two.
MOST_LOOSE: Final = 2


class CrawlSources(TypedDict):
    """A crawl's rows by table."""

    index_files: TableSource
    row_groups: TableSource
    column_chunks: TableSource
    coverage: TableSource


@dataclass(frozen=True, slots=True)
class CatalogChange:
    """What an update did: crawls whose files it built or removed, and whether it merged."""

    built: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    merged: bool = False

    def __bool__(self) -> bool:
        return bool(self.built or self.dropped or self.merged)


def stale_crawls(folder: Path, wanted: Mapping[str, str]) -> list[str]:
    """The crawls of ``wanted`` (each with a digest of what it is made from) without a file made from just that."""
    here = read_contents(folder).crawls
    return [crawl for crawl in wanted if here.get(crawl) != wanted[crawl] or not crawl_file(folder, crawl).exists()]


def update_catalog(
    folder: Path,
    wanted: Mapping[str, str],
    read: Callable[[str], CrawlSources],
    *,
    held_back: frozenset[str] = frozenset(),
    most_unmerged: int = MOST_UNMERGED,
) -> CatalogChange:
    """Makes the folder hold exactly the crawls of ``wanted``, each with a digest of what it is made from.

    ``read`` gives the rows of a crawl that has to be built. Crawls that are ``held_back`` stay as they are. Raises
    ``EnvironmentFault`` when the disk does not take it; what was built before stays.
    """
    folder.mkdir(parents=True, exist_ok=True)
    _sweep(folder)
    contents = read_contents(folder)
    stale = [crawl for crawl in stale_crawls(folder, wanted) if crawl not in held_back]
    for number, crawl in enumerate(stale):
        progress.report("catalog", number, len(stale), crawl)
        build_catalog(crawl_file(folder, crawl), **read(crawl))
        contents = contents.with_crawl(crawl, wanted[crawl])
        write_contents(folder, contents)
    dropped = [crawl for crawl in contents.crawls if crawl not in wanted]
    for crawl in dropped:
        contents = contents.without(crawl)
        write_contents(folder, contents)
    _sweep_crawls(folder, contents)
    if wanted.keys() <= contents.crawls.keys():
        for old in (file_of_before(folder), file_of_before(folder).with_suffix(".versions.json")):
            old.unlink(missing_ok=True)
    merged = _merge_when_due(folder, contents, most_unmerged)
    if stale or merged:
        progress.report("catalog", len(stale), len(stale))
    return CatalogChange(tuple(stale), tuple(dropped), merged)


def _merge_when_due(folder: Path, contents: Contents, most_unmerged: int) -> bool:
    base = merged_crawls(base_file(folder))
    unmerged = {crawl: digest for crawl, digest in contents.crawls.items() if base.get(crawl) != digest}
    gone = base.keys() - contents.crawls.keys()
    if len(unmerged) + len(gone) > most_unmerged:
        merge_crawls(folder, base_file(folder), contents.crawls)
        recent_file(folder).unlink(missing_ok=True)
        return True
    recent = merged_crawls(recent_file(folder))
    loose = [crawl for crawl, digest in unmerged.items() if recent.get(crawl) != digest]
    if len(loose) > MOST_LOOSE:
        merge_crawls(folder, recent_file(folder), unmerged)
        return True
    return False


def _sweep(folder: Path) -> None:
    """Removes what killed builders left."""
    for left in folder.glob(".*.part*"):
        left.unlink(missing_ok=True)


def _sweep_crawls(folder: Path, contents: Contents) -> None:
    """Removes the files of crawls that are not listed, also those that a killed drop or a killed build left."""
    for path in folder.glob("*.duckdb"):
        if path not in (base_file(folder), recent_file(folder)) and path.stem not in contents.crawls:
            path.unlink(missing_ok=True)
