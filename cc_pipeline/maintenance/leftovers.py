"""The search for leftovers of purged targets, in the tables of the lake and in this home's ``cc.duckdb``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

from cc_pipeline.commoncrawl.slice_slugs import whole_slug
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.lake.lake import Lake
from cc_pipeline.lake.predicates import Prefix, Where
from cc_pipeline.lake.published_file import open_bounded
from cc_pipeline.lake.quoting import quote_literal
from cc_pipeline.lake.slices import read_liveness, read_purged
from cc_pipeline.lake.streaming import count_generations
from cc_pipeline.lake.target_definitions import find_defining_slugs
from cc_pipeline.progress import format_count
from cc_pipeline.workspace.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Leftovers:
    """The leftovers of a target: ``rows`` by table, ``superseded`` files of tables that still have rows, and
    ``published`` rows of this home's ``cc.duckdb``."""

    rows: Mapping[str, int]
    superseded: int
    published: int

    @property
    def is_clean(self) -> bool:
        """Whether the search found nothing."""
        return not (self.rows or self.superseded or self.published)

    @property
    def sentences(self) -> tuple[str, ...]:
        """A sentence for each kind of leftovers, or one that there are none."""
        if self.is_clean:
            return ("no leftovers in any table, file of a table, or cc.duckdb",)
        lines = [f"LEFT: {format_count(count, 'row')} in {table}" for table, count in self.rows.items()]
        counts = [
            (self.superseded, "superseded file", "of tables with its rows; a reader may have them open"),
            (self.published, "row", "in cc.duckdb, which the next run or cc-pipeline automation maintenance removes"),
        ]
        lines += [f"LEFT: {format_count(count, noun)} {relation}" for count, noun, relation in counts if count]
        return tuple(lines)


def count_purged_rows(lake: Lake, where: Where | None = None) -> dict[str, int]:
    """The rows of purged targets that are in files of tables, by table: of all slices, or of those ``where`` names.
    They count nowhere, and maintenance drops them. Raises ``EnvironmentFault``."""
    purged = read_purged(lake, where)
    numbers: dict[tuple[str, str], set[int]] = {}
    for crawl, tables in zip(purged["crawl"].to_pylist(), purged["tables"].to_pylist(), strict=True):
        for table, state in tables or ():
            numbers.setdefault((table, crawl), set()).add(state["generation"])
    counts: Counter[str] = Counter()
    for (table, crawl), own in numbers.items():
        if table in lake.specs and (files := lake.pin(table).stored_files([crawl])):
            # a generation of a moved record may count under the epoch of now
            own &= {*read_liveness(lake, table, crawl).purged.to_pylist()}
            found = (count_generations(lake, table, file) for file in files)
            counts[table] += sum(n for one in found for number, n in one.items() if number in own)
    return {table: count for table, count in counts.items() if count}


def find_leftovers(workspace: Workspace, slug: str, crawls: Iterable[str]) -> Leftovers:
    """Searches for rows of the purged target ``slug``; superseded files are those of ``crawls``. Nothing is changed.
    Raises ``EnvironmentFault`` if a table cannot be read."""
    lake = workspace.lake
    tables = [spec.name for spec in lake.specs.values() if spec.has_targets and lake.handle(spec) is not None]
    rows = count_purged_rows(lake, {"target": Prefix(slug)})
    if definitions := find_defining_slugs(lake, {slug}):
        rows["targets"] = len(definitions)
    old_files = [key for table in tables for key in _list_superseded(workspace, table, crawls)]
    return Leftovers(rows, sum(_has_rows(lake, key, slug) for key in old_files), _count_published(workspace, slug))


def _list_superseded(workspace: Workspace, table: str, crawls: Iterable[str]) -> Iterator[str]:
    """Yields the files in a table's folders of ``crawls`` that the table does not name."""
    live = {path.rpartition("/")[2] for path in workspace.lake.pin(table).files}
    for crawl in crawls:
        for stored_file in workspace.place.listing(f"tables/{table}/crawl={quote(crawl, safe='')}/"):
            name = stored_file.key.rpartition("/")[2]
            if name.endswith(".parquet") and name not in live:
                yield stored_file.key


def _has_rows(lake: Lake, key: str, slug: str) -> bool:
    try:
        with lake.file_system().open_input_file(f"{lake.root}/{key}".removeprefix("s3://")) as source:
            for batch in pq.ParquetFile(source, pre_buffer=False).iter_batches(columns=["target"]):
                if any(whole_slug(target) == slug for target in batch.column(0).unique().to_pylist() if target):
                    return True
    except FileNotFoundError:
        pass  # deleted since the folder was read
    except pa.ArrowInvalid:
        pass  # no table names it: a job is writing it, or was killed meanwhile; such files are swept
    except (OSError, pa.ArrowException) as error:
        raise EnvironmentFault(
            f"could not read {lake.root}/{key}, so the search for leftovers is not complete: {error}",
            "Check the lake and its permissions, then run the command again.",
        ) from error
    return False


def _count_published(workspace: Workspace, slug: str) -> int:
    if not workspace.settings.published_path.exists():
        return 0
    with open_bounded(workspace.settings) as connection:
        query = f"SELECT count(*) FROM main.capture_targets WHERE target = {quote_literal(slug)}"
        return int((connection.execute(query).fetchone() or (0,))[0])
