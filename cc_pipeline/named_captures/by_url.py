"""Captures that are known by URL and time: they are looked up in the index of the crawl of that time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, TypeAlias

import pyarrow as pa

from cc_pipeline.commoncrawl.crawls import Crawl, apart, index_is_built, made_in
from cc_pipeline.commoncrawl.surt import surt_key
from cc_pipeline.commoncrawl.target import Target
from cc_pipeline.commoncrawl.target_text import hashed_slug
from cc_pipeline.lake.ordered import OrderedRows
from cc_pipeline.named_captures.places import ASKED_SCHEMA
from cc_pipeline.named_captures.reading import Wrong

#: Maximum URLs of one look-up. They are in the order of the index, so that its pages are rarely read twice.
AT_ONCE: Final = 20_000
#: Maximum number of crawls that are searched for a capture by its time, and their maximum distance: of old crawls only
#: the week after their captures is known.
_MOST_CRAWLS: Final = 2
_NEAR: Final = timedelta(days=31)

#: Captures (``CAPTURE_SCHEMA``) of targets in a crawl.
Ask: TypeAlias = Callable[[str, Sequence[Target]], Iterable[pa.Table]]


class ByUrl:
    """Collects requests (``ASKED_SCHEMA``) and finds their captures. ``crawls`` are those of the source, ``subsets``
    the searched subsets of its index. ``folder`` is for spill files."""

    def __init__(self, crawls: Sequence[Crawl], subsets: Sequence[str], folder: Path) -> None:
        self._subsets = ", ".join(subsets)
        self._crawls = [(crawl.id, made_in(crawl)) for crawl in crawls if not index_is_built(crawl.id)]
        self._folder = folder
        self._rows = self._ordered()

    def _ordered(self) -> OrderedRows:
        return OrderedRows(ASKED_SCHEMA, ("crawl", "url_surtkey", "row"), self._folder)

    def add(self, asked: pa.Table) -> None:
        """Adds requests."""
        self._rows.add(asked)

    @property
    def rows(self) -> int:
        """The number of requests."""
        return self._rows.rows

    def by_crawl(self, wrong: Wrong) -> OrderedRows:
        """Returns the requests with the crawl to be searched first. Those that no crawl can have are added to
        ``wrong``."""
        found = self._ordered()
        for rows in _listed(self._rows):
            known = []
            for row in rows:
                crawl = row["crawl"] or next(iter(self._near(row["fetch_time"])), None)
                if crawl is None:
                    wrong.add(row["row"], f"no crawl was made about {row['fetch_time']:%Y-%m-%d}")
                else:
                    known.append(row | {"crawl": crawl})
            found.add(pa.Table.from_pylist(known, ASKED_SCHEMA))
        return found

    def located(self, rows: OrderedRows, ask: Ask, wrong: Wrong) -> Iterator[pa.Table]:
        """Yields the captures of the requests ``rows``. Requests without a capture are added to ``wrong``."""
        again = self._ordered()
        for crawl, some in together(rows):
            found, lacking = _answers(crawl, some, ask)
            yield from found
            again.add(pa.Table.from_pylist(list(self._elsewhere(crawl, lacking, wrong)), ASKED_SCHEMA))
        for crawl, some in together(again):
            found, lacking = _answers(crawl, some, ask)
            yield from found
            for row in lacking:
                wrong.add(row["row"], self._unfound(row, crawl))

    def _elsewhere(self, crawl: str, rows: Iterable[dict[str, Any]], wrong: Wrong) -> Iterator[dict[str, Any]]:
        for row in rows:
            others = [] if row["named"] else [one for one in self._near(row["fetch_time"]) if one != crawl]
            if others:
                yield row | {"crawl": others[0]}
            else:
                wrong.add(row["row"], self._unfound(row, crawl))

    def _unfound(self, row: dict[str, Any], crawl: str) -> str:
        when = row["fetch_time"]
        at = "" if when is None else f" of {when:%Y-%m-%d %H:%M:%S}"
        return f"the index of {crawl} ({self._subsets}) has no capture of {row['url'][:200]}{at}"

    def _near(self, when: datetime | None) -> list[str]:
        """Returns the crawls that may have a capture of a time, the likeliest first."""
        if when is None:
            return []
        far = [(apart(span, (when, when)), crawl) for crawl, span in self._crawls]
        return [crawl for distance, crawl in sorted(far) if distance <= _NEAR][:_MOST_CRAWLS]


def _listed(rows: OrderedRows) -> Iterator[list[dict[str, Any]]]:
    return (batch.to_pylist() for batch in rows.batches())


def together(rows: OrderedRows) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yields the crawl and the rows of each look-up."""
    waiting: list[dict[str, Any]] = []
    for some in _listed(rows):
        for row in some:
            if waiting and (row["crawl"] != waiting[0]["crawl"] or len(waiting) >= AT_ONCE):
                yield waiting[0]["crawl"], waiting
                waiting = []
            waiting.append(row)
    if waiting:
        yield waiting[0]["crawl"], waiting


def target_of(rows: Iterable[dict[str, Any]]) -> Target:
    """Returns one target with the pages of all rows."""
    urls = {row["url_surtkey"]: row["url"] for row in rows}
    members = tuple(Target("url", url, hashed_slug("url", url)) for url in urls.values())
    return Target("set", "asked", "set-asked", members)


def _answers(crawl: str, rows: list[dict[str, Any]], ask: Ask) -> tuple[list[pa.Table], list[dict[str, Any]]]:
    """Returns the captures of the rows in an index, and the rows without captures."""
    wanted: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        wanted.setdefault(row["url_surtkey"], []).append(row)
    tables = [table for table in ask(crawl, [target_of(rows)]) if table.num_rows]
    if not tables:
        return [], rows
    found = pa.concat_tables(tables)
    captures: dict[str, list[tuple[int, str, datetime | None]]] = {}
    columns = (found[name].to_pylist() for name in ("url", "fetch_time"))
    for number, (url, when) in enumerate(zip(*columns, strict=True)):
        # the key in the index follows the rule of its crawl
        if (key := surt_key(url)) in wanted:
            captures.setdefault(key, []).append((number, url, None if when is None else when.replace(microsecond=0)))
    chosen: dict[int, None] = {}
    lacking = []
    for key, asked in wanted.items():
        for row in asked:
            own = _meant(row, captures.get(key, ()))
            chosen |= dict.fromkeys(own)
            if not own:
                lacking.append(row)
    return [found.take(pa.array(sorted(chosen), pa.int64()))], lacking


def _meant(row: dict[str, Any], captures: Iterable[tuple[int, str, datetime | None]]) -> list[int]:
    """Returns the captures that match a row: those of its time, if both have one; of these, those of the exact URL if
    there are any."""
    when = row["fetch_time"]
    there = [(number, url) for number, url, at in captures if when is None or at is None or at == when]
    return [number for number, url in there if url == row["url"]] or [number for number, _ in there]
