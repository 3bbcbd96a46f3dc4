"""One question to one dataset: harvests its shards, checks the cost against the settings, and reads or caches its
answer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline import progress
from cc_pipeline.commoncrawl.key_ranges import KeyRange
from cc_pipeline.errors import IndexIncomplete, UserInputError
from cc_pipeline.extensions.host_facts.dataset_files import (
    Shards,
    dataset_transport,
    harvest_dataset,
    page_index_folder,
    read_shards,
)
from cc_pipeline.extensions.host_facts.datasets import OWN_COLUMNS, Dataset
from cc_pipeline.extensions.host_facts.folders import answers_path
from cc_pipeline.extensions.host_facts.keyed_lookup import Endings, Keep, KeyedLookup, KeyedRows, LookupEstimate
from cc_pipeline.extensions.host_facts.shards import Gap, Shard, column_types, stored_shards
from cc_pipeline.index.answer_cache import AnswerCache
from cc_pipeline.index.parquet.fetch import PageIndexes
from cc_pipeline.progress import format_count
from cc_pipeline.transport.client import Transport
from cc_pipeline.transport.faults import FaultKind
from cc_pipeline.workspace.workspace import Workspace

#: Faults of reading a file that was replaced after its footer was read.
_REPLACED_FILE_FAULTS: Final = frozenset(
    {FaultKind.CHANGED_OBJECT, FaultKind.RANGE_NOT_SATISFIABLE, FaultKind.NOT_FOUND}
)


@dataclass(frozen=True, slots=True)
class Facts:
    """Rows of all datasets, with their cost and their gaps.

    ``gaps`` are the unreadable files by dataset: rows may be missing. ``absent`` are the datasets without rows of the
    crawl. ``from_cache`` are those whose answer was cached. ``versions`` are digests of the files of each answer, and
    ``files`` their number.
    """

    table: pa.Table
    requests: int = 0
    bytes: int = 0
    seconds: float = 0.0
    gaps: dict[str, tuple[Gap, ...]] = field(default_factory=dict)
    absent: tuple[str, ...] = ()
    from_cache: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)
    files: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of one dataset: a table with one row a key, with its cost and its gaps."""

    table: pa.Table
    gaps: tuple[Gap, ...]
    is_cached: bool
    absent: bool
    notes: tuple[str, ...]
    version: str
    requests: int
    bytes: int
    files: int


class Question(Protocol):
    """The input of a lookup: key ranges in the dataset's form, a filter within them, and a function that merges the
    rows of a key.

    ``endings`` lets row groups be skipped. ``columns`` are read besides the dataset's own; a file that lacks one is a
    gap. ``identity`` has all inputs of the answer besides the dataset, as JSON-like values.
    """

    ranges: Sequence[KeyRange]
    keep: Keep | None
    endings: Endings | None
    columns: Mapping[str, pa.DataType]
    identity: object

    def rows(self, table: pa.Table) -> pa.Table: ...


def ask(workspace: Workspace, crawl: str, dataset: Dataset, question: Question, *, keep: bool) -> Answer:
    """Returns the answer of a dataset, from the cache or read and then cached if ``keep``. Raises as
    ``host_facts.facts_of_hosts`` does.
    """
    with dataset_transport(workspace, dataset) as reader:
        before = (reader.stats.requests, reader.stats.bytes)
        shards = harvest_dataset(workspace, dataset, crawl, reader)
        answer_cache = AnswerCache(answers_path(workspace.settings))
        name = _answer_name(dataset, shards, question)
        table, gaps = answer_cache.find(name) if keep else None, shards.gaps
        was_cached = table is not None
        if table is None:
            lookup_rows = _read(workspace, crawl, dataset, shards, question, reader)
            changed = [gap.path for gap in lookup_rows.gaps if gap.kind in _REPLACED_FILE_FAULTS]
            if changed:
                # The files were replaced since their footers were read: fetch the footers again, once.
                shards = harvest_dataset(workspace, dataset, crawl, reader, replaced_files=changed)
                name = _answer_name(dataset, shards, question)
                lookup_rows = _read(workspace, crawl, dataset, shards, question, reader)
            table = question.rows(lookup_rows.table)
            gaps = (*gaps, *lookup_rows.gaps)
            if keep and not lookup_rows.gaps:
                answer_cache.keep(name, table)
        after = (reader.stats.requests, reader.stats.bytes)
    notes = shards.notes if shards.paths else (*shards.notes, _absence_note(dataset, crawl, shards))
    spent = (after[0] - before[0], after[1] - before[1])
    return Answer(table, gaps, was_cached, not shards.paths, notes, shards.version, *spent, len(shards.paths))


