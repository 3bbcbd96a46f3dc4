"""A slice, the unit of a stage: its name, its input digest, whether it is up to date, its commit, its report.

Runs are killed, and the next ones go on with the slices that were not committed. A slice is a crawl, a target in a
crawl, or a file read whole. Its input digest is committed with its rows (docs/decisions/0001). A stage with several
tables commits them one after the other, so a slice is complete only when all of them have the same digest.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import pyarrow as pa

from cc_pipeline.commoncrawl.slice_slugs import defined_slug, subset_of, whole_slug
from cc_pipeline.lake.adding import AddedFile, combine_contents, commit_added
from cc_pipeline.lake.digests.digest import NOTHING, compute_content_digests, compute_input_digest
from cc_pipeline.lake.lake import DigestsNotInLog, Lake
from cc_pipeline.lake.row_counts import INVALID_COUNT, count_name, slice_key
from cc_pipeline.lake.streaming import count_rows

#: The tables of parsed pages, in the order of their commits: ``page_metadata`` is last.
PAGE_TABLES: Final = ("page_text", "page_links", "feed_items", "page_metadata")

#: The digest of slices that a set no longer has.
EMPTIED_DIGEST: Final = compute_input_digest({"gone": True})
#: The digest of slices whose last commit was damaged and taken back: their rows are older, or incomplete.
PARTIAL_DIGEST: Final = compute_input_digest({"torn": True})

Metrics: TypeAlias = dict[str, int | float | str]
#: Prefix of a metric's name before that of a table: the content digest of the slice's rows in that table.
VERSION: Final = "version:"
#: Rows of one table: all of them, or a function that opens them batch by batch, once per try of a commit.
Rows: TypeAlias = pa.Table | Callable[[], Iterable[pa.RecordBatch]]


@dataclass(frozen=True, slots=True, order=True)
class Slice:
    """One target in one crawl; ``target`` is empty if a stage makes the whole crawl at a time. Parts of a set, and
    captures of a subset other than ``warc``, are slices of their own (``commoncrawl/slice_slugs.py``)."""

    crawl: str
    target: str = ""

    @property
    def where(self) -> dict[str, str]:
        """The values of the slice columns, as the lake takes them."""
        return {"crawl": self.crawl} | ({"target": self.target} if self.target else {})

    @property
    def partition(self) -> Slice:
        """The partition of the slice."""
        return Slice(self.crawl, whole_slug(self.target))

    @property
    def definition_slug(self) -> str:
        """The slug of the target or part whose definition the slice follows."""
        return defined_slug(self.target)

    @property
    def subset(self) -> str:
        """The subset of the slice."""
        return subset_of(self.target)


def slices_of(crawl: str, targets: Iterable[str]) -> list[Slice]:
    """The slices of ``targets`` in ``crawl``, in their order."""
    return [Slice(crawl, target) for target in targets]


def group_targets_by_crawl(slices: Iterable[Slice]) -> dict[str, list[str]]:
    """The targets of each crawl, in the order given: the lake is read once a crawl."""
    grouped: dict[str, list[str]] = {}
    for slice_ in slices:
        grouped.setdefault(slice_.crawl, []).append(slice_.target)
    return grouped


def group_by_partition(slices: Iterable[Slice]) -> dict[Slice, list[Slice]]:
    """The slices of each partition, in the order given."""
    grouped: dict[Slice, list[Slice]] = {}
    for slice_ in slices:
        grouped.setdefault(slice_.partition, []).append(slice_)
    return grouped


def write_notes(lake: Lake, table: str, rows: Mapping[Slice, Mapping[str, object]], *, ignored_column: str) -> None:
    """Writes the row of each slice into a ``table`` that has one row per slice, beside the tables of a stage.

    Equal rows stay, whatever their column ``ignored_column`` (a time) has: writing them again after a kill would hide
    that kill from the next run. Raises ``EnvironmentFault``."""
    if not rows:
        return
    digests = {
        _note_digest_name(table, slice_): compute_input_digest(
            {name: row[name] for name in sorted(row) if name != ignored_column}
        )
        for slice_, row in rows.items()
    }
    if lake.holds(table, digests):
        return
    schema = lake.specs[table].schema
    complete_rows = [{**row, **slice_.where} for slice_, row in rows.items()]
    data = pa.Table.from_pylist(
        [{name: row.get(name) for name in schema.names} for row in complete_rows], schema=schema
    )
    lake.commit(table, data, [slice_.where for slice_ in rows], digests)


def empty_notes(lake: Lake, table: str, slices: Sequence[Slice]) -> None:
    """Removes the rows of ``slices`` from a table that :func:`write_notes` writes, which will write them again."""
    empty = lake.specs[table].schema.empty_table()
    lake.commit(
        table,
        empty,
        [slice_.where for slice_ in slices],
        {_note_digest_name(table, slice_): EMPTIED_DIGEST for slice_ in slices},
    )


def invalidate_notes(lake: Lake, table: str, slices: Sequence[Slice]) -> None:
    """Makes :func:`write_notes` write the rows of ``slices`` in a table again, whatever is stored."""
    counts = {count_name(slice_key(lake.specs[table], slice_.where)): INVALID_COUNT for slice_ in slices}
    lake.commit_digests(table, counts | {_note_digest_name(table, slice_): EMPTIED_DIGEST for slice_ in slices})


def _note_digest_name(table: str, slice_: Slice) -> str:
    return f"{table}:{slice_.crawl}:{slice_.target}"


@dataclass(frozen=True, slots=True)
class StageReport:
    """The metrics of one stage over some slices; everything it counts has been committed.

    ``rows`` are rows now in the table for the slices asked for, ``written`` those written by this call (0 when the
    inputs were already there). ``bytes`` and ``requests`` were spent on the source, ``seconds`` in the stage.
    ``per_target`` maps a slug to its own metrics (for per-partition metadata); ``written:TABLE`` among them are the
    rows of a table that this call wrote.
    """

    stage: str
    rows: int
    written: int = 0
    bytes: int = 0
    requests: int = 0
    seconds: float = 0.0
    fresh_slices: int = 0
    reused_slices: int = 0
    notes: tuple[str, ...] = ()
    per_target: dict[str, Metrics] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage: it makes slices of some tables.

    ``tables`` are in the order of their commits. ``name_pattern`` is the pattern of a slice's digest name. ``label`` is
    the name of the stage inside its digests. Both are stored in every home: they never change."""

    label: str
    tables: tuple[str, ...]
    name_pattern: str

    @property
    def main_table(self) -> str:
        """The table committed last."""
        return self.tables[-1]

    @property
    def name_prefix(self) -> str:
        """The beginning of the digest names of all its slices; no other stage has it."""
        return self.name_pattern.partition("{")[0]

    def digest_name(self, slice_: Slice) -> str:
        """The name under which the digest of a slice is committed."""
        return self.name_pattern.format(crawl=slice_.crawl, target=slice_.target)

    def parse_digest_name(self, name: str) -> Slice | None:
        """The slice whose digest is committed under ``name``; ``None`` for names of other stages.

        Only for stages whose names hold the crawl.
        """
        label, _, pattern = self.name_pattern.partition(":")
        name_label, separator, name_rest = name.partition(":")
        if not separator or name_label != label:
            return None
        if pattern == "{crawl}":
            return Slice(name_rest)
        crawl, target_separator, target = name_rest.partition(":")
        return Slice(crawl, target) if target_separator and pattern == "{crawl}:{target}" else None

    def digest(self, **inputs: object) -> str:
        """The input digest of a slice made from these JSON-like values. They identify content, never an ETag."""
        return compute_input_digest({"stage": self.label} | inputs)

    def read_input_digests(self, lake: Lake, slices: Collection[Slice]) -> dict[Slice, str | None]:
        """The input digest of each slice; ``None`` if the slice's tables have different digests, or none."""
        names = {slice_: self.digest_name(slice_) for slice_ in slices}
        digests_by_table = [lake.digests(table, list(names.values())) for table in self.tables]
        return {
            slice_: digests_by_table[0][name] if len({digests[name] for digests in digests_by_table}) == 1 else None
            for slice_, name in names.items()
        }

    def find_stale(self, lake: Lake, expected_digests: Mapping[Slice, str]) -> list[Slice]:
        """The slices whose digest is not the one in ``expected_digests`` (slice to input digest), in the order of
        ``expected_digests``."""
        stored_digests = self.read_input_digests(lake, expected_digests.keys())
        return [slice_ for slice_, digest in expected_digests.items() if stored_digests[slice_] != digest]

    def list_slices(self, lake: Lake, slices: Collection[Slice] | None = None) -> list[Slice]:
        """The slices among ``slices`` (default: all) that were made and not emptied since, in order; only for stages
        whose names hold the crawl. The log of the main table is read, or its rows if the log does not tell."""
        if slices is None:
            try:
                return sorted(self._list_by_prefix(lake, self.name_prefix))
            except DigestsNotInLog:
                slices = self._list_by_rows(lake, {})
        names = {slice_: self.digest_name(slice_) for slice_ in slices}
        digests = lake.digests(self.main_table, [*names.values()])
        return sorted(slice_ for slice_, name in names.items() if digests[name] not in (None, EMPTIED_DIGEST))

    def list_with_prefix(self, lake: Lake, first: Slice) -> list[Slice]:
        """The slices of the crawl of ``first`` whose targets begin with its target, and that were not emptied since
        they were made. The log of the main table is read, or its rows if the log does not tell."""
        try:
            return self._list_by_prefix(lake, self.digest_name(first))
        except DigestsNotInLog:
            stored_slices = self._list_by_rows(lake, {"crawl": first.crawl})
            return [slice_ for slice_ in stored_slices if slice_.target.startswith(first.target)]

    def _list_by_prefix(self, lake: Lake, prefix: str) -> list[Slice]:
        names = lake.digest_names(self.main_table, prefix, excluded=EMPTIED_DIGEST)
        return [slice_ for slice_ in map(self.parse_digest_name, names) if slice_ is not None]

    def _list_by_rows(self, lake: Lake, where: Mapping[str, str]) -> list[Slice]:
        columns = [name for name in ("crawl", "target") if f"{{{name}}}" in self.name_pattern]
        return [Slice(*key) for key in count_rows(lake, self.main_table, where, columns)]

    def was_committed(self, lake: Lake, slice_: Slice) -> bool:
        """Whether the slice was ever made, from whatever input: one look at the main table's log."""
        return lake.digest(self.main_table, self.digest_name(slice_)) is not None

    def commit(
        self,
        lake: Lake,
        input_digests: Mapping[Slice, str],
        rows: Mapping[str, Rows],
        extra_digests: Mapping[str, Mapping[str, str]] | None = None,
    ) -> int:
        """Replaces the slices in every table by ``rows``. Returns the number of rows written to the last table.

        Skips a table that has these digests already, so that the next run after a kill between two tables goes on
        there. ``extra_digests`` are further digests to keep with a table's rows, by table and name. Content digests of
        the rows are kept too: rows are opened once more for them. Raises ``EnvironmentFault`` when the lake cannot be
        written."""

        def write(table: str, where: Sequence[Mapping[str, str]], digests: Mapping[str, str]) -> int:
            table_rows = rows[table]
            all_digests = {**digests, **_compute_contents(lake, table, table_rows, input_digests)}
            if callable(table_rows):
                return lake.commit_stream(table, table_rows, where, all_digests)
            return lake.commit(table, table_rows, where, all_digests)

        return self._write_tables(lake, input_digests, extra_digests, write)

    def commit_files(
        self,
        lake: Lake,
        input_digests: Mapping[Slice, str],
        added: Mapping[str, Sequence[AddedFile]],
        extra_digests: Mapping[str, Mapping[str, str]] | None = None,
    ) -> int:
        """As :meth:`commit`, with files that workers wrote (``lake/adding.py``) in place of rows; by table.

        The same rows get the same digests. A table with no files gets the slices as empty ones. Raises ``ValueError``
        for files with rows of other slices, ``EnvironmentFault`` when a file is not there, or the lake cannot be
        written.
        """

        def write(table: str, where: Sequence[Mapping[str, str]], digests: Mapping[str, str]) -> int:
            files = added.get(table, ())
            if _has_target_slices(lake, table, input_digests):
                digests = {
                    **digests,
                    **_name_contents(combine_contents(file.contents for file in files), input_digests),
                }
            return commit_added(lake, table, files, where, digests)

        return self._write_tables(lake, input_digests, extra_digests, write)

    def _write_tables(
        self,
        lake: Lake,
        input_digests: Mapping[Slice, str],
        extra_digests: Mapping[str, Mapping[str, str]] | None,
        write: Callable[[str, Sequence[Mapping[str, str]], Mapping[str, str]], int],
    ) -> int:
        """Writes each table that does not have these digests already. Returns the number of rows written to the last
        one."""
        slice_digests = {self.digest_name(slice_): digest for slice_, digest in input_digests.items()}
        where = [slice_.where for slice_ in input_digests]
        written = 0
        for table in self.tables:
            digests = {**slice_digests, **(extra_digests or {}).get(table, {})}
            is_written = len(self.tables) > 1 and lake.holds(table, digests)
            written = 0 if is_written else write(table, where, digests)
        return written

    def empty(self, lake: Lake, slices: Collection[Slice]) -> None:
        """Removes the rows of ``slices``, of any crawls, from every table, in one commit a table; their digest is
        ``EMPTIED_DIGEST``.

        Tables without their rows are written to as well, so that a commit of them under way conflicts; tables that do
        not exist yet are not. Raises ``EnvironmentFault`` when the lake cannot be written.
        """
        digests = {self.digest_name(slice_): EMPTIED_DIGEST for slice_ in slices}
        digests |= {content_name(slice_): NOTHING for slice_ in slices}
        for table in self.tables:
            if lake.version(table) >= 0:
                lake.commit(table, lake.specs[table].schema.empty_table(), [slice_.where for slice_ in slices], digests)

    def read_content_metrics(self, lake: Lake, slices: Collection[Slice]) -> dict[Slice, Metrics]:
        """``version:TABLE`` of each slice: the same for the same rows, whenever and wherever they were stored.

        No rows are read.
        """
        metrics: dict[Slice, Metrics] = {slice_: {} for slice_ in slices}
        names = {content_name(slice_): slice_ for slice_ in slices}
        for table in self.tables:
            for name, digest in lake.digests(table, [*names]).items():
                if digest is not None:
                    metrics[names[name]][f"{VERSION}{table}"] = digest
        return metrics

    def invalidate(self, lake: Lake, slices: Collection[Slice]) -> None:
        """Marks ``slices`` to be made again, whatever their inputs; their rows stay until then, and are not published.

        Call it before their inputs change: a run that is killed afterwards then never leaves old rows that count as
        done.
        """
        input_digests = self.read_input_digests(lake, slices)
        digests_by_name = {
            self.digest_name(slice_): digest for slice_, digest in input_digests.items() if digest is not None
        }
        for table in self.tables if digests_by_name else ():
            # a different digest for each table: they differ until all are rewritten, and none is skipped then
            lake.commit_digests(
                table,
                {
                    name: compute_input_digest({"replayed": digest, "table": table})
                    for name, digest in digests_by_name.items()
                },
            )

    def invalidate_rows(self, lake: Lake, table: str, slices: Collection[Slice]) -> None:
        """Marks ``slices``, whose rows in ``table`` are not those that were committed, to be made again as
        :meth:`invalidate` does. Any rows they have by then are replaced. Raises ``EnvironmentFault``."""
        # first: after a kill in between, the slices are found again by their counts
        counts = {count_name(slice_key(lake.specs[table], slice_.where)): INVALID_COUNT for slice_ in slices}
        lake.commit_digests(table, counts)
        self.invalidate(lake, slices)

    def find_partial_slices(self, lake: Lake, slices: Sequence[Slice], versions: Mapping[str, int]) -> list[Slice]:
        """The slices whose tables have different digests, at the ``versions`` of the tables (default: now)."""
        if len(self.tables) < 2 or not slices:
            return []
        names = [self.digest_name(slice_) for slice_ in slices]
        digests = [lake.digests(table, names, versions.get(table)) for table in self.tables]
        return [
            slice_
            for slice_, name in zip(slices, names, strict=True)
            if len({by_name[name] for by_name in digests}) > 1
        ]

    def report(
        self,
        metrics: Mapping[Slice, Metrics],
        fresh: Collection[Slice],
        started: float,
        *,
        bytes: int = 0,
        requests: int = 0,
        notes: tuple[str, ...] = (),
        counted_tables: Sequence[str] = (),
    ) -> StageReport:
        """The report of the stage: ``metrics`` of every slice asked for, ``fresh`` ones made since ``started``.

        ``counted_tables`` are the tables whose rows are added up (default: the main one).
        """
        # Arrow keeps freed memory for new rows, and the next stage needs memory of other kinds
        pa.default_memory_pool().release_unused()
        names = [f"rows:{table}" for table in counted_tables or (self.main_table,)]
        fresh_slices = set(fresh)
        return StageReport(
            self.label,
            rows=sum(int(slice_metrics[name]) for slice_metrics in metrics.values() for name in names),
            written=sum(int(metrics[slice_][name]) for slice_ in fresh for name in names),
            bytes=bytes,
            requests=requests,
            seconds=time.monotonic() - started,
            fresh_slices=len(fresh),
            reused_slices=len(metrics) - len(fresh),
            notes=notes,
            per_target={
                slice_.target: slice_metrics | count_written(slice_metrics, slice_ in fresh_slices)
                for slice_, slice_metrics in metrics.items()
            },
        )


