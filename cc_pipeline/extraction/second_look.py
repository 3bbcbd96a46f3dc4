"""A second look at what is lost, or has another payload: a few ranges ask whether that is over, before all of it is
asked for again."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import zip_longest
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline.extraction.brought import mismatched_rows, settled_rows
from cc_pipeline.extraction.shortfall import LOOKS
from cc_pipeline.extraction.slice import Slice
from cc_pipeline.keys import RECORD_KEY_NAMES
from cc_pipeline.lake.streaming import stream_rows
from cc_pipeline.records.check import Promise, examine
from cc_pipeline.stages.workspace import Workspace
from cc_pipeline.transport.ranges import ByteRange, RangeBytes

_COLUMNS: Final = [*RECORD_KEY_NAMES, "outcome", "reason", "settled", "digest_check"]


def come_back(workspace: Workspace, crawl: str, slices: Collection[Slice]) -> frozenset[Slice]:
    """Those of ``slices`` of a crawl of which something that was lost is there by now, or has the payload that is
    indexed: one record each is asked for of at most ``LOOKS`` archive files, first of those of which nothing is here.
    """
    asks: list[ByteRange] = []
    for row in _spread(_lost(workspace, crawl, slices)):
        place, length = row["warc_filename"], row["warc_record_length"]
        asks.append(ByteRange(place, row["warc_record_offset"], length, tag=row, tries=1))
        if len(asks) == LOOKS:
            break
    return frozenset(_good(workspace, crawl, asks))


def _lost(workspace: Workspace, crawl: str, slices: Collection[Slice]) -> Mapping[str, list[dict[str, Any]]]:
    """For each slice a lost record, or one with another payload, of each file that has any; files with none of its
    records here come first."""
    lost: dict[str, dict[str, dict[str, Any]]] = {}
    here: dict[str, set[str]] = {}
    where = {"crawl": crawl, "target": [slice_.target for slice_ in slices]}
    for batch in stream_rows(workspace.lake, "records", where, _COLUMNS):
        rows = pa.Table.from_batches([batch])
        fetched = rows.filter(pc.equal(rows["outcome"], "fetched")).group_by(["target", "warc_filename"]).aggregate([])
        for row in fetched.to_pylist():
            here.setdefault(row["target"], set()).add(row["warc_filename"])
        for row in pa.concat_tables([settled_rows(rows), mismatched_rows(rows)]).to_pylist():
            lost.setdefault(row["target"], {}).setdefault(row["warc_filename"], row)
    return {
        target: sorted(files.values(), key=lambda row: row["warc_filename"] in here.get(target, ()))
        for target, files in lost.items()
    }


def _spread(by_slice: Mapping[str, list[dict[str, Any]]]) -> Iterator[dict[str, Any]]:
    """One file of each slice, then another one of each; no record twice."""
    asked: set[tuple[str, int]] = set()
    for round_ in zip_longest(*by_slice.values()):
        for row in filter(None, round_):
            place = (row["warc_filename"], row["warc_record_offset"])
            if place not in asked:
                asked.add(place)
                yield row


def _good(workspace: Workspace, crawl: str, asks: Iterable[ByteRange]) -> Iterator[Slice]:
    for got in workspace.archives(crawl).read_many(asks):
        row = got.tag
        assert isinstance(row, dict)
        if isinstance(got, RangeBytes):
            verdict = examine(got.data, promise_of(row))
            if verdict.reason is None and (row["outcome"] != "fetched" or verdict.digest_check != "mismatch"):
                yield Slice(crawl, row["target"])


def promise_of(row: Mapping[str, Any]) -> Promise:
    """What the index says of the capture in a row of ``records``."""
    return Promise(
        crawl=row["crawl"],
        archive_format=row["archive_format"],
        key=row["warc_filename"],
        offset=row["warc_record_offset"],
        length=row["warc_record_length"],
        url=row["url"],
        surtkey=row["url_surtkey"],
        digest=row["content_digest"],
    )