def kept_answer(workspace: Workspace, crawl: str, dataset: Dataset, question: Question) -> Answer | None:
    """The cached answer, without a request; ``None`` if the answer or one of its inputs is not stored."""
    shards = read_shards(workspace, dataset, crawl)
    if shards is None:
        return None
    table = AnswerCache(answers_path(workspace.settings)).find(_answer_name(dataset, shards, question))
    if table is None:
        return None
    return Answer(table, shards.gaps, True, not shards.paths, (), shards.version, 0, 0, len(shards.paths))


def _answer_name(dataset: Dataset, shards: Shards, question: Question) -> str:
    """The name of an answer in the cache, from all of its inputs."""
    return json.dumps([dataset.version, shards.version, question.identity])


def _read(
    workspace: Workspace, crawl: str, dataset: Dataset, shards: Shards, question: Question, reader: Transport
) -> KeyedRows:
    lookup, unread = _lookup(dataset, shards, question)
    estimate = lookup.estimate()
    _enforce_cost_limit(workspace, dataset, estimate, crawl)
    if estimate.to_read:
        size = progress.human_bytes(estimate.likely_bytes)
        cost_text = f"{dataset.name}: about {size}, {format_count(estimate.requests, 'request')} at most"
        progress.report("lookup", 0, estimate.to_read, cost_text)
    indexes = PageIndexes(page_index_folder(workspace, dataset))
    lookup_rows = lookup.read(reader, indexes, workspace.settings.max_bytes)
    return KeyedRows(lookup_rows.table, [*unread, *lookup_rows.gaps], lookup_rows.cost)


def estimate_lookup(workspace: Workspace, crawl: str, dataset: Dataset, question: Question) -> LookupEstimate:
    """Estimates the bytes and requests of a lookup. Missing footers are fetched, no data is read."""
    with dataset_transport(workspace, dataset) as reader:
        return _lookup(dataset, harvest_dataset(workspace, dataset, crawl, reader), question)[0].estimate()


def combine_facts(table: pa.Table, answers: dict[str, Answer], seconds: float) -> Facts:
    """Combines ``table``, built from ``answers`` by dataset, with their costs and gaps."""
    return Facts(
        table,
        sum(answer.requests for answer in answers.values()),
        sum(answer.bytes for answer in answers.values()),
        seconds,
        {name: answer.gaps for name, answer in answers.items() if answer.gaps},
        tuple(name for name, answer in answers.items() if answer.absent),
        tuple(name for name, answer in answers.items() if answer.is_cached),
        tuple(note for answer in answers.values() for note in answer.notes),
        {name: answer.version for name, answer in answers.items()},
        {name: answer.files for name, answer in answers.items()},
    )


def are_gaps_allowed(workspace: Workspace, facts: Facts) -> bool:
    """Whether the share of unread files of each dataset is within the settings, and no dataset is unread completely."""
    max_share = workspace.settings.max_index_gaps
    file_counts = [(len(gaps), facts.files[name]) for name, gaps in facts.gaps.items()]
    return all(unread < expected and unread / expected <= max_share for unread, expected in file_counts)


def refuse_gaps(workspace: Workspace, facts: Facts, crawl: str) -> None:
    """Raises ``IndexIncomplete`` if files could not be read and the settings do not allow that."""
    if are_gaps_allowed(workspace, facts):
        return
    name, gaps = next(iter(facts.gaps.items()))
    count = sum(len(dataset_gaps) for dataset_gaps in facts.gaps.values())
    raise IndexIncomplete(
        f"{format_count(count, 'file')} of {', '.join(facts.gaps)} could not be read for {crawl}, so rows may be "
        f"missing; the first of {name}: {gaps[0]}",
        "Run this again in ten minutes, when the files are requested again. To continue without the files: "
        "--allow-gaps, or CC_PIPELINE_MAX_INDEX_GAPS (the share of the files that may be missing).",
    )


