"""The search for leftovers of purged targets, in the tables of the lake and in this home's ``cc.duckdb``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

from cc_pipeline.commoncrawl.slice_slugs import whole_slug
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.lake.compaction import condemn
from cc_pipeline.lake.lake import Lake
from cc_pipeline.lake.predicates import Prefix, Where
from cc_pipeline.lake.published_file import open_bounded
from cc_pipeline.lake.quoting import quote_literal
from cc_pipeline.lake.slices import read_liveness, read_purged
from cc_pipeline.lake.streaming import count_generations, count_stored_rows
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
            return ("no leftovers in any table or cc.duckdb; what killed runs did not commit goes after a week",)
        lines = [f"LEFT: {format_count(count, 'row')} in {table}" for table, count in self.rows.items()]
        counts = [
            (self.superseded, "superseded file", "of tables with its rows; a reader may have them open"),
            (self.published, "row", "in cc.duckdb, which the next run or cc-pipeline automation maintenance removes"),
        ]
        lines += [f"LEFT: {format_count(count, noun)} {relation}" for count, noun, relation in counts if count]
        return tuple(lines)


def count_purged_rows(lake: Lake) -> dict[str, int]:
    """The rows of purged targets that are in files of tables, by table. They count nowhere, and maintenance drops them.
    Raises ``EnvironmentFault``."""
    counts: Counter[str] = Counter()
    for (_, table), rows in count_generation_rows(lake, list_generations(read_purged(lake))).items():
        counts[table] += rows
    return dict(counts)


def count_generation_rows(lake: Lake, generations: Mapping[str, Collection[int]]) -> dict[tuple[str, str], int]:
    """The rows of purged ``generations`` by crawl that are in files of tables, by crawl and table. Raises
    ``EnvironmentFault``."""
    found: dict[tuple[str, str], Counter[int]] = {}
    for spec in lake.specs.values() if generations else ():
        for file in lake.pin(spec.name).stored_files(generations) if spec.has_slices else ():
            counts = count_generations(lake, spec.name, file)
            own = Counter({number: counts[number] for number in counts.keys() & generations[file.crawl]})
            found.setdefault((file.crawl, spec.name), Counter()).update(own)
    counted = {}
    for (crawl, table), counts in found.items():
        # a generation of a moved record may count under the epoch of now
        alive = read_liveness(lake, table, crawl).alive if counts else set()
        counted[crawl, table] = sum(rows for number, rows in counts.items() if number not in alive)
    return {place: rows for place, rows in counted.items() if rows}


def list_generations(purged: pa.Table) -> dict[str, set[int]]:
    """The generations by crawl that rows of ``slices`` name, whatever their tables."""
    numbers: dict[str, set[int]] = {}
    for crawl, tables in zip(purged["crawl"].to_pylist(), purged["tables"].to_pylist(), strict=True):
        numbers.setdefault(crawl, set()).update(state["generation"] for _, state in tables or ())
    return numbers


def condemn_lost(lake: Lake, slugs: Collection[str], where: Where) -> dict[str, set[int]]:
    """The generations by crawl that no row of ``slices`` names, of the targets ``slugs`` that are not defined any more:
    of runs that were killed, or that the purge made fail. No run can commit them from now on. Raises
    ``EnvironmentFault``."""
    undefined = {*slugs} - {*map(whole_slug, find_defining_slugs(lake, slugs))}
    lost: dict[str, set[int]] = {}
    for crawl, table, counts in _count_own_rows(lake, undefined, where):
        lost.setdefault(crawl, set()).update(counts.keys() - read_liveness(lake, table, crawl).named)
    return {crawl: condemn(lake, crawl, numbers) for crawl, numbers in lost.items() if numbers}


def _count_own_rows(lake: Lake, slugs: Collection[str], where: Where) -> Iterator[tuple[str, str, Counter[int]]]:
    """Yields each crawl and table with rows of ``slugs``, and their number by generation."""
    for table in [spec.name for spec in lake.specs.values() if spec.has_targets and slugs]:
        by_crawl: dict[str, Counter[int]] = {}
        for (crawl, target, number), rows in count_stored_rows(lake, table, where).items():
            if whole_slug(target) in slugs:
                by_crawl.setdefault(crawl, Counter())[number] += rows
        for crawl, counts in by_crawl.items():
            yield crawl, table, counts


def find_leftovers(workspace: Workspace, slug: str, crawls: Iterable[str]) -> Leftovers:
    """Searches for rows of the purged target ``slug``, whatever names them; superseded files are those of ``crawls``.
    Nothing is changed. Raises ``EnvironmentFault`` if a table cannot be read."""
    lake = workspace.lake
    tables = [spec.name for spec in lake.specs.values() if spec.has_targets and lake.handle(spec) is not None]
    rows: Counter[str] = Counter()
    for crawl, table, counts in _count_own_rows(lake, {slug}, {"target": Prefix(slug)}):
        alive = read_liveness(lake, table, crawl).alive
        rows[table] += sum(count for number, count in counts.items() if number not in alive)
    rows["targets"] = len(find_defining_slugs(lake, {slug}))
    old_files = [key for table in tables for key in _list_superseded(workspace, table, crawls)]
    superseded = sum(_has_rows(lake, key, slug) for key in old_files)
    return Leftovers(+rows, superseded, _count_published(workspace, slug))


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
