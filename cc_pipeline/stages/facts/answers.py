"""What datasets say of the hosts of a target, and of captures: one row a host, one row a capture."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline.commoncrawl.btree_keys import KeyRange
from cc_pipeline.commoncrawl.domains import registered_domain
from cc_pipeline.commoncrawl.host_keys import HostForm, HostRanges, WwwRule, host_key, host_of_surt
from cc_pipeline.commoncrawl.target import Target
from cc_pipeline.errors import IndexIncomplete, UserInputError
from cc_pipeline.index.keyed.kept_answers import KeptAnswers
from cc_pipeline.index.keyed.lookup import KEY_TEXT, KeyedLookup, KeyedPrice
from cc_pipeline.index.keyed.shards import Gap, Shard, column_types, stored_shards
from cc_pipeline.index.parquet.fetch import PageIndexes
from cc_pipeline.index.parquet.read import rows_in_ranges
from cc_pipeline.stages.facts.datasets import OWN_COLUMNS, Dataset
from cc_pipeline.stages.facts.folding import folded
from cc_pipeline.stages.facts.harvest import Shards, dataset_transport, harvest_dataset, kept_shards
from cc_pipeline.stages.workspace import Workspace

HOST = "surt_host_name"
#: Columns of an answer about hosts that are no dataset's.
HOST_FIELDS = (
    pa.field("crawl", pa.string(), nullable=False),
    pa.field(HOST, pa.string(), nullable=False),
    pa.field("host", pa.string(), nullable=False),
    pa.field("domain", pa.string()),
)


@dataclass(frozen=True, slots=True)
class Facts:
    """Rows of all datasets, and how they were had.

    ``gaps`` are, by dataset, the files that could not be read: rows may be missing. ``absent`` are the datasets that
    say nothing about the crawl. ``kept`` are those whose answer was on this disk already. ``versions`` are digests of
    the files that each answer was made from, ``files`` how many these are.
    """

    table: pa.Table
    requests: int = 0
    bytes: int = 0
    seconds: float = 0.0
    gaps: dict[str, tuple[Gap, ...]] = field(default_factory=dict)
    absent: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)
    files: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Answer:
    table: pa.Table
    gaps: tuple[Gap, ...]
    kept: bool
    absent: bool
    notes: tuple[str, ...]
    version: str
    requests: int
    bytes: int
    files: int


def host_facts(workspace: Workspace, crawl: str, target: Target, datasets: Sequence[Dataset]) -> pa.Table:
    """One row for each host of ``target`` that ``datasets`` know, sorted by SURT host key: ``HOST_FIELDS``, then the
    columns of each dataset, null where it lacks the host or the crawl.

    Raises ``IndexIncomplete`` where files of a dataset could not be read and the settings do not allow that, and as
    :func:`facts_of_hosts` does.
    """
    found = facts_of_hosts(workspace, crawl, target, datasets)
    refuse_gaps(workspace, found, crawl)
    return found.table


def facts_of_hosts(workspace: Workspace, crawl: str, target: Target, datasets: Sequence[Dataset]) -> Facts:
    """The same with its cost, and with what it lacks said instead of raised. The answer is kept: the next one costs no
    request.

    Raises ``UserInputError`` for datasets about URLs, for two columns of one name, and for a look-up dearer than the
    settings' ``max_bytes``; ``EnvironmentFault`` when the source fails.
    """
    return _facts(workspace, crawl, [target], datasets, keep=True)


def facts_at_hand(workspace: Workspace, crawl: str, target: Target, datasets: Sequence[Dataset]) -> Facts | None:
    """The same where :func:`facts_of_hosts` was asked before and its answer was kept: without a request. Datasets whose
    answer is not here are left out; ``None`` where none is."""
    here = []
    for dataset in datasets:
        shards = kept_shards(workspace, dataset, crawl)
        name = None if shards is None else _name_of(dataset, shards, _OfHosts(dataset, HostRanges(target)))
        if name is not None and KeptAnswers(workspace.settings.cache_path / "facts").find(name) is not None:
            here.append(dataset)
    return _facts(workspace, crawl, [target], here, keep=True, at_hand=True) if here else None


def facts_of_targets(workspace: Workspace, crawl: str, targets: Sequence[Target], datasets: Sequence[Dataset]) -> Facts:
    """The same of the hosts of all ``targets`` together, each once, in one look-up that is not kept
    (:func:`rows_of_target` takes those of one)."""
    return _facts(workspace, crawl, targets, datasets, keep=False)


def _facts(
    workspace: Workspace,
    crawl: str,
    targets: Sequence[Target],
    datasets: Sequence[Dataset],
    *,
    keep: bool,
    at_hand: bool = False,
) -> Facts:
    started = time.monotonic()
    _check_kinds(datasets, by_url=False)
    hosts = HostRanges(*targets)
    answers = {
        dataset.name: _ask(workspace, crawl, dataset, _OfHosts(dataset, hosts), keep=keep, at_hand=at_hand)
        for dataset in datasets
    }
    table = _joined(datasets, answers)
    keys = table[HOST].to_pylist()
    names = [host_of_surt(key) for key in keys]
    own = [
        pa.array([crawl] * len(keys), pa.string()),
        table[HOST],
        pa.array(names, pa.string()),
        pa.array([registered_domain(name.partition(":")[0]) for name in names], pa.string()),
    ]
    others = [name for name in table.column_names if name != HOST]
    schema = pa.schema([*HOST_FIELDS, *(table.schema.field(name) for name in others)])
    rows = pa.Table.from_arrays([*own, *(table[name] for name in others)], schema=schema).combine_chunks()
    return Facts(
        rows,
        sum(one.requests for one in answers.values()),
        sum(one.bytes for one in answers.values()),
        time.monotonic() - started,
        {name: one.gaps for name, one in answers.items() if one.gaps},
        tuple(name for name, one in answers.items() if one.absent),
        tuple(name for name, one in answers.items() if one.kept),
        tuple(note for one in answers.values() for note in one.notes),
        {name: one.version for name, one in answers.items()},
        {name: one.files for name, one in answers.items()},
    )


def price_of_hosts(
    workspace: Workspace, crawl: str, target: Target, datasets: Sequence[Dataset]
) -> dict[str, KeyedPrice]:
    """What each dataset's look-up would read; footers that are not here yet are fetched, no data is read."""
    _check_kinds(datasets, by_url=False)
    hosts = HostRanges(target)
    found = {}
    for dataset in datasets:
        with dataset_transport(workspace, dataset) as reader:
            shards = harvest_dataset(workspace, dataset, crawl, reader)
            lookup, _ = _lookup(dataset, shards, _OfHosts(dataset, hosts))
            found[dataset.name] = lookup.price()
    return found


