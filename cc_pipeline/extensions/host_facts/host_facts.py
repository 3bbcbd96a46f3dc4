"""Facts of datasets about the hosts of targets, one row a host in the shape of the table ``host_facts``, and about
captures, by the SURT key of the URL and the time of its fetch.
"""

from __future__ import annotations

import hashlib
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import reduce
from typing import Final, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline.capture_columns import TIMESTAMP
from cc_pipeline.commoncrawl.domains import registered_domain
from cc_pipeline.commoncrawl.key_ranges import KeyRange, merge_ranges, prefix_range
from cc_pipeline.commoncrawl.target import Target
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.errors import UserInputError
from cc_pipeline.extensions.host_facts.dataset_question import (
    Answer,
    Columns,
    Facts,
    ask,
    check_kinds,
    combine_facts,
    estimate_lookup,
    kept_answer,
    refuse_gaps,
)
from cc_pipeline.extensions.host_facts.datasets import Dataset
from cc_pipeline.extensions.host_facts.host_keys import HostForm, HostRanges, WwwRule, host_key, host_of_surt
from cc_pipeline.extensions.host_facts.keyed_lookup import Endings, Keep, LookupEstimate, fold_rows
from cc_pipeline.workspace.workspace import Workspace

#: The column by which hosts are joined.
HOST: Final = "surt_host_name"
#: Maximum domains for which comparing all keys with each domain is cheaper than parsing each key.
_MAX_COMPARED_NAMES: Final = 64

#: Columns of an answer about hosts that belong to no dataset.
HOST_FIELDS = (
    pa.field("crawl", pa.string(), nullable=False),
    pa.field(HOST, pa.string(), nullable=False),
    pa.field("host", pa.string(), nullable=False),
    pa.field("domain", pa.string()),
)
_AskDataset = Callable[[Dataset, HostRanges], Answer | None]


class HostQuestion:
    """The :class:`~cc_pipeline.extensions.host_facts.dataset_question.Question` about ``hosts`` to ``dataset``."""

    def __init__(self, dataset: Dataset, hosts: HostRanges) -> None:
        self._fold = dataset.fold
        self._hosts = hosts
        self._form = cast("HostForm", dataset.form)
        self.ranges: Sequence[KeyRange] = hosts.ranges_in(self._form, cast("WwwRule", dataset.www))
        self.keep: Callable[[pa.Array], npt.NDArray[np.bool_]] | None = (
            None if self._form == "surt_host" else self._match_keys
        )
        self.columns: Mapping[str, pa.DataType] = {}
        endings = hosts.endings() if dataset.ending else None
        self.endings = None if endings is None else Endings(dataset.ending, endings)
        self.identity: object = [
            "hosts",
            [[key_range.start.hex(), (key_range.end or b"").hex()] for key_range in hosts.surt],
        ]

    def rows(self, table: pa.Table) -> pa.Table:
        """The rows by SURT key, one row a host."""
        texts = table.column(0)
        if self._form == "surt_host":
            keyed, www = texts, None
        else:
            host_keys = [host_key(text, self._form) for text in texts.to_pylist()]
            keyed = pa.array([key.surt if key else None for key in host_keys], pa.string())
            www = pa.array([key.www if key else None for key in host_keys], pa.bool_())
        # the answer's own key is the one column of that name
        other_columns = [(name, values) for name, values in zip(table.column_names[1:], table.columns[1:], strict=True)]
        columns = {HOST: keyed} | {name: values for name, values in other_columns if name != HOST}
        return fold_rows(pa.table(columns), 1, www, self._fold)

    def _match_keys(self, keys: pa.Array) -> npt.NDArray[np.bool_]:
        mask = np.zeros(len(keys), dtype=bool)
        for place in np.flatnonzero(self._prefilter(keys)):
            key = host_key(keys[place].as_py().decode("utf-8", "replace"), self._form)
            mask[place] = key is not None and self._hosts.contains(key.surt)
        return mask

    def _prefilter(self, keys: pa.Array) -> npt.NDArray[np.bool_]:
        """A fast filter of the keys that may match, so that few plain hosts are parsed."""
        names = self._hosts.names()
        if self._form != "host" or names is None or len(names) > _MAX_COMPARED_NAMES:
            return np.ones(len(keys), dtype=bool)
        mask = np.zeros(len(keys), dtype=bool)
        for name in names:
            mask |= _to_mask(pc.ends_with(keys, name.encode())) | _to_mask(
                pc.match_substring(keys, f"{name}:".encode())
            )
        return mask


