"""Records from several places: whole as long as one of them is, and settled only by all."""

from __future__ import annotations

import gzip
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from cc_pipeline.addresses import NO_ACCESS
from cc_pipeline.archive.record import sha1_base32
from cc_pipeline.records.orders import RecordOptions
from cc_pipeline.records.range_plan import Coalescing
from cc_pipeline.records.segments import retire_journals
from cc_pipeline.transport.client import Transport
from cc_pipeline.transport.mirror import PlaceOptions
from cc_pipeline.transport.outage import OutagePolicy
from cc_pipeline.transport.ranges import RetryPolicy
from cc_pipeline_tests.archive import builders
from cc_pipeline_tests.faultserver import FaultServer, Rule
from cc_pipeline_tests.records.fetching import Fetched, fetch_table
from cc_pipeline_tests.records.planned import captures_table, html_record, shelf_at
from cc_pipeline_tests.records.unwrapping import unwrap_content

CRAWL = "CC-MAIN-2024-22"
RECORDS = 200
FILES = 4
BODY_KINDS = ("garbage", "bit_flip", "truncated_gzip", "wrong_target")


def plain(record: bytes) -> bytes:
    """The record as a member whose length does not depend on what is in it."""
    return gzip.compress(gzip.decompress(record), 0, mtime=0)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, pa.Table]:
    """A bucket, one with the same records but for their payloads (in longer files), and the captures of both."""
    true, false = tmp_path_factory.mktemp("true"), tmp_path_factory.mktemp("false")
    draw = random.Random(5)
    rows = []
    files = {folder: [bytearray() for _ in range(FILES)] for folder in (true, false)}
    for number in range(RECORDS):
        url, file = f"https://example.com/page/{number}", number % FILES
        body = b"<html>" + draw.randbytes(draw.randint(200, 900)) + b"</html>"
        member = plain(html_record(url, body))
        place = {"warc_filename": f"f{file}.warc.gz", "warc_record_offset": len(files[true][file])}
        rows.append({"url": url, "content_digest": sha1_base32(body), "warc_record_length": len(member), **place})
        files[true][file] += member + bytes(40)
        files[false][file] += plain(html_record(url, body.replace(b"html", b"HTML"))) + bytes(40)
    for folder, contents in files.items():
        for number, content in enumerate(contents):
            (folder / f"f{number}.warc.gz").write_bytes(content + bytes(100 if folder == false else 0))
    return true, false, captures_table(rows, CRAWL)


Serve = Callable[..., list[FaultServer]]


@pytest.fixture
def serve() -> Iterator[Serve]:
    with ExitStack() as stack:
        yield lambda *roots: [stack.enter_context(FaultServer(root)) for root in roots]


def fetch(
    servers: Sequence[FaultServer], captures: pa.Table, lake: Path, commit: str = "c1", **options: object
) -> Fetched:
    first, *others = servers
    chosen: dict[str, object] = {"coalescing": Coalescing(gap=0)} | options
    transport = Transport(
        first.url,
        PlaceOptions(
            retry=RetryPolicy(attempts=3, base=0.001, longest=0.002),
            outage=OutagePolicy(threshold=3, first=60),
            concurrency=4,
        ),
        mirrors=[(server.url, NO_ACCESS) for server in others],
    )
    with transport, shelf_at(lake) as storage:
        chosen_options = RecordOptions(**chosen)
        result = fetch_table(captures, transport, storage, crawl=CRAWL, commit=commit, options=chosen_options)
        retire_journals(storage, result.settled)
        return result


def sources(lake: Path, result: Fetched) -> set[str]:
    """Where the stored records say that they come from."""
    named = set()
    for row in result.table.filter(pc.equal(result.table.column("outcome"), "fetched")).to_pylist():
        start, end = row["stored_offset"], row["stored_offset"] + row["stored_length"]
        named.add(unwrap_content(gzip.decompress((lake / row["stored_file"]).read_bytes()[start:end]))[1])
    return {(address or "").rpartition("/")[0] + "/" for address in named}