def rows_of_target(facts: pa.Table, target: Target) -> pa.Table:
    """Those rows of an answer about several targets that are of hosts of this one."""
    keys = facts[HOST].combine_chunks().cast(pa.binary())
    return facts.take(pa.array(rows_in_ranges(keys, HostRanges(target).surt)))


def gaps_allowed(workspace: Workspace, facts: Facts) -> bool:
    """Whether no dataset lacks more than the share of its files that the settings allow, and none lacks all."""
    most = workspace.settings.max_index_gaps
    lacking = [(len(gaps), facts.files[name]) for name, gaps in facts.gaps.items()]
    return all(unread < expected and unread / expected <= most for unread, expected in lacking)


def refuse_gaps(workspace: Workspace, facts: Facts, crawl: str) -> None:
    """Raises ``IndexIncomplete`` where files could not be read and the settings do not allow them to be missing."""
    if gaps_allowed(workspace, facts):
        return
    name, gaps = next(iter(facts.gaps.items()))
    count = sum(len(each) for each in facts.gaps.values())
    raise IndexIncomplete(
        f"{count:,} files of {', '.join(facts.gaps)} could not be read for {crawl}, so hosts may be missing; the first "
        f"of {name}: {gaps[0]}",
        "They are asked for again in an hour. To go without them: --allow-gaps, or CC_PIPELINE_MAX_INDEX_GAPS (the "
        "share of the files that may be missing).",
    )


