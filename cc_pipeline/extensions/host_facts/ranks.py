"""Ranks of the web graph as a dataset of the home: gzip text in the order of rank becomes Parquet in the order of keys.

A release has a few gigabytes, so it is read only on request, after its estimate was shown. It is read once, in pieces,
and sorted range by range in the home's scratch, with constant memory. The folder appears complete or not at all.

One ``COPY (… FROM read_csv(…) ORDER BY …)`` of DuckDB is shorter and was measured on 5 million lines: 15.2 s of
processor time instead of 13.6 s, and 662 MB instead of 385 MB. It also writes no page index, so that a lookup of one
host reads whole column chunks (350 KB where a page has 32 KB).
"""

from __future__ import annotations

import json
import shutil
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cc_pipeline import progress
from cc_pipeline.errors import DataFault, DataKind, EnvironmentFault, PlaceFault, UserInputError, disk_trouble
from cc_pipeline.extensions.host_facts.datasets import Dataset
from cc_pipeline.extensions.host_facts.folders import keyed_path
from cc_pipeline.extensions.host_facts.rank_text import (
    HOSTS,
    KEY,
    LEVELS,
    POSITIONS,
    SCHEMA,
    SCORES,
    Level,
    Release,
    Tally,
    inflate_stream,
    parse_release,
    read_rank_rows,
)
from cc_pipeline.lake.ordered import OrderedRows
from cc_pipeline.progress import format_count
from cc_pipeline.settings import Settings
from cc_pipeline.workspace.workspace import Workspace

#: The column with the release of a rank.
RELEASE: Final = "graph_release"
#: Merge functions of rows of one key. Never a sum: the rows are two names of one site.
FOLDS: Final = {**dict.fromkeys(POSITIONS, "min"), **dict.fromkeys((*SCORES, HOSTS), "max")}

#: Bytes of a request, and the number of parallel requests.
_REQUEST_BYTES: Final = 8 << 20
_PARALLEL_REQUESTS: Final = 3
#: Rows of a range of keys that is sorted separately, the maximum number of ranges, and bytes of rows in memory of all
#: ranges.
_RANGE_ROWS: Final = 2_000_000
_MAX_RANGES: Final = 256
_MEMORY_BYTES: Final = 64 << 20
#: Rows of a file, rows of a row group, and bytes of a page, which a lookup of one host reads.
_FILE_ROWS: Final = 8_000_000
_GROUP_ROWS: Final = 1 << 16
_PAGE_BYTES: Final = 32 << 10
#: Bytes of gzip data per row: the release of spring 2026 has 262 million hosts in some 2.8 GB.
_GZIP_BYTES_PER_ROW: Final = 10.7
#: Bytes of a row as Parquet, bytes of a row in scratch, and rows a second on one core if the source is fast enough.
#: Measured on up to twelve million generated hosts, whose numbers compress worse than published ones.
_PARQUET_BYTES: Final = 26
_SCRATCH_BYTES: Final = 65
_ROWS_PER_SECOND: Final = 300_000
#: Maximum share of lines without a rank of a host.
_MAX_SKIPPED_SHARE: Final = 0.01
_NOTE: Final = "ranks.json"
_FOLDER: Final = "web-graph-ranks"


@dataclass(frozen=True, slots=True)
class RanksEstimate:
    """The estimated cost of a conversion: ``bytes`` to read in ``requests``, the number of ``rows``, bytes of ``disk``
    permanently and of ``scratch`` during the conversion, and ``seconds`` of work if the source is fast enough.
    """

    key: str
    bytes: int
    requests: int
    rows: int
    disk: int
    scratch: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Ranks:
    """Converted ranks: ``nodes`` of the release, folded to ``rows`` keys; ``skipped`` lines had no rank of a host.

    ``files`` are the names of the Parquet files, in the order of their keys.
    """

    release: str
    level: str
    key: str
    source: str
    bytes: int
    nodes: int
    rows: int
    skipped: int
    www_kept: bool
    converted_at: str
    files: tuple[str, ...]


