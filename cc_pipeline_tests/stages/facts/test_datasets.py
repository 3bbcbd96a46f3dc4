"""Files that describe datasets: what they may say, and errors that name the file and the field."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from cc_pipeline.errors import UserInputError
from cc_pipeline.stages.facts.datasets import Dataset, parse_dataset, read_dataset, ready_made

WHOLE = """
name: tranco
title: Tranco's list
where:
  root: /data/lists
  files: [tranco.parquet]
  crawl: none
key:
  column: domain
  form: host
  www: stripped
columns:
  rank: int64
  no:
prefix: tranco_
join: inner
action: join
fold: {rank: min}
"""


def test_every_field_is_read() -> None:
    found = parse_dataset(WHOLE, "tranco.yaml")
    assert found == Dataset(
        name="tranco",
        title="Tranco's list",
        root="/data/lists",
        files=("tranco.parquet",),
        by_crawl=False,
        key="domain",
        form="host",
        www="stripped",
        columns={"rank": pa.int64(), "no": None},
        prefix="tranco_",
        inner=True,
        fold={"rank": "min"},
        written_in="tranco.yaml",
    )


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (("name: tranco", "name: Tran co"), "name"),
        (("name: tranco", "nam: tranco"), "nam"),
        (("  files: [tranco.parquet]\n", ""), "where"),
        (("  files: [tranco.parquet]", "  files: tranco.parquet"), "where.files"),
        (("  files: [tranco.parquet]", "  files: [tranco.parquet]\n  paths: x"), "where"),
        (("crawl: none", "crawl: some"), "where.crawl"),
        (("crawl: none", "crawls: none"), "where.crawls"),
        (("  column: domain\n", ""), "key.column"),
        (("form: host", "form: hosts"), "key.form"),
        (("www: stripped", "www: folded"), "key.www"),
        (("form: host", "form: surt_host"), "key.www"),
        (("www: stripped", "www: stripped\n  time: at"), "key.time"),
        (("form: host\n  www: stripped", "form: url_key"), "key.time"),
        (("rank: int64", "rank: integer"), "columns.rank"),
        (("rank: int64", "2024: int64"), "columns"),
        (("prefix: tranco_", "prefix: a-b"), "prefix"),
        (("join: inner", "join: left"), "join"),
        (("action: join", "action: drop"), "action"),
        (("{rank: min}", "{rank: mean}"), "fold.rank"),
        (("{rank: min}", "{rang: min}"), "fold.rang"),
        (("{rank: min}", "min"), "fold"),
    ],
)
def test_what_cannot_be_names_the_file_and_the_field(change: tuple[str, str], field: str) -> None:
    assert change[0] in WHOLE
    with pytest.raises(UserInputError) as error:
        parse_dataset(WHOLE.replace(*change), "tranco.yaml")
    assert str(error.value).startswith(f"tranco.yaml: field {field} ")


@pytest.mark.parametrize("text", ["", "- a", "a: [", "a: &x [*x]", "!!python/object:os.system {}", "\0", "["])
def test_what_is_no_description(text: str) -> None:
    with pytest.raises(UserInputError, match=r"^mine\.yaml"):
        parse_dataset(text, "mine.yaml")


def test_names_and_files(tmp_path: Path) -> None:
    assert read_dataset("degrees") == ready_made()["degrees"]
    with pytest.raises(UserInputError, match="host-index"):
        read_dataset("host-indexes")
    (tmp_path / "x.yaml").write_text(WHOLE)
    assert read_dataset(tmp_path / "x.yaml").name == "tranco"
    (tmp_path / "y.yaml").write_bytes(b"\xff")
    for name in ("y.yaml", "z.yaml"):
        with pytest.raises(UserInputError, match=name):
            read_dataset(str(tmp_path / name))


def test_some_columns_of_it() -> None:
    known = parse_dataset(WHOLE, "tranco.yaml")
    assert known.only(["tranco_no", "other"]).columns == {"no": None}
    assert known.only(["tranco_no"]).fold == {}
    every = parse_dataset(WHOLE.replace("  rank: int64\n  no:", "").replace("columns:\n", "columns: all\n"), "x.yaml")
    assert every.columns is None
    assert every.only(["tranco_rank", "other"]).columns == {"rank": None}


def test_versions_follow_what_decides_about_rows() -> None:
    known = parse_dataset(WHOLE, "tranco.yaml")
    assert parse_dataset(WHOLE.replace("Tranco's list", "Another title"), "other.yaml").version == known.version
    for change in (("rank: int64", "rank: double"), ("fold: {rank: min}", "fold: {rank: max}"), ("stripped", "kept")):
        assert parse_dataset(WHOLE.replace(*change), "tranco.yaml").version != known.version
        assert parse_dataset(WHOLE.replace(*change), "tranco.yaml").place == known.place
    assert parse_dataset(WHOLE.replace("/data/lists", "/data/other"), "tranco.yaml").place != known.place
