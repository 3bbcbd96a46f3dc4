"""A home asked from Python: its rows are those of the commands, and every library takes them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import cc_pipeline
from cc_pipeline.api.home import Home
from cc_pipeline.errors import Incomplete, UserInputError
from cc_pipeline.extraction.nearest_capture import NoSuchCapture
from cc_pipeline.testing.mini_crawl.truth import MiniCrawlTruth
from cc_pipeline_tests.corpus import CORPUS, needs_corpus
from cc_pipeline_tests.faultserver import FaultServer, Rule
from cc_pipeline_tests.sharing import make_once

NEW, OLD = "CC-MAIN-2024-22", "CC-MAIN-2018-05"
SITE = "example.com"

pytestmark = pytest.mark.xdist_group("python")


@pytest.fixture(scope="module")
def used(bucket: tuple[Path, MiniCrawlTruth], tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A home that ran one site in two crawls."""
    source = str(bucket[0])

    def make(folder: Path) -> None:
        report = cc_pipeline.open(folder / "home", source=source, quiet=True).run(SITE, "2018..2024")
        assert {row["crawl"]: row["change"] for row in report.rows} == {NEW: "new", OLD: "new"}

    prepared = make_once(tmp_path_factory, "python", make)
    home = shutil.copytree(prepared / "home", tmp_path_factory.mktemp("python") / "home")
    return cc_pipeline.open(home, source=source, quiet=True)