def _to_mask(mask: pa.Array) -> npt.NDArray[np.bool_]:
    mask_array: npt.NDArray[np.bool_] = pc.fill_null(mask, False).to_numpy(zero_copy_only=False)
    return mask_array


def host_facts(workspace: Workspace, crawl: str, target: Target, datasets: Sequence[Dataset]) -> pa.Table:
    """One row for each host of ``target`` in any of ``datasets``, sorted by SURT host key: ``HOST_FIELDS``, then the
    columns of each dataset, null if it lacks the host or the crawl. Columns of registered domains come last, and are
    equal for all hosts of a domain.

    Raises ``IndexIncomplete`` if files of a dataset could not be read and the settings do not allow that, and as
    :func:`facts_of_hosts` does.
    """
    facts = facts_of_hosts(workspace, crawl, target, datasets)
    refuse_gaps(workspace, facts, crawl)
    return facts.table


def facts_of_hosts(workspace: Workspace, crawl: str, target: Target, datasets: Sequence[Dataset]) -> Facts:
    """The rows of :func:`host_facts` with their cost, and with gaps reported instead of raised. The answer is cached:
    the next one costs no request.

    Raises ``UserInputError`` for datasets about URLs, for datasets of registered domains alone, for two columns of one
    name, and for a lookup above the settings' ``max_bytes``; ``EnvironmentFault`` if the source fails.
    """
    return _facts(workspace, crawl, [target], datasets, keep=True)


def stored_facts(workspace: Workspace, crawl: str, target: Target, datasets: Sequence[Dataset]) -> Facts | None:
    """The cached answer of :func:`facts_of_hosts`, without a request. Datasets without a cached answer are left out;
    ``None`` if no dataset has one.
    """
    return _combine_answers(
        crawl,
        [target],
        datasets,
        lambda dataset, hosts: kept_answer(workspace, crawl, dataset, HostQuestion(dataset, hosts)),
    )


def facts_of_targets(workspace: Workspace, crawl: str, targets: Sequence[Target], datasets: Sequence[Dataset]) -> Facts:
    """Facts of the hosts of all ``targets`` together, each host once, in one lookup that is not cached.
    :class:`RowsOfTargets` gives the rows of one target.
    """
    return _facts(workspace, crawl, targets, datasets, keep=False)


def estimate_host_lookups(
    workspace: Workspace, crawl: str, target: Target, datasets: Sequence[Dataset]
) -> dict[str, LookupEstimate]:
    """Estimates the lookup of each dataset. Missing footers are fetched, no data is read.

    A dataset of registered domains is asked about the domains that the target names, or about all domains below it,
    which is the maximum.
    """
    check_kinds(datasets, by_url=False)
    hosts = HostRanges(target)
    domains = [registered_domain(name) for name in hosts.names() or ()]
    named_domains = [domain for domain in dict.fromkeys(domains) if domain is not None]
    of_domains = HostRanges(*_as_targets(named_domains)) if named_domains and None not in domains else hosts
    return {
        dataset.name: estimate_lookup(
            workspace, crawl, dataset, HostQuestion(dataset, of_domains if dataset.of_domains else hosts)
        )
        for dataset in datasets
    }


class RowsOfTargets:
    """The rows of an answer about several targets, by target. A host of two targets is a row of both."""

    def __init__(self, facts: pa.Table) -> None:
        self._facts = facts
        self._keys = facts[HOST].combine_chunks()

    def rows_of(self, target: Target) -> pa.Table:
        """The rows of the hosts of ``target``."""
        spans = [(self._place(key_range.start), self._place(key_range.end)) for key_range in HostRanges(target).surt]
        return pa.concat_tables(
            [self._facts.slice(0, 0), *(self._facts.slice(start, end - start) for start, end in spans if start < end)]
        )

    def _place(self, key: bytes | None) -> int:
        if key is None:
            return len(self._keys)
        return bisect_left(self._keys, key, key=lambda host: host.as_py().encode("utf-8", "surrogateescape"))


