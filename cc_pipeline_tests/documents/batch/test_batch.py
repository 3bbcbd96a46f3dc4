"""Parsing in worker processes: order, survival of pages that break a parser, and the same rows as in one process."""

from __future__ import annotations

import os
import signal
import time

import pytest

from cc_pipeline.documents.batch import pool
from cc_pipeline.documents.batch.pool import parse_batches
from cc_pipeline.documents.batch.rows import Input
from cc_pipeline.documents.legacy2012.mapping import failed_page
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
        **{name: getattr(item, name) for name in item.__slots__ if name != "http_headers"},  # type: ignore[arg-type]  # a copy
        http_headers=_Trap(item.payload) if item.payload in (b"kill", b"hang") else item.http_headers,  # type: ignore[arg-type]  # a trap
    )


class _Trap(tuple[tuple[str, str], ...]):
    def __new__(cls, payload: bytes) -> _Trap:
        made = super().__new__(cls, ())
        made.payload = payload  # type: ignore[attr-defined]  # on a tuple subclass without slots
        return made

    def __iter__(self):  # type: ignore[no-untyped-def]  # never returns
        if self.payload == b"kill":  # type: ignore[attr-defined]  # see __new__
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(600)


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_batches_come_back_in_order_and_complete(workers: int) -> None:
    found = list(parse_batches(_pages(12), OPTIONS, workers))
    assert [set(each) for each in found] == [set(SCHEMAS)] * 4
    titles = [row["content"]["title"] for each in found for row in each["page_metadata"].to_pylist()]
    assert titles == [str(n) for n in range(12)]
    assert sum(each["page_links"].num_rows for each in found) == 12


def test_rows_are_the_same_as_in_one_process() -> None:
    alone = list(parse_batches(_pages(6), ParseOptions(), 0))
    beside = list(parse_batches(_pages(6), ParseOptions(), 1))
    assert alone == beside


def test_no_batches_and_empty_batches() -> None:
    assert list(parse_batches([], OPTIONS, 1)) == []
    (only,) = parse_batches([[]], OPTIONS, 1)
    assert only["page_metadata"].num_rows == 0


def test_a_page_that_kills_or_hangs_its_process_is_a_row_and_the_others_go_on() -> None:
    bodies = [b"a", b"kill", b"b", b"hang", b"c"]
    options = ParseOptions(main_content="none", language=False, limits=Limits(seconds=1.5))
    found = list(parse_batches([[page(body) for body in bodies], [page("d")]], options, 2, killing_parse))
    rows = found[0]["page_metadata"].to_pylist()
    assert [row["failure_reason"] for row in rows] == [None, "ParseFailed", None, "ParseFailed", None]
    assert rows[1]["failure_detail"] == "parser process ended by SIGKILL"
    assert rows[3]["failure_detail"] == "no end after 1.5 s"
    assert found[1]["page_metadata"].num_rows == 1


def test_a_reader_may_hand_over_ready_rows() -> None:
    (found,) = parse_batches([[page("a"), page("gone")]], OPTIONS, 1, trapped)
    assert [row["failure_reason"] for row in found["page_metadata"].to_pylist()] == [None, "Missing"]


def test_processes_that_never_get_to_a_page_end_the_run() -> None:
    with pytest.raises(EnvironmentFault, match="before they parse anything"):
        list(parse_batches([[page("kill")]], OPTIONS, 1, trapped))


def test_values_that_fit_no_column_are_one_row_not_a_lost_batch() -> None:
    for workers in (0, 1):
        (found,) = parse_batches([[page("a"), page("b", http_status=2**40), page("c")]], OPTIONS, workers)
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

    results = parse_batches(source(), OPTIONS, 1)  # type: ignore[arg-type]  # an iterable of lists
    next(results)
    assert taken <= pool._AHEAD_PER_WORKER + 2
    results.close()
