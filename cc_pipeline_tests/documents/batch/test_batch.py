"""Parsing in worker processes: order, survival of pages that break a parser, and the same rows as in one process."""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from cc_pipeline.documents.batch import pool
from cc_pipeline.documents.batch import pool as waiting
from cc_pipeline.documents.batch.pool import parse_batches
from cc_pipeline.documents.batch.rows import rows_of
from cc_pipeline.documents.batch.worker import Input
from cc_pipeline.documents.document2012.json import failed_page
from cc_pipeline.documents.page import Limits, PageInput, ParseOptions
from cc_pipeline.documents.schemas import SCHEMAS
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline_tests.documents.pages import page

OPTIONS = ParseOptions(main_content="none", language=False)


def _pages(count: int, size: int = 3) -> list[list[PageInput]]:
    return [
        [page(f"<title>{n}</title><a href='{n}'>x</a>") for n in range(at, at + size)] for at in range(0, count, size)
    ]


def trapped(item: PageInput) -> Input:
    """A reader that plants what hostile pages do, in the process that parses."""
    if item.payload == b"kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if item.payload == b"hang":
        time.sleep(600)
    if item.payload == b"gone":
        return failed_page(item, "Missing", "not_found")
    return item


def killing_parse(item: PageInput) -> Input:
    """Kills the process only while the page is parsed, by way of a trap in its headers."""
    return PageInput(
        **{name: getattr(item, name) for name in item.__slots__ if name != "http_headers"},
        http_headers=_Trap(item.payload) if item.payload in (b"kill", b"hang") else item.http_headers,
    )


class _Trap(tuple[tuple[str, str], ...]):
    def __new__(cls, payload: bytes) -> _Trap:
        made = super().__new__(cls, ())
        made.payload = payload
        return made

    def __iter__(self):
        if self.payload == b"kill":
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(600)


def test_batches_come_back_in_order_and_complete() -> None:
    found = list(parse_batches(_pages(12), OPTIONS, 2))
    assert [set(each) for each in found] == [set(SCHEMAS)] * 4
    titles = [row["content"]["title"] for each in found for row in each["page_metadata"].to_pylist()]
    assert titles == [str(n) for n in range(12)]
    assert sum(each["page_links"].num_rows for each in found) == 12


def test_rows_are_the_same_as_in_one_process() -> None:
    alone = [rows_of(items, ParseOptions(), pool.identity, {}) for items in _pages(6)]
    beside = list(parse_batches(_pages(6), ParseOptions(), 1))
    assert alone == beside


def test_no_batches_and_empty_batches() -> None:
    assert list(parse_batches([], OPTIONS, 1)) == []
    (only,) = parse_batches([[]], OPTIONS, 1)
    assert only["page_metadata"].num_rows == 0


@pytest.mark.process
def test_a_page_that_kills_or_hangs_its_process_is_a_row_and_the_others_go_on() -> None:
    bodies = [b"a", b"kill", b"b", b"hang", b"c"]
    options = ParseOptions(main_content="none", language=False, limits=Limits(seconds=6.0))
    found = list(parse_batches([[page(body) for body in bodies], [page("d")]], options, 2, killing_parse))
    rows = found[0]["page_metadata"].to_pylist()
    assert [row["failure_reason"] for row in rows] == [None, "ParseFailed", None, "ParseFailed", None]
    assert rows[1]["failure_detail"] == "parser process ended by SIGKILL"
    assert rows[3]["failure_detail"] == "no end after 6 s"
    assert found[1]["page_metadata"].num_rows == 1


def slow_to_read(item: PageInput) -> Input:
    """Ends the process for pages of which all is to be read, as those do that are too much for a parser."""
    headers = _Large() if b"<title>Large" in item.payload else item.http_headers
    return replace(item, http_headers=headers)


class _Large(tuple[tuple[str, str], ...]):
    def __iter__(self):
        frame = sys._getframe()
        while frame is not None and frame.f_code.co_name != "parse_page":
            frame = frame.f_back
        if frame is None or frame.f_locals["options"].main_content != "none":
            os.kill(os.getpid(), signal.SIGKILL)
        return iter(())


def test_of_a_page_that_ended_its_process_the_beginning_is_read() -> None:
    large = b"<title>Large</title><a href=/x>y</a>" + b"<p>text</p>" * 20_000
    (found,) = parse_batches([[page(large), page("<title>Other</title>")]], ParseOptions(), 1, slow_to_read)
    first, second = found["page_metadata"].to_pylist()
    assert (first["disposition"], first["flags"]) == ("SUCCESS", ["parser_ended", "payload_cut"])
    assert [each["content"]["title"] for each in (first, second)] == ["Large", "Other"]
    assert first["md5"] == hashlib.md5(large, usedforsecurity=False).hexdigest()
    assert found["page_links"].num_rows == 1
    assert second["flags"] is None


def process_of(item: PageInput) -> Input:
    return replace(item, server_ip=str(os.getpid()))


def test_workers_serve_the_next_call_and_no_other_kind() -> None:
    def processes(options: ParseOptions) -> set[str]:
        found = parse_batches(_pages(6), options, 1, process_of)
        return {row["server_ip"] for each in found for row in each["page_metadata"].to_pylist()}

    first, second, other = processes(OPTIONS), processes(OPTIONS), processes(ParseOptions(main_content="none"))
    assert len(first) == 1
    assert first == second != other
    assert not any(_runs(int(pid)) for pid in first)
    waiting.end()
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


def test_a_worker_has_its_next_batch_before_it_has_ended_one() -> None:
    taken: list[int] = []

    def source() -> Iterator[list[PageInput]]:
        for number, each in enumerate(_pages(5, 1)):
            taken.append(number)
            yield each

    worker_loads: list[int] = []
    found = parse_batches(source(), OPTIONS, 1)
    for _ in found:
        worker_loads.append(len(taken))
    assert worker_loads[0] >= 2
    assert taken == list(range(5))


def test_batches_larger_than_a_socket_s_buffer_come_and_go() -> None:
    text = "<p>" + "words and more words " * 200_000
    found = list(parse_batches([[page(text)], [page(text), page(text)], [page("x")]], OPTIONS, 1))
    assert [each["page_text"].num_rows for each in found] == [1, 2, 1]


def test_a_reader_may_hand_over_ready_rows() -> None:
    (found,) = parse_batches([[page("a"), page("gone")]], OPTIONS, 1, trapped)
    assert [row["failure_reason"] for row in found["page_metadata"].to_pylist()] == [None, "Missing"]


@pytest.mark.process
def test_processes_that_never_get_to_a_page_end_the_run() -> None:
    with pytest.raises(EnvironmentFault, match="before they parse a page"):
        list(parse_batches([[page("kill")]], OPTIONS, 1, trapped))


def test_values_that_fit_no_column_are_one_row_not_a_lost_batch() -> None:
    (found,) = parse_batches([[page("a"), page("b", http_status=2**40), page("c")]], OPTIONS, 1)
    rows = found["page_metadata"].to_pylist()
    assert [row["disposition"] for row in rows] == ["SUCCESS", "FAILURE", "SUCCESS"]
    assert rows[1]["failure_reason"] == "ParseFailed"


def test_only_so_many_batches_are_held() -> None:
    taken = 0

    def source() -> object:
        nonlocal taken
        for each in _pages(60, 1):
            taken += 1
            yield each

    results = parse_batches(source(), OPTIONS, 1)
    next(results)
    assert taken <= pool._AHEAD_PER_WORKER + 2
    results.close()
