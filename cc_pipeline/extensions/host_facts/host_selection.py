"""Facts of a target's hosts, from datasets keyed by host and by registered domain, and the hosts that
a filter selects.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline.commoncrawl.domains import is_ip
from cc_pipeline.commoncrawl.expressions import Filter
from cc_pipeline.commoncrawl.surt import reverse_labels
from cc_pipeline.commoncrawl.target import MAY_BECOME_WWW, Target
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.errors import UserInputError, describe_unknown_name
from cc_pipeline.extensions.host_facts.dataset_question import Facts, refuse_gaps
from cc_pipeline.extensions.host_facts.host_facts import HOST, HOST_FIELDS, facts_of_hosts
from cc_pipeline.extensions.host_facts.host_keys import HostRanges, host_index_key, host_of_surt
from cc_pipeline.extensions.host_facts.ranks import ranks_datasets
from cc_pipeline.extensions.host_facts.registered_datasets import RegisteredDataset, known_datasets
from cc_pipeline.progress import format_count, human_bytes
from cc_pipeline.workspace.workspace import Workspace

#: Datasets that are asked by default: size and importance of a site.
DEFAULT_DATASETS: Final = ("host-index", "degrees")
#: Further default datasets, if they were converted.
_RANKS: Final = ("host-ranks", "domain-ranks")
#: Kinds of targets that lie on one host.
_ONE_HOST_KINDS: Final = frozenset({"host", "url", "prefix"})
_NAME_SEPARATOR: Final = re.compile(r"[^a-z0-9_]+")


@dataclass(frozen=True, slots=True)
class HostChoice:
    """The part of ``target`` in a crawl that a filter selects: ``narrowed_target`` (``None``: nothing). Of the known
    ``hosts``, ``matched`` match; ``undecided`` hosts cannot be decided, because facts are missing. ``unnameable``
    hosts match, but no target can name them.
    """

    crawl: str
    target: Target
    narrowed_target: Target | None
    hosts: int
    matched: int
    undecided: int
    facts: Facts
    unnameable: tuple[str, ...] = ()


def facts_of(workspace: Workspace, crawl: str, target: Target, datasets: Sequence[RegisteredDataset]) -> Facts:
    """One row for each host of ``target`` with the facts of all ``datasets``. Returns and raises as
    :func:`facts_of_hosts`.
    """
    return facts_of_hosts(workspace, crawl, target, [dataset.dataset for dataset in datasets])


def datasets_for_crawl(workspace: Workspace, crawl: str) -> dict[str, RegisteredDataset]:
    """The datasets of the home by name. Ranks of the web graph are those of a converted release that spans ``crawl``,
    if there is one.
    """
    ranks = ranks_datasets(workspace.settings, crawl)
    return known_datasets(workspace.settings) | {name: RegisteredDataset(dataset) for name, dataset in ranks.items()}


def default_datasets(datasets_by_name: Mapping[str, RegisteredDataset]) -> list[str]:
    """The names of the default datasets: size and importance of a site."""
    return [name for name in (*DEFAULT_DATASETS, *_RANKS) if name in datasets_by_name]


def host_datasets(datasets_by_name: Mapping[str, RegisteredDataset], names: Iterable[str]) -> list[RegisteredDataset]:
    """The datasets of these names, each once.

    Raises ``UserInputError`` for an unknown name, and for a dataset about captures.
    """
    datasets = []
    for name in dict.fromkeys(names):
        if name not in datasets_by_name:
            way = "; ranks are converted with: cc-pipeline facts ranks RELEASE" if name.startswith(_RANKS) else ""
            raise UserInputError(describe_unknown_name("dataset", name, datasets_by_name) + way)
        if datasets_by_name[name].dataset.by_url:
            raise UserInputError(f"the dataset {name} is about captures of URLs, not about hosts")
        datasets.append(datasets_by_name[name])
    return datasets


def datasets_for_filter(
    where: Filter, datasets_by_name: Mapping[str, RegisteredDataset], requested_names: Sequence[str] = ()
) -> list[RegisteredDataset]:
    """The datasets that have the columns of a filter, and those of ``requested_names``; the host index if there is
    none.

    Raises ``UserInputError`` for a column that no dataset has, and names the known columns.
    """
    host_columns = {field.name.lower() for field in HOST_FIELDS}
    about_hosts = {name: dataset for name, dataset in datasets_by_name.items() if not dataset.dataset.by_url}
    names = list(requested_names)
    declared = {field.name: None for field in HOST_FIELDS}
    undeclared = [name for name, dataset in about_hosts.items() if dataset.columns() is None]
    for dataset in about_hosts.values():
        declared |= dict.fromkeys(dataset.columns() or ())
    for column in (*where.columns, *where.perhaps):
        owners = [
            name
            for name, dataset in about_hosts.items()
            if column.lower() in {column_name.lower() for column_name in dataset.columns() or ()}
        ]
        if owners:
            names += owners[:1] if not set(owners) & set(names) else []
        elif column.lower() not in host_columns and column not in where.perhaps:
            if not undeclared:
                raise UserInputError(
                    f"the filter {where.text[:200]!r}: {describe_unknown_name('column', column, declared)}"
                )
            names += undeclared
    return host_datasets(datasets_by_name, add_host_index(datasets_by_name, names))


def add_host_index(datasets_by_name: Mapping[str, RegisteredDataset], names: Sequence[str]) -> list[str]:
    """``names`` of datasets, with the host index first if none of them lists hosts."""
    giving = [dataset.dataset for dataset in host_datasets(datasets_by_name, names) if dataset.dataset.action == "join"]
    return [*names] if any(not dataset.of_domains for dataset in giving) else ["host-index", *names]


def choose_hosts(
    workspace: Workspace, crawl: str, target: Target, where: Filter, datasets: Sequence[RegisteredDataset]
) -> HostChoice:
    """Selects the hosts of ``target`` that match in ``crawl``, and the part of the target on these hosts.

    Raises ``UserInputError`` for a filter that does not fit the facts, ``IndexIncomplete`` if files of a dataset could
    not be read, and as :func:`facts_of` does.
    """
    facts = facts_of(workspace, crawl, target, datasets)
    refuse_gaps(workspace, facts, crawl)
    filter_result = where.match_table(facts.table)
    matched = facts.table[HOST].filter(filter_result.rows).to_pylist()
    narrowed, unnameable = narrow_target(target, matched)
    if narrowed is not None and target.where:
        narrowed = narrowed.where_too(target.where)
    return HostChoice(
        crawl, target, narrowed, facts.table.num_rows, len(matched), filter_result.unknown_count, facts, unnameable
    )


def narrow_target(target: Target, hosts: Sequence[str]) -> tuple[Target | None, tuple[str, ...]]:
    """Returns the part of ``target`` on ``hosts`` (SURT host keys of its hosts), and the hosts that no target can name.

    Members of the target on one host are unchanged. A wider member becomes a prefix for each host, which covers the
    host with and without ``www``. Several members become a set, whose name has a digest of its members.
    """
    members: dict[str, Target] = {}
    wide = []
    unnameable = []
    for member in target.members or (target,):
        if member.kind in _ONE_HOST_KINDS or (member.kind == "rev" and "/" in member.value):
            ranges = HostRanges(member)
            if any(ranges.contains(key) for key in hosts):
                members[member.slug] = member
        else:
            wide.append(member)
    if wide:
        ranges = HostRanges(*wide)
        host_by_key = dict(filter(None, map(_www_key_and_host, wide)))
        for key in hosts:
            if not ranges.contains(key):
                continue
            try:
                host_target = parse_target(host_by_key.get(key) or f"prefix:http://{_authority(key)}/")
            except UserInputError:
                unnameable.append(host_of_surt(key))
                continue
            members.setdefault(host_target.slug, host_target)
    if len(members) <= 1:
        return next(iter(members.values()), None), tuple(unnameable)
    texts = sorted(member.written for member in members.values())
    digest = hashlib.sha256("\n".join(texts).encode()).hexdigest()[:10]
    base = _NAME_SEPARATOR.sub("-", target.slug.removeprefix("set-"))[:40].strip("-_") or "hosts"
    return parse_target(f"set:{base}-where-{digest} = {', '.join(texts)}"), tuple(unnameable)


def _www_key_and_host(member: Target) -> tuple[str, str] | None:
    """For a target that begins with ``www``, returns the key that its host shares with the host without ``www``, and a
    target of the host alone.

    Raises ``UserInputError`` if a host cannot be distinguished from others that the target does not have.
    """
    if member.kind == "rev" and MAY_BECOME_WWW.fullmatch(member.value.rpartition(".")[2]):
        raise UserInputError(f"a filter on facts cannot be applied to {member.written}: write domains or hosts")
    place = member.place
    if place is None or place.is_ip:
        return None
    if place.port is not None:
        raise UserInputError(f"a filter on facts cannot be applied to {member.written}: facts are about whole hosts")
    key = host_index_key(place.host)
    return None if key == reverse_labels(place.host) else (key, f"host:{place.host}")


def _authority(key: str) -> str:
    host = host_of_surt(key)
    return f"[{host}]" if is_ip(host) and ":" in host else host


def describe_prediction(facts: Facts) -> str:
    """Describes size and importance of the hosts of an answer: sums of counts, and the best rank."""
    table = facts.table
    if not table.num_rows:
        return "no known host"
    parts = [format_count(table.num_rows, "host")]
    pages = _sum_column(table, "fetch_200")
    if pages is not None:
        parts.append(f"about {format_count(pages, 'page')} fetched")
        if "warc_record_length_av" in table.column_names:
            sizes = pc.multiply(table["fetch_200"], table["warc_record_length_av"])
            size = pc.sum(sizes).as_py()
            parts += [f"{human_bytes(size)} of records"] if size is not None else []
    for name, word in (("hcrank10", "harmonic rank"), ("prank10", "page rank")):
        if name in table.column_names and (best := pc.max(table[name]).as_py()) is not None:
            host = table["host"][pc.index(table[name], pc.max(table[name])).as_py()].as_py()
            parts.append(f"{word} {best:.2f} of 10 ({host})")
    for name, word in (("harmonicc_pos", "hosts"), ("domain_harmonicc_pos", "domains")):
        if name in table.column_names and (first := pc.min(table[name]).as_py()) is not None:
            parts.append(f"number {first:,} of all {word} by harmonic centrality")
    links = _sum_column(table, "webgraph_indegree")
    parts += [f"{format_count(links, 'link')} from other hosts"] if links is not None else []
    return ", ".join(parts)


def _sum_column(table: pa.Table, name: str) -> int | None:
    if name not in table.column_names:
        return None
    column_sum = pc.sum(table[name]).as_py()
    return None if column_sum is None else int(column_sum)
