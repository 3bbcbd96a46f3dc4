"""Parses stored records into metadata, text, links and feed items: one pass, four commits.

``page_metadata`` is committed last. A slice is complete only when all four tables have the same digest. After a run was
killed between two commits the digests differ, and publishing leaves the slice out (see publish/publish).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.extraction.engine import LOCAL, Engine, ToParse
from cc_pipeline.extraction.parsed_pages import PagesBefore
from cc_pipeline.extraction.parsed_pages import options_of as parse_options
from cc_pipeline.extraction.plan import Wanted, Why, options_of, parsed_from, plan
from cc_pipeline.extraction.reusable_records import gone
from cc_pipeline.extraction.run_inputs import RunInputs, planned_again
from cc_pipeline.extraction.standing import Standing
from cc_pipeline.extraction.target_slices import retire_others
from cc_pipeline.lake.row_counts import committed_counts
from cc_pipeline.lake.slice import FETCH, PAGE_TABLES, PARSE, Figures, Slice, StageReport, targets_by_crawl
from cc_pipeline.lake.streaming import count_rows, stream_rows
from cc_pipeline.records.schema import PARSED_SCHEMA
from cc_pipeline.settings import Settings
from cc_pipeline.workspace.workspace import Workspace


def parse_records(workspace: Workspace, crawl: str, slugs: Sequence[str], *, engine: Engine = LOCAL) -> StageReport:
    """Parses the records of ``slugs`` in ``crawl`` into the four page tables, by ``engine``. Slices with unchanged
    inputs stay.

    A page that breaks a parser becomes a metadata row that says so. Raises ``EnvironmentFault`` when the lake cannot be
    read or written, and ``UserInputError`` if other homes on the lake parse with other settings. Raises
    ``EnvironmentFault`` also for slices whose stored bytes do not exist any more, after the other slices were
    committed: parsed, their pages would count as missing although they were fetched. Raises as
    :func:`~cc_pipeline.extraction.run_inputs.planned_again` does.
    """
    return planned_again(workspace, crawl, slugs, lambda run: _parse_all(workspace, crawl, slugs, run, engine))


def _parse_all(workspace: Workspace, crawl: str, slugs: Sequence[str], run: RunInputs, engine: Engine) -> StageReport:
    started = time.monotonic()
    settings = workspace.settings
    known = run.take_state(crawl, slugs)
    asked, before = known.asked, known.standings
    for slug, own in asked.for_.items():
        if all(before[slice_].fetched is None for slice_ in (*own, *asked.beside[slug])):
            raise EnvironmentFault(f"{slug} in {crawl} has not been fetched", "Materialize records first.")
    there = dict.fromkeys((slice_ for slice_ in asked.every if before[slice_].fetched is not None), Wanted(""))
    due = plan(there, before, {}, options_of(settings), (PARSE,)).of(PARSE)
    # a refetch changes records of all subsets; other stages of slices that were not requested stay due
    mine = set(asked.slices)
    todo = [slice_ for slice_, why in due.items() if slice_ in mine or why.why in (Why.RECORDS, Why.TORN)]
    lost = {slice_: before[slice_].lost for slice_ in todo if before[slice_].lost}
    if sound := {s: _made_from(before[s], settings) for s in todo if s not in lost}:
        workspace.choose()
        run.expect(FETCH, {slice_: _says(before[slice_]) for slice_ in sound})
        whole = [slice_ for slice_ in sound if not before[slice_].torn]
        with run.replacing(PARSE, {slice_: before[slice_] for slice_ in whole}):
            _parse(workspace, crawl, sound, engine)
    if lost:
        raise gone(crawl, lost)
    report = PARSE.report(page_figures(workspace, there), todo, started)
    retire_others(workspace, PARSE, asked)
    return asked.folded(report)


def _says(stands: Standing) -> str:
    assert stands.fetched is not None, "it was fetched"
    return stands.fetched.says


def _made_from(stands: Standing, settings: Settings) -> str:
    options = options_of(settings)
    return parsed_from(_says(stands), options.parser, options.extractor, options.markdown)


def _parse(workspace: Workspace, crawl: str, made_from: Mapping[Slice, str], engine: Engine) -> None:
    where = {"crawl": crawl, "target": [slice_.target for slice_ in made_from]}
    with workspace.scratch_folder("parse") as folder:
        before = PagesBefore(workspace, made_from, parse_options(workspace.settings))
        records = (before.take(batch) for batch in stream_rows(workspace.lake, "records", where, PARSED_SCHEMA.names))
        engine.parse(workspace, ToParse(crawl, made_from, records, before, folder))


def page_figures(workspace: Workspace, slices: Collection[Slice]) -> dict[Slice, Figures]:
    """``rows:<table>`` and ``version:<table>`` of every page table for each slice, as they were committed. Rows are
    counted for slices whose count the log does not have."""
    lake = workspace.lake
    figures = PARSE.versions(lake, slices)
    for table in PAGE_TABLES:
        said = committed_counts(lake, table, [(slice_.crawl, slice_.target) for slice_ in slices])
        unknown = [slice_ for slice_ in slices if said[slice_.crawl, slice_.target] is None]
        there: Counter[tuple[str, ...]] = Counter()
        for crawl, targets in targets_by_crawl(unknown).items():
            there += count_rows(lake, table, {"crawl": crawl, "target": targets})
        for slice_ in slices:
            key = (slice_.crawl, slice_.target)
            count = said[key]
            figures[slice_][f"rows:{table}"] = there[key] if count is None else count
    return figures
