"""A crawl's index has hundreds of files, and a target is in a few row groups of them. Which ones is answered from
DuckDB files, with no network.

A question about one crawl opens that crawl's file alone, however many there are. A question about many is answered
by the merged files, and by the files of the crawls that changed since those were merged.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Final

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline.commoncrawl.key_ranges import KeyRange
from cc_pipeline.duck import connect
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.index.catalog.build import FORMAT
from cc_pipeline.index.catalog.contents import (
    Contents,
    base_file,
    catalog_exists,
    crawl_file,
    read_contents,
    recent_file,
)
from cc_pipeline.index.catalog.part import FEW_CRAWLS, Filter, Part
from cc_pipeline.index.catalog.schemas import (
    ANSWER_SCHEMA,
    COLUMN_CHUNKS_SCHEMA,
    COVERAGE_SCHEMA,
    INDEX_FILES_SCHEMA,
    KEY_COLUMN,
    ROW_GROUPS_SCHEMA,
)

_SCHEMAS: Final = {
    "index_files": INDEX_FILES_SCHEMA,
    "row_groups": ROW_GROUPS_SCHEMA,
    "column_chunks": COLUMN_CHUNKS_SCHEMA,
    "coverage": COVERAGE_SCHEMA,
}
#: What questions may take; a person's own query spills beyond it.
_MEMORY: Final = "1GB"
#: Threads that ask smaller files while the largest is asked.
_BESIDE: Final = 2
_ADVICE: Final = "Build the catalog again: delete what is named here, then materialize row_groups."


class Catalog:
    """An open catalog; made by ``open_catalog``, a context manager, safe to use from threads.

    It opens a file when a question first needs it. What is replaced or dropped later does not disturb what is open.
    """

    def __init__(self, path: Path, con: duckdb.DuckDBPyConnection) -> None:
        self.path = path
        self._con = con
        self._lock = threading.RLock()
        self._beside = ThreadPoolExecutor(_BESIDE, thread_name_prefix="cc-pipeline-catalog")
        self._parts: dict[str, Part] = {}
        self._has_views = False
        self._contents = Contents() if path.is_file() else read_contents(path)
        #: one file with all crawls, given as such
        self._whole = self._attached(path, "whole") if path.is_file() else None
        self._merged: list[tuple[Part, frozenset[str]]] | None = None

    def __enter__(self) -> Catalog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._beside.shutdown()
        self._con.close()

    def row_groups_for(
        self, crawls: str | Sequence[str] | None, subsets: Sequence[str] | None, ranges: Sequence[KeyRange]
    ) -> pa.Table:
        """Every row group that may hold a key of ``ranges`` (``ANSWER_SCHEMA``), each once, in no set order.

        ``None`` for ``crawls`` or ``subsets`` means all of them.
        """
        some = (crawls,) if isinstance(crawls, str) else crawls
        wanted = Filter(None if some is None else tuple(some), None if subsets is None else tuple(subsets))
        asked = self._asked(wanted)
        # the merged file of all crawls takes longest: smaller ones are asked meanwhile
        waiting = [self._beside.submit(part.row_groups_for, own, ranges) for part, own in asked[1:]]
        found = [*(part.row_groups_for(own, ranges) for part, own in asked[:1]), *(one.result() for one in waiting)]
        return pa.concat_tables([ANSWER_SCHEMA.empty_table(), *(table for some in found for table in some)])

    def unbounded(self, crawl: str, subsets: Sequence[str], ranges: Sequence[KeyRange]) -> int:
        """How many row groups may hold a key of ``ranges`` only because nobody knows the bounds of theirs."""
        return int(self.row_groups_for(crawl, subsets, ranges)[f"{KEY_COLUMN}_source"].null_count)

    def column_chunks(self, row_groups: pa.Table, columns: Iterable[str] | None = None) -> pa.Table:
        """Positions of look-up columns (``COLUMN_CHUNKS_SCHEMA``) for row groups of an answer."""
        chosen = None if columns is None else list(columns)
        several = sorted(pc.unique(row_groups["crawl"]).to_pylist())
        found = []
        for part, crawls in self._own_parts(several):
            own = row_groups
            if len(crawls) < len(several):
                own = row_groups.filter(pc.is_in(row_groups["crawl"], pa.array(crawls, pa.string())))
            found.append(part.column_chunks(own, crawls, chosen))
        return pa.concat_tables(found) if found else COLUMN_CHUNKS_SCHEMA.empty_table()

    def coverage(self, crawl: str | None = None) -> pa.Table:
        """Files expected, harvested and failed of each subset (``COVERAGE_SCHEMA``)."""
        return self._rows_of("coverage", crawl)

    def index_files(self, crawl: str | None = None) -> pa.Table:
        """The index files (``INDEX_FILES_SCHEMA``) of a crawl, or all."""
        return self._rows_of("index_files", crawl)

    def crawls(self) -> tuple[str, ...]:
        """The crawls the catalog knows of, harvested or not, in order of their names."""
        named = set(self._contents.crawls)
        if self._whole is not None:
            named.update(self._whole.rows_of("coverage", None)["crawl"].to_pylist())
        return tuple(sorted(named))

    def sql(self, query: str, params: Sequence[object] = ()) -> pa.Table:
        """Any read-only query; its tables are named ``catalog.row_groups`` and so on. Opens every crawl's file."""
        return self.connection().sql(query, params=list(params)).to_arrow_table()

    def connection(self) -> duckdb.DuckDBPyConnection:
        """A cursor in which ``row_groups``, ``index_files``, ``column_chunks`` and ``coverage`` are all the tables'
        rows, as views in the schema ``catalog``. Opens every crawl's file. Ends with the catalog."""
        with self._lock:
            if not self._has_views:
                parts = self._all_parts()
                self._con.execute("CREATE SCHEMA IF NOT EXISTS catalog")
                for table, schema in _SCHEMAS.items():
                    if parts:
                        rows = " UNION ALL BY NAME ".join(part.select(table) for part in parts)
                        self._con.execute(f"CREATE OR REPLACE VIEW catalog.{table} AS {rows}")
                    else:
                        self._con.register("nothing", schema.empty_table())
                        self._con.execute(f"CREATE OR REPLACE TABLE catalog.{table} AS FROM nothing")
                self._has_views = True
            cursor = self._con.cursor()
            cursor.execute("USE memory.catalog")
            return cursor

    def _rows_of(self, table: str, crawl: str | None) -> pa.Table:
        parts = self._all_parts() if crawl is None else [part for part, _ in self._own_parts([crawl])]
        found = [part.rows_of(table, crawl) for part in parts]
        return pa.concat_tables(found) if found else _SCHEMAS[table].empty_table()

    def _all_parts(self) -> list[Part]:
        """The files that together hold all rows of all tables."""
        parts = [part for part, _ in self._own_parts(self._contents.crawls)]
        return parts if self._whole is None else [*parts, self._whole]

    def _asked(self, wanted: Filter) -> list[tuple[Part, Filter]]:
        """The files that answer a question, each with the question's part for it."""
        crawls = tuple(self._contents.crawls) if wanted.crawls is None else tuple(dict.fromkeys(wanted.crawls))
        asked: list[tuple[Part, Filter]] = []
        if len(crawls) > FEW_CRAWLS or wanted.crawls is None:
            for part, merged in self._merged_parts():
                asked.append((part, wanted))
                crawls = tuple(crawl for crawl in crawls if crawl not in merged)
        for part, own in self._own_parts([crawl for crawl in crawls if crawl in self._contents.crawls]):
            asked.append((part, replace(wanted, crawls=own)))
        if self._whole is not None and (wanted.crawls is None or set(wanted.crawls) - self._contents.crawls.keys()):
            asked.append((self._whole, wanted))
        return asked

    def _own_parts(self, crawls: Iterable[str]) -> list[tuple[Part, tuple[str, ...]]]:
        """The files that hold all the rows of ``crawls``, each with those it holds."""
        found: list[tuple[Part, tuple[str, ...]]] = []
        others = []
        for crawl in crawls:
            if crawl not in self._contents.crawls:
                others.append(crawl)
                continue
            part = self._crawl(crawl)
            if part is not None:
                found.append((part, (crawl,)))
        if others and self._whole is not None:
            found.append((self._whole, tuple(others)))
        return found

    def _crawl(self, crawl: str) -> Part | None:
        """A crawl's own file; ``None`` for one that was dropped after this catalog was opened."""
        with self._lock:
            if crawl not in self._parts:
                path = crawl_file(self.path, crawl)
                if not path.exists() and crawl not in read_contents(self.path).crawls:
                    return None
                part = self._attached(path, f"crawl_{len(self._parts)}")
                assert part is not None
                self._parts[crawl] = part
            return self._parts[crawl]

    def _merged_parts(self) -> list[tuple[Part, frozenset[str]]]:
        """The merged files, each with the crawls it answers for: those it has as they are now."""
        with self._lock:
            if self._merged is None:
                found: list[tuple[Part, frozenset[str]]] = []
                left = dict(self._contents.crawls)
                for name, path in (("base", base_file(self.path)), ("recent", recent_file(self.path))):
                    part = self._attached(path, name, required=False) if left and path.exists() else None
                    if part is None:
                        continue
                    here = dict(self._con.execute(f"SELECT crawl, made_from FROM {name}.merged").fetchall())
                    own = frozenset(crawl for crawl, digest in here.items() if left.get(crawl) == digest)
                    part.hidden = frozenset(here) - own
                    left = {crawl: digest for crawl, digest in left.items() if crawl not in own}
                    found.append((part, own))
                self._merged = found
            return self._merged

    def _attached(self, path: Path, name: str, *, required: bool = True) -> Part | None:
        """Opens a file; one of an older format is ``None`` where it is not ``required``, since it is built anew."""
        quoted = str(path).replace("'", "''")
        try:
            self._con.execute(f"ATTACH '{quoted}' AS {name} (READ_ONLY)")
            row = self._con.execute(f"SELECT format FROM {name}.catalog_info").fetchone()
            if row is not None and row[0] == FORMAT:
                return Part(self._con, name)
            if not required:
                self._con.execute(f"DETACH {name}")
                return None
        except duckdb.Error as error:
            raise EnvironmentFault(f"{path} cannot be opened as a catalog: {error}", _ADVICE) from error
        raise EnvironmentFault(f"another version of cc_pipeline built {path}", _ADVICE)


def open_catalog(path: Path, *, threads: int | None = None) -> Catalog:
    """Opens a catalog for reading; later changes do not disturb it. Raises ``EnvironmentFault``.

    ``path`` is the catalog's folder, or a file that ``build_catalog`` has made.
    """
    if not catalog_exists(path):
        raise EnvironmentFault(f"there is no catalog at {path}", "Harvest a crawl first (the row_groups asset).")
    con = connect(memory_limit=_MEMORY)
    try:
        if threads is not None:
            con.execute(f"SET threads = {int(threads)}")
        spill = str(path.parent / ".catalog-spill").replace("'", "''")
        con.execute(f"SET temp_directory = '{spill}'")
        return Catalog(path, con)
    except EnvironmentFault:
        con.close()
        raise