def _facts(
    workspace: Workspace, crawl: str, targets: Sequence[Target], datasets: Sequence[Dataset], *, keep: bool
) -> Facts:
    check_kinds(datasets, by_url=False)
    if all(dataset.of_domains for dataset in datasets):
        raise UserInputError(
            f"{datasets[0].name} is about registered domains, and does not say which hosts there are: name a dataset "
            "of hosts beside it, such as host-index"
        )
    facts = _combine_answers(
        crawl,
        targets,
        datasets,
        lambda dataset, hosts: ask(workspace, crawl, dataset, HostQuestion(dataset, hosts), keep=keep),
    )
    assert facts is not None
    return facts


def _combine_answers(
    crawl: str, targets: Sequence[Target], datasets: Sequence[Dataset], ask_dataset: _AskDataset
) -> Facts | None:
    """Combines the answers of ``ask_dataset`` for each dataset into rows of the hosts of ``targets``. Datasets without
    an answer are left out. Returns ``None`` if no dataset of hosts has an answer.
    """
    started = time.monotonic()
    hosts = HostRanges(*targets)
    answers_or_none = [(dataset, ask_dataset(dataset, hosts)) for dataset in datasets if not dataset.of_domains]
    of_hosts = [(dataset, answer) for dataset, answer in answers_or_none if answer is not None]
    if not of_hosts:
        return None
    keys = _hosts_of_answers(of_hosts)
    names = [host_of_surt(key) for key in keys.to_pylist()]
    domains = [registered_domain(name.partition(":")[0]) for name in names]
    crawls = pa.repeat(pa.scalar(crawl, pa.string()), len(keys))
    own_columns = (crawls, keys, pa.array(names, pa.string()), pa.array(domains, pa.string()))
    columns = Columns({field.name: values for field, values in zip(HOST_FIELDS, own_columns, strict=True)})
    for dataset, answer in of_hosts:
        columns.add(dataset, answer, (HOST,), pc.index_in(keys, answer.table[HOST].combine_chunks()))
    answers = {dataset.name: answer for dataset, answer in of_hosts}
    is_included = pa.repeat(pa.scalar(value=True), len(keys))
    if any(dataset.of_domains for dataset in datasets):
        surt_by_domain = {
            name: key.surt for name in dict.fromkeys(domains) if name and (key := host_key(name)) is not None
        }
        domain_hosts = HostRanges(*_as_targets(surt_by_domain))
        domain_keys = pa.array([surt_by_domain.get(name or "") for name in domains], pa.string())
        for dataset in datasets:
            if dataset.of_domains and (domain_answer := ask_dataset(dataset, domain_hosts)) is not None:
                place = pc.index_in(domain_keys, domain_answer.table[HOST].combine_chunks(), skip_nulls=True)
                columns.add(dataset, domain_answer, (HOST,), place)
                answers[dataset.name] = domain_answer
                if dataset.inner or dataset.action == "filter":
                    is_included = pc.and_(is_included, pc.is_valid(place))
    table = columns.table().filter(is_included)
    dataset_fields = [table.schema.field(name) for name in table.column_names[len(HOST_FIELDS) :]]
    return combine_facts(table.cast(pa.schema([*HOST_FIELDS, *dataset_fields])), answers, time.monotonic() - started)


def _as_targets(domains: Iterable[str]) -> Iterator[Target]:
    """Registered domains as host targets. A domain that no target can name, as a file may contain, is skipped."""
    for domain in domains:
        with suppress(UserInputError):
            yield parse_target(f"host:{domain}")


def _hosts_of_answers(answers: Sequence[tuple[Dataset, Answer]]) -> pa.Array:
    """The SURT keys of the answer, sorted: hosts of the datasets with the action join, or of all datasets if there is
    none.
    """
    giving = [answer for dataset, answer in answers if dataset.action == "join"] or [answer for _, answer in answers]
    key_chunks = [chunk for answer in giving for chunk in answer.table[HOST].chunks]
    hosts = pc.unique(pa.chunked_array(key_chunks, pa.string()))
    for dataset, answer in answers:
        if dataset.inner or dataset.action == "filter":
            hosts = hosts.filter(pc.is_in(hosts, answer.table[HOST].combine_chunks()))
    return hosts.take(pc.sort_indices(hosts))


URL, TIME = "url_surtkey", "fetch_time"
#: The columns that identify a capture in a dataset keyed by URL.
CAPTURE_OF_URL: Final = (URL, TIME)
#: Maximum URLs that are looked up one by one. For more URLs, all rows of their hosts are read.
_MAX_KEYS: Final = 20_000


