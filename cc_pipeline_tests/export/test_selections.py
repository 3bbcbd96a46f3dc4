"""Chosen columns and rows of a table, the markup of pages, and the rows since an earlier export."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest

import cc_pipeline
from cc_pipeline.api.home import Home
from cc_pipeline.errors import DataFault, DataKind, EnvironmentFault, UserInputError
from cc_pipeline.export import page_html
from cc_pipeline.testing.mini_crawl.truth import MiniCrawlTruth
from cc_pipeline_tests.sharing import make_once
from cc_pipeline_tests.world import NEW, extract, harvest, harvested, publish

OLD, SITE = "CC-MAIN-2018-05", "example.com"


@pytest.fixture(scope="module")
def source(bucket: tuple[Path, MiniCrawlTruth]) -> Path:
    return bucket[0]


@pytest.fixture(scope="module")
def home(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A home with one site of one crawl. Tests that write copy it."""

    def make(folder: Path) -> None:
        workspace = harvested(source, folder / "home")
        extract(workspace, SITE)
        publish(workspace)
        workspace.close()

    return opened(make_once(tmp_path_factory, "chosen rows", make) / "home", source)


def opened(folder: Path, source: Path) -> Home:
    return cc_pipeline.open(folder, source=str(source), quiet=True)


def test_columns_a_condition_and_a_limit_choose_rows_of_a_table(home: Home, tmp_path: Path) -> None:
    pages = home.table(
        "page_text", SITE, columns=["url", "fetch_status"], where="fetch_status = 200 AND url LIKE '%a%'"
    )
    rows = list(pages)
    assert rows and {tuple(row) for row in rows} == {("url", "fetch_status")}
    assert all(row["fetch_status"] == 200 and "a" in row["url"] for row in rows)
    assert len(list(home.table("page_text", limit=3))) == 3
    exported = home.export(
        tmp_path / "a.parquet", SITE, tables="page_text", columns=["url"], where="url LIKE '%a%' -- no more", limit=2
    )
    table = pq.read_table(exported.path)
    assert table.column_names == ["url"] and table.num_rows == 2 and all("a" in url for url in table["url"].to_pylist())
    paper = json.loads((tmp_path / "a.parquet.provenance.json").read_bytes())
    assert paper["asked"][:3] == ["columns: url", "where: `url LIKE '%a%' -- no more`", "limit: 2 rows, in no order"]
    queried = home.export(tmp_path / "b.csv", query="SELECT url, crawl FROM captures", columns="crawl", limit=1)
    assert queried.path.read_text("utf-8") == f"crawl\n{NEW}\n"
    targets = home.export(tmp_path / "c.csv", tables="targets", columns="slug")
    assert targets.rows[0]["rows"] == 1


