"""Grows a home, and times a small partition in it: ``python -m benchmarks.growth_home STEP BUCKET HOME``.
A program of its own, because memory is measured.

Rows are those of one extracted domain, again and again under other targets, so they have real sizes. ``--bulk`` puts
many slices into a commit, where a run commits each by itself: rows and all answers are the same, and the files lie as
maintenance leaves them. The last slices are committed one by one, as runs leave them until the next merge.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import duckdb
import pyarrow as pa

from cc_pipeline import atomic
from cc_pipeline.commoncrawl.target import Target
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.extraction.fetch import fetch_captures
from cc_pipeline.extraction.locate import locate_captures
from cc_pipeline.extraction.parse import parse_records
from cc_pipeline.harvesting.crawl_index import commit_manifest, commit_row_groups, harvest_footers
from cc_pipeline.lake.compaction import Bounds, compact
from cc_pipeline.lake.files import write_rows
from cc_pipeline.lake.live_rows import find_live_rows
from cc_pipeline.lake.slice import FETCH, LOCATE, PARSE, Slice, Stage, slices_of
from cc_pipeline.lake.slices import SLICES, commit_written, draw_generations, read_base, read_slice_rows
from cc_pipeline.maintenance.maintain import run_maintenance
from cc_pipeline.publish.publish import find_publication_lag, publish_warehouse
from cc_pipeline.settings import load_settings
from cc_pipeline.testing.mini_crawl.generate import ensure
from cc_pipeline.testing.mini_crawl.spec import DEMO
from cc_pipeline.workspace.workspace import Workspace, open_lake

CRAWL = "CC-MAIN-2024-22"
TEMPLATE, ASKED = "example.com", "example-foo.com"
STAGES = (LOCATE, FETCH, PARSE)
#: A crawl has so many rows of captures for each row of the page tables, in homes that grow by rows.
PAGE_SHARE = 20
#: Rows and slices of one commit of the bulk builder.
_BULK_ROWS, _BULK_SLICES = 200_000, 500
#: Crawls over which slices of a row each are spread.
_MANY_CRAWLS = 100
#: Slices that are committed one by one at the end: three stages make a hundred commits that nothing has merged.
_UNMERGED_SLICES = 33
#: Commits after which ``slices`` is merged, as publications do it.
_MERGED_COMMITS = 32
_FEW_CAPTURES = 4


def harvest(workspace: Workspace) -> None:
    """The index of the crawl, up to its row groups."""
    commit_manifest(workspace, CRAWL)
    harvest_footers(workspace, CRAWL)
    commit_row_groups(workspace, [CRAWL])


def extract(workspace: Workspace, target: Target) -> None:
    """Captures to pages of a target."""
    workspace.register_targets([target])
    for stage in (locate_captures, fetch_captures, parse_records):
        stage(workspace, CRAWL, [target.slug])


def slug_of(number: int) -> str:
    """The target of a grown slice."""
    return f"site-{number:06d}.example"


def grow(workspace: Workspace, slices: int, rows: int, page_rows: int, bulk: bool) -> None:
    """A harvested home with the template's pages, and ``slices`` more slices: of ``rows`` rows in ``captures`` and
    ``records``, of ``page_rows`` in each of the page tables."""
    harvest(workspace)
    extract(workspace, parse_target(TEMPLATE))
    slugs = _register(workspace, slices)
    lake, last = workspace.lake, _count_unmerged(slices)
    templates = {table: _read_template(workspace, table) for stage in STAGES for table in stage.tables}

    def commit(stage: Stage, some: list[str]) -> None:
        each = page_rows if stage is PARSE else rows
        data = {
            table: pa.concat_tables([grown_rows(templates[table], slug, each) for slug in some])
            for table in stage.tables
        }
        commit_rows(workspace, stage, slices_of(CRAWL, some), data)

    for stage in STAGES:
        each = page_rows if stage is PARSE else rows
        for number, some in enumerate(_together(slugs[:-last] if last else slugs, each, bulk), 1):
            commit(stage, some)
            if number % _MERGED_COMMITS == 0:
                compact(lake, SLICES.name, Bounds())
    if bulk:
        _merge(workspace)
    for slug in slugs[-last:] if last else []:
        for stage in STAGES:
            commit(stage, [slug])


def _register(workspace: Workspace, slices: int) -> list[str]:
    targets = [parse_target(slug_of(number)) for number in range(slices)]
    workspace.register_targets(targets)
    return [target.slug for target in targets]


def _read_template(workspace: Workspace, table: str) -> pa.Table:
    return _ordered(workspace.lake.read(table, {"crawl": CRAWL, "target": TEMPLATE}))


def _count_unmerged(slices: int) -> int:
    """How many of ``slices`` are committed one by one at the end."""
    return min(_UNMERGED_SLICES, slices // 10)


def _merge(workspace: Workspace) -> None:
    """Merges all files of each table and crawl, as maintenance does of many."""
    for table in workspace.lake.specs:
        compact(workspace.lake, table, Bounds(max_small_files=1))


def commit_rows(
    workspace: Workspace,
    stage: Stage,
    slices: list[Slice],
    data: Mapping[str, pa.Table],
    inputs: Mapping[Slice, Mapping[str, str]] | None = None,
    notes: Mapping[Slice, Mapping[str, object]] | None = None,
) -> dict[Slice, str]:
    """Commits ``slices`` of one crawl with their rows by table; by default with inputs of no run and the note of the
    template. Returns the digest of the content of each."""
    lake, crawl, generations = workspace.lake, slices[0].crawl, draw_generations(slices)
    if notes is None:
        template = Slice(CRAWL, TEMPLATE)
        note = read_slice_rows(lake, [template], (stage,))[template, stage.label].note
        notes = dict.fromkeys(slices, note)
    by_target = {slice_.target: generation for slice_, generation in generations.items()}
    written = {table: write_rows(lake, table, crawl, data[table].to_batches(), by_target) for table in stage.tables}
    inputs = inputs or {slice_: {"grown": slice_.target} for slice_ in slices}
    rows = commit_written(lake, stage, inputs, written, generations, read_base(lake, stage, slices), notes=notes)
    return {row.slice_: row.content for row in rows}


def grow_many(workspace: Workspace, slices: int) -> None:
    """A harvested home with the template's pages, and ``slices`` more slices of a row each, of targets in up to 100
    crawls. All of a crawl are in one commit, but the last."""
    harvest(workspace)
    extract(workspace, parse_target(TEMPLATE))
    crawls = min(_MANY_CRAWLS, max(1, slices // 10))
    slugs = _register(workspace, slices // crawls)
    last = _count_unmerged(len(slugs))
    templates = {table: _read_template(workspace, table).slice(0, 1) for stage in STAGES for table in stage.tables}

    def commit(stage: Stage, some: list[Slice]) -> None:
        commit_rows(workspace, stage, some, {table: repeat_row(templates[table], some) for table in stage.tables})

    for number in range(crawls):
        kept = slugs[:-last] if last and not number else slugs
        for stage in STAGES:
            commit(stage, slices_of(_crawl(number), kept))
    _merge(workspace)
    for slug in slugs[-last:] if last else []:
        for stage in STAGES:
            commit(stage, [Slice(CRAWL, slug)])
    for table in workspace.lake.specs:
        workspace.lake.prepare(table).create_checkpoint()


def _crawl(number: int) -> str:
    return CRAWL if not number else f"CC-MAIN-{2030 + number // 50}-{number % 50 + 1:02}"


def repeat_row(row: pa.Table, slices: list[Slice]) -> pa.Table:
    """``row`` for each of ``slices`` of one crawl."""
    count = len(slices)
    whole = row.take(pa.array([0] * count))
    names = {"crawl": [slices[0].crawl] * count, "target": [one.target for one in slices]}
    names |= {"domain": names["target"], "warc_filename": [f"grown/{one.target}.warc.gz" for one in slices]}
    for name, values in names.items():
        place = whole.schema.get_field_index(name)
        if place >= 0:
            field = whole.schema.field(place)
            whole = whole.set_column(place, field, pa.array(values, field.type))
    return whole


def _ordered(rows: pa.Table) -> pa.Table:
    """The rows in an order that depends on nothing but them: pages are parsed in any order."""
    plain = [field.name for field in rows.schema if pa.types.is_string(field.type) or pa.types.is_integer(field.type)]
    return rows.sort_by([(name, "ascending") for name in ["warc_filename", "warc_record_offset", *plain]])


def _together(slugs: list[str], rows: int, bulk: bool) -> Iterator[list[str]]:
    """The slugs of each commit."""
    many = min(_BULK_SLICES, max(1, _BULK_ROWS // max(1, rows))) if bulk else 1
    for start in range(0, len(slugs), many):
        yield slugs[start : start + many]


def grown_rows(template: pa.Table, slug: str, rows: int) -> pa.Table:
    """``rows`` rows of ``template`` under another target and domain, each of a place of its own."""
    whole = pa.concat_tables([template] * -(-rows // max(1, template.num_rows))).slice(0, rows)
    count = whole.num_rows
    # as many names of files as 500 records each make
    files = pa.array([f"grown/{slug}/{number}.warc.gz" for number in range(count // 500 + 1)], pa.string())
    columns = {
        "warc_filename": files.take(pa.array([number // 500 for number in range(count)], pa.int64())),
        "warc_record_offset": pa.array(range(count), pa.int64()),
        "target": pa.repeat(pa.scalar(slug), count),
        "domain": pa.repeat(pa.scalar(slug), count),
    }
    for name, values in columns.items():
        place = whole.schema.get_field_index(name)
        if place >= 0:
            whole = whole.set_column(place, whole.schema.field(place), values.cast(whole.schema.field(place).type))
    return whole


def replace_slice(workspace: Workspace) -> dict[str, float]:
    """A grown slice committed again by each stage: seconds of the slowest, and this process's peak in MB."""
    taken = []
    slug = slug_of(0)
    for stage in STAGES:
        data = {table: grown_rows(_read_template(workspace, table), slug, 1_000) for table in stage.tables}
        started = time.perf_counter()
        commit_rows(workspace, stage, [Slice(CRAWL, slug)], data)
        taken.append(time.perf_counter() - started)
    return {"replaced_s": max(taken), "replaced_mb": _peak()}


