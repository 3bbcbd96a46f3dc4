"""Fetching: from captures to stored, verified records, committed per crawl."""

from __future__ import annotations

import time
import uuid
from collections.abc import Collection, Mapping, Sequence

import pyarrow as pa

from cc_pipeline import progress
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.keys import RECORD_KEY_NAMES
from cc_pipeline.lake.digests import input_digest
from cc_pipeline.records.fetch import RecordsResult, fetch_records, settle
from cc_pipeline.records.run import RecordOptions
from cc_pipeline.records.schema import RECORD_SCHEMA
from cc_pipeline.stages.slice import FETCH, LOCATE, Figures, Slice, StageReport, slices_of
from cc_pipeline.stages.workspace import Workspace

VERSION = "1"


def fetch_captures(workspace: Workspace, crawl: str, slugs: Sequence[str], *, replay: bool = False) -> StageReport:
    """Gives every planned capture of ``slugs`` in ``crawl`` exactly one outcome. Stored records are not fetched again.

    ``replay`` fetches quarantined records again too. Raises ``EnvironmentFault`` when the source or the disk fails,
    and when the source answers nothing at all. Records fetched until then are kept, and the next call adopts them.
    """
    started = time.monotonic()
    wanted = _digests(workspace, slices_of(crawl, slugs))
    stale = list(wanted) if replay else FETCH.stale(workspace.lake, wanted)
    result: RecordsResult | None = None
    if stale:
        captures = _captures(workspace, crawl, stale)
        held = workspace.lake.read("records", {"crawl": crawl})
        result = fetch_records(
            captures,
            workspace.transport,
            workspace.storage,
            crawl=crawl,
            commit=uuid.uuid4().hex,
            held=held,
            options=RecordOptions(fail_on_digest=workspace.settings.digest_policy == "fail", retry_quarantined=replay),
            plan=input_digest({"plans": [wanted[slice_] for slice_ in stale]}),
            progress=lambda done, total, size: progress.report("fetch", done, total, f"{size / 1e6:,.1f} MB"),
        )
        _balanced(captures, result.table, crawl)
        _answered(workspace, result, crawl)
        made_from = _made_from({slice_: wanted[slice_] for slice_ in stale}, result)
        FETCH.commit(workspace.lake, made_from, {"records": result.table})
        settle(workspace.storage, result)
    return FETCH.report(
        _figures(workspace, crawl, wanted.keys()),
        stale,
        started,
        bytes=result.bytes if result else 0,
        requests=result.requests if result else 0,
        notes=_notes(result),
    )


def fetched_otherwise(workspace: Workspace, crawl: str, slugs: Sequence[str]) -> set[str]:
    """Those of the located ``slugs`` whose records were fetched for other captures than there are now.

    Records that the source did not give do not count, because they were requested.
    """
    wanted = _digests(workspace, slices_of(crawl, slugs))
    here = FETCH.made_from(workspace.lake, wanted.keys())
    return {s.target for s, digest in wanted.items() if here[s] not in (digest, _incomplete(digest))}


def _captures(workspace: Workspace, crawl: str, slices: Sequence[Slice]) -> pa.Table:
    targets = [slice_.target for slice_ in slices]
    return workspace.lake.read("captures", {"crawl": crawl, "target": targets}, RECORD_KEY_NAMES)


def _digests(workspace: Workspace, slices: Sequence[Slice]) -> dict[Slice, str]:
    located = LOCATE.made_from(workspace.lake, slices)
    shared = {"version": VERSION, "digest_policy": workspace.settings.digest_policy}
    for slice_, digest in located.items():
        if digest is None:
            raise EnvironmentFault(
                f"captures of {slice_.target} in {slice_.crawl} have not been located", "Materialize captures first."
            )
    return {slice_: FETCH.digest(**shared, located=digest) for slice_, digest in located.items()}


def _made_from(wanted: Mapping[Slice, str], result: RecordsResult) -> dict[Slice, str]:
    # captures that the environment kept away deserve another try: the slice then never counts as complete
    missing = set()
    if result.unreached:
        rows = result.table.select(["target", "outcome"]).to_pylist()
        missing = {row["target"] for row in rows if row["outcome"] == "missing"}
    return {s: _incomplete(digest) if s.target in missing else digest for s, digest in wanted.items()}


def _incomplete(digest: str) -> str:
    return input_digest({"incomplete": digest})


def _balanced(captures: pa.Table, records: pa.Table, crawl: str) -> None:
    """The invariant of the ledger, enforced before anything becomes visible."""
    if not records.schema.equals(RECORD_SCHEMA) or records.num_rows != captures.num_rows:
        raise AssertionError(f"{crawl}: {captures.num_rows} captures became {records.num_rows} records")
    outcomes = set(records.column("outcome").unique().to_pylist())
    if not outcomes <= {"fetched", "quarantined", "missing"}:
        raise AssertionError(f"{crawl}: unknown outcomes {sorted(outcomes)}")


def _answered(workspace: Workspace, result: RecordsResult, crawl: str) -> None:
    """Raises ``EnvironmentFault`` when the source gave nothing at all, instead of rows that say "missing"."""
    captures = result.table.group_by(["warc_filename", "warc_record_offset"]).aggregate([]).num_rows
    if not result.unreached or result.unreached < captures - result.reused - result.adopted:
        return
    reasons = {(row["reason"], row["detail"]) for row in result.table.to_pylist() if row["outcome"] == "missing"}
    reason, detail = min(reasons)
    raise EnvironmentFault(
        f"none of {result.unreached:,} captures in {crawl} could be read from {workspace.settings.source} "
        f"({reason}: {detail})",
        "Check the source and the network (cc-pipeline doctor), then run it again. Records stored before stay.",
    )


def _notes(result: RecordsResult | None) -> tuple[str, ...]:
    if result is None:
        return ()
    notes = []
    if result.reused:
        notes.append(f"{result.reused:,} captures were held already and not fetched again")
    if result.adopted:
        notes.append(f"{result.adopted:,} records were taken over from a run that had been stopped")
    if result.unreached:
        notes.append(f"{result.unreached:,} captures could not be reached; materialize records again to retry them")
    return tuple(notes)


def _figures(workspace: Workspace, crawl: str, slices: Collection[Slice]) -> dict[Slice, Figures]:
    where = {"crawl": crawl, "target": [slice_.target for slice_ in slices]}
    rows = workspace.lake.read("records", where, ["target", "outcome", "stored_length"])
    figures: dict[Slice, Figures] = {
        slice_: {"rows:records": 0, "fetched": 0, "quarantined": 0, "missing": 0, "stored bytes": 0}
        for slice_ in slices
    }
    grouped = rows.group_by(["target", "outcome"]).aggregate([("stored_length", "sum"), ([], "count_all")])
    for row in grouped.to_pylist():
        own = figures[Slice(crawl, row["target"])]
        own[row["outcome"]] = row["count_all"]
        own["rows:records"] = int(own["rows:records"]) + row["count_all"]
        own["stored bytes"] = int(own["stored bytes"]) + (row["stored_length_sum"] or 0)
    return figures