def count_written(metrics: Metrics, is_fresh: bool) -> Metrics:
    """``written:TABLE`` for each ``rows:TABLE`` of a slice: all rows if it was made now, else 0."""
    rows = {name.removeprefix("rows:"): count for name, count in metrics.items() if name.startswith("rows:")}
    return {f"written:{table}": count if is_fresh else 0 for table, count in rows.items()}


def _compute_contents(lake: Lake, table: str, rows: Rows, slices: Collection[Slice]) -> dict[str, str]:
    """The content digest of each of ``slices``, of one crawl, from ``rows``, by the names under which they are
    committed."""
    if not _has_target_slices(lake, table, slices):
        return {}
    spec = lake.specs[table]
    batches = rows() if callable(rows) else rows.select(spec.schema.names).cast(spec.schema).to_batches()
    return _name_contents(compute_content_digests(batches, "target", (*spec.provenance_columns, "crawl")), slices)


def _has_target_slices(lake: Lake, table: str, slices: Collection[Slice]) -> bool:
    """Whether the slices of a table are targets in one crawl."""
    if "target" not in lake.specs[table].slice_columns:
        return False
    if len({slice_.crawl for slice_ in slices}) > 1:
        raise AssertionError(f"one commit to {table} over several crawls")
    return True


def _name_contents(digests: Mapping[str, str], slices: Collection[Slice]) -> dict[str, str]:
    return {content_name(slice_): digests.get(slice_.target, NOTHING) for slice_ in slices}


def content_name(slice_: Slice) -> str:
    """The name under which each table of a stage keeps the content digest of a slice."""
    return f"content:{slice_.crawl}:{slice_.target}"


MANIFEST: Final = Stage("manifest", ("index_manifest",), "index_manifest:{crawl}")
HARVEST: Final = Stage("row_groups", ("row_groups",), "row_groups:{crawl}")
#: Captures that a person named one by one, before a target has them.
NAMED_CAPTURES: Final = Stage("given", ("named_captures",), "given:{crawl}:{target}")
LOCATE: Final = Stage("locate", ("captures",), "locate:{crawl}:{target}")
FETCH: Final = Stage("fetch", ("records",), "fetch:{crawl}:{target}")
PARSE: Final = Stage("parse", PAGE_TABLES, "parse:{crawl}:{target}")
#: An archive file that is indexed here: its unreadable parts.
BUILT: Final = Stage("built index", ("source_faults",), "built:{crawl}:{target}")
#: A file read whole: its partition key is the ``target`` of its rows, and is unique without the crawl.
READ_FILES: Final = Stage("sources", ("source_faults", *PAGE_TABLES), "source:{target}")