def facts_of_captures(workspace: Workspace, crawl: str, captures: pa.Table, datasets: Sequence[Dataset]) -> Facts:
    """Adds the columns of ``datasets`` to ``captures`` of one crawl, in the same order: null if a dataset lacks a
    capture. Captures that an inner or filtering dataset lacks are left out.

    ``captures`` has at least ``url_surtkey`` and ``fetch_time``. Nothing is cached. Raises ``UserInputError`` for
    datasets about hosts, and as :func:`~cc_pipeline.extensions.host_facts.host_facts.facts_of_hosts` does.
    """
    started = time.monotonic()
    ranges = _ranges_of(captures)
    check_kinds(datasets, by_url=True)
    answers = {
        dataset.name: ask(workspace, crawl, dataset, _UrlQuestion(dataset, ranges), keep=False) for dataset in datasets
    }
    rows = captures
    places = {dataset.name: _answer_positions(rows, answers[dataset.name].table) for dataset in datasets}
    required_masks = [
        places[dataset.name].is_valid() for dataset in datasets if dataset.inner or dataset.action == "filter"
    ]
    if required_masks:
        mask = reduce(pc.and_, required_masks)
        rows = rows.filter(mask)
        places = {name: place.filter(mask) for name, place in places.items()}
    columns = Columns({name: rows[name] for name in rows.column_names})
    for dataset in datasets:
        columns.add(dataset, answers[dataset.name], CAPTURE_OF_URL, places[dataset.name])
    return combine_facts(columns.table(), answers, time.monotonic() - started)


def _answer_positions(rows: pa.Table, answer: pa.Table) -> pa.Array:
    """The position in ``answer`` of the capture of each row, null if the answer lacks it."""
    numbered = answer.select(list(CAPTURE_OF_URL)).append_column("_at", _row_numbers(answer.num_rows))
    requested = pa.table(
        {URL: rows[URL], TIME: rows[TIME].cast(TIMESTAMP, safe=False), "_row": _row_numbers(rows.num_rows)}
    )
    joined = requested.join(numbered, list(CAPTURE_OF_URL), join_type="left outer").sort_by("_row")
    return joined["_at"].combine_chunks()


def _row_numbers(count: int) -> pa.Array:
    return pa.array(range(count), pa.int64())


def _ranges_of(captures: pa.Table) -> tuple[KeyRange, ...]:
    """The keys of ``captures``, or the keys of their hosts if there are very many, so that memory grows with the hosts
    only.
    """
    keys = pc.unique(captures[URL]).drop_null()
    if len(keys) <= _MAX_KEYS:
        return merge_ranges(KeyRange(key, key + b"\0") for key in _encoded(keys))
    hosts = pc.unique(pc.list_element(pc.split_pattern(keys, ")", max_splits=1), 0))
    return merge_ranges(prefix_range(host + b")") for host in _encoded(hosts))


def _encoded(texts: pa.Array) -> list[bytes]:
    return [text.encode("utf-8", "surrogateescape") for text in texts.to_pylist()]


class _UrlQuestion:
    """The :class:`~cc_pipeline.extensions.host_facts.dataset_question.Question` about captures whose keys are in
    ``ranges``.
    """

    keep: Keep | None = None
    endings: Endings | None = None

    def __init__(self, dataset: Dataset, ranges: Sequence[KeyRange]) -> None:
        self._dataset = dataset
        self.ranges = ranges
        self.columns: Mapping[str, pa.DataType] = {dataset.time: TIMESTAMP}
        digest = hashlib.sha256()
        for key_range in ranges:
            digest.update(repr((key_range.start, key_range.end)).encode())
        self.identity: object = ["urls", digest.hexdigest()]

    def rows(self, table: pa.Table) -> pa.Table:
        """The rows by key and time, one row a capture."""
        dataset = self._dataset
        declared_columns: Mapping[str, pa.DataType | None] | None = dataset.columns
        columns_by_name = dict(zip(table.column_names[1:], table.columns[1:], strict=True))
        other_names = [name for name in columns_by_name if name != dataset.time]
        if declared_columns is not None and dataset.time in declared_columns:
            other_names.append(dataset.time)
        columns = {URL: table.column(0), TIME: columns_by_name[dataset.time]}
        keyed_table = pa.table(columns | {name: columns_by_name[name] for name in other_names if name not in columns})
        return fold_rows(keyed_table, len(CAPTURE_OF_URL), None, dataset.fold)
