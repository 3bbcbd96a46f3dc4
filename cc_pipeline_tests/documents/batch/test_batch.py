"""Parsing in worker processes: order, survival of pages that break a parser, and the same rows as in one process."""

from __future__ import annotations

import os
import signal
import time
import tracemalloc
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from cc_pipeline import children
from cc_pipeline.documents.batch import pool, rows, worker
from cc_pipeline.documents.batch.pool import parse_batches
from cc_pipeline.documents.batch.rows import rows_of
from cc_pipeline.documents.batch.worker import Input, Worker
from cc_pipeline.documents.document2012.json import failed_page
from cc_pipeline.documents.page import Limits, PageInput, ParseOptions
from cc_pipeline.documents.schemas import SCHEMAS
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline_tests.documents.pages import identity, page

OPTIONS = ParseOptions(main_content=False, language=False)


def _pages(count: int, size: int = 3) -> list[list[PageInput]]:
    return [
        [page(f"<title>{n}</title><a href='{n}'>x</a>") for n in range(at, at + size)] for at in range(0, count, size)
    ]


def trapped(item: PageInput, failure: str | None = None) -> Input:
    """A reader that does what hostile pages do, in the process that parses: while they are read, or by way of a trap in
    their headers while they are parsed."""
    if failure is None and item.payload == b"kill the reader":
        os.kill(os.getpid(), signal.SIGKILL)
    if failure is None and item.payload in (b"sleep", b"sleep long"):
        time.sleep(1.5 if item.payload == b"sleep" else 60)
    if failure is None and item.payload == b"raise":
        raise OverflowError("too large")
    if item.payload == b"gone":
        return failed_page(item, "Missing", "not_found")
    if failure is None and item.payload in (b"kill the parser", b"hang"):
        return replace(item, http_headers=_Trap(item.payload))
    return identity(item, failure)


class _Trap(tuple[tuple[str, str], ...]):
    def __new__(cls, payload: bytes) -> _Trap:
        made = super().__new__(cls, ())
        made.payload = payload
        return made

    def __iter__(self):
        if self.payload == b"kill the parser":
            os.kill(os.getpid(), signal.SIGKILL)
        while True:
            pass


def test_rows_are_those_of_one_process_in_the_order_of_the_pages() -> None:
    alone = [rows_of(items, OPTIONS, identity) for items in _pages(12)]
    assert list(parse_batches(_pages(12), OPTIONS, 2, identity)) == alone
    titles = [row["content"]["title"] for row in _joined(alone)["page_metadata"]]
    assert titles == [str(n) for n in range(12)]


@pytest.mark.process
def test_a_page_that_ends_or_hangs_its_process_is_a_row_and_the_others_go_on() -> None:
    killed = "parser process ended by SIGKILL"
    details = {
        **{b"a": None, b"kill the reader": killed, b"b": None, b"kill the parser": killed, b"c": None},
        **{b"hang": "more than 1 s of processor time", b"raise": "OverflowError: too large", b"gone": "not_found"},
        b"sleep": None,
    }
    options = ParseOptions(main_content=False, language=False, limits=Limits(seconds=1.0))
    parts = parse_batches([[page(body) for body in details], [page("d")]], options, 2, trapped)
    rows = _joined(parts)["page_metadata"]
    assert [row["failure_detail"] for row in rows] == [*details.values(), None]
    assert {row["failure_reason"] for row in rows} == {None, "ParseFailed", "Missing"}


def killed_once(item: PageInput, failure: str | None = None) -> Input:
    """Kills the process the first time that it reads a page with a folder, as the kernel does if memory is short."""
    if item.source_file is not None:
        with suppress(FileExistsError):
            Path(item.source_file, "killed").touch(exist_ok=False)
            os.kill(os.getpid(), signal.SIGKILL)
    return identity(replace(item, source_file=None), failure)


@pytest.mark.process
def test_a_page_whose_process_was_killed_is_parsed_whole_again(tmp_path: Path) -> None:
    items = [
        page("<title>a</title>"),
        page("<p>text</p>" * 20_000, source_file=str(tmp_path)),
        page("<title>b</title>"),
    ]
    quiet = rows_of([replace(item, source_file=None) for item in items], OPTIONS, identity)
    assert _joined(parse_batches([items], OPTIONS, 1, killed_once)) == _joined([quiet])
    assert (tmp_path / "killed").exists()


def _joined(parts: Iterable[pool.RecordBatches]) -> dict[str, list[dict[str, Any]]]:
    tables: dict[str, list[dict[str, Any]]] = {table: [] for table in SCHEMAS}
    for part in parts:
        for table, batch in part.items():
            tables[table] += batch.to_pylist()
    return tables


def test_time_that_passes_says_nothing_of_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """An hour between any two looks at the clock, as for a parent that was stopped."""
    hours = count(0, 3_600)
    monkeypatch.setattr(pool.time, "monotonic", lambda: float(next(hours)))
    items = _pages(6)
    quiet = [rows_of(each, OPTIONS, identity) for each in items]
    assert _joined(parse_batches(items, OPTIONS, 2, identity)) == _joined(quiet)


def test_a_process_without_an_answer_and_without_processor_time_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    usage = (1, "1")
    monkeypatch.setattr(children, "usage_of", lambda process: usage)
    process = Worker(OPTIONS, identity)
    try:
        assert {process.find_fault() for _ in range(worker._IDLE_CHECKS)} == {""}
        usage = (1, "2")
        assert {process.find_fault() for _ in range(worker._IDLE_CHECKS)} == {""}
        assert process.find_fault() == "parser process waits for ever"
    finally:
        process.end()


