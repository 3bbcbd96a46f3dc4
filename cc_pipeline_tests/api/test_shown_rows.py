"""What Python shows of rows and results: text as wide as a terminal, and nothing is fetched for it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from cc_pipeline.api.add_captures import AddedCaptures
from cc_pipeline.api.captures import Capture, Captures, Page
from cc_pipeline.api.export import Export
from cc_pipeline.api.rows import Answer, MemoryRows
from cc_pipeline.commoncrawl.target_text import parse_named_captures
from cc_pipeline.named_captures.adding import Counts
from cc_pipeline.named_captures.reading import RejectedRows
from cc_pipeline.settings import load_settings

ROWS = MemoryRows(pa.table({"url": ["https://example.com/" + "x" * 300] * 30, "pages": [*range(30)]}))


def test_values_are_shown_as_a_person_writes_them() -> None:
    moment = datetime(2018, 1, 17, 12, 3, 4, tzinfo=UTC)
    rows = {"when": [moment], "none": [None], "bytes": [b"GET \xff"], "nested": [{"a": [1]}], "text": ["a\nb \x1b[31m"]}
    shown = repr(MemoryRows(pa.table(rows)))
    assert "2018-01-17 12:03:04+00" in shown and "datetime" not in shown and "None" not in shown
    assert r"GET \xFF" in shown and "{'a': [1]}" in shown
    assert r"a\nb \e[31m" in shown and "\x1b" not in shown
    wide = repr(MemoryRows(pa.table({f"column {number}": ["x" * 50] for number in range(60)})))
    assert max(map(len, wide.splitlines())) <= 120 and "60 columns" in wide.splitlines()[-1]


def test_rows_show_their_number_and_the_first_of_them() -> None:
    assert repr(ROWS).splitlines()[0] == "30 rows, 2 columns"
    shown = repr(MemoryRows(pa.table({"a": [*range(30)], "b": ["x" * 100_000] * 30})))
    assert "30 rows (20 shown)" in shown and len(shown) < 10_000, "no more than a screen"
    assert (len(ROWS), ROWS[-1]["pages"], ROWS.head(3)[2]["pages"]) == (30, 29, 2)
    with pytest.raises(IndexError, match="no row 30"):
        ROWS[30]


def test_captures_are_not_asked_for_to_be_shown_and_show_what_was_read_last() -> None:
    asked = []

    def ask() -> Any:
        asked.append(1)
        raise AssertionError("asked")

    captures = Captures(ask, ("url", "crawl"), None, "captures of example.com in newest")
    assert "not read yet" in repr(captures)
    assert captures.columns == ["url", "crawl"] and not asked
    schema = pa.schema([pa.field("url", pa.string()), pa.field("crawl", pa.string(), nullable=False)])
    batch = pa.record_batch([["https://example.com/"] * 25, ["CC-MAIN-2024-22"] * 25], schema=schema)
    captures._batches_of_crawls = lambda: iter([batch, batch])  # type: ignore[method-assign]
    assert captures.to_arrow().num_rows == 50
    assert repr(captures).splitlines()[0].endswith("50 captures when they were last read")
    assert repr(captures).count("https://") == 20


def test_text_of_a_query_sends_nothing_and_a_notebook_asks_for_the_rows_that_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, asked, rows_of = load_settings(home=str(tmp_path)), [], Answer._rows_of

    def noted(answer: Answer, connection: duckdb.DuckDBPyConnection, query: str) -> Any:
        asked.append((query, connection.sql("SELECT current_setting('memory_limit')").fetchall()))
        return rows_of(answer, connection, query)

    monkeypatch.setattr(Answer, "_rows_of", noted)
    answer = Answer(settings, "SELECT i FROM range(100_000) r(i)\nWHERE i >= ? ORDER BY i DESC; -- all", [7])
    assert "does not exist yet" in answer._repr_html_()
    duckdb.connect(str(settings.published_path)).close()
    assert repr(answer).startswith("a query, executed when its rows are read: SELECT i FROM range(100_000) r(i)")
    assert not asked
    shown = answer._repr_html_()
    assert "the first rows of more than 20, 1 column" in shown and " 99999 " in shown and answer._repr_html_() == shown
    [(query, memory)] = asked
    assert query.endswith("LIMIT 21") and memory == [("953.6 MiB",)]
    assert "the query failed: only queries" in Answer(settings, "EXPLAIN SELECT 1")._repr_html_()
    assert "DuckDB says" in Answer(settings, "SELEKT 1")._repr_html_()


def test_what_strangers_wrote_gives_no_orders_to_a_terminal(tmp_path: Path) -> None:
    order = "\x1b]0;x\x07"
    page = object.__new__(Page)
    page.url, page.crawl, page.captured, page.status, page.digest_check = order, "CC-MAIN-2024-22", None, 200, "ok"
    wrong = RejectedRows(1, [(1, f"no time: {order}")])
    for shown in (
        Capture("https://example.com/", "CC-MAIN-2024-22", None, 200, order, "a.warc.gz", 0, 9, {}),
        page,
        AddedCaptures(parse_named_captures("mine"), {"CC-MAIN-2024-22": 1}, Counts(), wrong, 0),
        Captures(lambda: pytest.fail("asked"), ("url",), None, f"captures of {order}"),
        Answer(load_settings(home=str(tmp_path)), f"SELECT '{order}'"),
        Export(Path(f"{order}.csv"), (), ROWS),
    ):
        text = repr(shown)
        assert r"\x1b]0;x\x07" in text and not {"\x1b", "\x07"} & {*text}, text


def test_rows_that_are_shown_do_not_keep_those_that_came_with_them() -> None:
    batch = pa.record_batch({"url": ["https://example.com/" + "x" * 1_000] * 2_000})
    captures = Captures(lambda: pytest.fail("asked"), ("url",), None)
    captures._batches_of_crawls = lambda: iter([batch])  # type: ignore[method-assign]
    assert captures.to_arrow().num_rows == 2_000
    assert captures._last is not None
    assert sum(one.get_total_buffer_size() for one in captures._last[0]) < 100_000
    assert captures.head(3).to_arrow().get_total_buffer_size() < 10_000
    assert captures.head(0).to_arrow().num_rows == 0


def test_rows_on_a_lake_elsewhere_are_not_fetched_to_be_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Answer, "_rows_of", lambda *_: pytest.fail("sent"))
    settings = load_settings(home=str(tmp_path), lake="s3://bucket/lake")
    answer = Answer(settings, "SELECT  url\nFROM captures")
    for shown in (repr(answer), answer._repr_html_()):
        assert "read: SELECT url FROM captures" in shown
