"""The partitions of a run, and notes of runs that no tag can hold: the partitions that they tried, and their process.

note  cc_pipeline/tried/RUN: {"CRAWL": ["TARGET", …], …}, the partitions that the run is trying, or that failed
note  cc_pipeline/worker/RUN: the mark of the process that executes it
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import dagster as dg

from cc_pipeline.defs.declared.collected_parts import listed_ops
from cc_pipeline.defs.home_namespace import OWN_HOME, HomeNamespace
from cc_pipeline.defs.notes import delete_notes, list_note_names, read_notes, write_notes
from cc_pipeline.defs.partitions import PARTITIONS_FIELD, group_by_crawl, keys_of_range, listed_keys, range_of
from cc_pipeline.processes import this_process

Pair = tuple[str, str]

_TRIED: Final = "cc_pipeline/tried/"
_WORKER: Final = "cc_pipeline/worker/"


def run_partitions(
    instance: dg.DagsterInstance,
    runs: Iterable[dg.DagsterRun],
    ordered: tuple[Sequence[str], Sequence[str]] | None = None,
    namespace: HomeNamespace = OWN_HOME,
) -> dict[str, list[Pair]]:
    """Returns the (crawl, target) pairs of each run, by its id; none for a run without any.

    ``ordered`` are the crawls and targets by which ranges are resolved, if not the current ones.
    """
    run_list = list(runs)
    if not run_list:
        return {}
    ordered = ordered or ordered_keys(instance, namespace)
    return {run.run_id: _pairs(run, ordered, namespace) for run in run_list}


def listed_partitions(run: dg.DagsterRun, namespace: HomeNamespace = OWN_HOME) -> list[str] | None:
    """Returns the partitions in the configuration of a run, as far as it can be read; ``None`` for a run of a job over
    none or a range."""
    config = op_config(run, namespace)
    if config is None:
        return None
    targets_by_crawl = config.get(PARTITIONS_FIELD)
    if not isinstance(targets_by_crawl, dict) or not all(
        isinstance(targets, list) for targets in targets_by_crawl.values()
    ):
        return []
    return listed_keys(targets_by_crawl)


def op_config(run: dg.DagsterRun, namespace: HomeNamespace = OWN_HOME) -> Mapping[str, Any] | None:
    """Returns the configuration of the op of a job over listed partitions; ``None`` for a run of any other job."""
    for job, op in listed_ops().items():
        if run.job_name == namespace.qualify(job):
            ops: Any = run.run_config.get("ops", {})
            return dict(ops.get(namespace.qualify(op), {}).get("config", {}))
    return None


def ordered_keys(
    instance: dg.DagsterInstance, namespace: HomeNamespace = OWN_HOME
) -> tuple[Sequence[str], Sequence[str]]:
    """Returns crawls and targets in the order by which ranges of runs are resolved."""
    return namespace.crawl_keys(instance), namespace.target_keys(instance)


def _pairs(run: dg.DagsterRun, ordered: tuple[Sequence[str], Sequence[str]], namespace: HomeNamespace) -> list[Pair]:
    partition_keys = listed_partitions(run, namespace)
    if partition_keys is not None:
        return [(crawl, target) for crawl, _, target in (key.partition("|") for key in partition_keys)]
    return [(crawl, target) for crawl, target in keys_of_range(*range_of(run.tags), ordered)]


def note_tried(instance: dg.DagsterInstance, run_id: str, keys: Iterable[str]) -> None:
    """Stores that a run has tried ``keys`` (``crawl|target``), besides the partitions that it has recorded."""
    write_notes(instance, {_TRIED + run_id: _text(group_by_crawl(keys))})


def read_tried(instance: dg.DagsterInstance, runs: Collection[str]) -> dict[str, set[Pair]]:
    """Returns the (crawl, target) pairs that runs tried, by the id of the run, for runs with such a note."""
    notes = read_notes(instance, [_TRIED + run_id for run_id in runs])
    targets_by_run = {name.removeprefix(_TRIED): json.loads(text) for name, text in notes.items()}
    return {
        run_id: {(crawl, target) for crawl, targets in targets_by_crawl.items() for target in targets}
        for run_id, targets_by_crawl in targets_by_run.items()
    }


def note_worker(instance: dg.DagsterInstance, run_id: str) -> None:
    """Stores that this process executes a run. The server that started it may end before it does."""
    write_notes(instance, {_WORKER + run_id: this_process()})


def read_workers(instance: dg.DagsterInstance, runs: Collection[str]) -> dict[str, str]:
    """Returns the marks (``processes.py``) of the processes that execute runs, by the id of the run, for runs with such
    a note."""
    notes = read_notes(instance, [_WORKER + run_id for run_id in runs])
    return {name.removeprefix(_WORKER): mark for name, mark in notes.items()}


def delete_notes_of(instance: dg.DagsterInstance, run_id: str) -> None:
    """Deletes the notes of a run."""
    delete_notes(instance, [_TRIED + run_id, _WORKER + run_id])


def delete_orphaned_notes(instance: dg.DagsterInstance) -> None:
    """Deletes notes of runs that were deleted."""
    orphaned = []
    for kind in (_TRIED, _WORKER):
        run_ids = [name.removeprefix(kind) for name in list_note_names(instance, kind)]
        orphaned += [kind + run_id for run_id in run_ids if instance.get_run_by_id(run_id) is None]
    delete_notes(instance, orphaned)


def _text(targets_by_crawl: Mapping[str, Sequence[str]]) -> str:
    return json.dumps(targets_by_crawl, separators=(",", ":"), ensure_ascii=False)