def estimate_ranks(workspace: Workspace, release: Release, level: Level) -> RanksEstimate:
    """Estimates the cost of :func:`convert_ranks`, with one request. Raises ``UserInputError`` if the source has no
    such ranks, ``EnvironmentFault`` or ``DataFault`` if the source fails.
    """
    key = release.ranks_key(level)
    head = workspace.transport.head(key)
    if head is None:
        raise UserInputError(
            f"{workspace.settings.source} has no {key}. Name a release that is there "
            "(https://commoncrawl.org/web-graphs lists them)"
        )
    size = workspace.transport.read(key, 0, 1).size if head.size is None else head.size
    rows = round(size / _GZIP_BYTES_PER_ROW)
    return RanksEstimate(
        key,
        size,
        -(-size // _REQUEST_BYTES),
        rows,
        rows * _PARQUET_BYTES,
        rows * _SCRATCH_BYTES,
        rows / _ROWS_PER_SECOND,
    )


def convert_ranks(workspace: Workspace, release: Release, level: Level, price: RanksEstimate) -> Ranks:
    """Converts the ranks of a release into the home, by SURT host key. Returns stored ranks without a request.

    ``price`` is the result of :func:`estimate_ranks` that the user accepted. Raises ``PlaceFault`` if the disk is too
    full, ``EnvironmentFault`` if the source fails, ``DataFault`` for malformed ranks; the home is then unchanged.
    """
    stored_ranks = find_ranks(workspace.settings, release, level)
    if stored_ranks is not None:
        return stored_ranks
    folder = _ranks_folder(workspace.settings, release.name, level)
    with disk_trouble(folder), workspace.scratch_folder("ranks") as scratch:
        _check_room(scratch, price)
        new_folder = scratch / "made"
        new_folder.mkdir()
        tally = Tally()
        text = inflate_stream(_read_blocks(workspace, price), price.key)
        rows = read_rank_rows(text, price.key, tally, www_kept=release.www_kept)
        files, count = _write_files(new_folder, fold_keys(_sort_rows(rows, price.rows, scratch)), release, level)
        if tally.skipped > _MAX_SKIPPED_SHARE * (tally.rows + tally.skipped) or not tally.rows:
            raise DataFault(
                DataKind.MALFORMED,
                price.key,
                None,
                f"has {format_count(tally.skipped, 'line')} without a rank, but only {tally.rows:,} with one: "
                f"{tally.example!r}",
            )
        ranks = Ranks(
            release.name,
            level,
            price.key,
            workspace.settings.source,
            price.bytes,
            tally.rows,
            count,
            tally.skipped,
            release.www_kept,
            datetime.now(UTC).isoformat(timespec="seconds"),
            tuple(files),
        )
        (new_folder / _NOTE).write_text(json.dumps(asdict(ranks), indent=1), "utf-8")
        folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            new_folder.rename(folder)
        except OSError:
            # Another process converted the release first.
            if (other_ranks := find_ranks(workspace.settings, release, level)) is not None:
                return other_ranks
            raise
    return ranks


def find_ranks(settings: Settings, release: Release, level: Level) -> Ranks | None:
    """The converted ranks of a release; ``None`` if there are none."""
    return _read_note(_ranks_folder(settings, release.name, level))


def all_ranks(settings: Settings) -> list[Ranks]:
    """All converted ranks of the home, newest release first. Raises ``EnvironmentFault``."""
    folders = (keyed_path(settings) / _FOLDER).glob("*/*")
    stored_ranks = [ranks for ranks in map(_read_note, folders) if ranks is not None]
    return sorted(
        stored_ranks,
        key=lambda ranks_: (parse_release(ranks_.release).last, ranks_.release, ranks_.level),
        reverse=True,
    )


def ranks_datasets(settings: Settings, crawl: str | None = None) -> dict[str, Dataset]:
    """Converted ranks as datasets by name, each for any crawl: ``host-ranks-2026-may-jun-jul`` is of one release.
    ``host-ranks`` and ``domain-ranks`` are of the newest release here that spans ``crawl``, else of the newest
    release here. Raises ``EnvironmentFault`` if a note of ranks cannot be read.
    """
    datasets: dict[str, Dataset] = {}
    stored_ranks = all_ranks(settings)
    for level in LEVELS:
        level_ranks = [ranks for ranks in stored_ranks if ranks.level == level]
        spanning = [ranks for ranks in level_ranks if crawl is not None and parse_release(ranks.release).spans(crawl)]
        name = f"{level}-ranks"
        for ranks in (spanning or level_ranks)[:1]:
            datasets[name] = ranks_dataset(settings, ranks, name)
        for ranks in level_ranks:
            full = f"{name}-{ranks.release.removeprefix('cc-main-')}"
            datasets[full] = ranks_dataset(settings, ranks, full)
    return datasets


def is_name_of_ranks(name: str) -> bool:
    """Whether the name is reserved for datasets of :func:`ranks_datasets`."""
    return name.startswith(tuple(f"{level}-ranks" for level in LEVELS))


def ranks_dataset(settings: Settings, ranks: Ranks, name: str) -> Dataset:
    """Converted ranks as a dataset. The columns of domains begin with ``domain_``; their keys are the keys of the hosts
    with the domains' names.
    """
    folder = _ranks_folder(settings, ranks.release, ranks.level)
    left_out = {KEY} if ranks.level == "domain" else {KEY, HOSTS}
    columns = {field.name: field.type for field in SCHEMA if field.name not in left_out}
    return Dataset(
        name,
        key=KEY,
        form="surt_host",
        root=str(folder),
        files=ranks.files,
        by_crawl=False,
        of_domains=ranks.level == "domain",
        columns={**columns, RELEASE: pa.string()},
        prefix="domain_" if ranks.level == "domain" else "",
        fold={name: FOLDS[name] for name in columns},
        title=f"Ranks of {ranks.level}s in Common Crawl's web graph ({ranks.release})",
        written_in=str(folder / _NOTE),
    )


def _ranks_folder(settings: Settings, release: str, level: str) -> Path:
    return keyed_path(settings) / _FOLDER / release / level


def _read_note(folder: Path) -> Ranks | None:
    try:
        fields: dict[str, Any] = json.loads((folder / _NOTE).read_text("utf-8"))
        return Ranks(**{**fields, "files": tuple(fields["files"])})
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise EnvironmentFault(
            f"{folder / _NOTE} cannot be read: {error}", "Delete its folder, and convert the release again."
        ) from error


def _check_room(folder: Path, price: RanksEstimate) -> None:
    free = shutil.disk_usage(folder).free
    if free < price.disk + price.scratch:
        raise PlaceFault(
            f"converting {price.key} needs {(price.disk + price.scratch) / 1e9:,.1f} GB free, and {folder} has "
            f"{free / 1e9:,.1f} GB",
            "Free some space, then run it again. Nothing was read.",
        )


def _read_blocks(workspace: Workspace, price: RanksEstimate) -> Iterator[bytes]:
    """The file in its order, with some requests in parallel. Raises ``RangeFault``."""
    starts = deque(range(0, price.bytes, _REQUEST_BYTES))
    pending: deque[Future[bytes]] = deque()

    def read(start: int) -> bytes:
        return workspace.transport.read(price.key, start, min(_REQUEST_BYTES, price.bytes - start)).data

    read_bytes = 0
    with ThreadPoolExecutor(_PARALLEL_REQUESTS) as pool:
        try:
            while starts or pending:
                while starts and len(pending) < _PARALLEL_REQUESTS:
                    pending.append(pool.submit(read, starts.popleft()))
                data = pending.popleft().result()
                read_bytes += len(data)
                progress.report("ranks", read_bytes, price.bytes)
                yield data
        finally:
            for future in pending:
                future.cancel()


def _sort_rows(rows: Iterator[pa.RecordBatch], expected: int, scratch: Path) -> Iterator[pa.RecordBatch]:
    """Sorts ``rows``, about ``expected`` of them, by key, with constant memory.

    Rows are distributed to ranges of keys, which the first batch determines, and each range is sorted separately.
    """
    ranges: list[OrderedRows] = []
    bounds: list[str] = []
    for batch in rows:
        order = pc.sort_indices(batch.column(KEY))
        keys = batch.column(KEY).take(order)
        if not ranges:
            count = max(1, min(-(-expected // _RANGE_ROWS), _MAX_RANGES))
            bounds = sorted({keys[len(keys) * place // count].as_py() for place in range(1, count)})
            for number in range(len(bounds) + 1):
                folder = scratch / f"range-{number:03}"
                folder.mkdir()
                ranges.append(OrderedRows(SCHEMA, [KEY], folder, _MEMORY_BYTES // count))
        ends = [bisect_left(range(len(keys)), bound, key=lambda position: keys[position].as_py()) for bound in bounds]
        batch_table = pa.Table.from_batches([batch])
        for key_range, start, end in zip(ranges, [0, *ends], [*ends, len(keys)], strict=True):
            if end > start:
                # take() copies: a slice would keep the whole batch in memory until its range is flushed.
                key_range.add(batch_table.take(order.slice(start, end - start)))
    for number, key_range in enumerate(ranges):
        yield from key_range.batches()
        shutil.rmtree(scratch / f"range-{number:03}")


def fold_keys(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Merges rows in the order of their keys into one row a key: the smallest position and the largest score."""
    carried_rows: pa.Table | None = None
    for batch in batches:
        rows = pa.Table.from_batches([batch]).cast(SCHEMA)
        if carried_rows is not None:
            rows = pa.concat_tables([carried_rows, rows])
        folded = _fold_table(rows)
        # The next batch may begin with the same key.
        carried_rows = folded.slice(folded.num_rows - 1)
        if folded.num_rows > 1:
            yield folded.slice(0, folded.num_rows - 1)
    if carried_rows is not None and carried_rows.num_rows:
        yield carried_rows


def _fold_table(rows: pa.Table) -> pa.Table:
    keys = rows.column(KEY).combine_chunks()
    if not pc.any(pc.equal(keys.slice(1), keys.slice(0, max(len(keys) - 1, 0))), min_count=0).as_py():
        return rows
    grouped = rows.group_by(KEY, use_threads=False).aggregate(list(FOLDS.items()))
    columns = [grouped[KEY], *(grouped[f"{name}_{aggregate}"] for name, aggregate in FOLDS.items())]
    # Groups are unordered.
    return pa.table(columns, names=[KEY, *FOLDS]).select(SCHEMA.names).cast(SCHEMA).sort_by(KEY)


def _write_files(folder: Path, tables: Iterator[pa.Table], release: Release, level: Level) -> tuple[list[str], int]:
    """Writes Parquet files into ``folder``, in the order of their keys. Returns their names and the number of rows."""
    schema = SCHEMA if level == "domain" else SCHEMA.remove(SCHEMA.get_field_index(HOSTS))
    schema = schema.append(pa.field(RELEASE, pa.string()))
    names: list[str] = []
    total = 0
    writer: pq.ParquetWriter | None = None
    rows_here = 0
    try:
        for group in _regroup(tables):
            if writer is None or rows_here >= _FILE_ROWS:
                if writer is not None:
                    writer.close()
                names.append(f"part-{len(names):05}.parquet")
                writer, rows_here = _open_writer(folder / names[-1], schema), 0
            labelled_group = group.append_column(RELEASE, pa.repeat(pa.scalar(release.name), group.num_rows))
            writer.write_table(labelled_group.select(schema.names), row_group_size=_GROUP_ROWS)
            rows_here += group.num_rows
            total += group.num_rows
    finally:
        if writer is not None:
            writer.close()
    return names, total


def _open_writer(path: Path, schema: pa.Schema) -> pq.ParquetWriter:
    return pq.ParquetWriter(
        path,
        schema,
        compression="zstd",
        write_page_index=True,
        data_page_size=_PAGE_BYTES,
        write_batch_size=1024,
        use_dictionary=[RELEASE],
    )


def _regroup(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """The same rows in tables of the size of a row group."""
    pending: list[pa.Table] = []
    rows = 0
    for table in tables:
        pending.append(table)
        rows += table.num_rows
        while rows >= _GROUP_ROWS:
            joined = pa.concat_tables(pending)
            yield joined.slice(0, _GROUP_ROWS)
            pending, rows = [joined.slice(_GROUP_ROWS)], rows - _GROUP_ROWS
    if rows:
        yield pa.concat_tables(pending)
