"""Parts that all lookups share: the workspace, the named crawls and targets, the available indexes, and their
captures."""

from __future__ import annotations

import hashlib
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cc_pipeline.advice import advise, option
from cc_pipeline.api.reporter import get_reporter
from cc_pipeline.api.run_steps import harvest_crawls, harvest_despite_gaps, resolve_crawls
from cc_pipeline.api.user_input import refuse_unnamed_captures
from cc_pipeline.commoncrawl.target import GIVEN_KIND, Target
from cc_pipeline.errors import DataFault, EnvironmentFault, Incomplete
from cc_pipeline.progress import format_count, human_bytes
from cc_pipeline.settings import Settings, environment_value, load_settings
from cc_pipeline.workspace.claim import claim_existing_home

if TYPE_CHECKING:
    import pyarrow as pa

    from cc_pipeline.commoncrawl.crawls import Crawl
    from cc_pipeline.index.lookup import IndexSources
    from cc_pipeline.workspace.workspace import Workspace

#: Columns that every lookup needs, to decide whether a capture belongs to the target and to locate its record.
PLACE = ("url", "url_host_name", "url_surtkey", "warc_filename", "warc_record_offset", "warc_record_length")


class NoIndex(EnvironmentFault):
    """Neither the home nor the source has an index of a crawl that could be asked."""


@dataclass(slots=True)
class LookupCosts:
    """What the lookups of ``crawls`` found and cost, in ``seconds`` and ``bytes`` read; and how many of them have a
    note."""

    crawls: list[str] = field(default_factory=list)
    captures: int = 0
    requests: int = 0
    bytes: int = 0
    seconds: float = 0.0
    notes: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class LookupRequest:
    """The targets and crawls of a lookup. ``targets`` have distinct slugs, ``crawls`` are ids that the source has.
    ``harvests``: the index of a crawl is harvested first where it is missing. ``costs`` are those of the crawls that
    were looked up."""

    workspace: Workspace
    crawls: tuple[str, ...]
    targets: tuple[Target, ...]
    harvests: bool = False
    costs: LookupCosts = field(default_factory=LookupCosts)

    @property
    def settings(self) -> Settings:
        """The settings of the workspace."""
        return self.workspace.settings


@contextmanager
def open_lookup(
    settings: Settings, targets: Sequence[Target], crawls: Sequence[str], *, where: str = "", harvest: bool = False
) -> Iterator[LookupRequest]:
    """Opens a workspace for the block and resolves the named crawls. ``where`` is a condition on the captures of all
    targets; the slugs of the targets stay the same.

    Claims the home, because its catalog must never answer for another source. Raises ``UserInputError`` for text that
    is no crawl or condition, for captures that nobody added, and for a home of another source. No home is made then.
    """
    parsed = tuple(targets)
    if where:
        parsed = tuple(replace(target.where_too(where), slug=target.slug) for target in parsed)
    claim_existing_home(settings)
    from cc_pipeline.workspace.workspace import open_workspace

    refuse_unnamed_captures(settings, parsed)
    with open_workspace(settings) as workspace:
        crawl_ids = resolve_crawls(workspace, crawls)
        workspace.claim()
        yield LookupRequest(workspace, tuple(crawl_ids), parsed, harvest)


def find_index_sources(
    workspace: Workspace, crawl: str, via: str, *, columns: Sequence[str] | None = None, harvest: bool = False
) -> IndexSources:
    """Returns the indexes of a workspace for one crawl. ``harvest`` first reads footers that the home lacks.

    Raises ``NoIndex`` if the crawl has no index; it names the command that makes one. Raises ``EnvironmentFault`` if
    ``via`` needs a harvest that the home does not have.
    """
    from cc_pipeline.harvesting.index_sources import index_sources
    from cc_pipeline.index.gaps import index_advice, name_subsets
    from cc_pipeline.index.locators import AUTO, PARQUET
    from cc_pipeline.index.lookup import open_locators

    subsets = workspace.settings.subsets
    if harvest and via in (AUTO, PARQUET) and (needs_harvest(workspace, crawl) or has_gaps(workspace, crawl)):
        harvest_despite_gaps(lambda: harvest_crawls(workspace, [crawl]))
    elif via == PARQUET and needs_harvest(workspace, crawl):
        raise EnvironmentFault(
            f"the index of {crawl} has not been harvested: this home does not know yet which index files to read",
            advise("index harvest", crawl=crawl, subset=name_subsets(subsets), sentence="Harvest the index once: {}"),
        )
    sources = index_sources(workspace, crawl)
    with open_locators(crawl, subsets, sources, via) as available:
        is_missing = not available
    if is_missing and via not in (AUTO, PARQUET):
        raise NoIndex(
            f"there is no {via} index of {crawl}, and none can be made",
            f"Search another index: leave out {option(index=via)}",
        )
    if is_missing:
        raise NoIndex(f"this home has no index of {crawl}", index_advice(crawl, subsets))
    return replace(sources, columns=None if columns is None else tuple(columns))


