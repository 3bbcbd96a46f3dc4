"""A fetch killed at any moment: the next one goes on, nothing stored is fetched twice, the table is the same."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from types import FrameType

import pyarrow as pa
import pytest

from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.records.orders import RecordOptions
from cc_pipeline.records.range_plan import Coalescing
from cc_pipeline.records.segments import (
    SegmentWriter,
    adopt,
    adopt_again,
    delete_committed,
    retire_journals,
)
from cc_pipeline.records.storage import JOURNAL_SUFFIX
from cc_pipeline.transport.client import Transport
from cc_pipeline.transport.source_client import SourceOptions
from cc_pipeline_tests.faultserver import FaultServerProcess
from cc_pipeline_tests.records.fetching import Fetched, fetch_table
from cc_pipeline_tests.records.planned import html_record, read_stored, shelf_at, write_archives

CRAWL = "CC-MAIN-2024-22"
OPTIONS = RecordOptions(coalescing=Coalescing(gap=0), rotation=40_000, examiners=2)
KILLS = 12


def make_bucket(folder: Path, count: int) -> pa.Table:
    draw = random.Random(11)
    bodies = [draw.randbytes(draw.randint(100, 3_000)) for _ in range(count)]
    return write_archives(folder, {"a.warc.gz": bodies}, CRAWL)


def ends_before(line: int, work: Callable[[], object]) -> bool:
    """Does ``work`` in a forked process, which is killed before it has run so many lines of segments and storage.
    Returns whether it ended before."""
    lines = 0

    def trace(frame: FrameType, event: str, _: object) -> object:
        nonlocal lines
        if not frame.f_code.co_filename.endswith(("records/segments.py", "records/storage.py")):
            return None
        lines += event == "line"
        if lines > line:
            os.kill(os.getpid(), signal.SIGKILL)
        return trace

    def run() -> None:
        sys.settrace(trace)  # type: ignore[arg-type]  # a tracer may end the trace of a frame
        work()
        sys.settrace(None)

    runner = multiprocessing.get_context("fork").Process(target=run)
    runner.start()
    runner.join()
    assert runner.exitcode in (0, -signal.SIGKILL)
    return runner.exitcode == 0


def fetch(url: str, lake: Path, captures: pa.Table, commit: str) -> Fetched:
    with Transport(url, SourceOptions(concurrency=8)) as transport, shelf_at(lake) as storage:
        return fetch_table(captures, transport, storage, crawl=CRAWL, commit=commit, options=OPTIONS)


def stored_offsets(lake: Path) -> set[int]:
    """The source offsets whose records are on disk, complete segment or not."""
    offsets: set[int] = set()
    for journal in (lake / "records").rglob("*" + JOURNAL_SUFFIX):
        for line in journal.read_bytes().split(b"\n"):
            if line.endswith(b"}"):
                offsets.add(json.loads(line)["warc_record_offset"])
    return offsets


@pytest.mark.process
def test_kills_lose_nothing_and_fetch_nothing_twice(tmp_path: Path) -> None:
    bucket, lake = tmp_path / "bucket", tmp_path / "lake"
    lake.mkdir()
    captures = make_bucket(bucket, 300)
    wanted = fetch(str(bucket), tmp_path / "other", captures, "whole").table
    draw = random.Random(3)
    with FaultServerProcess(bucket, log=tmp_path / "log") as server:
        kept: set[int] = set()
        for number in range(KILLS):
            before = len(server.hits())
            assert not ends_before(draw.randrange(3_000), partial(fetch, server.url, lake, captures, f"c{number}"))
            assert not {_offset(hit.range) for hit in server.hits()[before:]} & kept
            kept = stored_offsets(lake)
        assert len(kept) > 5 * KILLS
        result = fetch(server.url, lake, captures, "last")
        hits = Counter(hit.range for hit in server.hits())
    assert result.outcomes == {"fetched": captures.num_rows}
    assert result.adopted == len(kept)
    varying = ("fetched_at", "stored_file", "stored_offset", "stored_length")
    assert result.table.drop_columns(varying) == wanted.drop_columns(varying)
    # what is fetched twice was under way when a run was killed: at most its window each time
    assert sum(times - 1 for times in hits.values()) <= KILLS * 2 * 8
    with shelf_at(lake) as storage, shelf_at(tmp_path / "other") as other:
        for mine, theirs in zip(result.table.to_pylist(), wanted.to_pylist(), strict=True):
            assert read_stored(storage, mine) == read_stored(other, theirs)
        retire_journals(storage, result.settled)
        assert list(adopt(storage, CRAWL)) == []
        for left in storage.open_folder(CRAWL).iterdir():
            assert (left.suffix, left.stat().st_size) == (".new", 0)
            os.utime(left, (1, 1))
        assert list(adopt(storage, CRAWL)) == []
        assert list(storage.open_folder(CRAWL).iterdir()) == []


def _offset(asked: str | None) -> int:
    return int((asked or "=0-").partition("=")[2].partition("-")[0])


def test_records_of_other_targets_stay_adoptable(tmp_path: Path) -> None:
    captures = make_bucket(tmp_path, 40)
    lake = tmp_path / "lake"
    fetch(str(tmp_path), lake, captures, "killed")  # its table is never committed
    with Transport(str(tmp_path)) as transport, shelf_at(lake) as storage:
        for part, commit, requests in ((captures.slice(0, 15), "c1", 0), (captures.slice(15), "c2", 0)):
            result = fetch_table(part, transport, storage, crawl=CRAWL, commit=commit, options=OPTIONS)
            assert (result.requests, result.adopted) == (requests, part.num_rows)
            retire_journals(storage, result.settled)
        assert len(storage.journals(CRAWL)) <= 1  # the file that both targets share knows no better
        held = pa.concat_tables([result.table])
        result = fetch_table(captures, transport, storage, crawl=CRAWL, commit="c3", held=held, options=OPTIONS)
        assert result.outcomes == {"fetched": 40}
        retire_journals(storage, result.settled)
        assert storage.journals(CRAWL) == []


def test_a_journal_is_adopted_no_more_once_its_rows_are_committed_and_goes_a_week_later(tmp_path: Path) -> None:
    captures = make_bucket(tmp_path, 20)
    lake = tmp_path / "lake"
    with Transport(str(tmp_path)) as transport, shelf_at(lake) as storage:
        result = fetch_table(captures, transport, storage, crawl=CRAWL, commit="c1", options=OPTIONS)
        journals = storage.journals(CRAWL)
        rows = list(adopt(storage, CRAWL))
        assert (len(rows), len(journals) > 1) == (20, True)
        retire_journals(storage, result.settled)
        assert list(adopt(storage, CRAWL)) == storage.journals(CRAWL) == []
        # a commit that is lost after all costs no request
        assert len(list((lake / "records").rglob("*.jsonl"))) == len(journals)
        assert adopt_again(storage, CRAWL) == len(journals)
        assert list(adopt(storage, CRAWL)) == rows
        again = fetch_table(captures, transport, storage, crawl=CRAWL, commit="c2", options=OPTIONS)
        assert (again.requests, again.adopted) == (0, 20)
        retire_journals(storage, again.settled)
        assert delete_committed(storage, CRAWL, time.time() - 60) == 0
        assert delete_committed(storage, CRAWL, time.time() + 60) == len(journals)
        assert not list((lake / "records").rglob("*.jsonl"))
        assert adopt_again(storage, CRAWL) == 0


@pytest.mark.process
@pytest.mark.smoke
def test_a_kill_at_any_step_of_adoption_loses_no_record_but_one_half_written(tmp_path: Path) -> None:
    members = [html_record(f"https://example.com/{number}", b"x" * 50) for number in range(3)]
    with shelf_at(tmp_path) as storage:
        writer = SegmentWriter(storage, CRAWL, "c1", lambda kind, name: b"")
        for number, member in enumerate(members):
            writer.add("warc", member, {"outcome": "fetched", "warc_filename": "a", "warc_record_offset": number})
        assert list(adopt(storage, CRAWL)) == []  # its writer is alive
        [segment] = writer._open.values()
        # the power goes: the last record is on disk in part only, the journal's last line too
        path = storage.open_folder(CRAWL) / segment.name
        os.truncate(path, path.stat().st_size - 7)
        with open(segment._journal_path, "ab") as journal:
            journal.write(b'{"outcome": "fet')
        segment._release()

    def adopt_all() -> list[bytes]:
        with shelf_at(tmp_path) as storage:
            places = [(row["stored_file"], row["stored_offset"], row["stored_length"]) for row in adopt(storage, CRAWL)]
            return [storage.transport.read(*place).data for place in places]

    # killed again and again, at each step
    lines = next(line for line in range(10_000) if ends_before(line, adopt_all))
    assert lines > 20
    assert adopt_all() == members[:2]


@pytest.mark.parametrize("call", ["fsync", "close", "replace", "open", "rename", "write"])
def test_a_full_disk_at_any_call_leaves_nothing_open_and_everything_to_be_adopted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    kinds = ("warc", "arc", "raw")
    real, count = getattr(os, call), 0

    def fail_at(*args: object, **options: object) -> object:
        nonlocal count
        count += 1
        if count != number:
            return real(*args, **options)
        if call == "close":
            real(*args)  # the kernel lets go of it all the same
        raise OSError(errno.ENOSPC, "No space left on device")

    number = 0
    while count >= number:
        number, count = number + 1, 0
        with shelf_at(tmp_path / str(number)) as storage:
            before = len(os.listdir("/proc/self/fd"))
            monkeypatch.setattr(os, call, fail_at)
            writer = SegmentWriter(storage, CRAWL, "c1", lambda kind, name: b"")
            added: Counter[str] = Counter()
            with suppress(EnvironmentFault), closing(writer):
                for _ in range(3):
                    for kind in kinds:
                        member = html_record("https://example.com/", b"x" * 50)
                        writer.add(kind, member, {"outcome": "fetched", "warc_filename": kind, "warc_record_offset": 0})
                        added[kind] += 1
            monkeypatch.undo()
            assert len(os.listdir("/proc/self/fd")) == before
            assert Counter(row["warc_filename"] for row in adopt(storage, CRAWL)) == added
    assert number > 3