@pytest.mark.parametrize(
    "condition",
    [
        "true) UNION ALL SELECT content FROM read_text('/etc/passwd') WHERE (true",
        "url IN (SELECT content FROM read_text('/etc/passwd'))",
        "EXISTS (FROM captures)",
        "true) ORDER BY (1",
        "true); DROP TABLE captures; SELECT (1",
        "true); SELECT (1",
        "url = '\udcff'",
        "true /* ",
        "url =",
        pytest.param("NOT " * 900 + "true", id="deep"),
    ],
)
def test_a_condition_is_one_condition_on_a_row(condition: str, home: Home, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    with pytest.raises(UserInputError):
        home.export(out, tables="captures", where=condition)
    with pytest.raises(UserInputError):
        home.table("captures", where=condition)
    assert not out.exists()


@pytest.mark.parametrize("table", ["captures", "page_html"])
def test_a_condition_that_fails_at_a_row_is_told(table: str, home: Home, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    for _ in ("a new file", "one with rows"):
        with pytest.raises(UserInputError, match="DuckDB says: Conversion Error"):
            home.export(out, tables=table, where="url::INT = 1")
        out.write_bytes(b"a row")
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"a row"]


def test_choices_that_fit_no_table_are_refused(home: Home, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    with pytest.raises(UserInputError, match="no column 'urll'; there are: "):
        home.table("captures", columns="urll")
    with pytest.raises(UserInputError, match="the limit is -1"):
        home.table("captures", limit=-1)
    with pytest.raises(UserInputError, match='"urll" not found'):
        home.export(out, tables="captures", where="urll = 'a'")
    with pytest.raises(UserInputError, match="one table"):
        home.export(out, tables=["captures", "page_html"], limit=1)
    with pytest.raises(UserInputError, match="exports records"):
        home.export(tmp_path / "out.wacz", SITE, limit=1)
    assert not list(tmp_path.iterdir())


def test_page_html_has_the_markup_that_get_gives(home: Home, tmp_path: Path) -> None:
    rows = list(home.table("page_html", SITE))
    pages = {row["url"]: row for row in rows}
    parsed = {row["url"]: row for row in home.table("page_metadata", SITE, where="parsed_as = 'html'")}
    assert pages.keys() == parsed.keys() and len({row["charset"] for row in rows}) > 1
    for url, page in pages.items():
        assert (page["charset"], page["crawl"]) == (parsed[url]["charset_detected"], NEW)
        assert page["html"] == home.get(url, crawls=NEW).html, url
    for suffix in ("parquet", "jsonl", "csv"):
        out = home.export(tmp_path / f"pages.{suffix}", SITE, tables="page_html").path
        with duckdb.connect() as connection:
            [(count, characters)] = connection.sql(f"SELECT count(*), sum(length(html)) FROM '{out}'").fetchall()
        assert (count, characters) == (len(rows), sum(len(row["html"]) for row in rows))
    assert "page_html" not in home.tables()


def test_a_condition_draws_one_sample_of_pages(home: Home) -> None:
    with pytest.raises(UserInputError, match='"outcome" not found'):
        home.table("page_html", where="outcome = 'fetched'")
    pages = len(list(home.table("page_html")))
    counts = [len(list(home.table("page_html", columns="url", where="random() < 0.5"))) for _ in range(3)]
    # drawn twice, it would be a quarter
    assert sum(counts) > 0.375 * 3 * pages


def test_lost_bytes_are_null_and_a_place_that_does_not_answer_is_an_error(
    home: Home, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(*_: object) -> object:
        raise EnvironmentFault("the bucket is gone", "Find it.")

    with monkeypatch.context() as patch:
        patch.setattr(page_html, "read_members", fail)
        for use in (lambda: list(home.table("page_html")), lambda: home.export(tmp_path / "p.csv", tables="page_html")):
            with pytest.raises(EnvironmentFault, match="the bucket is gone"):
                use()
    assert not list(tmp_path.iterdir())
    lost = DataFault(DataKind.MALFORMED, "file", 0, "gone")
    monkeypatch.setattr(page_html, "read_members", lambda rows, _: ((row, lost) for row in rows))
    assert {row["html"] for row in home.table("page_html")} == {None}


def test_new_rows_are_those_of_slices_committed_since(bucket: tuple[Path, MiniCrawlTruth], tmp_path: Path) -> None:
    source, truth = bucket
    workspace = harvested(source, tmp_path / "home")
    extract(workspace, SITE)
    publish(workspace)
    home = opened(tmp_path / "home", source)
    out, marks = tmp_path / "pages.parquet", tmp_path / "html.jsonl"
    with pytest.raises(UserInputError, match="export once without"):
        home.export(out, tables="page_text", new=True)
    first = home.export(out, tables="page_text").rows[0]["rows"]
    home.export(marks, SITE, tables="page_html", columns=["url", "crawl"])
    nothing = home.export(out, tables="page_text", new=True)
    assert nothing.files == () and "no rows were committed" in repr(nothing) and pq.read_table(out).num_rows == first
    with pytest.raises(UserInputError, match="was of page_text, where true"):
        home.export(out, tables="page_text", where="true", new=True)

    other = next(domain for domain in truth.domains(NEW) if domain != SITE)
    harvest(workspace, OLD)
    extract(workspace, SITE, crawl=OLD)
    extract(workspace, other)
    publish(workspace)
    everything = home.table("page_text")
    assert home.export(out, tables="page_text", new=True).rows[0]["rows"] == len(list(everything)) - first > 0
    assert home.export(out, tables="page_text", new=True).files == ()
    # the commits are those of the chosen targets alone
    home.export(marks, SITE, tables="page_html", columns=["url", "crawl"], new=True)
    lines = [json.loads(line) for line in marks.read_text("utf-8").splitlines()]
    assert lines and {line["crawl"] for line in lines} == {OLD}
