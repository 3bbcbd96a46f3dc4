"""Parses stored records into metadata, text, links and feed items, in one pass and one commit."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial

from cc_pipeline.advice import advise
from cc_pipeline.commoncrawl.target_text import text_of_key
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.extraction.engine import LOCAL, Engine, ParseRequest
from cc_pipeline.extraction.group_state import GroupState, RunState, run_and_replan
from cc_pipeline.extraction.parsed_pages import ReusablePages
from cc_pipeline.extraction.plan import ReasonKind, SliceRequest, build_parse_input, options_of, plan
from cc_pipeline.extraction.reusable_records import build_lost_fault
from cc_pipeline.extraction.slice_selection import empty_obsolete_slices
from cc_pipeline.lake.slice import FETCH, PARSE, Metrics, Slice, StageReport
from cc_pipeline.lake.slices import SliceRow, commit_written, draw_generations
from cc_pipeline.lake.streaming import stream_rows
from cc_pipeline.records.schema import PARSED_SCHEMA
from cc_pipeline.workspace.workspace import Workspace


def parse_records(
    workspace: Workspace, crawl: str, slugs: Sequence[str], *, engine: Engine = LOCAL, run: RunState | None = None
) -> StageReport:
    """Parses the records of ``slugs`` in ``crawl`` into the four page tables, by ``engine``. Slices with unchanged
    inputs stay. ``run`` has the states that the stages before left.

    A page that breaks a parser becomes a metadata row that says so. Raises ``EnvironmentFault`` when the lake cannot be
    read or written, and ``UserInputError`` if other homes on the lake parse with other settings. Raises
    ``EnvironmentFault`` also for slices whose stored bytes do not exist any more, after the other slices were
    committed: parsed, their pages would count as missing although they were fetched. Raises ``SlicesChanged`` if other
    processes keep changing the slices.
    """
    state = run or RunState(workspace)
    return run_and_replan(state, crawl, slugs, partial(_parse_all, workspace, crawl, slugs, state, engine))


def _parse_all(workspace: Workspace, crawl: str, slugs: Sequence[str], run: RunState, engine: Engine) -> StageReport:
    started = time.monotonic()
    options = options_of(workspace.settings)
    state = run.take(crawl, slugs)
    target_slices, slice_states = state.target_slices, state.slice_states
    for slug, slices in target_slices.requested.items():
        if all(slice_states[slice_].fetched is None for slice_ in (*slices, *target_slices.additional[slug])):
            raise EnvironmentFault(
                f"{slug} in {crawl} has not been fetched",
                advise(
                    "run",
                    text_of_key(slug),
                    crawl=crawl,
                    sentence="Fetch the target first: {}, or materialize the asset records.",
                ),
            )
    requests = dict.fromkeys(
        (slice_ for slice_ in target_slices.all_slices if slice_states[slice_].fetched is not None), SliceRequest("")
    )
    reasons = plan(requests, slice_states, {}, options, (PARSE,)).reasons_for(PARSE)
    # a refetch changes records of all subsets; other stages of slices that were not requested stay due
    requested_slices = set(target_slices.requested_slices)
    due_slices = [
        slice_
        for slice_, reason in reasons.items()
        if slice_ in requested_slices or reason.kind in (ReasonKind.RECORDS, ReasonKind.INCOMPLETE_ROWS)
    ]
    lost_records = {slice_: count for slice_ in due_slices if (count := slice_states[slice_].lost_records)}
    if parsed_slices := [slice_ for slice_ in due_slices if slice_ not in lost_records]:
        workspace.choose()
        inputs = {slice_: build_parse_input(_get_records(state, slice_).content, options) for slice_ in parsed_slices}
        state = state.with_rows(_parse(workspace, state, inputs, engine))
        run.keep(state)
    if lost_records:
        raise build_lost_fault(crawl, lost_records)
    empty_pages: Metrics = {f"rows:{table}": 0 for table in PARSE.tables}
    pages = {slice_: state.slice_states[slice_].parsed for slice_ in requests}
    metrics = {slice_: empty_pages if row is None else row.metrics for slice_, row in pages.items()}
    report = PARSE.report(metrics, due_slices, started)
    empty_obsolete_slices(workspace, PARSE, target_slices)
    return target_slices.fold_by_target(report)


def _get_records(state: GroupState, slice_: Slice) -> SliceRow:
    fetched = state.slice_states[slice_].fetched
    assert fetched is not None, "it was fetched"
    return fetched


def _parse(
    workspace: Workspace, state: GroupState, inputs: Mapping[Slice, Mapping[str, str]], engine: Engine
) -> list[SliceRow]:
    """Parses the records of slices and commits their pages."""
    crawl = state.target_slices.crawl
    where = {"crawl": crawl, "target": [slice_.target for slice_ in inputs]}
    read = [_get_records(state, slice_).tables["records"].generation for slice_ in inputs]
    parsed = {slice_: row for slice_ in inputs if (row := state.slice_states[slice_].parsed) is not None}
    generations = draw_generations(inputs)
    by_target = {slice_.target: number for slice_, number in generations.items()}
    with workspace.scratch_folder("parse") as folder:
        reusable_pages = ReusablePages(workspace, inputs, parsed)
        records = (
            reusable_pages.take(batch)
            for batch in stream_rows(workspace.lake, "records", where, PARSED_SCHEMA.names, read)
        )
        written = engine.parse(workspace, ParseRequest(crawl, inputs, by_target, records, reusable_pages, folder))
        base = state.base(workspace, PARSE, [*inputs], FETCH)
        return commit_written(workspace.lake, PARSE, inputs, written, generations, base)