def test_find_gives_what_the_crawl_has_without_a_home(
    bucket: tuple[Path, MiniCrawlTruth], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    home = cc_pipeline.open(source=str(bucket[0]), quiet=True)
    found = [
        (one.crawl, one.url, one.filename, one.offset, one.length) for one in home.lookup(SITE, crawls="2018..2024")
    ]
    truth = [
        (one.crawl, one.url, one.warc_filename, one.warc_record_offset, one.warc_record_length)
        for crawl in (NEW, OLD)
        for one in bucket[1].captures_of(crawl, subset="warc", domain=SITE)
    ]
    assert sorted(found) == sorted(truth)
    assert not (tmp_path / "data").exists()


def test_find_takes_the_words_of_lookup(bucket: tuple[Path, MiniCrawlTruth], used: Home) -> None:
    one = next(c for c in bucket[1].captures_of(NEW, subset="warc", domain=SITE) if c.kind == "html")
    assert {c.url for c in used.lookup(f"url:{one.url}")} == {one.url}
    assert len(list(used.lookup(SITE, limit=3))) == 3
    assert {c.status for c in used.lookup(SITE, where="status=200 and mime=text/html and time>=2024")} == {200}
    some = list(used.lookup(SITE, where="status=200 and url like '%a%'", columns=["url_host_name"]))
    assert some
    assert all(c.status == 200 and "a" in c.url for c in some)
    assert all(c.row["url_host_name"].endswith(SITE) for c in some)
    for wrong in ({"columns": ["urll"]}, {"where": "mime ="}):
        with pytest.raises(UserInputError):
            used.lookup(SITE, **wrong)


def test_a_lookup_tells_its_costs_and_notes(
    bucket: tuple[Path, MiniCrawlTruth], used: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    home = cc_pipeline.open(used.settings.home, source=str(bucket[0]))
    count = len(list(home.lookup(SITE, crawls=NEW)))
    told = capsys.readouterr().err
    assert f"{NEW}: {count} captures found with " in told
    assert f"{NEW}: index: " in told
    list(home.lookup(SITE, crawls=NEW, limit=1))
    assert f"{NEW}: {count} captures found with " in capsys.readouterr().err


def test_every_library_takes_rows(used: Home) -> None:
    rows = used.sql("SELECT crawl, url, fetch_time FROM captures WHERE domain = ? ORDER BY ALL", [SITE])
    wanted = rows.to_arrow()
    assert wanted.num_rows > 40
    assert pa.table(rows) == wanted
    assert pl.DataFrame(rows).to_arrow()["url"].to_pylist() == wanted["url"].to_pylist()
    assert rows.to_polars().height == len(rows.to_pandas()) == wanted.num_rows
    assert isinstance(rows.to_pandas(), pd.DataFrame)
    with duckdb.connect() as connection:
        assert connection.execute("SELECT count(*) FROM rows").fetchone() == (wanted.num_rows,)
    assert list(rows) == wanted.to_pylist()
    assert list(rows.head(2)) == wanted.to_pylist()[:2]
    assert rows.columns == ["crawl", "url", "fetch_time"]


def test_a_reader_that_is_left_early_leaves_nothing_open(used: Home) -> None:
    reader = iter(used.sql("FROM range(100000)"))
    next(reader)
    reader.close()  # type: ignore[attr-defined]  # a generator
    with duckdb.connect(str(used.settings.published_path)) as connection:  # to write: nobody else reads
        connection.execute("SELECT 1")


def test_tables_are_chosen_by_target_and_crawl(used: Home) -> None:
    assert {"page_text", "captures", "ledger"} <= set(used.tables())
    rows = used.table("page_text", SITE, NEW).to_arrow()
    assert set(rows["crawl"].to_pylist()) == {NEW}
    for wrong in (("no_table",), ("page_text", "never.run.example.org")):
        with pytest.raises(UserInputError):
            used.table(*wrong)
    with pytest.raises(UserInputError, match=f"this home has no crawl 2019; it has {NEW}, {OLD}"):
        used.table("page_text", crawls=2019)
    assert used.table("page_text", crawls=2018).to_arrow()["crawl"].unique().to_pylist() == [OLD]
    with pytest.raises(UserInputError, match="DuckDB says"):
        used.sql("SELECT nix FROM page_text").head()
    with pytest.raises(UserInputError, match=r"write a list of values: \['iana.org'\]"):
        used.sql("FROM page_text WHERE domain = ?", "iana.org")


def test_a_site_or_crawl_that_is_not_here_is_an_error_of_the_macros(used: Home) -> None:
    pages = f"FROM changes_between('{OLD}', '{NEW}', site := '{SITE}')"
    assert [*used.sql(pages)] and [*used.sql(f"FROM timeline(site := '{SITE.upper()}')")]
    for query, said in (
        ("SELECT pages FROM timeline(site := 'exmaple.com') WHERE pages > 1", "no captures of the site exmaple.com"),
        (f"{pages.replace(SITE, 'exmaple.com')} WHERE change = 'new'", "no captures of the site exmaple.com"),
        (f"FROM changes_between('{OLD}', 'CC-MAIN-2024-23') WHERE change = 'new'", f"published here: .*{NEW}"),
    ):
        with pytest.raises(UserInputError, match=said):
            used.sql(query).head()


@needs_corpus
def test_pages_of_crawls_with_keys_of_either_rule_are_the_same_pages(tmp_path: Path) -> None:
    """commoncrawl/ia-web-commons#6 and #28: escapes that are no UTF-8."""
    home = cc_pipeline.open(tmp_path / "home", source=str(CORPUS / "field" / "surt_nonutf8" / "bucket"), quiet=True)
    home.run("case-surt.com", "all")
    changes = "SELECT change FROM changes_between('CC-MAIN-2024-22', 'CC-MAIN-2025-13') WHERE url LIKE '%tags%'"
    assert [row["change"] for row in home.sql(changes)] == ["changed"]
    assert home.get("http://forum.case-surt.com/tags/%C3%CE%CA.htm", at="2024-06").stored


def test_a_page_is_the_one_nearest_to_a_time(bucket: tuple[Path, MiniCrawlTruth], used: Home) -> None:
    here = {c.url for c in bucket[1].captures_of(OLD, subset="warc", domain=SITE) if c.kind == "html"}
    one = next(c for c in bucket[1].captures_of(NEW, subset="warc", domain=SITE) if c.kind == "html" and c.url in here)
    page = used.get(one.url, at="2018-01")
    assert (page.crawl, page.status, page.digest_check, page.stored) == (OLD, 200, "match", True)
    assert page.distance == timedelta(0)
    assert page.text and page.html.lower().find("<html") >= 0 and page.content and page.json()["url"] == page.url
    assert used.get(one.url).crawl == NEW
    with pytest.raises(NoSuchCapture):
        used.get("https://www.example.com/never-there")


@pytest.mark.process
def test_a_run_says_what_lacks_and_the_next_one_gets_it(bucket: tuple[Path, MiniCrawlTruth], tmp_path: Path) -> None:
    mine = len(bucket[1].captures_of(NEW, subset="warc", domain=SITE))
    with FaultServer(bucket[0]) as server:
        home = cc_pipeline.open(tmp_path / "home", source=server.url, quiet=True)
        server.set_rules(
            [Rule("whole_object", key=key, times=None) for key in ("crawl-data/*/warc/*", "*warc.paths.gz")]
        )
        with pytest.raises(Incomplete) as lacking:
            home.run(SITE, NEW)
        [row] = lacking.value.report.rows
        assert (row["captures"], row["pending"]) == (mine, mine)
        server.set_rules([])
        report = home.run(SITE, NEW)
        [row] = report.rows
        assert f"{mine} captures: 0 new, 0 pending, 0 lost" in repr(report)
        assert (row["change"], row["pending"], row["lost"]) == ("updated", 0, 0)


def test_an_export_has_the_rows_of_the_table_and_names_its_files(used: Home, tmp_path: Path) -> None:
    text = used.table("page_text", SITE, NEW).to_arrow()
    done = used.export(tmp_path / "text.parquet", SITE, NEW, tables="page_text")
    assert [*done.rows] == [{"name": "page_text", "rows": text.num_rows, "columns": text.num_columns}]
    assert pl.DataFrame(done).height == 1 and "page_text" in repr(done)
    read = pl.read_parquet(done.path)
    assert sorted(read["url"]) == sorted(text["url"].to_pylist()) and read.columns == text.column_names
    assert {*done.files} == {*tmp_path.iterdir()} and tmp_path / "text.parquet.README.md" in done.files
    records = used.export(tmp_path / "site.wacz", SITE, NEW)
    assert [row["crawl"] for row in records.rows] == [NEW]
    formula = used.export(tmp_path / "f.csv", query="SELECT '=1+1' AS a", guard_formulas=True)
    assert "'=1+1" in formula.path.read_text("utf-8") and [row["rows"] for row in formula.rows] == [1]


@pytest.mark.parametrize(
    ("out", "words", "said"),
    [
        ("x.xlsx", {}, "no export format follows"),
        ("x.csv", {"tables": "captures", "query": "SELECT 1"}, "exclude each other"),
        ("x.csv", {"query": "SELECT 1", "targets": SITE}, "filter with WHERE"),
        ("x.csv", {"targets": "exmaple.com"}, "do not have exmaple.com .did you mean example.com"),
    ],
)
def test_words_that_cannot_be_used_are_said_and_write_nothing(
    used: Home, tmp_path: Path, out: str, words: dict[str, object], said: str
) -> None:
    with pytest.raises(UserInputError, match=said):
        used.export(tmp_path / out, **words)
    assert not [*tmp_path.iterdir()]


def test_looking_loads_no_dagster(bucket: tuple[Path, MiniCrawlTruth], tmp_path: Path) -> None:
    script = f"""
import sys
import cc_pipeline as cc
assert not set(sys.modules) & {{"pyarrow", "duckdb", "dagster", "typer", "rich"}}, "the import alone"
home = cc.open({str(tmp_path / "home")!r}, source={str(bucket[0])!r})
url = next(iter(home.lookup({SITE!r}, where="status=200", limit=1))).url
home.get(url)
assert not set(sys.modules) & {{"dagster", "typer", "rich"}}
"""
    subprocess.run([sys.executable, "-c", script], check=True, cwd=tmp_path)