@pytest.mark.parametrize("kind", BODY_KINDS)
def test_bytes_that_are_bad_at_one_place_come_from_the_next(
    folders: tuple[Path, Path, pa.Table], serve: Serve, tmp_path: Path, kind: str
) -> None:
    true, _, captures = folders
    bad, good = serve(true, true)
    bad.set_rules([Rule(kind, times=None)])
    result = fetch([bad, good], captures, tmp_path)
    assert result.outcomes == {"fetched": RECORDS}
    assert sources(tmp_path, result) == {good.url}
    # a few records a file show that its copy there is bad
    assert len(bad.hits) <= 12 * FILES
    assert len(good.hits) <= RECORDS + FILES


def test_one_bad_record_among_good_ones_comes_from_the_next(
    folders: tuple[Path, Path, pa.Table], serve: Serve, tmp_path: Path
) -> None:
    true, _, captures = folders
    one, two, three = serve(true, true, true)
    for server in (one, two):
        server.set_rules([Rule("bit_flip", "f1*", share=0.1, times=None)])
    result = fetch([one, two, three], captures, tmp_path)
    assert result.outcomes == {"fetched": RECORDS}
    assert len(three.hits) <= RECORDS // FILES


def test_a_payload_of_another_digest_is_taken_when_no_place_has_the_promised_one(
    folders: tuple[Path, Path, pa.Table], serve: Serve, tmp_path: Path
) -> None:
    true, false, captures = folders
    lying, honest = serve(false, true)
    result = fetch([lying, honest], captures, tmp_path / "a")
    assert result.outcomes == {"fetched": RECORDS}
    assert pc.unique(result.table.column("digest_check")).to_pylist() == ["match"]
    assert sources(tmp_path / "a", result) == {honest.url}
    assert any("bytes at" in note for note in result.notes)
    both = serve(false, false)
    result = fetch(both, captures, tmp_path / "b")
    assert result.outcomes == {"fetched": RECORDS}
    assert pc.unique(result.table.column("digest_check")).to_pylist() == ["mismatch"]
    assert sum(len(server.hits) for server in both) <= 1.3 * RECORDS
    result = fetch(both, captures, tmp_path / "c", fail_on_digest=True, has_known_good_record=True)
    assert result.outcomes == {"quarantined": RECORDS}
    assert pc.unique(result.table.column("is_final")).to_pylist() == [True]


def test_a_payload_of_another_digest_is_not_lost_when_the_other_place_gives_nothing(
    folders: tuple[Path, Path, pa.Table], serve: Serve, tmp_path: Path
) -> None:
    _, false, captures = folders
    lying, dead = serve(false, false)
    dead.set_rules([Rule("reset", times=None)])
    result = fetch([lying, dead], captures, tmp_path)
    assert result.outcomes == {"fetched": RECORDS}


def test_bad_bytes_are_settled_only_when_every_place_has_them(
    folders: tuple[Path, Path, pa.Table], serve: Serve, tmp_path: Path
) -> None:
    true, _, captures = folders
    one, two = serve(true, true)
    for server in (one, two):
        server.set_rules([Rule("bit_flip", times=None)])
    result = fetch([one, two], captures, tmp_path / "a", has_known_good_record=True)
    assert result.outcomes == {"quarantined": RECORDS}
    assert pc.unique(result.table.column("is_final")).to_pylist() == [True]
    # two places that differ have each to say it twice
    two.set_rules([Rule("truncated_gzip", times=None)])
    result = fetch([one, two], captures, tmp_path / "b", has_known_good_record=True)
    assert pc.unique(result.table.column("is_final")).to_pylist() == [True]
    # one that says that it has no such file has no better bytes
    two.set_rules([Rule("404", times=None)])
    result = fetch([one, two], captures, tmp_path / "c", has_known_good_record=True)
    assert pc.unique(result.table.column("is_final")).to_pylist() == [True]
    # but of one that does not answer nobody knows
    two.set_rules([Rule("500", times=None)])
    result = fetch([one, two], captures, tmp_path / "d", has_known_good_record=True)
    assert pc.unique(result.table.column("is_final")).to_pylist() == [False]


