"""Stored records read in ranges: the same as one by one, in few requests, and no more lost than is gone."""

from __future__ import annotations

import gzip
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cc_pipeline.errors import DataFault, EnvironmentFault
from cc_pipeline.records.reading import read_members
from cc_pipeline.records.storage import RecordStorage
from cc_pipeline.records.wrap import unwrap_member, wrap_member
from cc_pipeline.transport.client import Transport
from cc_pipeline.transport.faults import FaultKind
from cc_pipeline.transport.ranges import RetryPolicy
from cc_pipeline.transport.source_client import SourceOptions
from cc_pipeline_tests.faultserver import FaultServer, Rule
from cc_pipeline_tests.records.planned import html_record

QUICK = RetryPolicy(attempts=2, base=0.001, longest=0.01)
Row = dict[str, Any]


def stored_at(root: Path, name: str, count: int, size: int = 2_000) -> list[tuple[Row, bytes]]:
    """A stored file of ``count`` fetched WARC records behind a head; rows and the records they were made from."""
    draw = random.Random(name)
    kept, data = [], b"head" * 50
    for number in range(count):
        url = f"https://example.com/{name}/{number}"
        member = html_record(url, draw.randbytes(draw.randrange(10, size)))
        stored = wrap_member(member, gzip.decompress(member), f"https://source/{name}", number)
        row = {"stored_file": name, "stored_offset": len(data), "stored_length": len(stored), "outcome": "fetched",
               "archive_format": "warc"}  # fmt: skip
        kept.append((row, gzip.decompress(member)))
        data += stored
    (root / name).write_bytes(data)
    return kept


def one_by_one(storage: RecordStorage, row: Row) -> bytes | str | None:
    """What one request for each row gives."""
    if row["stored_file"] is None:
        return None
    try:
        stored = storage.transport.read(row["stored_file"], row["stored_offset"], row["stored_length"]).data
        return unwrap_member(stored) if row["outcome"] == "fetched" and row["archive_format"] == "warc" else stored
    except DataFault as fault:
        return str(fault.kind)


def records_of(found: bytes | DataFault | None) -> bytes:
    assert isinstance(found, bytes)
    return gzip.decompress(found)


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("shelf")
    for name in ("a", "b", "c"):
        stored_at(root, name, 60)
    return root


@pytest.fixture(scope="module")
def rows(shelf: Path) -> list[Row]:
    """Sound rows of three files, rows without bytes of several kinds, bytes that are no records, ARC years."""
    sound = [row for name in ("a", "b", "c") for row, _ in stored_at(shelf, name, 60)]
    none: Row = {"stored_file": None, "stored_offset": None, "stored_length": None, "outcome": "pending"}
    end = (shelf / "b").stat().st_size
    odd = [
        none,
        sound[0] | {"stored_file": "gone"},
        sound[1] | {"stored_file": "gone"},
        sound[0] | {"stored_file": "b", "stored_offset": end - 5},
        sound[0] | {"stored_file": "b", "stored_offset": end + 5},
        sound[0] | {"outcome": "pending"},
        sound[3] | {"archive_format": "arc"},
        sound[5] | {"stored_offset": sound[5]["stored_offset"] + 3},
    ]
    return [*sound, *(row | {"archive_format": row.get("archive_format", "warc")} for row in odd)]


@pytest.fixture(scope="module")
def far(shelf: Path) -> Iterator[RecordStorage]:
    """The same shelf as a place behind requests."""
    with FaultServer(shelf) as server, Transport(server.url, SourceOptions(rate=None, retry=QUICK)) as place:
        yield RecordStorage(place, spool=shelf)


@given(st.data(), st.integers(1, 40_000))
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_rows_in_any_order_have_the_bytes_that_each_has_alone(
    shelf: Path, rows: list[Row], far: RecordStorage, data: st.DataObject, window: int
) -> None:
    asked = [rows[n] for n in data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=80))]
    if data.draw(st.booleans()):
        asked.sort(key=lambda row: (str(row["stored_file"]), row["stored_offset"] or 0))
    with Transport(str(shelf)) as place:
        near = RecordStorage(place)
        wanted = [one_by_one(near, row) for row in asked]
        for storage in (near, far):
            got = list(read_members(iter(asked), storage, window=window))
            assert [row for row, _ in got] == asked
            assert [str(found.kind) if isinstance(found, DataFault) else found for _, found in got] == wanted


def test_neighbours_are_read_together(tmp_path: Path) -> None:
    kept = [row for name in ("mine", "held") for row, _ in stored_at(tmp_path, name, 200)]
    kept.sort(key=lambda row: row["stored_offset"])  # rows of both files mixed
    with FaultServer(tmp_path) as server, Transport(server.url, SourceOptions(rate=None)) as place:
        storage = RecordStorage(place, spool=tmp_path)
        assert all(isinstance(found, bytes) for _, found in read_members(kept, storage))
        assert len(server.hits) == 2
        few = list(read_members(kept, storage, lambda row: row["stored_file"] == "held", window=100_000))
        held = (tmp_path / "held").stat().st_size
        assert [found is None for _, found in few] == [row["stored_file"] == "mine" for row in kept]
        assert 2 < len(server.hits) - 2 <= 2 * held // 50_000 + 2


def test_a_file_that_is_gone_is_asked_for_once_a_range(tmp_path: Path) -> None:
    kept = [row for row, _ in stored_at(tmp_path, "a", 100)]
    (tmp_path / "a").unlink()
    with FaultServer(tmp_path) as server, Transport(server.url, SourceOptions(rate=None, retry=QUICK)) as place:
        got = list(read_members(kept, RecordStorage(place, spool=tmp_path)))
        assert len(server.hits) == 1
    for row, found in got:
        assert isinstance(found, DataFault)
        assert (found.kind, found.source, found.offset) == (FaultKind.NOT_FOUND, "a", row["stored_offset"])


@pytest.mark.parametrize("kind", ["short", "reset"])
def test_a_range_that_is_not_given_costs_no_neighbour(tmp_path: Path, kind: str) -> None:
    kept = stored_at(tmp_path, "a", 20)
    first, last = kept[0][0], kept[-1][0]
    whole = f"bytes={first['stored_offset']}-{last['stored_offset'] + last['stored_length'] - 1}"
    rules = (Rule(kind, ranges=(whole,), times=None),)
    with (
        FaultServer(tmp_path, rules=rules) as server,
        Transport(server.url, SourceOptions(rate=None, retry=QUICK)) as place,
    ):
        got = list(read_members([row for row, _ in kept], RecordStorage(place, spool=tmp_path)))
        assert [records_of(found) for _, found in got] == [record for _, record in kept]
        assert sum(hit.fault is not None for hit in server.hits) == QUICK.attempts


def test_a_place_that_does_not_answer_is_an_error_at_once(tmp_path: Path) -> None:
    kept = [row for row, _ in stored_at(tmp_path, "a", 100)]
    with FaultServer(tmp_path, rules=(Rule("500", times=None),)) as server:
        with Transport(server.url, SourceOptions(rate=None, retry=QUICK)) as place, pytest.raises(EnvironmentFault):
            list(read_members(kept, RecordStorage(place, spool=tmp_path)))
        assert len(server.hits) == QUICK.attempts
