"""``export``: what is handed on opens elsewhere, is whole or not there, and says where it came from."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest

from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.export import table_files
from cc_pipeline.export.files import README, whole_folder
from cc_pipeline_tests.cli.conftest import NEW, OLD, Cli

pytestmark = pytest.mark.xdist_group("cli published")


@pytest.fixture(scope="module")
def home(rich: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home of these tests' own, which may take it away; without the source, whatever is handed on is in it."""
    return Path(shutil.copytree(rich, tmp_path_factory.mktemp("export") / "home"))


def elsewhere(path: Path, tmp_path: Path, home: Path) -> Path:
    """The file in another folder; the home cannot be read from there."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    return Path(shutil.move(path, folder / path.name))


def shown(home: Path, sql: str) -> list[tuple[object, ...]]:
    with duckdb.connect(str(home / "cc.duckdb"), read_only=True) as connection:
        return connection.execute(sql).fetchall()


OF_DOMAIN = (
    "SEMI JOIN (FROM capture_targets WHERE target = 'example.com') USING (crawl, warc_filename, warc_record_offset)"
)


def test_a_duckdb_file_holds_its_rows_wherever_it_lies(cli: Cli, home: Path, tmp_path: Path) -> None:
    out = tmp_path / "example.duckdb"
    said = cli("export", "example.com", "--out", out, "--home", home)
    assert said.status == 0, said.err
    counts = {name: shown(home, f"SELECT count(*) FROM {name} {OF_DOMAIN}") for name in ("page_text", "page_links")}
    questions = (
        "FROM timeline(site := 'example.com')",
        f"FROM changes_between('{OLD}', '{NEW}', site := 'example.com')",
        "FROM feed_timeline(site := 'example.com')",
    )
    answers = {question: sorted(shown(home, question), key=str) for question in questions}
    moved = elsewhere(out, tmp_path, home)
    aside = home.rename(home.with_name("aside"))
    try:
        with duckdb.connect(str(moved), read_only=True) as connection:
            for name, count in counts.items():
                assert connection.execute(f"SELECT count(*) FROM {name}").fetchall() == count != [(0,)]
            views = connection.execute("SELECT sql FROM duckdb_views() WHERE NOT internal").fetchall()
            assert not [sql for (sql,) in views if "read_parquet" in sql], "rows, not paths"
            for question, answer in answers.items():
                assert sorted(connection.execute(question).fetchall(), key=str) == answer != []
            about = dict(connection.execute("FROM about").fetchall())
            assert about["software"].startswith("cc_pipeline ") and not [so for so in about.values() if str(home) in so]
            [(comment,)] = connection.execute(
                "SELECT comment FROM duckdb_tables() WHERE table_name = 'page_text'"
            ).fetchall()
            assert comment
    finally:
        aside.rename(home)


def test_several_tables_are_a_folder_with_a_readme(cli: Cli, home: Path, tmp_path: Path) -> None:
    out = tmp_path / "handed"
    assert cli("export", "example.com", "--format", "parquet", "--out", out, "--home", home).status == 0
    readme = (out / "README.md").read_text("utf-8")
    for path in out.glob("*.parquet"):
        assert hashlib.sha256(path.read_bytes()).hexdigest() in readme
        rows = pq.ParquetFile(path).metadata.num_rows
        assert f"| `{path.stem}` | {rows:,} |" in readme
    for told in (NEW, "example.com", "page_text", "versions of the lake's tables", "terms-of-use"):
        assert told in readme
    assert str(home) not in readme


def test_a_query_is_handed_on_with_its_words(cli: Cli, home: Path, tmp_path: Path) -> None:
    out = tmp_path / "titles.jsonl"
    sql = "SELECT url, title, crawl FROM page_text ORDER BY url;"
    said = cli("export", "--query", sql, "--out", out, "--home", home)
    assert said.status == 0, said.err
    rows = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
    assert sorted((row["url"], row["title"]) for row in rows) == sorted(shown(home, "SELECT url, title FROM page_text"))
    assert "SELECT url, title, crawl FROM page_text" in (tmp_path / "titles.jsonl.README.md").read_text("utf-8")
    assert [row["url"] for row in rows] == sorted(row["url"] for row in rows), "its own order stays"


def test_what_fails_leaves_nothing(cli: Cli, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = table_files.write_table

    def broken(*given: object, **_: object) -> object:
        real(*given)
        raise EnvironmentFault("the disk is full", "Free some")

    monkeypatch.setattr(table_files, "write_table", broken)
    out = tmp_path / "out"
    out.mkdir()
    for name in ("pages.parquet", "folder"):
        words = ("export", "-t", "page_text", "--format", "parquet", "--out", out / name, "--home", home)
        assert cli(*words).status == 1
    assert list(out.iterdir()) == []
    (out / "before.parquet").write_bytes(b"before")
    assert cli("export", "-t", "page_text", "--out", out / "before.parquet", "--home", home).status == 1
    assert (out / "before.parquet").read_bytes() == b"before"


def test_a_folder_that_could_not_be_replaced_is_still_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "folder"
    with whole_folder(out) as beside:
        (beside / README).write_text("Exported by cc_pipeline/1\n")
    real, moved = os.replace, []

    def second_fails(source: Path, to: Path) -> None:
        moved.append(to)
        if len(moved) == 2:
            raise OSError(28, "No space left on device")
        real(source, to)

    monkeypatch.setattr(os, "replace", second_fails)
    with pytest.raises(EnvironmentFault), whole_folder(out) as beside:
        (beside / "new").touch()
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]
    assert (out / README).exists()


def test_crawls_of_a_home_are_named_as_those_of_a_source(cli: Cli, home: Path, tmp_path: Path) -> None:
    out = tmp_path / "texts.jsonl"
    words = ("export", "example.com", "-t", "page_text", "--out", out, "--home", home)
    for text, crawls in (("newest", {NEW}), ("2024", {NEW}), ("2018..", {NEW, OLD}), (OLD, {OLD})):
        assert cli(*words, "-c", text).status == 0
        assert {json.loads(line)["crawl"] for line in out.read_text().splitlines()} == crawls


def test_no_file_is_replaced_by_an_empty_one(cli: Cli, home: Path, tmp_path: Path) -> None:
    out = tmp_path / "keep.jsonl"
    out.write_text("rows\n")
    nothing = "SELECT url FROM page_text WHERE false"
    for words in (
        ("export", "example.com", "-t", "page_text", "-c", "2O24"),
        ("export", "example.com", "-t", "page_text", "-c", "2019"),
        ("export", "--query", nothing),
        ("sql", nothing),
        ("export", "-t", "page_txt"),
        ("export", "-t", "crawls", "example.com"),
        ("export", "--query", "DROP TABLE x"),
    ):
        said = cli(*words, "--out", out, "--home", home)
        assert said.status == 1 and out.read_text() == "rows\n", words
    said = cli("export", "example.com", "-t", "page_text", "-c", "CC-MAIN-2019-04", "--out", out, "--home", home)
    assert f"this home has no crawl CC-MAIN-2019-04; it has {NEW}" in said.told
    said = cli("export", "exmaple.com", "--out", tmp_path / "there.duckdb", "--home", home)
    assert said.status == 1
    assert "do not have exmaple.com: it was not run in this home, or no crawl" in said.told
    assert "has captures of it; did you mean example.com?" in said.told
    assert cli("export", "-t", "captures", "--format", "csv", "--out", "-", "--home", home).status == 1
    assert list(tmp_path.iterdir()) == [out]
