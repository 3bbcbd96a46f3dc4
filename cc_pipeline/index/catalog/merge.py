"""Merged files: row groups of many crawls in one file sorted by key, for questions about many crawls at once.

They hold what an answer needs and nothing else, and can be deleted at any time: the crawls' own files have all of it.
Keys are taken slice by slice of the key space, so memory does not grow with the number of crawls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import duckdb

from cc_pipeline.index.catalog.build import BLOCK_ROWS, FORMAT, building, describe, quoted
from cc_pipeline.index.catalog.contents import crawl_file
from cc_pipeline.index.catalog.schemas import ANSWER_SCHEMA, KEY_COLUMN

#: Row groups sorted at a time.
_SLICE_ROWS: Final = 50_000
_COLUMNS: Final = ", ".join(ANSWER_SCHEMA.names)
_LOW, _HIGH = f"{KEY_COLUMN}_min", f"{KEY_COLUMN}_max"
_KNOWN: Final = f"({_LOW} IS NOT NULL AND {_HIGH} IS NOT NULL)"


@dataclass(frozen=True, slots=True)
class _Source:
    """A file attached as ``name``, and the condition its rows must meet."""

    name: str
    condition: str


def merged_crawls(path: Path) -> dict[str, str]:
    """The crawls in a merged file, each with a digest of what it was made from; none where no such file can be read."""
    if not path.exists():
        return {}
    con = duckdb.connect()
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


def merge_crawls(folder: Path, path: Path, crawls: Mapping[str, str], *, threads: int | None = None) -> None:
    """Replaces the merged file ``path`` by one of ``crawls`` (each with its digest).

    Rows come from the old one where it has them, else from the crawls' own files in ``folder``.

    Raises ``EnvironmentFault`` when the disk does not take it; the old file stays then.
    """
    here = merged_crawls(path)
    kept = [crawl for crawl, digest in crawls.items() if here.get(crawl) == digest]
    # one thread: each has buffers of its own, and sorting a slice takes less time than reading it
    with building(path, threads or 1) as con:
        sources = []
        if kept:
            con.execute(f"ATTACH '{quoted(path)}' AS before (READ_ONLY)")
            gone = ", ".join(f"'{crawl}'" for crawl in here if crawl not in kept)
            sources.append(_Source("before", f"crawl NOT IN ({gone})" if gone else "true"))
        for number, crawl in enumerate(crawl for crawl in crawls if crawl not in kept):
            con.execute(f"ATTACH '{quoted(crawl_file(folder, crawl))}' AS crawl_{number} (READ_ONLY)")
            sources.append(_Source(f"crawl_{number}", "true"))
        _merge(con, sources)
        describe(con)
        con.execute("CREATE TABLE merged (crawl VARCHAR, made_from VARCHAR)")
        if crawls:
            con.executemany("INSERT INTO merged VALUES (?, ?)", [list(one) for one in sorted(crawls.items())])


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