def ask(workspace: Workspace, maintenance: bool) -> dict[str, float]:
    """Seconds (wall and processor) of each step, and this process's peak in MB after it.

    A new small partition; a publication, after one that counted the rows of the files; where asked for, maintenance;
    an analyst's two questions.
    """
    found: dict[str, float] = {}
    publish_warehouse(workspace)
    _timed(found, "pages", lambda: extract(workspace, parse_target(ASKED)))
    _timed(found, "publish", lambda: publish_warehouse(workspace))
    if maintenance:
        _timed(found, "maintenance", lambda: run_maintenance(workspace))
    with duckdb.connect(str(workspace.settings.published_path), read_only=True) as connection:
        for name, query in (
            ("count", "SELECT count(*) FROM captures"),
            ("domain", f"SELECT url FROM captures WHERE crawl = '{CRAWL}' AND domain = '{ASKED}'"),
        ):
            _timed(found, name, lambda query=query: connection.execute(query).fetchall())
    found["peak_mb"] = _peak()
    return found


def again(workspace: Workspace) -> dict[str, float]:
    """Seconds of a run with nothing to do, and of a look whether there is anything to publish."""
    found: dict[str, float] = {}
    _timed(found, "noop", lambda: (extract(workspace, parse_target(ASKED)), find_publication_lag(workspace)))
    return found


