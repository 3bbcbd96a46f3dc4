"""``dataset``: what is left, and what the datasheet says of each filter, against the rules applied by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import pytest

from cc_pipeline.extensions.policies.card import COLUMNS
from cc_pipeline_tests.cli.conftest import Cli

pytestmark = pytest.mark.xdist_group("cli published")


@pytest.fixture
def home(rich: Path) -> Path:
    """Several domains in several crawls, so that there are copies and languages."""
    return rich


def rows_of(folder: Path) -> list[dict[str, Any]]:
    with duckdb.connect() as connection:
        found = connection.execute(f"FROM read_parquet('{folder}/texts.parquet')")
        names = [column[0] for column in found.description or []]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


def published(home: Path) -> list[dict[str, Any]]:
    with duckdb.connect(str(home / "cc.duckdb"), read_only=True) as connection:
        found = connection.execute("SELECT * FROM page_text")
        names = [column[0] for column in found.description or []]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


def test_the_datasheet_says_what_each_filter_took(cli: Cli, home: Path, tmp_path: Path) -> None:
    out = tmp_path / "corpus"
    said = cli("dataset", "-l", "en", "--words", "60..", "--out", out, "--home", home)
    assert said.status == 0, said.err
    assert said.out.splitlines()[0].split() == ["filter", "came", "removed"]
    sheet = json.loads((out / "datasheet.json").read_text("utf-8"))
    pages = published(home)
    assert sheet["pages"] == len(pages)
    for before, after in zip(sheet["filters"], sheet["filters"][1:], strict=False):
        assert after["came"] == before["came"] - before["removed"]
    last = sheet["filters"][-1]
    rows = rows_of(out)
    assert sheet["left"] == last["came"] - last["removed"] == len(rows) > 0
    assert sheet["words"] == sum(row["words"] for row in rows)
    # by hand
    first = [page for page in pages if page["fetch_status"] in (None, 200)]
    texts = [page for page in first if page["quality"]]
    english = [page for page in texts if (page["content_languages"] or [None])[0] == "eng"]
    long = [page for page in english if 60 <= page["quality"]["words"] <= 100_000]
    took = {one["name"]: one["removed"] for one in sheet["filters"]}
    assert took["status"] == len(pages) - len(first)
    assert took["main_text"] == len(first) - len(texts)
    assert took["language"] == len(texts) - len(english)
    assert took["words"] == len(english) - len(long)
    assert sheet["left"] < sheet["pages"]
    good = [
        page
        for page in long
        if page["quality"]["stop_words"] >= 2
        and page["quality"]["alphabetic_words"] >= 0.8
        and page["quality"]["duplicate_lines"] <= 0.3
        and page["quality"]["top_2gram"] <= 0.2
        and page["quality"]["duplicate_5grams"] <= 0.15
        and page["quality"]["sentences"] >= 5
        and page["quality"]["curly_brackets"] == 0
    ]
    assert {row["url"] for row in rows} <= {page["url"] for page in good}
    assert len({row["text"] for row in rows}) == len(rows)
    assert {row["language"] for row in rows} == {"eng"}
    by_place = {(page["crawl"], page["warc_filename"], page["warc_record_offset"]): page for page in pages}
    for row in rows:
        assert by_place[row["crawl"], row["warc_filename"], row["warc_record_offset"]]["main_content"] == row["text"]
    readme = (out / "README.md").read_text("utf-8")
    assert "Pages that each filter removed" in readme and str(home) not in readme
    for one in sheet["filters"]:
        assert f"| {one['name']} |" in readme
    # the card has each column with its meaning, and the limits
    assert list(COLUMNS) == list(rows[0]) and all(f"| `{name}` |" in readme for name in COLUMNS)
    assert "## Limits" in readme


def test_without_filters_only_texts_and_no_copies_are_left(cli: Cli, home: Path, tmp_path: Path) -> None:
    words = ("-c", "2012..", "--rules", "none", "--words", "0..", "--near", 0, "--home", home)
    with_copies, without = tmp_path / "with", tmp_path / "without"
    assert cli("dataset", *words, "--keep-copies", "--out", with_copies).status == 0
    assert cli("dataset", *words, "--out", without).status == 0
    assert cli("dataset", *words, "-l", "zu", "--out", without).status == 1, "no page would replace those"
    good = [page for page in published(home) if page["quality"] and page["fetch_status"] in (None, 200)]
    assert len(rows_of(with_copies)) == len(good)
    texts = {page["main_content"] for page in good}
    assert len(texts) < len(good), "the mini crawl has copies"
    assert sorted(row["text"] for row in rows_of(without)) == sorted(texts)
    newest = {}
    for page in good:
        newest[page["main_content"]] = max(newest.get(page["main_content"], page["fetch_time"]), page["fetch_time"])
    assert {row["text"]: row["fetch_time"] for row in rows_of(without)} == newest