def check_kinds(datasets: Sequence[Dataset], *, by_url: bool) -> None:
    """Raises ``UserInputError`` if ``datasets`` cannot be asked together about hosts, or about captures."""
    if not datasets:
        raise UserInputError("no dataset was named")
    names = [dataset.name for dataset in datasets]
    if len(set(names)) != len(names):
        raise UserInputError("a dataset is named twice")
    for dataset in datasets:
        if dataset.by_url != by_url:
            subject = "captures of URLs" if dataset.by_url else "hosts"
            raise UserInputError(f"the dataset {dataset.name} is about {subject}")


def label_values(place: pa.Array, *, is_complete: bool) -> pa.Array:
    """The values of a label for rows with their positions in a dataset (null: not in it). If files were not read, rows
    without a position may be in those files: null, not false.
    """
    is_present = pc.is_valid(place)
    return is_present if is_complete else pc.if_else(is_present, is_present, pa.scalar(None, pa.bool_()))


class Columns:
    """Collects the columns of an answer, dataset by dataset. Refuses two columns of one name."""

    def __init__(self, answer_columns: dict[str, pa.ChunkedArray | pa.Array]) -> None:
        self._columns = answer_columns
        self._owner: dict[str, str] = dict.fromkeys((*OWN_COLUMNS, *answer_columns), "the answer itself")

    def add(self, dataset: Dataset, answer: Answer, keys: Sequence[str], place: pa.Array) -> None:
        """Adds the columns of a dataset. ``place`` has the row of the dataset's answer for each row, null if the answer
        lacks it.
        """
        if dataset.action == "label":
            self._add(dataset, dataset.label, label_values(place, is_complete=not answer.gaps))
        elif dataset.action == "join":
            for name in answer.table.column_names:
                if name not in keys:
                    self._add(dataset, dataset.prefix + name, answer.table[name].take(place))

    def table(self) -> pa.Table:
        """All columns."""
        return pa.table(self._columns).combine_chunks()

    def _add(self, dataset: Dataset, name: str, values: pa.ChunkedArray | pa.Array) -> None:
        if name in self._owner:
            raise UserInputError(
                f"the datasets {self._owner[name]} and {dataset.name} both have a column {name}; give {dataset.name} a "
                "prefix in "
                f"{dataset.written_in or 'its file'}"
            )
        self._owner[name] = dataset.name
        self._columns[name] = values


def _lookup(dataset: Dataset, shards: Shards, question: Question) -> tuple[KeyedLookup, list[Gap]]:
    unread: list[Gap] = []
    readable_shards: list[Shard] = []
    for shard in stored_shards(shards.footers, shards.paths, dataset.key, tuple(question.columns)):
        if isinstance(shard, Gap):
            unread.append(shard)
        else:
            readable_shards.append(shard)
    schema = result_schema(dataset, readable_shards, question.columns)
    return KeyedLookup(readable_shards, question.ranges, schema, question.keep, question.endings), unread


def result_schema(dataset: Dataset, shards: Sequence[Shard], extra_columns: Mapping[str, pa.DataType]) -> pa.Schema:
    """The columns of a dataset with their types (declared, else the widest type in its files), and
    ``extra_columns``.
    """
    types = column_types(shard.file for shard in shards)
    if dataset.columns is None:
        column_kinds = {name: kind for name, kind in types.items() if name != dataset.key}
    else:
        column_kinds = {name: kind or types.get(name, pa.string()) for name, kind in dataset.columns.items()}
    return pa.schema([pa.field(name, kind) for name, kind in (column_kinds | dict(extra_columns)).items()])


def _absence_note(dataset: Dataset, crawl: str, shards: Shards) -> str:
    crawls_text = (
        f"; it has {len(shards.crawls)} crawls, {shards.crawls[0]} to {shards.crawls[-1]}" if shards.crawls else ""
    )
    return f"the dataset {dataset.name} has nothing of {crawl}{crawls_text}"


def _enforce_cost_limit(workspace: Workspace, dataset: Dataset, price: LookupEstimate, crawl: str) -> None:
    max_bytes = workspace.settings.max_bytes
    if price.likely_bytes > max_bytes:
        raise UserInputError(
            f"the lookup in {dataset.name} for {crawl} would read {price.likely_bytes:,} bytes (at most "
            f"{price.bytes:,} in {format_count(price.requests, 'request')}: {price.to_read:,} of "
            f"{price.row_groups:,} row groups may match), more than the {max_bytes:,} allowed. Set "
            f"CC_PIPELINE_MAX_BYTES={price.likely_bytes}, or name a narrower target"
        )