def needs_harvest(workspace: Workspace, crawl: str) -> bool:
    """Whether ``crawl`` has a columnar index of which a selected subset is not in the catalog yet."""
    from cc_pipeline.commoncrawl.crawls import ARC_CRAWLS
    from cc_pipeline.harvesting.catalog import open_catalog
    from cc_pipeline.index.gaps import unharvested

    subsets = workspace.settings.subsets
    if crawl in ARC_CRAWLS:
        return False
    with open_catalog(workspace.lake) as catalog:
        coverage_rows = [row for row in catalog.coverage(crawl).to_pylist() if row["subset"] in subsets]
        is_unharvested = not any(row["harvested"] or not row["expected"] for row in coverage_rows)
        return is_unharvested or bool(unharvested(catalog, crawl, subsets))


def has_gaps(workspace: Workspace, crawl: str) -> bool:
    """Whether files of the crawl's columnar index could not be read when it was harvested."""
    from cc_pipeline.harvesting.catalog import catalog_gaps

    return bool(catalog_gaps(workspace, [crawl]))


def look_up_captures(lookup_request: LookupRequest, crawl: str, read: Sequence[str] | None) -> list[pa.Table]:
    """Returns a table of captures per target, in the targets' order, with a ``target`` column. Adds to the costs."""

    from cc_pipeline.commoncrawl.target import by_subsets
    from cc_pipeline.index.lookup import look_up

    settings = lookup_request.settings
    started = time.monotonic()
    answers = []
    if named_targets := [target for target in lookup_request.targets if target.kind == GIVEN_KIND]:
        from cc_pipeline.extraction.locate import load_named_captures

        answers.append(load_named_captures(lookup_request.workspace, crawl, named_targets))
    if indexed_targets := [target for target in lookup_request.targets if target.kind != GIVEN_KIND]:
        sources = find_index_sources(
            lookup_request.workspace, crawl, settings.index, columns=read, harvest=lookup_request.harvests
        )
        with get_reporter().bars():
            answers += [
                look_up(crawl, subsets, group, sources, via=settings.index)
                for subsets, group in by_subsets(indexed_targets, settings.subsets).items()
            ]
    captures_by_slug = {slug: table for answer in answers for slug, table in answer.captures.items()}
    tables = [_add_target_column(target, captures_by_slug[target.slug]) for target in lookup_request.targets]
    costs = lookup_request.costs
    costs.crawls.append(crawl)
    costs.captures += sum(table.num_rows for table in tables)
    costs.requests += sum(lookup.requests for lookup in answers)
    costs.bytes += sum(lookup.bytes for lookup in answers)
    costs.seconds += time.monotonic() - started
    costs.notes.update({note for answer in answers for note in answer.notes})
    return tables


def report_costs(costs: LookupCosts) -> None:
    """Reports the costs, and each note once."""
    first, is_single = next(iter(costs.crawls), ""), len(costs.crawls) == 1
    get_reporter().notice(
        f"{first if is_single else format_count(len(costs.crawls), 'crawl')}: "
        f"{format_count(costs.captures, 'capture')} found with {format_count(costs.requests, 'request')}, "
        f"{human_bytes(costs.bytes)} read, in {costs.seconds:.1f} s"
    )
    notes = costs.notes
    if not is_single:
        # estimates differ from crawl to crawl
        notes = Counter(note.partition(", estimated")[0] for note in costs.notes.elements())
    for note, count in notes.items():
        get_reporter().notice(f"{first if is_single else format_count(count, 'crawl')}: {note}")


