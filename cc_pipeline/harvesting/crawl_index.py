"""The index of a crawl: its path list, its footers, its row groups in the catalog."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import wraps

import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline import progress
from cc_pipeline.advice import advise
from cc_pipeline.commoncrawl.crawls import ARC_CRAWLS, index_is_built
from cc_pipeline.commoncrawl.paths import IndexFile
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.harvesting.archives import built_index
from cc_pipeline.harvesting.catalog import (
    catalog_gaps,
    list_subsets,
    read_catalog_table,
    read_harvest,
    versions_of,
)
from cc_pipeline.harvesting.crawls import find_crawl
from cc_pipeline.harvesting.listed_files import listed_files
from cc_pipeline.index.catalog.from_footers import crawl_tables, footers_digest
from cc_pipeline.index.catalog.rows import read_view, sort_rows
from cc_pipeline.index.footers.harvest import harvest_crawl
from cc_pipeline.index.footers.store import FooterStore
from cc_pipeline.index.gaps import IndexGaps
from cc_pipeline.index.repair import repair_row_groups
from cc_pipeline.index.shards import SUBSET
from cc_pipeline.lake.content_digests import compute_input_digest
from cc_pipeline.lake.files import write_rows
from cc_pipeline.lake.lake import Lake
from cc_pipeline.lake.slice import HARVEST, MANIFEST, Slice, StageReport
from cc_pipeline.lake.slices import (
    Base,
    SlicesChanged,
    commit_stage,
    commit_written,
    draw_generations,
    find_stale,
    read_base,
)
from cc_pipeline.progress import format_count
from cc_pipeline.settings import Settings
from cc_pipeline.workspace.workspace import Workspace

ARC_REASON = "a crawl of the ARC years has no columnar index: its captures are found through ZipNum or a B-tree"


def changed_list_digest(workspace: Workspace, crawl: str) -> str | None:
    """Returns the digest of a harvested crawl's path list at the source if it names other files than at the last
    reading; ``None`` if not, and for the ARC years. Raises ``EnvironmentFault`` if it cannot be read."""
    if find_crawl(workspace, crawl).era == "arc":
        return None
    inputs = _manifest_inputs(crawl, listed_files(workspace, crawl)[0])
    return inputs[Slice(crawl)]["paths"] if find_stale(workspace.lake, MANIFEST, inputs) else None


def _plan_again(commit: Callable[[Workspace, str], StageReport]) -> Callable[[Workspace, str], StageReport]:
    """``commit``, called once more if another home harvested the same crawl meanwhile."""

    @wraps(commit)
    def commit_or_plan_again(workspace: Workspace, crawl: str) -> StageReport:
        with suppress(SlicesChanged):
            return commit(workspace, crawl)
        return commit(workspace, crawl)

    return commit_or_plan_again


@_plan_again
def commit_manifest(workspace: Workspace, crawl: str) -> StageReport:
    """Writes ``index_manifest``: one row per file of the crawl's columnar index; none, with the reason, for ARC years.

    For a crawl whose index is built here these are all planned files, built or not. Raises ``EnvironmentFault`` if the
    path list cannot be read.
    """
    started = time.monotonic()
    if find_crawl(workspace, crawl).era == "arc":
        files: list[IndexFile] = []
        notes: tuple[str, ...] = (ARC_REASON,)
        requests = size = 0
    else:
        files, requests, size, notes = listed_files(workspace, crawl)
    rows = [{"crawl": file.crawl, "subset": file.subset, "part": file.part, "path": file.path} for file in files]
    inputs = _manifest_inputs(crawl, files)
    written = 0
    if find_stale(workspace.lake, MANIFEST, inputs):
        table = pa.Table.from_pylist(rows, schema=workspace.lake.specs["index_manifest"].schema)
        ordered = table.sort_by([("subset", "ascending"), ("path", "ascending")])
        commit_stage(workspace.lake, MANIFEST, inputs, {"index_manifest": ordered.to_batches()})
        written = len(rows)
    return StageReport(
        MANIFEST.label,
        len(rows),
        written,
        size,
        requests,
        time.monotonic() - started,
        fresh_slices=int(written > 0),
        notes=notes,
    )


def _manifest_inputs(crawl: str, files: Sequence[IndexFile]) -> dict[Slice, dict[str, str]]:
    return {Slice(crawl): {"paths": compute_input_digest({"paths": [file.path for file in files]})}}


def requested_subsets(settings: Settings, crawl: str) -> tuple[str, ...]:
    """Returns the subsets that a harvest of ``crawl`` requests, in their order: the settings', and the single subset of
    a crawl without subsets."""
    has_subsets = crawl not in ARC_CRAWLS and not index_is_built(crawl)
    return settings.subsets if has_subsets else tuple(dict.fromkeys((*settings.subsets, SUBSET)))


def is_harvested(workspace: Workspace, crawl: str) -> bool:
    """Whether harvesting ``crawl`` again would change nothing: the path list is the same, every footer of the requested
    subsets is stored, and the catalog is made from these. It costs the request for the path list. Raises
    ``EnvironmentFault`` if that cannot be read.

    For subsets that another home on the same lake harvested, this home needs no footers.
    """
    lake, settings = workspace.lake, workspace.settings
    harvest = read_harvest(lake, crawl)
    if not harvest.current:
        return False
    files = [] if crawl in ARC_CRAWLS else listed_files(workspace, crawl)[0]
    if find_stale(lake, MANIFEST, _manifest_inputs(crawl, files)):
        return False
    paths_by_subset = _by_subset(requested_subsets(settings, crawl), ((file.subset, file.path) for file in files))
    covered = {row["subset"]: row for row in read_catalog_table(lake, "coverage", crawl).to_pylist()}
    if any(
        subset not in covered or covered[subset]["harvested"] != len(subset_paths)
        for subset, subset_paths in paths_by_subset.items()
    ):
        return False
    store = FooterStore(settings.footers_path)
    stored_footers = store.read(crawl)
    if settings.has_separate_lake:
        paths_by_subset = {
            subset: subset_paths
            for subset, subset_paths in paths_by_subset.items()
            if not subset_paths or any(path in stored_footers for path in subset_paths)
        }
    footers = {subset: _footers_of(crawl, subset_paths, store) for subset, subset_paths in paths_by_subset.items()}
    return footers == {subset: digest for subset, digest in harvest.footers.items() if subset in paths_by_subset}


def harvest_footers(workspace: Workspace, crawl: str, *, refresh: bool = False) -> StageReport:
    """Fetches and stores the missing footers of the index files of the requested subsets of ``crawl``; with ``refresh``
    also those of files that changed, which costs a request for each stored one.

    A file that stays bad is recorded. Raises ``EnvironmentFault`` if the source fails; stored footers stay.
    """
    paths = [path for subset_paths in _requested_files(workspace, crawl).values() for path in subset_paths]
    if not paths:
        return StageReport("footers", rows=0, notes=(_empty_reason(crawl),))
    transport, store = workspace.index_place(crawl), FooterStore(workspace.settings.footers_path)
    stats = transport.stats
    requests, read = stats.requests, stats.bytes
    missing = built_index(workspace, crawl).missing if index_is_built(crawl) else []
    absent = {shard.key: f"{shard.filename} is not indexed yet" for shard in missing}
    available_paths = [path for path in paths if path not in absent]
    report = harvest_crawl(crawl, available_paths, transport, store, refresh=refresh)
    _store_failures(store, crawl, {path: absent[path] for path in paths if path in absent})
    notes = tuple(f"{path} failed: {reason}" for path, reason in (*report.failed, *absent.items())[:20])
    return StageReport(
        "footers",
        rows=report.fetched + report.reused,
        written=report.fetched,
        bytes=stats.bytes - read,
        requests=stats.requests - requests,
        seconds=report.seconds,
        notes=notes,
    )


def _store_failures(store: FooterStore, crawl: str, absent: Mapping[str, str]) -> None:
    """Stores the reasons why files have no footer, unless they are stored already."""
    stored_entries = store.read(crawl).entries
    new = {
        path: reason
        for path, reason in absent.items()
        if path not in stored_entries or stored_entries[path].reason != reason
    }
    if new:
        with store.write(crawl) as writer:
            for path, reason in new.items():
                writer.put_failure(path, reason)


def commit_row_groups(workspace: Workspace, crawls: Sequence[str]) -> dict[str, StageReport]:
    """Decodes the stored footers of the requested subsets of ``crawls`` into the catalog; other subsets stay. It needs
    no network, and replaces a crawl in one commit."""
    reports = {}
    for number, crawl in enumerate(crawls):
        progress.report("row groups", number, len(crawls), crawl)
        reports[crawl] = _commit_crawl(workspace, crawl)
    progress.report("row groups", len(crawls), len(crawls))
    return reports


def refused_gaps(workspace: Workspace, crawls: Sequence[str]) -> list[IndexGaps]:
    """Returns the gaps of those harvested ``crawls`` that miss more files of a subset than the settings allow."""
    max_share = workspace.settings.max_index_gaps
    return [gaps for gaps in catalog_gaps(workspace, crawls) if not gaps.allowed(max_share)]


def repair_statistics(workspace: Workspace, crawl: str) -> StageReport:
    """Reads the key column of every row group of the requested subsets of ``crawl`` without key bounds, and adds them.

    This reads whole column chunks (about 23 MB each in the real index), so it runs only on request.
    """
    report = repair_row_groups(
        crawl,
        [path for subset_paths in _requested_files(workspace, crawl).values() for path in subset_paths],
        workspace.index_place(crawl),
        FooterStore(workspace.settings.footers_path),
        on_progress=lambda done, total: progress.report("repair", done, total, crawl),
    )
    committed = _commit_crawl(workspace, crawl)
    notes = tuple(f"{path} row group {number}: {reason}" for path, number, reason in report.failed[:20])
    remaining_note = (
        (f"{format_count(report.remaining, 'row group', 'have')} no key bounds yet, so each lookup reads them",)
        if report.remaining
        else ()
    )
    return StageReport(
        "repair",
        rows=committed.rows,
        written=report.repaired,
        bytes=report.bytes,
        requests=report.requests,
        seconds=report.seconds,
        notes=(*notes, *remaining_note),
    )


@_plan_again
def _commit_crawl(workspace: Workspace, crawl: str) -> StageReport:
    started = time.monotonic()
    lake, store, slice_ = workspace.lake, FooterStore(workspace.settings.footers_path), Slice(crawl)
    paths_by_subset = _requested_files(workspace, crawl)
    base = read_base(lake, HARVEST, [slice_])  # what another home commits from now on, the commit finds
    harvest = read_harvest(lake, crawl)
    stored = lake.read("row_groups", slice_.where)
    stored_subsets = [harvested.subset for harvested in list_subsets(stored)]
    footers = store.read(crawl)
    if not harvest.current:
        # its rows may be wrong: all subsets with stored footers are made again, the others when they are requested
        listed_paths = _listed_files(workspace, crawl, stored_subsets)
        paths_by_subset = {
            name: subset_paths
            for name, subset_paths in listed_paths.items()
            if any(path in footers for path in subset_paths)
        } | paths_by_subset
    paths = [path for subset_paths in paths_by_subset.values() for path in subset_paths]
    footer_digests = {
        subset: _footers_of(crawl, subset_paths, store) for subset, subset_paths in paths_by_subset.items()
    }
    is_unchanged = harvest.current and all(
        harvest.footers.get(subset) == digest for subset, digest in footer_digests.items()
    )
    etags = {row["path"]: row["file"]["etag"] for row in stored.select(["path", "file"]).to_pylist() if row["file"]}
    written = 0
    if not is_unchanged or any(path in footers and footers.entries[path].etag != etags.get(path) for path in paths):
        rows = crawl_tables(crawl, paths, store, subsets=[*paths_by_subset], reason=_empty_reason(crawl)).packed()
        retained_subsets = (
            [subset for subset in stored_subsets if subset not in paths_by_subset] if harvest.current else []
        )
        rows = _with_subsets(rows, stored, retained_subsets)
        made_from = {subset: harvest.footers[subset] for subset in retained_subsets} | footer_digests
        committed = _commit_rows(lake, slice_, rows, made_from, base)
        # the same files, perhaps under other ETags (a copied bucket), which reads expect from now on
        written = 0 if is_unchanged else max(1, committed)
        stored = rows
    coverage = read_view("coverage", stored)
    return StageReport(
        HARVEST.label,
        rows=pc.sum(coverage["row_groups"]).as_py() or 0,
        written=written,
        seconds=time.monotonic() - started,
        notes=tuple(dict.fromkeys(reason for reason in coverage["reason"].to_pylist() if reason)),
    )


def _commit_rows(lake: Lake, slice_: Slice, rows: pa.Table, footers: Mapping[str, str], base: Base) -> int:
    """Commits the catalog of a crawl, made from ``footers`` (digests by subset). Returns the number of its rows."""
    inputs = {slice_: {"footers": compute_input_digest(footers)}}
    notes = {slice_: {"footers": dict(footers), "versions": versions_of(rows)}}
    generations = draw_generations([slice_])
    written = write_rows(lake, "row_groups", slice_.crawl, rows.to_batches(), {"": generations[slice_]})
    commit_written(lake, HARVEST, inputs, {"row_groups": written}, generations, base, notes=notes)
    return int(rows.num_rows)


def _with_subsets(rows: pa.Table, stored: pa.Table, subsets: Sequence[str]) -> pa.Table:
    """Returns ``rows`` of a crawl with the ``stored`` ones of other ``subsets``, in the order of the catalog."""
    retained_rows = stored.filter(pc.is_in(stored["subset"], pa.array(subsets, pa.string())))
    return sort_rows(pa.concat_tables([rows, retained_rows])) if len(retained_rows) else rows


def _footers_of(crawl: str, paths: Sequence[str], store: FooterStore) -> str:
    return compute_input_digest({"footers": footers_digest(crawl, paths, store)})


def _requested_files(workspace: Workspace, crawl: str) -> dict[str, list[str]]:
    """Returns the index files of each requested subset, in the order of the subsets; none if the path list has none."""
    return _listed_files(workspace, crawl, requested_subsets(workspace.settings, crawl))


def _listed_files(workspace: Workspace, crawl: str, subsets: Sequence[str]) -> dict[str, list[str]]:
    manifest = workspace.lake.read("index_manifest", {"crawl": crawl}, ["subset", "path"])
    if not manifest.num_rows and crawl not in ARC_CRAWLS:
        raise EnvironmentFault(
            f"the index files of {crawl} are not listed yet",
            advise("index harvest", crawl=crawl, sentence="Harvest it first: the job harvest_crawl, or {}"),
        )
    return _by_subset(subsets, zip(*(manifest[name].to_pylist() for name in ("subset", "path")), strict=True))


def _by_subset(subsets: Sequence[str], files: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    paths_by_subset: dict[str, list[str]] = {subset: [] for subset in subsets}
    for subset, path in sorted(files):
        if subset in paths_by_subset:
            paths_by_subset[subset].append(path)
    return paths_by_subset


def _empty_reason(crawl: str) -> str:
    return ARC_REASON if crawl in ARC_CRAWLS else "the path list of the crawl names no file of this subset"


def coverage_metrics(coverage: pa.Table) -> dict[str, int | float | str]:
    """Returns metrics of the table ``coverage`` of a crawl: its harvested subsets, the files expected, harvested and
    failed in them, and row groups without statistics."""
    names = {"expected": "files expected", "harvested": "files harvested", "failed": "files failed"}
    metrics: dict[str, int | float | str] = {"subsets": ", ".join(sorted(coverage["subset"].to_pylist()))}
    metrics |= {label: pc.sum(coverage[name]).as_py() or 0 for name, label in names.items()}
    metrics["index rows"] = pc.sum(coverage["rows"]).as_py() or 0
    metrics["row groups without key bounds"] = pc.sum(coverage["without_statistics"]).as_py() or 0
    return metrics
