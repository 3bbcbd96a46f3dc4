"""Data published by host or URL key, generated to the published schemas, with the traps of the published files.

The host index has one partition of another schema, ``.com`` shards in no order with hosts of other domains in them,
hosts without ranks, and its columns in another order than its documentation's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from cc_pipeline.commoncrawl.domains import registered_domain
from cc_pipeline.extensions.host_facts.host_keys import host_index_key, host_of_surt
from cc_pipeline.testing.mini_crawl import spec as seeded
from cc_pipeline.testing.mini_crawl.spec import gzip_member
from cc_pipeline.testing.mini_crawl.truth import Capture
from cc_pipeline.testing.mini_crawl.visits import site

HOST_INDEX_LIST: Final = "projects/host-index-testing/v2.paths.gz"
DEGREES_LIST: Final = "projects/webgraph-outin-testing/v2.paths.gz"
GNEISSWEB_HOSTS_LIST: Final = "projects/gneissweb-annotation-testing-v1/paths.hosts.txt.gz"
GNEISSWEB_URLS_LIST: Final = "projects/gneissweb-annotation-testing-v1/paths.urls.txt.gz"

_KINDS: Final = ("3xx", "4xx", "5xx", "gone", "notModified", "other", "redirPerm", "redirTemp")
_NUTCH: Final = ("fetched", "gone", "notModified", "redirPerm", "redirTemp", "unfetched")
_TOPICS: Final = ("technology", "science", "education", "medical")
#: Columns of the host index that a partition of before lacks, and those that it has as doubles.
_LATER: Final = frozenset(("fetch_200_lote_pct", "warc_record_length_median", "prank10"))
_DOUBLES: Final = frozenset(("fetch_200", "fetch_4xx", "nutch_numRecords"))


@dataclass(frozen=True, slots=True)
class KeyedSpec:
    """What to generate for each of ``crawls``: ``domains`` registered domains, with some hosts each.

    ``com_shards`` and ``other_shards`` are files of the host index; with ``unsorted`` the former are in no order and
    hold stray hosts of other domains. ``odd`` is the crawl whose partition has another schema. ``page_index`` and
    ``statistics`` say what the writer leaves beside the data.
    """

    crawls: tuple[str, ...]
    seed: int = 20120601
    domains: int = 120
    com_shards: int = 2
    other_shards: int = 2
    row_group_rows: int = 60
    page_rows: int = 15
    unsorted: bool = True
    odd: str = ""
    page_index: bool = True
    statistics: bool = True
    codec: str = "zstd"


@dataclass(frozen=True, slots=True)
class KeyedTruth:
    """Every row that was written: by dataset and crawl, in the order of its files. ``files`` are the keys of these."""

    rows: dict[tuple[str, str], list[dict[str, Any]]] = field(default_factory=dict)
    files: dict[tuple[str, str], list[str]] = field(default_factory=dict)


def write_keyed(root: Path, spec: KeyedSpec, captures: Sequence[Capture] = ()) -> KeyedTruth:
    """Writes the host index, degrees, and GneissWeb's annotations of hosts and of ``captures`` into a bucket.

    The same ``spec`` gives the same bytes wherever it runs with the same pyarrow.
    """
    truth = KeyedTruth()
    for crawl in spec.crawls:
        hosts = _hosts(spec, crawl)
        _host_index(root, spec, crawl, hosts, truth)
        _degrees(root, spec, crawl, hosts, truth)
        _gneissweb(root, spec, crawl, hosts, captures, truth)
    for dataset, key in (
        ("host-index", HOST_INDEX_LIST),
        ("degrees", DEGREES_LIST),
        ("gneissweb-hosts", GNEISSWEB_HOSTS_LIST),
        ("gneissweb-urls", GNEISSWEB_URLS_LIST),
    ):
        paths = [path for crawl in spec.crawls for path in truth.files.get((dataset, crawl), [])]
        _write(root / key, gzip_member("".join(path + "\n" for path in paths).encode()))
    return truth


def plain_hosts(spec: KeyedSpec, crawl: str) -> list[str]:
    """Hosts as pages name them, some with and without ``www``: what the web graph of a crawl has as nodes."""
    found: dict[str, None] = {}
    for number in range(spec.domains):
        domain = site(number).domain
        drawn = seeded.drawn_number(spec.seed, "hosts", crawl, domain)
        found[domain] = None
        if drawn % 3:
            found[f"www.{domain}"] = None
        for index in range(drawn >> 8 & 3):
            label = ("blog", "shop", "cdn", "news")[drawn >> (12 + 2 * index) & 3]
            found[f"{label}{index}.{domain}"] = None
        if drawn >> 24 & 7 == 0:
            found[f"www2.{domain}"] = None
        # a neighbour in the order of keys that is no host of the domain
        name, dot, ending = domain.partition(".")
        if dot and drawn >> 28 & 3 == 0:
            found[f"{name}x.{ending}"] = None
    return list(found)


def _hosts(spec: KeyedSpec, crawl: str) -> list[str]:
    """SURT keys, sorted."""
    return sorted({host_index_key(host) for host in plain_hosts(spec, crawl)})


def _host_index(root: Path, spec: KeyedSpec, crawl: str, hosts: Sequence[str], truth: KeyedTruth) -> None:
    odd = crawl == spec.odd
    schema = _host_index_schema(odd)
    rows = [_host_row(spec, crawl, key) for key in hosts]
    com = [row for row in rows if row["surt_host_name"].startswith("com,")]
    other = [row for row in rows if not row["surt_host_name"].startswith("com,")]
    if spec.unsorted:
        strays = [
            row for row in other if seeded.drawn_number(spec.seed, "stray", crawl, row["surt_host_name"]) % 9 == 0
        ]
        other = [row for row in other if row not in strays]
        com += strays
        seeded.generator(spec.seed, "com", crawl).shuffle(com)
    parts = [*_parts(com, spec.com_shards), *_parts(other, spec.other_shards)]
    written = [{name: row[name] for name in schema.names} for part in parts for row in part]
    folder = f"projects/host-index-testing/v2/crawl={crawl}"
    _shards(root, spec, ("host-index", crawl), folder, schema, parts, truth)
    truth.rows["host-index", crawl] = written


def _host_index_schema(odd: bool) -> pa.Schema:
    """Physical order: the crawl database first, the key in the middle."""
    fields: list[tuple[str, pa.DataType]] = [
        ("nutch_unfetched_pct", pa.int8()),
        *((f"nutch_{name}_pct", pa.int8()) for name in _NUTCH if name != "unfetched"),
        *((f"nutch_{name}", pa.int64()) for name in (*_NUTCH, "numRecords")),
        *((f"fetch_{name}", pa.int64()) for name in ("200", "200_lote", *_KINDS)),
        ("surt_host_name", pa.string()),
        ("fetch_200_lote_pct", pa.int32()),
        *((f"robots_{name}", pa.int64()) for name in ("200", *_KINDS)),
        ("hcrank", pa.float64()),
        ("prank", pa.float64()),
        ("prank10", pa.float64()),
        ("hcrank10", pa.float64()),
        ("url_host_tld", pa.string()),
        ("url_host_registered_domain", pa.string()),
        ("warc_record_length_median", pa.int32()),
        ("warc_record_length_av", pa.int32()),
    ]
    if odd:
        fields = [(n, pa.float64() if n in _DOUBLES else t) for n, t in reversed(fields) if n not in _LATER]
        fields.append(("url_host_name_reversed", pa.string()))
    return pa.schema([pa.field(name, kind) for name, kind in fields])


def _host_row(spec: KeyedSpec, crawl: str, key: str) -> dict[str, Any]:
    draw = seeded.generator(spec.seed, "host index", crawl, key)
    host = host_of_surt(key)
    fetched = draw.choice((0, 3, 42, 980))
    lote = draw.randrange(fetched + 1)
    nutch = {name: draw.randrange(50) for name in _NUTCH}
    records = sum(nutch.values())
    ranked = draw.random() > 0.1
    row: dict[str, Any] = {
        "surt_host_name": key,
        "url_host_registered_domain": registered_domain(host),
        "url_host_tld": host.rpartition(".")[2],
        "url_host_name_reversed": key.replace(",", "."),
        "hcrank": round(draw.uniform(1e6, 4e7), 1) if ranked else None,
        "prank": draw.uniform(1e-10, 1e-3) if ranked else None,
        "hcrank10": round(draw.uniform(0, 10), 3) if ranked else None,
        "prank10": round(draw.uniform(0, 10), 3) if ranked else None,
        "warc_record_length_av": draw.randrange(500, 200_000) if fetched else None,
        "warc_record_length_median": draw.randrange(500, 200_000) if fetched else None,
        "fetch_200": fetched,
        "fetch_200_lote": lote,
        "fetch_200_lote_pct": round(100 * lote / fetched) if fetched else None,
        "robots_200": draw.randrange(4),
        "nutch_numRecords": records,
    }
    row |= {f"{what}_{name}": draw.randrange(30) for what in ("fetch", "robots") for name in _KINDS}
    row |= {f"nutch_{name}": count for name, count in nutch.items()}
    row |= {f"nutch_{name}_pct": round(100 * count / records) if records else None for name, count in nutch.items()}
    return row


def _degrees(root: Path, spec: KeyedSpec, crawl: str, hosts: Sequence[str], truth: KeyedTruth) -> None:
    schema = pa.schema(
        [
            pa.field("host_rev", pa.string()),
            pa.field("surt_host_name", pa.string()),
            pa.field("webgraph_outdegree", pa.int64()),
            pa.field("webgraph_indegree", pa.int64()),
        ]
    )
    rows = []
    for key in hosts:
        draw = seeded.generator(spec.seed, "degrees", crawl, key)
        degrees = {"webgraph_outdegree": draw.randrange(400), "webgraph_indegree": draw.randrange(2000)}
        rows.append({"host_rev": key.replace(",", "."), "surt_host_name": key, **degrees})
    folder = f"projects/webgraph-outin-testing/v2/crawl={crawl}"
    _shards(root, spec, ("degrees", crawl), folder, schema, _parts(rows, 2), truth)
    truth.rows["degrees", crawl] = rows


def _gneissweb(
    root: Path, spec: KeyedSpec, crawl: str, hosts: Sequence[str], captures: Sequence[Capture], truth: KeyedTruth
) -> None:
    base = "projects/gneissweb-annotation-testing-v1"
    topics = [pa.field(f"gneissweb_{name}", pa.float64()) for name in _TOPICS]
    rows = []
    for key in hosts:
        draw = seeded.generator(spec.seed, "gneissweb", crawl, key)
        if draw.random() < 0.4:
            said = {each.name: round(draw.random(), 4) for each in topics}
            rows.append({"surt_host_name": key, **said, "in_gneissweb": draw.random() < 0.5})
    schema = pa.schema([pa.field("surt_host_name", pa.string()), *topics, pa.field("in_gneissweb", pa.bool_())])
    _shards(root, spec, ("gneissweb-hosts", crawl), f"{base}/hosts/crawl={crawl}", schema, _parts(rows, 1), truth)
    truth.rows["gneissweb-hosts", crawl] = rows
    seen: dict[tuple[str, Any], dict[str, Any]] = {}
    for one in captures:
        draw = seeded.generator(spec.seed, "gneissweb", crawl, one.url_surtkey, one.fetch_time)
        if one.crawl == crawl and one.subset == "warc" and draw.random() < 0.6:
            said = {each.name: round(draw.random(), 4) for each in topics}
            named = {"url_surtkey": one.url_surtkey, "fetch_time": one.fetch_time}
            seen[one.url_surtkey, one.fetch_time] = {**named, **said}
    annotated = [seen[place] for place in sorted(seen)]
    if not annotated:
        return
    times = pa.field("fetch_time", pa.timestamp("us", tz="UTC"))
    schema = pa.schema([*topics, times, pa.field("url_surtkey", pa.string())])
    _shards(root, spec, ("gneissweb-urls", crawl), f"{base}/urls/crawl={crawl}", schema, _parts(annotated, 2), truth)
    truth.rows["gneissweb-urls", crawl] = annotated


def _parts(rows: Sequence[dict[str, Any]], count: int) -> list[list[dict[str, Any]]]:
    bounds = [len(rows) * index // count for index in range(count + 1)]
    return [list(rows[low:high]) for low, high in pairwise(bounds)]


def _shards(
    root: Path,
    spec: KeyedSpec,
    dataset: tuple[str, str],
    folder: str,
    schema: pa.Schema,
    parts: Sequence[Sequence[dict[str, Any]]],
    truth: KeyedTruth,
) -> None:
    keys = []
    for number, rows in enumerate(parts):
        name = seeded.identifier(spec.seed, "keyed", *dataset, number)
        keys.append(f"{folder}/part-{number:05d}-{name}-c000.{spec.codec}.parquet")
        table = pa.Table.from_pylist([{name: row[name] for name in schema.names} for row in rows], schema=schema)
        write_shard(root / keys[-1], table, spec)
    truth.files[dataset] = keys


def write_shard(path: Path, table: pa.Table, spec: KeyedSpec) -> None:
    """One Parquet file as ``spec`` has them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(
        table,
        path,
        row_group_size=spec.row_group_rows,
        compression=spec.codec,
        write_statistics=spec.statistics,
        write_page_index=spec.page_index,
        max_rows_per_page=spec.page_rows,
        write_batch_size=min(1024, spec.page_rows),
        store_schema=False,
    )


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