def opened(workspace: Workspace) -> dict[str, float]:
    """Seconds until a home is open: that of each table's log, and of the count of what counts in all tables, when
    their files were counted before. MB of all logs."""
    found: dict[str, float] = {}
    lake, cache = workspace.lake, workspace.settings.cache_path / "generations"

    def count() -> None:
        find_live_rows(lake, [lake.pin(table) for table in lake.specs], cache)

    count()
    logs = [file for table in lake.specs for file in Path(lake.address(table), "_delta_log").rglob("*")]
    _timed(found, "counts", count)
    fresh = open_lake(workspace.settings)
    _timed(found, "opened", lambda: [fresh.version(table) for table in fresh.specs])
    return found | {"logs_mb": sum(file.stat().st_size for file in logs if file.is_file()) / 1e6}


def durable(bucket: Path, home: Path, pairs: int) -> dict[str, list[float]]:
    """Seconds of a run over a domain of four captures or more and of its publication, with and without syncs, each
    in a copy of one harvested home; and how many syncs there were."""
    truth = ensure(bucket, DEMO)
    sizes = {name: len(truth.captures_of(CRAWL, domain=name, subset="warc")) for name in truth.domains()}
    few = min((name for name, count in sizes.items() if count >= _FEW_CAPTURES), key=sizes.__getitem__)
    settings = load_settings({}, source=str(bucket), home=str(home / "harvested"), workers=1)
    workspace = Workspace(settings)
    harvest(workspace)
    workspace.close()
    found: dict[str, list[float]] = {name: [] for name in ("synced_s", "unsynced_s", "synced_cpu_s", "unsynced_cpu_s")}
    syncs = 0
    plain = atomic.sync

    def counted(descriptor: int) -> None:
        nonlocal syncs
        syncs += 1
        plain(descriptor)

    for number in range(2 * pairs):
        is_synced = number % 2 == number // 2 % 2
        atomic.sync = counted if is_synced else lambda _: None
        copy = home / f"copy-{number}"
        shutil.copytree(home / "harvested", copy)
        workspace = Workspace(replace(settings, home=copy, lake=str(copy / "lake")))
        taken: dict[str, float] = {}
        _timed(taken, "run", partial(_run_and_publish, workspace, parse_target(few)))
        workspace.close()
        kind = "synced" if is_synced else "unsynced"
        found[f"{kind}_s"].append(taken["run_s"])
        found[f"{kind}_cpu_s"].append(taken["run_cpu_s"])
    return found | {"syncs": [syncs / pairs], "captures": [float(sizes[few])]}


