"""The search for leftovers of purged targets in the tables of the lake."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Set
from dataclasses import dataclass

import pyarrow as pa

from cc_pipeline.commoncrawl.slice_slugs import whole_slug
from cc_pipeline.lake.compaction import condemn
from cc_pipeline.lake.lake import Lake
from cc_pipeline.lake.predicates import Prefix, Where
from cc_pipeline.lake.slices import read_liveness, read_purged
from cc_pipeline.lake.streaming import count_generations, count_stored_rows
from cc_pipeline.lake.target_definitions import find_defining_slugs
from cc_pipeline.progress import format_count


def count_purged_rows(lake: Lake) -> dict[str, int]:
    """The rows of purged targets that are in files of tables, by table. They count nowhere, and maintenance drops them.
    Raises ``EnvironmentFault``."""
    counts: Counter[str] = Counter()
    for (_, table), rows in count_generation_rows(lake, list_generations(read_purged(lake))).items():
        counts[table] += rows
    return dict(counts)


def count_generation_rows(lake: Lake, generations: Mapping[str, Set[int]]) -> dict[tuple[str, str], int]:
    """The rows of purged ``generations`` by crawl that are in files of tables, by crawl and table. Raises
    ``EnvironmentFault``."""
    counts: Counter[tuple[str, str]] = Counter()
    for spec in lake.specs.values() if generations else ():
        for file in lake.pin(spec.name).stored_files(generations) if spec.has_slices else ():
            stored = count_generations(lake, spec.name, file)
            counts[file.crawl, spec.name] += sum(stored[number] for number in generations[file.crawl] & stored.keys())
    return dict(+counts)


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
        lost.setdefault(crawl, set()).update(counts.keys() - read_liveness(lake, table, crawl).every)
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


@dataclass(frozen=True, slots=True)
class Leftovers:
    """The ``rows`` of a purged target that are left, by table."""

    rows: Mapping[str, int]

    @property
    def sentences(self) -> tuple[str, ...]:
        """A sentence for each table with rows, or one that there are none."""
        if not self.rows:
            return ("no rows are left in any table; what killed runs did not commit goes after a week",)
        return tuple(f"LEFT: {format_count(count, 'row')} in {table}" for table, count in self.rows.items())


def find_leftovers(lake: Lake, slug: str) -> Leftovers:
    """Searches all tables for rows of the purged target ``slug``, whatever names them. Raises ``EnvironmentFault`` if a
    table cannot be read."""
    rows: Counter[str] = Counter()
    for crawl, table, counts in _count_own_rows(lake, {slug}, {"target": Prefix(slug)}):
        alive = read_liveness(lake, table, crawl).alive
        rows[table] += sum(count for number, count in counts.items() if number not in alive)
    rows["targets"] = len(find_defining_slugs(lake, {slug}))
    return Leftovers(+rows)
