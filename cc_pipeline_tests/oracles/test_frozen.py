"""Published rows are those that were frozen: of the demo, of real pages, and of a larger mini crawl."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from cc_pipeline_tests.corpus import CORPUS
from cc_pipeline_tests.oracles.conftest import MakeHome
from cc_pipeline_tests.oracles.frozen import list_changes, read_frozen, write_frozen
from cc_pipeline_tests.oracles.homes import HOMES, published_file
from cc_pipeline_tests.oracles.published import MARKED_ROWS, TableDigest, read_digests
from cc_pipeline_tests.oracles.sources import list_writers

#: The home of the real pages is that of ``test_real_crawl.py`` too.
_NAMES = [
    pytest.param(name, marks=pytest.mark.xdist_group("real_crawl") if name == "realcrawl" else ()) for name in HOMES
]


@pytest.mark.process
@pytest.mark.parametrize("name", _NAMES)
def test_published_rows_are_the_frozen_ones(name: str, make_home: MakeHome) -> None:
    if name == "realcrawl" and not CORPUS.is_dir():
        pytest.skip("the shared corpus is not beside this checkout (set CC_PIPELINE_CORPUS to its folder)")
    frozen = read_frozen(name)
    folder, source = make_home(name)
    if source != frozen.source:
        if list_writers() != frozen.writers:
            pytest.skip(f"the source has other bytes: frozen with {frozen.writers}, and here are {list_writers()}")
        pytest.fail("the source has other bytes: the mini crawl or the corpus was changed, so other rows are right")
    changes = list_changes(published_file(folder), frozen.tables)
    regenerate = f"If these rows are meant to change: python -m cc_pipeline_tests.oracles.frozen {name}"
    assert changes == [], "\n".join([*changes, regenerate])


def make_file(path: Path, rows: str = "(1, 'a', [1, 2]), (2, 'b', NULL), (2, 'b', NULL)") -> Path:
    path.unlink(missing_ok=True)
    with duckdb.connect(str(path)) as connection:
        connection.execute(f"CREATE TABLE pages AS SELECT * FROM (VALUES {rows}) AS _(url, title, sizes)")
    return path


@pytest.mark.parametrize(
    ("rows", "change"),
    [
        ("(1, 'a', [1, 2]), (2, 'b', NULL), (2, 'c', NULL)", "other values in title; new row 2: title='c'"),
        ("(1, 'a', [1, 2]), (2, 'b', NULL), (2, 'b', [])", "other values in sizes; new row 2: sizes=[]"),
        ("(1, 'a', [1, 2]), (2, NULL, NULL), (2, '', NULL)", "other values in title; new row 2: title=None"),
        ("(1, 'a', [1, 2]), (2, 'b', NULL)", "2 rows instead of 3; other values in url, title, sizes"),
        # a value may go to another row and leave each column as it was
        ("(2, 'a', [1, 2]), (1, 'b', NULL), (2, 'b', NULL)", "the same values in each column, in other rows"),
        # equal rows do not cancel each other
        ("(1, 'a', [1, 2]), (3, 'c', NULL), (3, 'c', NULL)", "other values in url, title; new row 3: url=3, title='c'"),
    ],
)
def test_each_change_of_a_value_is_told(rows: str, change: str, tmp_path: Path) -> None:
    frozen = read_digests(make_file(tmp_path / "first.duckdb"))
    assert list_changes(make_file(tmp_path / "other.duckdb", rows), frozen)[0].startswith(f"pages: {change}")


def test_the_order_of_rows_and_times_of_the_run_are_no_change(tmp_path: Path) -> None:
    frozen = read_digests(make_file(tmp_path / "first.duckdb"))
    other = make_file(tmp_path / "other.duckdb", "(2, 'b', NULL), (1, 'a', [1, 2]), (2, 'b', NULL)")
    with duckdb.connect(str(other)) as connection:
        connection.execute("ALTER TABLE pages ADD COLUMN fetched_at TIMESTAMP DEFAULT now()")
        connection.execute("CREATE TABLE publication AS SELECT now() AS published_at")
    assert list_changes(other, frozen) == []


def test_digests_are_kept_as_they_were(tmp_path: Path) -> None:
    large = make_file(tmp_path / "large.duckdb", ", ".join(f"({number}, 'a', [])" for number in range(MARKED_ROWS + 1)))
    assert read_digests(large)["pages"].row_marks == ()
    for name in HOMES:
        frozen = read_frozen(name)
        write_frozen(name, frozen, tmp_path)
        assert read_frozen(name, tmp_path) == frozen
        assert isinstance(frozen.tables["pages" if "pages" in frozen.tables else "captures"], TableDigest)
