"""Every kind of fault over a whole partition: what a run makes of it, what the next one asks for, how it ends.

A cell is one kind, in one scope, for one time, at one place. Its first run meets the fault, its second one, a day
later, meets it again or not, and a third one never does.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final
from unittest import mock

import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline.capture_columns import RECORD_KEY_NAMES
from cc_pipeline.errors import EnvironmentFault, Incomplete
from cc_pipeline.extraction import fetch as fetch_stage
from cc_pipeline.extraction.locate import locate_captures
from cc_pipeline.lake.slice import FETCH
from cc_pipeline.records.orders import RecordOptions
from cc_pipeline.records.range_plan import Coalescing, PlannedRange, plan_ranges
from cc_pipeline.settings import Settings, load_settings
from cc_pipeline.stores.answer import S3Options, Timeouts
from cc_pipeline.testing.mini_crawl.generate import ensure
from cc_pipeline.testing.mini_crawl.spec import CrawlSpec, MiniCrawlSpec
from cc_pipeline.transport.client import Transport
from cc_pipeline.transport.ranges import RetryPolicy
from cc_pipeline.transport.source_client import SourceOptions
from cc_pipeline.workspace.workspace import Workspace, open_workspace
from cc_pipeline_tests.faultserver import FaultServer, Hit, Rule
from cc_pipeline_tests.world import harvest, notes_of

CRAWL: Final = "CC-MAIN-2024-22"
TARGET: Final = "example.com"
#: Six files with a dozen or so captures of the target in each.
SPEC: Final = MiniCrawlSpec(pages=420, crawls=(CrawlSpec(CRAWL, segments=2, files_per_segment=3),))
#: So that each file has several ranges, and most ranges several records.
TOGETHER: Final = Coalescing(gap=8_000, span=16_000)
OPTIONS: Final = RecordOptions(coalescing=TOGETHER)
#: Waits that a test can afford. The numbers of attempts are the real ones.
RETRY: Final = RetryPolicy(base=0.001, longest=0.002)
#: For answers that never end. With any other fault a busy machine must not look like a slow source.
SHORT_TIMEOUTS: Final = Timeouts(connect=5, silence=0.8, window=1.2, slowest=1_000_000)
LONG_TIMEOUTS: Final = Timeouts(connect=30, silence=30, window=60)
#: Faults that only a timeout ends.
SLOW_KINDS: Final = frozenset({"stall", "drip"})

PLACES: Final = ("folder", "http", "s3")
#: What can be wrong with the files of a folder.
FOLDER_KINDS: Final = ("bit_flipped", "file_missing", "file_truncated", "file_of_noise", "file_unreadable")

#: Requests that are sent before the first answers arrive.
_IN_FLIGHT: Final = 128
#: A run of the command line ends with these.
DONE, FAILED, INCOMPLETE = 0, 1, 3


@dataclass(frozen=True, slots=True, order=True)
class Cell:
    """What goes wrong, how much of it, for how long, and where."""

    place: str
    kind: str
    #: ``some``: three ranges, and each of their records; ``file``: one file; ``all``: all files, and what shows that
    #: the source has anything.
    scope: str
    #: ``once``: the first answer to each range of the plan (of each file, where the answer is about a file); ``run``:
    #: the whole first run; ``lasting``: the second run too.
    time: str


@dataclass(frozen=True, slots=True)
class RunFigures:
    """One run: its exit status, captures by outcome, the most asks of a capture, how many came with another payload
    than indexed, its requests and the most there may be (``None`` in a folder, which counts none)."""

    status: int
    fetched: int
    pending: int
    lost: int
    asks: int
    mismatched: int
    requests: int
    bound: int | None


@dataclass(frozen=True, slots=True)
class Result:
    """A cell's runs. ``healed`` is the run at the sound source, ``untouched`` the requests of another one after it."""

    cell: Cell
    planned: int
    first: RunFigures
    second: RunFigures
    healed: RunFigures
    untouched: int | None

    def wrongs(self) -> list[str]:
        """What of this is not as docs/faults.md promises; empty when all is."""
        found = []
        runs = [("first", self.first), ("second", self.second), ("healed", self.healed)]
        for name, run in runs:
            if run.fetched + run.pending + run.lost != self.planned:
                found.append(f"{name}: the ledger does not balance")
            pending_too_many = run.pending > max(1, self.planned // 100) or (run.pending and not run.fetched)
            if run.status != (INCOMPLETE if pending_too_many else DONE):
                found.append(f"{name}: exit status {run.status} with {run.pending} of {self.planned} pending")
            if run.lost:
                found.append(f"{name}: {run.lost} are lost on the second day")
            if run.bound is not None and run.requests > run.bound:
                found.append(f"{name}: {run.requests} requests where {run.bound} are the most")
        if self.healed.fetched != self.planned:
            found.append("the source is sound, and running again did not bring everything")
        if self.cell.time != "lasting" and self.second.fetched != self.planned:
            found.append("the fault passed, and running again did not bring everything")
        if self.untouched:
            found.append(f"{self.untouched} requests although everything was there")
        return [f"{self.cell}: {wrong}" for wrong in found]


@dataclass(slots=True)
class Place:
    """A source with a prepared home: harvested, located and not yet fetched."""

    name: str
    bucket: Path
    sound: Path
    home: Path
    settings: Settings
    captures: pa.Table
    ranges: list[PlannedRange]
    server: FaultServer | None = None
    cells: int = 0


@contextmanager
def place_at(name: str, root: Path, sound: Path | None = None) -> Iterator[Place]:
    """The place ``name`` in the folder ``root``, with its server where it has one; its bucket is generated in
    ``sound``, where several places have the same."""
    sound = sound or root / "sound"
    ensure(sound, SPEC)
    if name == "folder":
        bucket = root / "folder" / "bucket"
        shutil.copytree(sound, bucket)
        yield _prepared(name, bucket, sound, root, load_settings({}, source=str(bucket), home=str(root / "home")))
        return
    (root / "served").mkdir()
    (root / "served" / "bucket").symlink_to(sound)
    with FaultServer(root / "served") as server:
        if name == "http":
            chosen: dict[str, object] = {"source": f"{server.url}bucket"}
        else:
            chosen = {"source": "s3://bucket", "s3_endpoint": server.url.rstrip("/"), "s3_anonymous": True}
        settings = load_settings({}, home=str(root / "home"), **chosen)
        yield _prepared(name, sound, sound, root, settings, server)


def _prepared(
    name: str, bucket: Path, sound: Path, root: Path, settings: Settings, server: FaultServer | None = None
) -> Place:
    with open_workspace(settings) as workspace:
        harvest(workspace, CRAWL)
        workspace.targets([TARGET])
        locate_captures(workspace, CRAWL, [TARGET])
        captures = workspace.lake.read("captures", {"crawl": CRAWL, "target": TARGET}, RECORD_KEY_NAMES)
    ranges = plan_ranges(captures, TOGETHER)
    return Place(name, bucket, sound, root / "home", settings, captures, ranges, server)


def run_cell(place: Place, cell: Cell, options: RecordOptions = OPTIONS) -> Result:
    """Runs one cell in a copy of the place's home."""
    place.cells += 1
    home = place.home.with_name(f"cell-{place.cells}")
    shutil.copytree(place.home, home)
    timeouts = SHORT_TIMEOUTS if cell.kind in SLOW_KINDS else LONG_TIMEOUTS
    runner = _Runner(place, replace(place.settings, home=home, lake=str(home / "lake")), options, timeouts)
    begin, end = _folder_fault(place, cell) if place.server is None else _served_fault(place, cell)
    try:
        begin()
        first = runner.run()
        if cell.time != "lasting":
            end()
        second = runner.run()
        end()
        healed = runner.run() if second.pending else second
        untouched = None if place.server is None else runner.run().requests
    finally:
        end()
        shutil.rmtree(home)
    return Result(cell, len(runner.names), first, second, healed, untouched)


class _Runner:
    """Runs of one home, each as a process of its own would do it: with a transport that knows nothing."""

    def __init__(self, place: Place, settings: Settings, options: RecordOptions, timeouts: Timeouts) -> None:
        self._place = place
        self._options = options
        self._timeouts = timeouts
        self._settings = settings
        self._time = datetime(2026, 3, 1, 12, tzinfo=UTC)
        columns = (place.captures[name].to_pylist() for name in ("warc_filename", "warc_record_offset"))
        self.names = set(zip(*columns, strict=True))

    def run(self) -> RunFigures:
        """A run a day after the one before."""
        server = self._place.server
        seen = 0 if server is None else len(server.hits)
        self._time += timedelta(days=1)
        with open_workspace(self._settings) as workspace:
            _give_transport(workspace, self._timeouts)
            wanted = self._wanted(workspace)
            before = _fetched_by_file(workspace)
            status = self._fetch(workspace)
            gave = {key for key, count in _fetched_by_file(workspace).items() if count > before[key]}
            [row] = notes_of(workspace, FETCH, {"crawl": CRAWL, "target": TARGET})
            asks = workspace.lake.read("records", {"crawl": CRAWL, "target": TARGET}, ["asks"])["asks"]
        hits = [] if server is None else server.hits[seen:]
        return RunFigures(
            status=status,
            fetched=row["fetched"],
            pending=row["pending"],
            lost=row["lost"],
            asks=pc.max(asks).as_py() or 0,
            mismatched=row["mismatched"],
            requests=len(hits),
            bound=None if server is None else most_requests(wanted, hits, gave),
        )

    def _fetch(self, workspace: Workspace) -> int:
        options = partial(replace, self._options)
        try:
            with (
                mock.patch.object(fetch_stage, "RecordOptions", options),
                mock.patch.object(fetch_stage, "current_time", lambda: self._time),
            ):
                fetch_stage.fetch_captures(workspace, CRAWL, [TARGET])
        except Incomplete as error:
            return INCOMPLETE if error.advice else FAILED
        except EnvironmentFault:
            return FAILED
        return DONE

    def _wanted(self, workspace: Workspace) -> list[PlannedRange]:
        """The ranges that the next run has to ask for."""
        records = workspace.lake.read("records", {"crawl": CRAWL, "target": TARGET})
        if not records.num_rows:
            return self._place.ranges
        return plan_ranges(records.filter(pc.equal(records["outcome"], "pending")), TOGETHER)


def most_requests(wanted: Sequence[PlannedRange], hits: Sequence[Hit], gave: Collection[str]) -> int:
    """The most requests that a run may send that has to ask for ``wanted`` and met the faults in ``hits``.

    A range is tried six times, and so is each record of one that failed, of a file that ``gave`` something; of others
    three records are, and those in flight. Three records may be asked for as a proof.
    """
    by_file: dict[str, list[PlannedRange]] = {}
    for one in wanted:
        by_file.setdefault(one.key, []).append(one)
    spoilt = {(hit.key, hit.range) for hit in hits if hit.fault}
    most = 3
    for key, ranges in by_file.items():
        served = next((hit.key for hit in hits if hit.key.endswith(key)), key)
        failed = [one for one in ranges if (served, f"bytes={one.offset}-{one.offset + one.length - 1}") in spoilt]
        records = sum(len(one.rows) for one in failed)
        most += len(ranges) + 5 * len(failed) + 6 * (records if key in gave else min(records, 3 + _IN_FLIGHT))
    return most


def _fetched_by_file(workspace: Workspace) -> Counter[str]:
    rows = workspace.lake.read("records", {"crawl": CRAWL, "target": TARGET}, ["warc_filename", "outcome"])
    here = rows.filter(pc.equal(rows["outcome"], "fetched"))
    return Counter(here["warc_filename"].to_pylist())


def _give_transport(workspace: Workspace, timeouts: Timeouts) -> None:
    settings = workspace.settings
    workspace.__dict__["transport"] = Transport(
        settings.source,
        SourceOptions(
            retry=RETRY,
            timeouts=timeouts,
            wait=0.25,
            s3=S3Options(endpoint=settings.s3_endpoint, anonymous=settings.s3_anonymous),
        ),
    )


Act = Callable[[], None]


def _served_fault(place: Place, cell: Cell) -> tuple[Act, Act]:
    server = place.server
    assert server is not None
    once = cell.time == "once"
    rule = Rule(
        cell.kind,
        times=1 if once else None,
        by_key=cell.kind == "404",
        retry_after=0,
        bytes_per_second=50,
    )
    if once or cell.scope == "some":
        chosen = place.ranges
        if cell.scope == "file":
            chosen = [one for one in chosen if one.key == chosen[0].key]
        elif cell.scope == "some":
            chosen = chosen[1 :: max(1, len(chosen) // 3)][:3]
        rules = [replace(rule, key=f"*{one.key}", ranges=_spans(place, one, alone=not once)) for one in chosen]
    elif cell.scope == "file":
        rules = [replace(rule, key=f"*{place.ranges[0].key}")]
    else:
        rules = [replace(rule, key=key) for key in ("*.warc.gz", "*.paths.gz")]
    return partial(server.set_rules, rules), partial(server.set_rules, [])


def _spans(place: Place, one: PlannedRange, *, alone: bool) -> tuple[str, ...]:
    """The headers that ask for a range, and for each of its records ``alone``."""
    offsets, lengths = (place.captures[name] for name in ("warc_record_offset", "warc_record_length"))
    spans = [(one.offset, one.length)]
    if alone:
        spans += [(offsets[row].as_py(), lengths[row].as_py()) for row in one.rows]
    return tuple(f"bytes={start}-{start + length - 1}" for start, length in spans)


def _folder_fault(place: Place, cell: Cell) -> tuple[Act, Act]:
    files = sorted({one.key for one in place.ranges})
    hit = files[:1] if cell.scope == "file" else files
    lists = [str(path.relative_to(place.bucket)) for path in place.bucket.rglob("*.paths.gz")]
    if cell.scope == "all" and cell.kind in ("file_missing", "file_unreadable"):
        hit = [*files, *lists]

    refused = {str(place.bucket / key) for key in hit}
    really_open = os.open

    def refuse(path: Any, *how: Any, **more: Any) -> int:
        if str(path) in refused:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return really_open(path, *how, **more)

    # not by the file's mode, which binds some users and not others
    locked = mock.patch.object(os, "open", refuse if cell.kind == "file_unreadable" else really_open)

    def begin() -> None:
        locked.start()
        for key in hit:
            _spoil_file(place, cell.kind, key)

    def end() -> None:
        locked.stop()
        for key in hit:
            (place.bucket / key).unlink(missing_ok=True)
            shutil.copy2(place.sound / key, place.bucket / key)

    return begin, end


def _spoil_file(place: Place, kind: str, key: str) -> None:
    path = place.bucket / key
    if kind == "file_missing":
        path.unlink()
    elif kind == "file_truncated":
        os.truncate(path, path.stat().st_size // 2)
    elif kind == "file_of_noise":
        path.write_bytes(b"\x5a" * path.stat().st_size)
    elif kind == "bit_flipped":
        one = next(one for one in place.ranges if one.key == key)
        at = place.captures["warc_record_offset"][one.rows[0]].as_py()
        middle = at + place.captures["warc_record_length"][one.rows[0]].as_py() // 2
        data = bytearray(path.read_bytes())
        data[middle] ^= 0x10
        path.write_bytes(data)