def _run_and_publish(workspace: Workspace, target: Target) -> None:
    extract(workspace, target)
    publish_warehouse(workspace)


def members(workspace: Workspace, bucket: Path, folder: Path, count: int) -> dict[str, float]:
    """What a set of ``count`` members costs, most of which the mini crawl does not have: a run of a domain alone in the
    same home (``lone``), locating the set, and the run after a member was added (``added``)."""
    first, lone, added, *here = ensure(bucket, DEMO).domains()
    names = [*here[: count // 2], *(slug_of(number) for number in range(count))][:count]

    def listed(some: list[str]) -> Target:
        (folder / "large.txt").write_text("\n".join(some) + "\n", "utf-8")
        return parse_target("set:large = @large.txt", folder)

    harvest(workspace)
    found: dict[str, float] = {}
    # what the first run of a process pays alone is no part of a figure
    extract(workspace, parse_target(first))
    workspace.register_targets([listed(names)])
    _timed(found, "located", lambda: locate_captures(workspace, CRAWL, ["set-large"]))
    extract(workspace, listed(names))
    _timed(found, "lone", lambda: extract(workspace, parse_target(lone)))
    _timed(found, "added", lambda: extract(workspace, listed([*names, added])))
    return found | {"peak_mb": _peak()}


def _timed(found: dict[str, float], name: str, step: Callable[[], object]) -> None:
    started, used = time.perf_counter(), time.process_time()
    step()
    found[f"{name}_s"] = time.perf_counter() - started
    found[f"{name}_cpu_s"] = time.process_time() - used
    found[f"{name}_mb"] = _peak()


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """One step, in a home."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "step", choices=["grow", "grow-many", "ask", "again", "replace", "members", "opened", "durable"]
    )
    parser.add_argument("bucket", type=Path)
    parser.add_argument("home", type=Path)
    parser.add_argument("--slices", type=int, default=0, help="slices, members of the set, or pairs")
    parser.add_argument("--rows", type=int, default=0)
    parser.add_argument("--page-rows", type=int)
    parser.add_argument("--bulk", action="store_true")
    parser.add_argument("--maintenance", action="store_true")
    given = parser.parse_args()
    if given.step == "durable":
        json.dump(durable(given.bucket, given.home, given.slices), sys.stdout)
        return
    workspace = Workspace(load_settings({}, source=str(given.bucket), home=str(given.home)))
    try:
        if given.step == "grow-many":
            grow_many(workspace, given.slices)
        elif given.step == "again":
            json.dump(again(workspace), sys.stdout)
        elif given.step == "opened":
            json.dump(opened(workspace), sys.stdout)
        elif given.step == "grow":
            pages = given.rows if given.page_rows is None else given.page_rows
            grow(workspace, given.slices, given.rows, pages, given.bulk)
        elif given.step == "ask":
            json.dump(ask(workspace, given.maintenance), sys.stdout)
        elif given.step == "replace":
            json.dump(replace_slice(workspace), sys.stdout)
        else:
            json.dump(members(workspace, given.bucket, given.home, given.slices), sys.stdout)
    finally:
        workspace.close()


if __name__ == "__main__":
    main()
