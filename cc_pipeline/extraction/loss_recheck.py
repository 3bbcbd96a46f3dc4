"""Rechecks lost captures and digest mismatches: a few ranges tell whether the source gives them now, before all of them
are fetched again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice, zip_longest
from typing import Any, Final

import pyarrow as pa

from cc_pipeline.capture_columns import RECORD_KEY_NAMES
from cc_pipeline.extraction.fetch_counts import mismatched_rows, settled_rows
from cc_pipeline.extraction.loss_policy import MAX_RECHECKED_FILES
from cc_pipeline.lake.slice import Slice
from cc_pipeline.lake.streaming import stream_rows
from cc_pipeline.records.range_plan import FIRST_READ, longer
from cc_pipeline.records.verification import expected_record, verify_record
from cc_pipeline.transport.faults import ENVIRONMENT_KINDS, RangeFault
from cc_pipeline.transport.ranges import ByteRange
from cc_pipeline.workspace.workspace import Workspace

_LOSS_COLUMNS: Final = ["target", "warc_filename", "outcome", "reason", "is_final", "digest_check"]
_COLUMNS: Final = [*RECORD_KEY_NAMES, *_LOSS_COLUMNS[2:]]


@dataclass(frozen=True, slots=True)
class RecheckResult:
    """The slices whose records the source gives again (``recovered``), those asked for in vain, and the number of
    requests. Other slices were not asked for."""

    recovered: frozenset[Slice]
    still_lost: frozenset[Slice]
    requests: int


def recheck_losses(workspace: Workspace, crawl: str, recheck_counts: Mapping[Slice, int]) -> RecheckResult:
    """Asks for one lost record, or one with another payload, in each of at most ``MAX_RECHECKED_FILES`` archive files,
    for slices of a crawl. ``recheck_counts`` is how often each slice was rechecked before: those rechecked least come
    first, with other files each time.

    Raises ``RangeFault`` if the source answers nothing.
    """
    where = {"crawl": crawl, "target": [slice_.target for slice_ in recheck_counts]}
    lost: dict[str, Counter[str]] = {}
    for batch in stream_rows(workspace.lake, "records", where, _LOSS_COLUMNS):
        files = _select_wrong_rows(batch).group_by(["target", "warc_filename"]).aggregate([([], "count_all")])
        for row in files.to_pylist():
            lost.setdefault(row["target"], Counter())[row["warc_filename"]] += row["count_all"]
    sorted_slices = sorted(
        (slice_ for slice_ in recheck_counts if slice_.target in lost),
        key=lambda slice_: (recheck_counts[slice_], slice_),
    )
    selected_files = list(
        islice(
            _interleave([_rotate_files(lost[slice_.target], recheck_counts[slice_]) for slice_ in sorted_slices]),
            MAX_RECHECKED_FILES,
        )
    )
    rows_by_location: dict[tuple[str, int], dict[str, Any]] = {}
    slices_by_location: dict[tuple[str, int], list[Slice]] = {}
    seen: set[tuple[str, str]] = set()
    for batch in (
        stream_rows(workspace.lake, "records", where | {"warc_filename": selected_files}, _COLUMNS)
        if selected_files
        else ()
    ):
        for row in _select_wrong_rows(batch).to_pylist():
            # the first record of a file, for each target that lost it
            if row["warc_filename"] in selected_files and (row["target"], row["warc_filename"]) not in seen:
                seen.add((row["target"], row["warc_filename"]))
                location = (row["warc_filename"], row["warc_record_offset"])
                rows_by_location[location] = row
                slices_by_location.setdefault(location, []).append(Slice(crawl, row["target"]))
    return _recheck_locations(
        workspace, crawl, dict(islice(rows_by_location.items(), MAX_RECHECKED_FILES)), slices_by_location
    )


def _select_wrong_rows(batch: pa.RecordBatch) -> pa.Table:
    rows = pa.Table.from_batches([batch])
    return pa.concat_tables([settled_rows(rows), mismatched_rows(rows)])


def _rotate_files(files: Counter[str], recheck_count: int) -> list[str]:
    """The files with the most losses first, rotated by as many as were asked for in earlier rechecks."""
    names = sorted(files, key=lambda name: (-files[name], name))
    start = recheck_count * MAX_RECHECKED_FILES % len(names)
    return names[start:] + names[:start]


def _interleave(by_slice: list[list[str]]) -> Iterator[str]:
    """One file of each slice, then another one of each; none twice."""
    return iter(dict.fromkeys(name for round_ in zip_longest(*by_slice) for name in round_ if name is not None))


def _recheck_locations(
    workspace: Workspace,
    crawl: str,
    rows_by_location: Mapping[tuple[str, int], dict[str, Any]],
    slices_by_location: Mapping[tuple[str, int], list[Slice]],
) -> RecheckResult:
    archives = workspace.archives(crawl)
    requests_before = archives.stats.requests
    recovered: set[Slice] = set()
    still_lost: set[Slice] = set()
    source_fault: RangeFault | None = None
    # a failed record without a known length has none here either
    lengths = {location: row["warc_record_length"] for location, row in rows_by_location.items()}
    sizes = {location: length or FIRST_READ for location, length in lengths.items()}
    while sizes:
        ranges = [
            ByteRange(*location, size, tag=location, may_be_short=not lengths[location])
            for location, size in sizes.items()
        ]
        read_sizes, sizes = sizes, {}
        for answer in archives.read_many(ranges):
            assert isinstance(answer.tag, tuple)
            location = answer.tag
            if isinstance(answer, RangeFault):
                if answer.kind in ENVIRONMENT_KINDS:
                    source_fault = answer
                else:
                    still_lost.update(slices_by_location[location])
                continue
            row = rows_by_location[location]
            verdict = verify_record(answer.data, expected_record(row))
            size = longer(read_sizes[location])
            if verdict.is_cut_off and not lengths[location] and read_sizes[location] == len(answer.data) < size:
                sizes[location] = size
            elif verdict.reason is None and (row["outcome"] != "fetched" or verdict.digest_check != "mismatch"):
                recovered.update(slices_by_location[location])
            else:
                still_lost.update(slices_by_location[location])
    if source_fault is not None and not recovered and not still_lost:
        raise source_fault
    return RecheckResult(
        frozenset(recovered), frozenset(still_lost - recovered), archives.stats.requests - requests_before
    )
