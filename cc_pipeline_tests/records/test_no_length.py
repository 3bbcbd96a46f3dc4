"""Captures of which a person knows the place and not the length."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import pytest

from cc_pipeline.records.orders import RecordOptions
from cc_pipeline.records.range_plan import FIRST_READ, price_of
from cc_pipeline.transport.client import Transport
from cc_pipeline_tests.records.fetching import fetch_table
from cc_pipeline_tests.records.planned import captures_table, html_record, read_stored, shelf_at

_CRAWL, _KEY = "CC-MAIN-2024-22", "crawl-data/CC-MAIN-2024-22/segments/1/warc/CC-MAIN-1-2-00000.warc.gz"


@pytest.mark.parametrize(("group", "gzipped"), [(2, True), (50_000, True), (50_000, False)])
def test_a_range_grows_until_its_record_ends(tmp_path: Path, group: int, gzipped: bool) -> None:
    noise = random.Random(1).randbytes
    bodies = [b"<p>small", noise(3 * FIRST_READ), b"<p>next", noise(12 * FIRST_READ), b"<p>last"]
    members = [html_record(f"http://a.example.com/{n}", body) for n, body in enumerate(bodies)]
    if not gzipped:
        members = [*map(gzip.decompress, members)]
    offsets = [sum(map(len, members[:n])) for n in range(len(members))]
    file = tmp_path / "bucket" / _KEY
    file.parent.mkdir(parents=True)
    file.write_bytes(b"".join(members))
    # the last ones are no records: inside one, and behind the end of the file
    places = [*offsets, offsets[1] + 7, file.stat().st_size + 5]
    captures = captures_table(
        [{"warc_filename": _KEY, "warc_record_offset": offset} for offset in sorted(places)], _CRAWL
    )
    assert price_of(captures).captures == len(places)
    with Transport(str(tmp_path / "bucket")) as transport, shelf_at(tmp_path / "lake") as storage:
        got = fetch_table(
            captures, transport, storage, crawl=_CRAWL, commit="c1", options=RecordOptions(group=group, examiners=0)
        )
        rows = {row["warc_record_offset"]: row for row in got.table.to_pylist()}
        for number, (offset, member) in enumerate(zip(offsets, members, strict=True)):
            row = rows[offset]
            assert (row["outcome"], row["warc_record_length"]) == ("fetched", len(member)), row["detail"]
            assert row["url"] == f"http://a.example.com/{number}"
            assert (row["url_surtkey"], row["domain"]) == (f"com,example,a)/{number}", "example.com")
            assert bodies[number] in gzip.decompress(read_stored(storage, row))
    bad, behind = (rows[place] for place in places[-2:])
    assert (bad["outcome"], bad["reason"], bad["stored_file"] is None) == ("pending", "not_gzip", False)
    assert (behind["outcome"], behind["reason"], behind["asks"]) == ("pending", "range_not_satisfiable", 1)
