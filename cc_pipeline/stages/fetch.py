"""Fetching: from captures and their plan to stored, verified records, committed per crawl."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence

import pyarrow as pa

from cc_pipeline import progress
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.lake.digests import input_digest
from cc_pipeline.records.fetch import RecordsResult, fetch_records, settle
from cc_pipeline.records.run import RecordOptions
from cc_pipeline.records.schema import RECORD_SCHEMA
from cc_pipeline.stages.locate import locate_digest_name, located
from cc_pipeline.stages.report import StageReport
from cc_pipeline.stages.workspace import Workspace

VERSION = "1"
_CAPTURE_COLUMNS = (
    "crawl", "subset", "target", "url", "url_surtkey", "fetch_time", "fetch_status", "content_digest",
    "content_mime_type", "warc_filename", "warc_record_offset", "warc_record_length", "domain", "archive_format",
)  # fmt: skip


def fetch_captures(workspace: Workspace, crawl: str, slugs: Sequence[str], *, replay: bool = False) -> StageReport:
    """Gives every planned capture of ``slugs`` in ``crawl`` exactly one outcome; what is held is not fetched again.

    ``replay`` asks again for quarantined records. Raises ``EnvironmentFault`` when source or disk give out; what
    was fetched until then is kept and adopted by the next call. A source that answers nothing at all is such a case.
    """
    started = time.monotonic()
    wanted = _digests(workspace, crawl, slugs)
    here = workspace.lake.digests("records", [_name(crawl, slug) for slug in slugs])
    stale = [slug for slug in slugs if replay or here[_name(crawl, slug)] != wanted[slug]]
    result: RecordsResult | None = None
    if stale:
        captures = workspace.lake.read("captures", {"crawl": crawl, "target": stale}, _CAPTURE_COLUMNS)
        held = workspace.lake.read("records", {"crawl": crawl})
        result = fetch_records(
            captures,
            workspace.transport,
            workspace.shelf,
            crawl=crawl,
            commit=uuid.uuid4().hex,
            held=held,
            options=RecordOptions(fail_on_digest=workspace.settings.digest_policy == "fail", retry_quarantined=replay),
            plan=input_digest({"plans": [wanted[slug] for slug in stale]}),
            progress=lambda done, total, size: progress.report("fetch", done, total, f"{size / 1e6:,.1f} MB"),
        )
        _balanced(captures, result.table, crawl)
        _answered(workspace, result, crawl)
        slices = [{"crawl": crawl, "target": slug} for slug in stale]
        workspace.lake.commit("records", result.table, slices, _committed(crawl, stale, wanted, result))
        settle(workspace.shelf, result)
    per_target = _per_target(workspace, crawl, slugs)
    return StageReport(
        "fetch",
        rows=sum(int(figures["rows:records"]) for figures in per_target.values()),
        written=sum(int(per_target[slug]["rows:records"]) for slug in stale),
        bytes=result.bytes if result else 0,
        requests=result.requests if result else 0,
        seconds=time.monotonic() - started,
        fresh_slices=len(stale),
        reused_slices=len(slugs) - len(stale),
        notes=_notes(result),
        per_target=per_target,
    )


def fetched_otherwise(workspace: Workspace, crawl: str, slugs: Sequence[str]) -> set[str]:
    """Those of the located ``slugs`` whose records are not of the captures there are now.

    Records that the source kept away do not count: they were asked for.
    """
    wanted = _digests(workspace, crawl, slugs)
    here = workspace.lake.digests("records", [_name(crawl, slug) for slug in slugs])
    return {slug for slug in slugs if here[_name(crawl, slug)] not in (wanted[slug], _incomplete(wanted[slug]))}


def fetch_digest_name(crawl: str, slug: str) -> str:
    """The name under which a slice's digest is committed."""
    return _name(crawl, slug)


def _name(crawl: str, slug: str) -> str:
    return f"fetch:{crawl}:{slug}"


def _digests(workspace: Workspace, crawl: str, slugs: Sequence[str]) -> dict[str, str]:
    of_captures = located(workspace, crawl, slugs)
    digests: dict[str, str] = {}
    for slug in slugs:
        digest = of_captures[locate_digest_name(crawl, slug)]
        if digest is None:
            raise EnvironmentFault(
                f"captures of {slug} in {crawl} have not been located", "Materialize captures and fetch_plan first."
            )
        shared = {"stage": "fetch", "version": VERSION, "digest_policy": workspace.settings.digest_policy}
        digests[slug] = input_digest(shared | {"located": digest})
    return digests


def _committed(crawl: str, stale: Sequence[str], wanted: dict[str, str], result: RecordsResult) -> dict[str, str]:
    # captures the environment kept away are worth another try: the slice then never counts as complete
    missing = set()
    if result.unreached:
        rows = result.table.select(["target", "outcome"]).to_pylist()
        missing = {row["target"] for row in rows if row["outcome"] == "missing"}
    return {_name(crawl, slug): _incomplete(wanted[slug]) if slug in missing else wanted[slug] for slug in stale}


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
    """A source that gave nothing at all is in trouble: said loudly, not by rows that call every capture missing."""
    captures = result.table.group_by(["warc_filename", "warc_record_offset"]).aggregate([]).num_rows
    if not result.unreached or result.unreached < captures - result.reused - result.adopted:
        return
    reasons = {(row["reason"], row["detail"]) for row in result.table.to_pylist() if row["outcome"] == "missing"}
    reason, detail = min(reasons)
    raise EnvironmentFault(
        f"none of {result.unreached:,} captures in {crawl} could be read from {workspace.settings.source} "
        f"({reason}: {detail})",
        "Check the source and the network (cc-pipeline doctor), then run it again; what is held already stays.",
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
        notes.append(f"{result.unreached:,} captures could not be reached; materialize again to retry them")
    return tuple(notes)


def _per_target(workspace: Workspace, crawl: str, slugs: Sequence[str]) -> dict[str, dict[str, int | float | str]]:
    rows = workspace.lake.read(
        "records", {"crawl": crawl, "target": list(slugs)}, ["target", "outcome", "stored_length"]
    )
    figures: dict[str, dict[str, int | float | str]] = {
        slug: {"rows:records": 0, "fetched": 0, "quarantined": 0, "missing": 0, "stored bytes": 0} for slug in slugs
    }
    grouped = rows.group_by(["target", "outcome"]).aggregate([("stored_length", "sum"), ([], "count_all")])
    for row in grouped.to_pylist():
        own = figures[row["target"]]
        own[row["outcome"]] = row["count_all"]
        own["rows:records"] = int(own["rows:records"]) + row["count_all"]
        own["stored bytes"] = int(own["stored bytes"]) + (row["stored_length_sum"] or 0)
    return figures