def test_a_page_whose_process_has_a_fault_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Worker, "find_fault", lambda process: "waits for ever" if process.position == 0 else "")
    (found,) = parse_batches([[page("sleep long")]], OPTIONS, 1, trapped)
    assert found["page_metadata"].to_pylist()[0]["failure_detail"] == "waits for ever"


def process_of(item: PageInput, failure: str | None = None) -> Input:
    return replace(item, server_ip=str(os.getpid()))


def test_workers_serve_the_next_call_and_no_other_kind() -> None:
    def processes(options: ParseOptions) -> set[str]:
        found = parse_batches(_pages(6), options, 1, process_of)
        return {row["server_ip"] for each in found for row in each["page_metadata"].to_pylist()}

    first, second, other = processes(OPTIONS), processes(OPTIONS), processes(ParseOptions(markdown=True))
    assert len(first) == 1
    assert first == second != other
    assert not any(_runs(int(pid)) for pid in first)
    pool.end()
    assert not any(_runs(int(pid)) for pid in other)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_waiting_worker_that_has_ended_is_no_harm() -> None:
    (found,) = parse_batches([[page("a")]], OPTIONS, 1, process_of)
    os.kill(int(found["page_metadata"].to_pylist()[0]["server_ip"]), signal.SIGKILL)
    (again,) = parse_batches([[page("<title>b</title>")]], OPTIONS, 1, process_of)
    assert again["page_metadata"].to_pylist()[0]["content"]["title"] == "b"


def test_a_worker_that_ends_while_the_run_has_nothing_for_it_is_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "_FRUITLESS_STARTS", 1)
    (found,) = parse_batches([[page("a")]], OPTIONS, 1, process_of)
    process = int(found["page_metadata"].to_pylist()[0]["server_ip"])

    def source() -> Iterator[list[PageInput]]:
        os.kill(process, signal.SIGKILL)
        os.waitid(os.P_PID, process, os.WEXITED | os.WNOWAIT)
        yield [page("<title>b</title>")]

    (again,) = parse_batches(source(), OPTIONS, 1, process_of)
    assert again["page_metadata"].to_pylist()[0]["content"]["title"] == "b"


def test_batches_larger_than_a_socket_s_buffer_come_and_go() -> None:
    text = "<p>" + "words and more words " * 200_000
    found = list(parse_batches([[page(text)], [page(text), page(text)], [page("x")]], OPTIONS, 1, identity))
    assert [each["page_text"].num_rows for each in found] == [1, 2, 1]


class _Deadly:
    """Ends the process that loads it."""

    def __reduce__(self) -> tuple[object, ...]:
        return os._exit, (3,)


@pytest.mark.process
def test_processes_that_never_get_to_a_page_end_the_run() -> None:
    with pytest.raises(EnvironmentFault, match="before they parse a page"):
        list(parse_batches([[_Deadly()]], OPTIONS, 1, identity))


def test_large_pages_come_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    items = [page("word " * (200 * size)) for size in (1, 30, 1, 1)]
    whole = rows_of(items, OPTIONS, identity)
    monkeypatch.setattr(rows, "_PART_SIZE", 20_000)
    first = rows_of(items, OPTIONS, identity)
    assert first["page_metadata"].num_rows == 2
    assert _joined([first, rows_of(items[2:], OPTIONS, identity)]) == _joined([whole])


def in_parts(item: PageInput, failure: str | None = None) -> Input:
    """Reads pages in a process for which each is a large one."""
    rows._PART_SIZE = 1
    return identity(item, failure)


def test_the_rest_of_a_batch_comes_after_its_first_part() -> None:
    parts = list(parse_batches(_pages(6), OPTIONS, 2, in_parts))
    assert [part["page_metadata"].num_rows for part in parts] == [1] * 6
    assert _joined(parts) == _joined(rows_of(items, OPTIONS, identity) for items in _pages(6))


def large(size: int, failure: str | None = None) -> Input:
    return identity(page(b"\x89PNG\r\n\x1a\n" + bytes(size), mime="image/png"), failure)


def test_one_payload_is_held_at_a_time() -> None:
    tracemalloc.start()
    try:
        found = rows_of([8 << 20] * 6, OPTIONS, large)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found["page_metadata"].num_rows == 6
    assert peak < 32 << 20


def test_a_page_with_too_many_bytes_of_rows_is_one_row() -> None:
    """Each of its links is resolved against a long address, and its own address is repeated with each."""
    long = "<base href='http://a.example/" + "x" * 2_000 + "/'>" + "".join(f"<a href={n}>" for n in range(2_000))
    options = replace(OPTIONS, limits=Limits(row_bytes=1 << 20))
    found = rows_of([page("<title>a</title>"), page(long), page("<title>b</title>")], options, identity)
    details = [row["failure_detail"] for row in found["page_metadata"].to_pylist()]
    assert details[::2] == [None, None]
    assert "more than 1,048,576" in details[1]
    assert found["page_links"].num_rows == 0
    assert rows_of([page(long)], OPTIONS, identity)["page_links"].num_rows == 2_000


def test_values_that_fit_no_column_are_one_row_not_a_lost_batch() -> None:
    (found,) = parse_batches([[page("a"), page("b", http_status=2**40), page("c")]], OPTIONS, 1, identity)
    rows = found["page_metadata"].to_pylist()
    assert [row["disposition"] for row in rows] == ["SUCCESS", "FAILURE", "SUCCESS"]
    assert rows[1]["failure_reason"] == "ParseFailed"
