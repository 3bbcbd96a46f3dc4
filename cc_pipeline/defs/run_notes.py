"""Which partitions a run is for, and what runs note that no tag holds: which of them they tried, their process.

note  cc_pipeline/tried/RUN: {"CRAWL": ["TARGET", …], …}, those that the run has in hand, or that failed
note  cc_pipeline/worker/RUN: the mark of the process that executes it
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import dagster as dg

from cc_pipeline.defs.declared.collected import listed_ops
from cc_pipeline.defs.notes import delete_notes, names_of_notes, note, noted
from cc_pipeline.defs.partitions import LISTED, by_crawl, keys_of_range, listed_keys, range_of
from cc_pipeline.defs.placement import OURS, Placement
from cc_pipeline.processes import this_process

Pair = tuple[str, str]

_TRIED: Final = "cc_pipeline/tried/"
_WORKER: Final = "cc_pipeline/worker/"


def run_partitions(
    instance: dg.DagsterInstance,
    runs: Iterable[dg.DagsterRun],
    ordered: tuple[Sequence[str], Sequence[str]] | None = None,
    at: Placement = OURS,
) -> dict[str, list[Pair]]:
    """The (crawl, target) pairs of each run, by its id; none for a run that names none.

    ``ordered`` are the crawls and targets that ranges go by, if not those of now.
    """
    every = list(runs)
    if not every:
        return {}
    ordered = ordered or ordered_keys(instance, at)
    return {run.run_id: _pairs(run, ordered, at) for run in every}


def listed_partitions(run: dg.DagsterRun, at: Placement = OURS) -> list[str] | None:
    """The partitions that the configuration of a run names, as far as it can be read; ``None`` for a run of a job that
    is over none or a range."""
    config = op_config(run, at)
    if config is None:
        return None
    asked = config.get(LISTED)
    if not isinstance(asked, dict) or not all(isinstance(targets, list) for targets in asked.values()):
        return []
    return listed_keys(asked)


def op_config(run: dg.DagsterRun, at: Placement = OURS) -> Mapping[str, Any] | None:
    """The configuration of the op of a job over listed partitions; ``None`` for a run of any other job."""
    for job, op in listed_ops().items():
        if run.job_name == at.of(job):
            ops: Any = run.run_config.get("ops", {})
            return dict(ops.get(at.of(op), {}).get("config", {}))
    return None


def ordered_keys(instance: dg.DagsterInstance, at: Placement = OURS) -> tuple[Sequence[str], Sequence[str]]:
    """Crawls and targets in the order in which ranges of runs go by."""
    return at.crawl_keys(instance), at.target_keys(instance)


def _pairs(run: dg.DagsterRun, ordered: tuple[Sequence[str], Sequence[str]], at: Placement) -> list[Pair]:
    listed = listed_partitions(run, at)
    if listed is not None:
        return [(crawl, target) for crawl, _, target in (key.partition("|") for key in listed)]
    return [(crawl, target) for crawl, target in keys_of_range(*range_of(run.tags), ordered)]


def note_tried(instance: dg.DagsterInstance, run_id: str, keys: Iterable[str]) -> None:
    """Notes that a run has tried ``keys`` (``crawl|target``) and nothing else, but what it has recorded."""
    note(instance, {_TRIED + run_id: _text(by_crawl(keys))})


def tried_in(instance: dg.DagsterInstance, runs: Collection[str]) -> dict[str, set[Pair]]:
    """The (crawl, target) pairs that runs said they tried, by the id of the run, for those that said so."""
    notes = noted(instance, [_TRIED + run_id for run_id in runs])
    asked = {name.removeprefix(_TRIED): json.loads(text) for name, text in notes.items()}
    return {run_id: {(crawl, one) for crawl, own in by.items() for one in own} for run_id, by in asked.items()}


def note_worker(instance: dg.DagsterInstance, run_id: str) -> None:
    """Notes that this process executes a run. The server that started it may end before it does."""
    note(instance, {_WORKER + run_id: this_process()})


def workers_of(instance: dg.DagsterInstance, runs: Collection[str]) -> dict[str, str]:
    """The marks (``processes.py``) of the processes that execute runs, by the id of the run, for those noted."""
    notes = noted(instance, [_WORKER + run_id for run_id in runs])
    return {name.removeprefix(_WORKER): mark for name, mark in notes.items()}


def delete_notes_of(instance: dg.DagsterInstance, run_id: str) -> None:
    """Deletes what a run noted of itself."""
    delete_notes(instance, [_TRIED + run_id, _WORKER + run_id])


def delete_strays(instance: dg.DagsterInstance) -> None:
    """Deletes notes of runs that are gone."""
    stray = []
    for kind in (_TRIED, _WORKER):
        of_runs = [name.removeprefix(kind) for name in names_of_notes(instance, kind)]
        stray += [kind + run_id for run_id in of_runs if instance.get_run_by_id(run_id) is None]
    delete_notes(instance, stray)


def _text(asked: Mapping[str, Sequence[str]]) -> str:
    return json.dumps(asked, separators=(",", ":"), ensure_ascii=False)
