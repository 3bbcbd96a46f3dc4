"""A home with many partitions of which all are made, in a lake and in Dagster's history, without a run: in minutes what
runs would take days for.

Each partition is one row in every table, in the lake as its stages leave it, so that its plan says that nothing is to
be done; and a record of each asset in Dagster's, as a run writes it. Tables are written a crawl a commit, as
maintenance leaves them, and records are copied inside the database."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

import dagster as dg
import pyarrow as pa
from cc_pipeline.defs.partitions_in_flight import EXTRACTED

from benchmarks.growth_home import CRAWL, STAGES, TEMPLATE, commit_rows, extract, harvest, repeat_row
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.defs.partitions import partition_key
from cc_pipeline.extraction.plan import build_fetch_input, build_locate_input, build_parse_input, options_of
from cc_pipeline.lake.slice import FETCH, LOCATE, PARSE, Slice, Stage
from cc_pipeline.lake.slices import read_slice_rows
from cc_pipeline.workspace.workspace import Workspace

_INDEX = "grown"


def fill(workspace: Workspace, instance: dg.DagsterInstance, crawls: Sequence[str], domains: Sequence[str]) -> None:
    """Makes every partition of ``crawls`` × ``domains`` in a new home, whose source is a bucket with ``CRAWL``."""
    harvest(workspace)
    extract(workspace, parse_target(TEMPLATE))
    targets = [parse_target(domain) for domain in domains]
    workspace.register_targets(targets)
    versions = {target.slug: target.version for target in targets}
    templates = {table: _one(workspace, table) for stage in STAGES for table in stage.tables}
    rows = read_slice_rows(workspace.lake, [Slice(CRAWL, TEMPLATE)], (LOCATE, FETCH))
    notes = {label: dict(row.note) for (_, label), row in rows.items()}
    for crawl in crawls:
        _fill_crawl(workspace, {Slice(crawl, slug): version for slug, version in versions.items()}, templates, notes)
    instance.add_dynamic_partitions("crawl", list(crawls))
    for at in range(0, len(domains), 500):
        instance.add_dynamic_partitions("target", list(domains[at : at + 500]))
    record(instance, workspace.settings.dagster_home, crawls, domains)


def _one(workspace: Workspace, table: str) -> pa.Table:
    return workspace.lake.read(table, {"crawl": CRAWL, "target": TEMPLATE}).slice(0, 1)


def _fill_crawl(
    workspace: Workspace,
    wanted: Mapping[Slice, str],
    templates: Mapping[str, pa.Table],
    notes: Mapping[str, dict[str, object]],
) -> None:
    """Commits the stages of slices of one crawl, whose ``wanted`` are the versions of their targets' definitions."""
    options, slices = options_of(workspace.settings), [*wanted]

    def commit(
        stage: Stage, inputs: Mapping[Slice, Mapping[str, str]], of_stage: Mapping[Slice, dict[str, object]]
    ) -> dict[Slice, str]:
        data = {table: repeat_row(templates[table], slices) for table in stage.tables}
        return commit_rows(workspace, stage, slices, data, inputs, of_stage)

    located = {
        slice_: notes[LOCATE.label] | {"definition": version, "index_version": _INDEX, "captures": 1}
        for slice_, version in wanted.items()
    }
    captures = commit(
        LOCATE,
        {slice_: build_locate_input(version, "parquet", _INDEX) for slice_, version in wanted.items()},
        located,
    )
    counts: dict[str, object] = {"planned": 1, "fetched": 1, "missing": 0, "quarantined": 0, "pending": 0}
    fetched = notes[FETCH.label] | counts | {"retries_exhausted": 0}
    records = commit(
        FETCH,
        {slice_: build_fetch_input(content, options.digest_policy) for slice_, content in captures.items()},
        dict.fromkeys(slices, fetched),
    )
    commit(PARSE, {slice_: build_parse_input(content, options) for slice_, content in records.items()}, {})


def record(instance: dg.DagsterInstance, folder: Path, crawls: Sequence[str], domains: Sequence[str]) -> None:
    """Records each partition of each asset in the SQLite history in ``folder``: the first of each in the usual way, all
    others as copies of that."""
    for crawl in crawls:
        for asset in ("index_manifest", "index_footers", "row_groups"):
            instance.report_runless_asset_event(dg.AssetMaterialization(asset, partition=crawl))
    first = crawls[0], domains[0]
    for asset in EXTRACTED:
        tags = {"dagster/partition/crawl": first[0], "dagster/partition/target": first[1], "dagster/data_version": "0a"}
        metadata = {"dagster/partition_row_count": 1, "outcomes": "1 fetched", "seconds": 0.5, "requests": 1}
        event = dg.AssetMaterialization(asset, partition=partition_key(*first), tags=tags, metadata=metadata)
        instance.report_runless_asset_event(event)
    pairs = [(crawl, domain) for crawl in crawls for domain in domains if (crawl, domain) != first]
    [index] = folder.rglob("index.db")
    with closing(sqlite3.connect(index)) as connection, connection:
        _copy(connection, first, pairs)


def _copy(connection: sqlite3.Connection, first: tuple[str, str], pairs: Sequence[tuple[str, str]]) -> None:
    """Copies the events of one partition, and their tags, for others."""
    connection.execute("CREATE TEMP TABLE pair (number INTEGER PRIMARY KEY, crawl TEXT, domain TEXT, key TEXT)")
    numbered = ((number, *pair, partition_key(*pair)) for number, pair in enumerate(pairs, 1))
    connection.executemany("INSERT INTO pair VALUES (?, ?, ?, ?)", numbered)
    [(last,)] = connection.execute("SELECT max(id) FROM event_logs").fetchall()
    connection.execute(
        "CREATE TEMP TABLE original AS SELECT * FROM event_logs WHERE partition = ?", [partition_key(*first)]
    )
    columns = [row[1] for row in connection.execute("PRAGMA table_info(event_logs)")]
    # the number of a copy tells whose it is
    number = f"{last} + (SELECT count(*) FROM original) * pair.number + original.rowid"
    crawl, domain = (f"'{text}'" for text in first)
    values = {
        "id": number,
        "partition": "pair.key",
        "event": f"replace(replace(original.event, {crawl}, pair.crawl), {domain}, pair.domain)",
    }
    connection.execute(
        f"INSERT INTO event_logs ({', '.join(columns)}) "
        f"SELECT {', '.join(values.get(name, f'original.{name}') for name in columns)} FROM pair, original"
    )
    tags = [row[1] for row in connection.execute("PRAGMA table_info(asset_event_tags)") if row[1] != "id"]
    values = {
        "event_id": number,
        "value": f"CASE tag.value WHEN {crawl} THEN pair.crawl WHEN {domain} THEN pair.domain ELSE tag.value END",
    }
    connection.execute(
        f"INSERT INTO asset_event_tags ({', '.join(tags)}) "
        f"SELECT {', '.join(values.get(name, f'tag.{name}') for name in tags)} "
        "FROM pair, original JOIN asset_event_tags AS tag ON tag.event_id = original.id"
    )
