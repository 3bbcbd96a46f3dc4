"""What runs note that no tag holds: their partitions, which of them they tried, their process.

PostgreSQL indexes tags, and refuses a value above some 2,700 bytes (dagster#7875): 200 hosts are longer. So a long list
stands in a table of ours (``notes.py``) under the begin of its digest, which the tag names.

    tag   cc_pipeline/partitions: 200 partitions, 3f0c9a1b
    note  cc_pipeline/partitions/3f0c9a1b: {"CRAWL": ["TARGET", …], …}
    note  cc_pipeline/tried/RUN: the same, of those that the run has in hand, or that failed
    note  cc_pipeline/worker/RUN: the mark of the process that executes it
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

import dagster as dg

from cc_pipeline.defs.notes import delete_notes, names_of_notes, note, noted
from cc_pipeline.defs.partitions import KEYS_TAG, by_crawl, keys_of_range, partition_key, range_of
from cc_pipeline.defs.placement import OURS, Placement
from cc_pipeline.processes import this_process

Pair = tuple[str, str]

#: Bytes of a list that a tag still takes: a person reads some partitions at a glance, and no database minds.
_SHORT: Final = 500
_LIST: Final = "cc_pipeline/partitions/"
_TRIED: Final = "cc_pipeline/tried/"
_WORKER: Final = "cc_pipeline/worker/"
_NAMED: Final = re.compile(r"[\d,]+ partitions, ([0-9a-f]{8,64})")
#: Characters of a list's name, unless another list has it.
_NAME: Final = 8


def keys_tags(instance: dg.DagsterInstance, keys: Iterable[str]) -> dict[str, str]:
    """The tags of a run over the partitions ``keys`` (``crawl|target``), which it makes in the order of their crawls
    here. A long list is noted."""
    asked = by_crawl(keys)
    text = _text(asked)
    if len(text.encode()) > _SHORT:
        text = f"{sum(map(len, asked.values())):,} partitions, {_noted_as(instance, text)}"
    return {KEYS_TAG: text}


def _noted_as(instance: dg.DagsterInstance, text: str) -> str:
    """A name for a list, as short as can be, under which it is noted: people see it."""
    whole = hashlib.sha256(text.encode()).hexdigest()
    short = whole[:_NAME]
    name = short if noted(instance, [_LIST + short]).get(_LIST + short, text) == text else whole
    note(instance, {_LIST + name: text})
    return name


def keys_in(instance: dg.DagsterInstance, tags: Mapping[str, str]) -> list[str] | None:
    """The partitions that ``keys_tags`` wrote into these tags; ``None`` where there is no such tag, or where Dagster's
    own tags say which partitions the run is for.

    Raises ``ValueError`` for a tag that a person wrote wrongly, and for a list that is not there any more.
    """
    return _listed(tags, _lists(instance, [tags]))


def run_partitions(
    instance: dg.DagsterInstance,
    runs: Iterable[dg.DagsterRun],
    ordered: tuple[Sequence[str], Sequence[str]] | None = None,
    at: Placement = OURS,
) -> dict[str, list[Pair]]:
    """The (crawl, domain) pairs of each run, by its id; none for a run with tags that cannot be read: it made nothing.

    ``ordered`` are the crawls and domains that ranges go by, if not those of now. One question, however many runs.
    """
    tags = {run.run_id: run.tags for run in runs}
    if not tags:
        return {}
    lists, (crawls, domains) = _lists(instance, tags.values()), ordered or ordered_keys(instance, at)
    return {run_id: _pairs(own, lists, crawls, domains) for run_id, own in tags.items()}


def ordered_keys(instance: dg.DagsterInstance, at: Placement = OURS) -> tuple[Sequence[str], Sequence[str]]:
    """Crawls and domains in the order in which ranges of runs go by."""
    return at.crawl_keys(instance), at.target_keys(instance)


def _lists(instance: dg.DagsterInstance, every: Iterable[Mapping[str, str]]) -> Mapping[str, str]:
    """The lists that tags name, by their name."""
    named = (_NAMED.fullmatch(tags.get(KEYS_TAG, "")) for tags in every)
    names = {_LIST + one[1] for one in named if one}
    return noted(instance, names) if names else {}


def _listed(tags: Mapping[str, str], lists: Mapping[str, str]) -> list[str] | None:
    text = tags.get(KEYS_TAG)
    if text is None or range_of(tags)[0]:
        return None
    if named := _NAMED.fullmatch(text):
        text = lists.get(_LIST + named[1])
        if text is None:
            raise ValueError("the list that it names is nowhere")
    found = json.loads(text)
    if not isinstance(found, dict) or not all(isinstance(one, list) for one in found.values()):
        raise ValueError(f"the tag {KEYS_TAG} is no JSON object of lists of domains by crawl")
    return [partition_key(crawl, str(domain)) for crawl, domains in found.items() for domain in domains]


def _pairs(
    tags: Mapping[str, str], lists: Mapping[str, str], crawls: Sequence[str], domains: Sequence[str]
) -> list[Pair]:
    try:
        listed = _listed(tags, lists)
    except ValueError:
        return []
    if listed is not None:
        return [(crawl, domain) for crawl, _, domain in (key.partition("|") for key in listed)]
    return [(crawl, domain) for crawl, domain in keys_of_range(*range_of(tags), (crawls, domains))]


def note_tried(instance: dg.DagsterInstance, run_id: str, keys: Iterable[str]) -> None:
    """Notes that a run has tried ``keys`` (``crawl|target``) and nothing else, but what it has recorded."""
    note(instance, {_TRIED + run_id: _text(by_crawl(keys))})


def tried_in(instance: dg.DagsterInstance, runs: Collection[str]) -> dict[str, set[Pair]]:
    """The (crawl, domain) pairs that runs said they tried, by the id of the run, for those that said so."""
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


def delete_strays(
    instance: dg.DagsterInstance, seen: Mapping[str, float], before: float, now: float
) -> dict[str, float]:
    """Deletes notes of runs that are gone, and lists that no run names any more.

    A list is noted before its run is there. So only those go that are in ``seen`` (names, and when each was first seen
    without a run) since ``before``; gives the others, to be ``seen`` the next time.
    """
    stray = []
    for kind in (_TRIED, _WORKER):
        of_runs = [name.removeprefix(kind) for name in names_of_notes(instance, kind)]
        stray += [kind + run_id for run_id in of_runs if instance.get_run_by_id(run_id) is None]
    values = {value for _, every in instance.get_run_tags([KEYS_TAG]) for value in every}
    named = {_LIST + one[1] for one in map(_NAMED.fullmatch, values) if one}
    unnamed = {name: seen.get(name, now) for name in names_of_notes(instance, _LIST) if name not in named}
    delete_notes(instance, [*stray, *(name for name, since in unnamed.items() if since <= before)])
    return {name: since for name, since in unnamed.items() if since > before}


def _text(asked: Mapping[str, Sequence[str]]) -> str:
    return json.dumps(asked, separators=(",", ":"), ensure_ascii=False)
