"""Files that describe datasets: what they may say, and errors that name the file and the field."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.errors import UserInputError
from cc_pipeline.extensions.host_facts.datasets import Dataset, parse_dataset, read_definition
from cc_pipeline.extensions.host_facts.folders import datasets_path, keyed_path
from cc_pipeline.extensions.host_facts.host_facts import facts_of_hosts
from cc_pipeline.extensions.host_facts.registered_datasets import (
    add_dataset,
    known_datasets,
    remove_dataset,
    sweep_datasets,
)
from cc_pipeline_tests.world import workspace_of

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
    (tmp_path / "x.yaml").write_text(WHOLE)
    assert read_definition(tmp_path / "x.yaml") == WHOLE
    (tmp_path / "y.yaml").write_bytes(b"\xff")
    for name in ("y.yaml", "z.yaml"):
        with pytest.raises(UserInputError, match=name):
            read_definition(tmp_path / name)


def test_versions_follow_what_decides_about_rows() -> None:
    known = parse_dataset(WHOLE, "tranco.yaml")
    assert parse_dataset(WHOLE.replace("Tranco's list", "Another title"), "other.yaml").version == known.version
    for change in (("rank: int64", "rank: double"), ("fold: {rank: min}", "fold: {rank: max}"), ("stripped", "kept")):
        assert parse_dataset(WHOLE.replace(*change), "tranco.yaml").version != known.version
        assert parse_dataset(WHOLE.replace(*change), "tranco.yaml").place == known.place
    assert parse_dataset(WHOLE.replace("/data/lists", "/data/other"), "tranco.yaml").place != known.place


def test_what_is_kept_of_files_goes_with_their_dataset(tmp_path: Path) -> None:
    workspace = workspace_of(tmp_path, tmp_path / "home")
    keys = pa.table({"k": ["com,example", "org,example"], "n": [1, 2]})
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        pq.write_table(keys, tmp_path / folder / "part.parquet", write_page_index=True)
    said = "name: %s\nwhere: {root: %s, crawl: none, files: [part.parquet]}\nkey: {column: k, form: surt_host}\n"

    def added(name: str, folder: str) -> str:
        (tmp_path / "own.yaml").write_text(said % (name, tmp_path / folder))
        dataset = add_dataset(workspace.settings, tmp_path / "own.yaml").dataset
        assert facts_of_hosts(workspace, "CC-MAIN-2025-18", parse_target("example.com"), [dataset]).table.num_rows
        return f"{name}-{dataset.place}"

    def kept() -> set[str]:
        return {folder.name for folder in keyed_path(workspace.settings).iterdir()}

    first, other = added("own", "one"), added("own-more", "one")
    assert list((keyed_path(workspace.settings) / first / "page-indexes").rglob("*"))
    assert not (workspace.settings.cache_path / "page-indexes").exists()
    assert kept() == {first, other}
    assert added("own", "one") == first, "the same place: nothing is asked for again"
    moved = added("own", "two")
    assert kept() == {moved, other}, "files that lie elsewhere now"
    remove_dataset(workspace.settings, "own")
    assert kept() == {other}
    # a program that asks by a file of its own, and a home of before, leave what nobody removes
    mine = parse_dataset(said % ("mine", tmp_path / "two"), "mine.yaml")
    facts_of_hosts(workspace, "CC-MAIN-2025-18", parse_target("example.com"), [mine])
    mine_kept = f"mine-{mine.place}"
    long_ago = time.time() - 40 * 86_400
    for folder in (mine_kept, other):
        os.utime(keyed_path(workspace.settings) / folder, (long_ago, long_ago))
    facts_of_hosts(workspace, "CC-MAIN-2025-18", parse_target("example.com"), [mine])
    assert sweep_datasets(workspace.settings) == 0, "asked for today"
    os.utime(keyed_path(workspace.settings) / mine_kept, (long_ago, long_ago))
    own = datasets_path(workspace.settings) / "broken.yaml"
    own.write_text("name: [")
    assert sweep_datasets(workspace.settings) == 0, "nobody knows which datasets there are"
    own.unlink()
    assert sweep_datasets(workspace.settings) == 1
    assert kept() == {other}
    assert "own-more" in known_datasets(workspace.settings)
