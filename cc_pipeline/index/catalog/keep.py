"""Building the catalog of all crawls takes minutes, and a harvest changes one of them. So it is brought up to date
crawl by crawl: adds, replaces, drops, and merges when it is due.

One process at a time, which the caller sees to. Each step leaves a catalog that can be read; one that was killed goes
on where it stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypedDict

import duckdb

from cc_pipeline import progress
from cc_pipeline.duck import connect
from cc_pipeline.index.catalog.build import BLOCK_ROWS, FORMAT, TableSource, build_catalog, building, describe, quoted
from cc_pipeline.index.catalog.contents import (
    Contents,
    base_file,
    crawl_file,
    read_contents,
    recent_file,
    write_contents,
)
from cc_pipeline.index.catalog.schemas import ANSWER_SCHEMA, KEY_COLUMN

#: Row groups sorted at a time.
_SLICE_ROWS: Final = 50_000
_COLUMNS: Final = ", ".join(ANSWER_SCHEMA.names)
_LOW, _HIGH = f"{KEY_COLUMN}_min", f"{KEY_COLUMN}_max"
_KNOWN: Final = f"({_LOW} IS NOT NULL AND {_HIGH} IS NOT NULL)"

#: Files that a merge has open at the same time: each takes memory, of which a merge has little.
_MOST_OPEN: Final = 12
#: Crawls that may change before all are merged again, which takes some 0.1 s a crawl.
MOST_UNMERGED: Final = 9
#: Files that a question about all crawls asks at most: each takes as long as a crawl's own. One that is added is merged
#: with the recent ones for that, which takes a second at most.
MOST_ASKED: Final = 2


@dataclass(frozen=True, slots=True)
class _Source:
    """A file attached as ``name``, and the condition its rows must meet."""

    name: str
    condition: str


def merged_crawls(path: Path) -> dict[str, str]:
    """The crawls in a merged file, each with a digest of what it was made from; none where no such file can be read."""
    if not path.exists():
        return {}
    con = connect()
    try:
        con.execute(f"ATTACH '{quoted(path)}' AS merged_file (READ_ONLY)")
        row = con.execute("SELECT format FROM merged_file.catalog_info").fetchone()
        if row is None or row[0] != FORMAT:
            return {}
        return dict(con.execute("SELECT crawl, made_from FROM merged_file.merged").fetchall())
    except duckdb.Error:
        return {}  # it is only a copy: a broken one is merged again
    finally:
        con.close()


def merge_crawls(folder: Path, path: Path, crawls: Mapping[str, str]) -> None:
    """Replaces the merged file ``path`` by one of ``crawls`` (each with its digest).

    Rows come from the old one where it has them, else from the crawls' own files in ``folder``.

    Raises ``EnvironmentFault`` when the disk does not take it; the old file stays then.
    """
    here = merged_crawls(path)
    kept = [crawl for crawl, digest in crawls.items() if here.get(crawl) == digest]
    own = [crawl_file(folder, crawl) for crawl in crawls if crawl not in kept]
    # one thread: each has buffers of its own, and sorting a slice takes less time than reading it
    with _few_files(path, own) as files, building(path, threads=1) as con:
        sources = _attached(con, files)
        if kept:
            con.execute(f"ATTACH '{quoted(path)}' AS before (READ_ONLY)")
            gone = ", ".join(f"'{crawl}'" for crawl in here if crawl not in kept)
            sources.insert(0, _Source("before", f"crawl NOT IN ({gone})" if gone else "true"))
        _merge(con, sources)
        describe(con)
        con.execute("CREATE TABLE merged (crawl VARCHAR, made_from VARCHAR)")
        if crawls:
            con.executemany("INSERT INTO merged VALUES (?, ?)", [list(one) for one in sorted(crawls.items())])


@contextmanager
def _few_files(path: Path, files: Sequence[Path]) -> Iterator[Sequence[Path]]:
    """Files with the rows of ``files``, few enough to be open together; those made for it go when the block ends."""
    made: list[Path] = []
    try:
        while len(files) > _MOST_OPEN:
            some = len(made)
            for first in range(0, len(files), _MOST_OPEN):
                # a name that the next update deletes where this one is killed
                made.append(path.with_name(f".{path.stem}.part-{len(made)}.duckdb"))
                with building(made[-1], threads=1) as con:
                    _merge(con, _attached(con, files[first : first + _MOST_OPEN]))
                    describe(con)
            files = made[some:]
        yield files
    finally:
        for one in made:
            one.unlink(missing_ok=True)


def _attached(con: duckdb.DuckDBPyConnection, files: Sequence[Path]) -> list[_Source]:
    for number, file in enumerate(files):
        con.execute(f"ATTACH '{quoted(file)}' AS source_{number} (READ_ONLY)")
    return [_Source(f"source_{number}", "true") for number in range(len(files))]


def _merge(con: duckdb.DuckDBPyConnection, sources: Sequence[_Source]) -> None:
    """Known key bounds first and by lowest key, then the unknown ones by subset and crawl, as in ``build_catalog``."""
    con.execute("SET preserve_insertion_order = true")
    con.register("nothing", ANSWER_SCHEMA.empty_table())
    con.execute(f"CREATE TABLE row_groups AS SELECT {_COLUMNS} FROM nothing")
    cuts = _cuts(con, sources)
    for low, high in zip([None, *cuts], [*cuts, None], strict=True):
        inside, values = _KNOWN, []
        for text, bound in ((f"{_LOW} >= ?", low), (f"{_LOW} < ?", high)):
            if bound is not None:
                inside += f" AND {text}"
                values.append(bound)
        _append(con, sources, inside, values, _LOW)
    subsets = {
        row[0]
        for source in sources
        for row in con.execute(f"SELECT DISTINCT subset FROM {source.name}.row_groups WHERE NOT {_KNOWN}").fetchall()
    }
    for subset in sorted(subsets):
        _append(con, sources, f"NOT {_KNOWN} AND subset = ?", [subset], "crawl")


def _append(
    con: duckdb.DuckDBPyConnection, sources: Sequence[_Source], condition: str, values: Sequence[object], order: str
) -> None:
    """Appends the rows that meet ``condition``, in order. One source after the other: a union would hold all open."""
    con.execute(f"CREATE OR REPLACE TEMP TABLE gathered AS SELECT {_COLUMNS} FROM nothing")
    for source in sources:
        con.execute(
            f"INSERT INTO temp.gathered SELECT {_COLUMNS} FROM {source.name}.row_groups "
            f"WHERE {source.condition} AND {condition}",
            list(values),
        )
    con.execute(f"INSERT INTO row_groups SELECT * FROM temp.gathered ORDER BY {order}")


def _cuts(con: duckdb.DuckDBPyConnection, sources: Sequence[_Source]) -> list[bytes]:
    """Keys that cut all sources into slices of some ``_SLICE_ROWS``: found by their blocks, which are equally large."""
    lowest = sorted(
        row[0] for source in sources for row in con.execute(f"SELECT lowest FROM {source.name}.key_blocks").fetchall()
    )
    return sorted(set(lowest[:: max(1, _SLICE_ROWS // BLOCK_ROWS)][1:]))


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
    # what killed builders left
    for left in folder.glob(".*.part*"):
        left.unlink(missing_ok=True)
    contents = read_contents(folder)
    stale = [crawl for crawl in stale_crawls(folder, wanted) if crawl not in held_back]
    for number, crawl in enumerate(stale):
        progress.report("catalog", number, len(stale), crawl)
        build_catalog(crawl_file(folder, crawl), **read(crawl))
        contents = Contents({**contents.crawls, crawl: wanted[crawl]})
        write_contents(folder, contents)
    dropped = [crawl for crawl in contents.crawls if crawl not in wanted]
    for crawl in dropped:
        contents = Contents({name: made for name, made in contents.crawls.items() if name != crawl})
        write_contents(folder, contents)
    for path in folder.glob("*.duckdb"):  # also those that a killed drop or a killed build left
        if path not in (base_file(folder), recent_file(folder)) and path.stem not in contents.crawls:
            path.unlink(missing_ok=True)
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
    if bool(base) + bool(recent) + len(loose) > MOST_ASKED:
        merge_crawls(folder, recent_file(folder), unmerged)
        return True
    return False