class _OfHosts:
    """The question about hosts to one dataset."""

    def __init__(self, dataset: Dataset, hosts: HostRanges) -> None:
        self.dataset = dataset
        self.hosts = hosts
        self.form: HostForm = dataset.form  # type: ignore[assignment]  # checked when the dataset was read
        www: WwwRule = dataset.www  # type: ignore[assignment]
        self.ranges: Sequence[KeyRange] = hosts.of(self.form, www)
        self.keep: Callable[[pa.Array], npt.NDArray[np.bool_]] | None = (
            None if self.form == "surt_host" else self._meant
        )
        self.named = [self.form, www, [[each.start.hex(), (each.end or b"").hex()] for each in hosts.surt]]
        self.extra: tuple[str, ...] = ()

    def _meant(self, keys: pa.Array) -> npt.NDArray[np.bool_]:
        found = (host_key(key.decode("utf-8", "replace"), self.form) for key in keys.to_pylist())
        return np.fromiter((one is not None and self.hosts.holds(one.surt) for one in found), bool, len(keys))

    def rows(self, table: pa.Table) -> pa.Table:
        """The rows under their SURT keys, one a host."""
        others = table.drop_columns([KEY_TEXT])
        if self.form == "surt_host":
            keyed, www = table[KEY_TEXT], None
        else:
            found = [host_key(text, self.form) for text in table[KEY_TEXT].to_pylist()]
            keyed = pa.array([one.surt if one else None for one in found], pa.string())
            www = pa.array([one.www if one else None for one in found], pa.bool_())
        return folded(others.add_column(0, HOST, keyed), HOST, www, self.dataset.fold)


def _name_of(dataset: Dataset, shards: Shards, question: _OfHosts) -> str:
    """What an answer is kept under: all that it depends on."""
    return json.dumps([dataset.version, shards.version, question.named])


def _ask(
    workspace: Workspace, crawl: str, dataset: Dataset, question: _OfHosts, *, keep: bool, at_hand: bool
) -> _Answer:
    with dataset_transport(workspace, dataset) as reader:
        before = (reader.stats.requests, reader.stats.bytes)
        here = kept_shards(workspace, dataset, crawl) if at_hand else None
        shards = here or harvest_dataset(workspace, dataset, crawl, reader)
        kept = KeptAnswers(workspace.settings.cache_path / "facts")
        name = _name_of(dataset, shards, question)
        table, gaps = kept.find(name) if keep else None, shards.gaps
        known = table is not None
        if table is None:
            lookup, unread = _lookup(dataset, shards, question)
            _refuse_dear(workspace, dataset, lookup.price(), crawl)
            found = lookup.read(reader, _indexes(workspace), workspace.settings.max_bytes)
            table = question.rows(found.table)
            gaps = (*gaps, *unread, *found.gaps)
            if keep and not unread and not found.gaps:
                kept.keep(name, table)
        after = (reader.stats.requests, reader.stats.bytes)
    notes = shards.notes if shards.paths else (*shards.notes, _absent(dataset, crawl, shards))
    spent = (after[0] - before[0], after[1] - before[1])
    return _Answer(table, gaps, known, not shards.paths, notes, shards.version, *spent, len(shards.paths))


def _lookup(dataset: Dataset, shards: Shards, question: _OfHosts) -> tuple[KeyedLookup, list[Gap]]:
    unread: list[Gap] = []
    known: list[Shard] = []
    for each in stored_shards(shards.footers, shards.paths, dataset.key):
        if isinstance(each, Gap):
            unread.append(each)
        else:
            known.append(each)
    return KeyedLookup(known, question.ranges, result_schema(dataset, known), question.keep), unread