def test_a_file_is_gone_only_where_it_is_gone_everywhere(
    folders: tuple[Path, Path, pa.Table], serve: Serve, tmp_path: Path
) -> None:
    true, _, captures = folders
    one, two = serve(true, true)
    one.set_rules([Rule("404", "f1*", times=None)])
    two.set_rules([Rule("404", "f1*", times=None)])
    result = fetch([one, two], captures, tmp_path / "a")
    lost = result.table.filter(pc.equal(result.table.column("outcome"), "missing"))
    assert lost.num_rows == RECORDS // FILES
    assert set(lost.column("reason").to_pylist()) == {"not_found"}
    assert set(lost.column("is_final").to_pylist()) == {True}
    two.set_rules([Rule("500", "f1*", times=None)])
    result = fetch([one, two], captures, tmp_path / "b")
    lost = result.table.filter(pc.equal(result.table.column("outcome"), "missing"))
    assert lost.num_rows == RECORDS // FILES
    assert set(lost.column("is_final").to_pylist()) == {False}


def test_places_whose_etags_and_lengths_differ_serve_one_file_together(
    folders: tuple[Path, Path, pa.Table], serve: Serve, tmp_path: Path
) -> None:
    true, _, captures = folders
    longer = tmp_path / "longer"
    longer.mkdir()
    for path in true.iterdir():
        (longer / path.name).write_bytes(path.read_bytes() + b"more")
    one, two = serve(true, longer)
    one.set_rules([Rule("500", share=0.3, times=None)])
    result = fetch([one, two], captures, tmp_path / "lake")
    assert result.outcomes == {"fetched": RECORDS}
    assert sources(tmp_path / "lake", result) == {one.url, two.url}
    assert any(one.url in note and two.url in note for note in result.notes)
    stored = next((tmp_path / "lake").rglob("*.warc.gz"))
    head = gzip.decompress(stored.read_bytes())[:600].decode()
    assert f"source: {one.url}, {two.url}" in head


def test_a_row_says_which_place_gave_its_bytes_in_the_arc_years_too(serve: Serve, tmp_path: Path) -> None:
    rows, files = [], {"f.arc.gz": b"", "f.warc.gz": b""}
    for number in range(40):
        url, body = f"http://example.com/{number}", b"<html>%d</html>" % number
        is_arc = number % 2 == 0
        name = "f.arc.gz" if is_arc else "f.warc.gz"
        member = (
            builders.member(builders.arc(b"HTTP/1.1 200 OK\r\n\r\n" + body, url)) if is_arc else html_record(url, body)
        )
        place = {"warc_filename": name, "warc_record_offset": len(files[name]), "warc_record_length": len(member)}
        rows.append({"url": url, "archive_format": "arc" if is_arc else "warc"} | place)
        files[name] += member + bytes(40)
    folder = tmp_path / "bucket"
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    one, two = serve(folder, folder)
    one.set_rules([Rule("404", "*.arc.gz", share=0.5, times=None), Rule("bit_flip", share=0.3, times=None)])
    result = fetch([one, two], captures_table(rows, CRAWL), tmp_path / "lake")
    assert result.outcomes == {"fetched": 40}
    given = {hit.key + (hit.range or "") for hit in one.hits if hit.fault is None}
    for row in result.table.to_pylist():
        last = row["warc_record_offset"] + row["warc_record_length"] - 1
        first = f"{row['warc_filename']}bytes={row['warc_record_offset']}-{last}" in given
        assert row["served_by"] == (one.url if first else two.url), row
    # a record set aside came from somewhere, too
    for server in (one, two):
        server.set_rules([Rule("bit_flip", times=None)])
    result = fetch([one, two], captures_table(rows, CRAWL), tmp_path / "other")
    assert result.outcomes["quarantined"]
    assert set(result.table.column("served_by").to_pylist()) <= {one.url, two.url}