def _add_target_column(target: Target, table: pa.Table) -> pa.Table:
    import pyarrow as pa

    from cc_pipeline.commoncrawl.index_schema import NAMED_CAPTURES

    extended = table.add_column(0, NAMED_CAPTURES.field("target"), pa.repeat(pa.scalar(target.slug), table.num_rows))
    return extended.select(NAMED_CAPTURES.names)


def look_up_each_crawl(
    crawls: Sequence[str], look_up: Callable[[str], list[pa.Table]], failed: list[str]
) -> Iterator[tuple[str, list[pa.Table]]]:
    """Calls ``look_up`` for each crawl in turn and yields the crawl with its tables.

    Of several crawls, one without an index is left out with a note. One whose index cannot be read is added to
    ``failed``. The other crawls are looked up all the same. Raises ``NoIndex`` at the end if none has an index.
    """
    without_index: list[NoIndex] = []
    for crawl in crawls:
        try:
            tables = look_up(crawl)
        except (EnvironmentFault, DataFault) as fault:
            if len(crawls) == 1:
                raise
            problem = fault.problem if isinstance(fault, EnvironmentFault) else str(fault)
            if isinstance(fault, NoIndex):
                get_reporter().note(f"{problem}, so {crawl} is skipped. {fault.advice}")
                without_index.append(fault)
            else:
                advice = f". {fault.advice}" if isinstance(fault, EnvironmentFault) and fault.advice else ""
                get_reporter().note(f"{crawl} could not be searched: {problem}{advice}")
                failed.append(crawl)
            continue
        yield crawl, tables
    if without_index and len(without_index) == len(crawls):
        raise NoIndex(f"nothing was searched: none of the {len(crawls):,} crawls has an index", without_index[0].advice)


def refuse_failed(question: LookupRequest, failed: Sequence[str]) -> None:
    """Raises ``Incomplete`` if crawls could not be asked."""
    if failed:
        raise Incomplete(
            f"{len(failed)} of {len(question.crawls)} crawls could not be searched: {', '.join(failed)}",
            option(crawl=failed, sentence="The results lack the captures of these crawls. Search them again: {}"),
        )


def columns_to_read(names: Sequence[str]) -> tuple[str, ...] | None:
    """Returns the columns of the columnar index that these columns of a capture are made of; ``None`` for all."""
    if "extra_columns" in names:
        return None
    derived = ("url_host_registered_domain",) if "domain" in names else ()
    return tuple(dict.fromkeys((*names, *PLACE, *derived)))


def load_settings_without_home(home: str | None, **overrides: Any) -> Settings:
    """Loads settings for commands that need no home: those of the named home, else of the usual home if it exists, else
    of a cache folder. Claims an existing home. Raises as ``load_settings`` and ``claim_existing_home``."""
    settings = load_settings(home=home, **overrides)
    if claim_existing_home(settings):
        return settings
    if home is None and environment_value("home") is None:
        name = hashlib.sha256(settings.source.encode()).hexdigest()[:12]
        base = os.environ.get("XDG_CACHE_HOME", "").strip() or Path.home() / ".cache"
        return load_settings(home=str(Path(base) / "cc_pipeline" / name), **overrides)
    return settings


def find_named_crawls(workspace: Workspace, texts: Sequence[str] | None) -> list[Crawl] | None:
    """Returns the crawls that a person named; ``None`` if none is named, which means all. Sends no request for each
    crawl."""
    from cc_pipeline.commoncrawl.crawls import NEWEST, age, is_selection, select
    from cc_pipeline.harvesting.crawls import find_crawl, known_crawls

    if not texts:
        return None
    crawls_by_id: dict[str, Crawl] = {}
    for text in texts:
        if text == NEWEST or is_selection(text, workspace.crawl_list.crawls):
            matches = select(text, known_crawls(workspace).crawls)
        else:
            matches = (find_crawl(workspace, text),)
        crawls_by_id |= {crawl.id: crawl for crawl in matches}
    return sorted(crawls_by_id.values(), key=age, reverse=True)