def result_schema(dataset: Dataset, shards: Sequence[Shard]) -> pa.Schema:
    """The columns of a dataset with their types: as declared, else the widest that its files have."""
    types = column_types(shard.file for shard in shards)
    if dataset.columns is None:
        return pa.schema([pa.field(name, kind) for name, kind in types.items() if name != dataset.key])
    named = {name: kind or types.get(name, pa.string()) for name, kind in dataset.columns.items()}
    return pa.schema([pa.field(name, kind) for name, kind in named.items()])


def _indexes(workspace: Workspace) -> PageIndexes:
    return PageIndexes(workspace.settings.cache_path / "page-indexes")


def _absent(dataset: Dataset, crawl: str, shards: Shards) -> str:
    has = f"; it has {len(shards.crawls)} crawls, {shards.crawls[0]} to {shards.crawls[-1]}" if shards.crawls else ""
    return f"{dataset.name} says nothing about {crawl}{has}"


def _refuse_dear(workspace: Workspace, dataset: Dataset, price: KeyedPrice, crawl: str) -> None:
    most = workspace.settings.max_bytes
    if price.likely_bytes > most:
        raise UserInputError(
            f"the look-up in {dataset.name} for {crawl} would read {price.likely_bytes:,} bytes (at most "
            f"{price.bytes:,} in {price.requests:,} requests: {price.to_read:,} of {price.row_groups:,} row groups may "
            f"have the hosts), more than the {most:,} allowed. Set CC_PIPELINE_MAX_BYTES={price.likely_bytes}, or name "
            "a narrower target"
        )


def _check_kinds(datasets: Sequence[Dataset], *, by_url: bool) -> None:
    if not datasets:
        raise UserInputError("no dataset was named")
    names = [dataset.name for dataset in datasets]
    if len(set(names)) != len(names):
        raise UserInputError("a dataset is named twice")
    for dataset in datasets:
        if dataset.by_url != by_url:
            what = "captures of URLs" if dataset.by_url else "hosts"
            raise UserInputError(f"the dataset {dataset.name} is about {what}")


def _joined(datasets: Sequence[Dataset], answers: dict[str, _Answer]) -> pa.Table:
    """All datasets' columns on the SURT host key. Hosts are those of the joined datasets, of all if none is joined."""
    giving = [one for one in datasets if one.action == "join"] or list(datasets)
    every = [chunk for one in giving for chunk in answers[one.name].table[HOST].chunks]
    hosts = pc.unique(pa.chunked_array(every, pa.string()))
    for one in datasets:
        if one.inner or one.action == "filter":
            hosts = hosts.filter(pc.is_in(hosts, answers[one.name].table[HOST].combine_chunks()))
    hosts = hosts.take(pc.sort_indices(hosts))
    columns: dict[str, pa.ChunkedArray | pa.Array] = {HOST: hosts}
    owner: dict[str, str] = dict.fromkeys(OWN_COLUMNS, "the answer itself")
    for one in datasets:
        table = answers[one.name].table
        place = pc.index_in(hosts, table[HOST].combine_chunks())
        if one.action == "label":
            here = pc.is_valid(place)
            if answers[one.name].gaps:
                here = pc.if_else(here, True, pa.scalar(None, pa.bool_()))
            _add(columns, owner, one, one.label, here)
        elif one.action == "join":
            for name in table.column_names:
                if name != HOST:
                    _add(columns, owner, one, one.prefix + name, table[name].take(place))
    return pa.table(columns)


def _add(
    columns: dict[str, pa.ChunkedArray | pa.Array], owner: dict[str, str], dataset: Dataset, name: str, values: pa.Array
) -> None:
    if name in owner:
        raise UserInputError(
            f"the column {name} is of {owner[name]} and of {dataset.name}; give {dataset.name} a prefix in its file"
        )
    owner[name] = dataset.name
    columns[name] = values
