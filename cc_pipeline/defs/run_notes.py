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
    run_list = list(runs)
    if not run_list:
        return {}
    ordered = ordered or ordered_keys(instance, at)
    return {run.run_id: _pairs(run, ordered, at) for run in run_list}


def listed_partitions(run: dg.DagsterRun, namespace: Placement = OURS) -> list[str] | None:
    """The partitions that the configuration of a run names, as far as it can be read; ``None`` for a run of a job that
    is over none or a range."""
    config = op_config(run, namespace)
    if config is None:
        return None
    targets_by_crawl = config.get(LISTED)
    if not isinstance(targets_by_crawl, dict) or not all(
        isinstance(targets, list) for targets in targets_by_crawl.values()
    ):
        return []
    return listed_keys(targets_by_crawl)


def op_config(run: dg.DagsterRun, namespace: Placement = OURS) -> Mapping[str, Any] | None:
    """The configuration of the op of a job over listed partitions; ``None`` for a run of any other job."""
    for job, op in listed_ops().items():
        if run.job_name == namespace.of(job):
            ops: Any = run.run_config.get("ops", {})
            return dict(ops.get(namespace.of(op), {}).get("config", {}))
    return None


def ordered_keys(instance: dg.DagsterInstance, namespace: Placement = OURS) -> tuple[Sequence[str], Sequence[str]]:
    """Crawls and targets in the order in which ranges of runs go by."""
    return namespace.crawl_keys(instance), namespace.target_keys(instance)


def _pairs(run: dg.DagsterRun, ordered: tuple[Sequence[str], Sequence[str]], namespace: Placement) -> list[Pair]:
    partition_keys = listed_partitions(run, namespace)
    if partition_keys is not None:
        return [(crawl, target) for crawl, _, target in (key.partition("|") for key in partition_keys)]
    return [(crawl, target) for crawl, target in keys_of_range(*range_of(run.tags), ordered)]


def note_tried(instance: dg.DagsterInstance, run_id: str, keys: Iterable[str]) -> None:
    """Notes that a run has tried ``keys`` (``crawl|target``) and nothing else, but what it has recorded."""
    note(instance, {_TRIED + run_id: _text(by_crawl(keys))})


def tried_in(instance: dg.DagsterInstance, runs: Collection[str]) -> dict[str, set[Pair]]:
    """The (crawl, target) pairs that runs said they tried, by the id of the run, for those that said so."""
    notes = noted(instance, [_TRIED + run_id for run_id in runs])
    targets_by_run = {name.removeprefix(_TRIED): json.loads(text) for name, text in notes.items()}
    return {
        run_id: {(crawl, target) for crawl, targets in targets_by_crawl.items() for target in targets}
        for run_id, targets_by_crawl in targets_by_run.items()
    }


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
    orphaned = []
    for kind in (_TRIED, _WORKER):
        run_ids = [name.removeprefix(kind) for name in names_of_notes(instance, kind)]
        orphaned += [kind + run_id for run_id in run_ids if instance.get_run_by_id(run_id) is None]
    delete_notes(instance, orphaned)


def _text(targets_by_crawl: Mapping[str, Sequence[str]]) -> str:
    return json.dumps(targets_by_crawl, separators=(",", ":"), ensure_ascii=False)
