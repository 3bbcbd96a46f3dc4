"""The catalog against going through all row groups one by one, and what its checks say."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

from cc_pipeline.commoncrawl.key_ranges import KeyRange, prefix_range
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.duck import connect
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.index.catalog import catalog as catalog_module
from cc_pipeline.index.catalog.catalog import Catalog
from cc_pipeline.index.catalog.rows import VIEW_SCHEMAS, pack_rows, read_view, table_query
from cc_pipeline.index.catalog.schemas import (
    ANSWER_SCHEMA,
    COVERAGE_SCHEMA,
    INDEX_FILES_SCHEMA,
    ROW_GROUPS_SCHEMA,
)
from cc_pipeline_tests.index import catalog_files
from cc_pipeline_tests.index.catalog_files import write_catalog_rows


def row_groups(rows: list[dict[str, object]]) -> pa.Table:
    """A ``row_groups`` table; whatever a row leaves out is filled in."""
    filled = []
    for number, row in enumerate(rows):
        known = row.get("url_surtkey_min") is not None
        usual: dict[str, object] = {
            "crawl": "CC-MAIN-2024-22", "subset": "warc", "path": "a.parquet", "row_group": number, "rows": 10,
            "compressed_bytes": 100, "url_surtkey_source": "statistics" if known else None,
        }  # fmt: skip
        filled.append(usual | row)
    return pa.Table.from_pylist(filled, schema=ROW_GROUPS_SCHEMA)


def coverage(**changes: object) -> pa.Table:
    row = dict.fromkeys(COVERAGE_SCHEMA.names, 0) | {"crawl": "CC-MAIN-2024-22", "subset": "warc", "reason": None}
    return pa.Table.from_pylist([row | changes], schema=COVERAGE_SCHEMA)


def opened(folder: Path, groups: pa.Table, **tables: pa.Table) -> Catalog:
    """A catalog of files with these rows."""
    sources = {
        "index_files": INDEX_FILES_SCHEMA.empty_table(),
        "coverage": COVERAGE_SCHEMA.empty_table(),
    }
    with connect() as connection:
        rows = pack_rows(connection, row_groups=groups, **(sources | tables))
    return Catalog(write_catalog_rows(folder, rows))


def places(table: pa.Table) -> list[tuple[str, int]]:
    return sorted(zip(table["path"].to_pylist(), table["row_group"].to_pylist(), strict=True))


key = st.text("ab,)-é\x7f", max_size=5).map(str.encode) | st.binary(max_size=3)
bounds = st.none() | st.tuples(key, key).map(sorted)
asked = st.tuples(key, key).map(sorted).filter(lambda pair: pair[0] < pair[1]) | st.tuples(key, st.none())


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(bounds, st.sampled_from(["c1", "c2"]), st.sampled_from(["warc", "robotstxt"])), max_size=40),
    st.lists(asked, min_size=1, max_size=3),
    st.sampled_from(["c1", "c1", "c3"]),
    st.sampled_from([None, ("warc",)]),
    st.integers(1, 5),
)
def test_finds_exactly_what_a_scan_finds(tmp_path, monkeypatch, groups, wanted, crawl, subsets, block):
    monkeypatch.setattr(catalog_files, "CATALOG_ROW_GROUP", block)
    rows = [
        {"crawl": name, "subset": subset, "url_surtkey_min": known and known[0], "url_surtkey_max": known and known[1]}
        for known, name, subset in groups
    ]
    ranges = [KeyRange(start, end) for start, end in wanted]

    def overlap(low, high, wanted):
        # what is not known is never pruned
        begins = low is None or wanted.end is None or low < wanted.end
        return begins and (high is None or wanted.start <= high)

    def may_match(row, asked):
        return (
            row["crawl"] == crawl
            and (subsets is None or row["subset"] in subsets)
            and any(overlap(row["url_surtkey_min"], row["url_surtkey_max"], one) for one in asked)
        )

    with opened(tmp_path, row_groups(rows)) as catalog:
        for few in (0, 40):
            monkeypatch.setattr(catalog_module, "_FEW_RANGES", few)
            found = catalog.row_groups_for(crawl, subsets, ranges)
            assert found.schema.equals(ANSWER_SCHEMA)
            assert places(found) == [("a.parquet", n) for n, row in enumerate(rows) if may_match(row, ranges)]


def test_half_known_bounds_are_never_pruned_wrongly(tmp_path: Path):
    groups = row_groups([{"url_surtkey_min": b"b", "url_surtkey_max": None}, {"url_surtkey_max": b"d"}])
    with opened(tmp_path, groups) as catalog:
        assert len(catalog.row_groups_for("CC-MAIN-2024-22", None, [KeyRange(b"c", b"d")])) == 2


def test_a_domain_and_its_look_alikes(tmp_path: Path):
    keys = [b"com,example)/", b"com,example,sub)/", b"com,example-foo)/", b"com,example:8080)/", b"com,examplf)/"]
    groups = row_groups([{"url_surtkey_min": key, "url_surtkey_max": key} for key in keys])
    with opened(tmp_path, groups) as catalog:
        found = catalog.row_groups_for("CC-MAIN-2024-22", ["warc"], parse_target("example.com").ranges)
        assert set(found["url_surtkey_min"].to_pylist()) == {keys[0], keys[1], keys[3]}


def test_coverage_is_counted_from_the_rows(tmp_path: Path):
    groups = row_groups([{"url_surtkey_min": b"a", "url_surtkey_max": b"b"}, {}])
    crawl = "CC-MAIN-2024-22"
    files = pa.Table.from_pylist(
        [
            {"crawl": crawl, "subset": "warc", "path": "a.parquet", "outcome": "decoded"},
            {"crawl": crawl, "subset": "warc", "path": "b.parquet", "outcome": "failed", "reason": "x"},
        ],
        schema=INDEX_FILES_SCHEMA,
    )
    said = pa.concat_tables(
        [coverage(expected=3), coverage(subset="robotstxt", expected=1), coverage(crawl="CC-MAIN-2012", reason="ARC")]
    )
    with opened(tmp_path, groups, index_files=files, coverage=said) as catalog:
        assert catalog.crawls() == ("CC-MAIN-2012", crawl)
        rows = {
            (row["crawl"], row["subset"]): row
            for name in catalog.crawls()
            for row in catalog.coverage(name).to_pylist()
        }
        assert catalog.coverage(crawl).to_pylist() == [rows[crawl, "robotstxt"], rows[crawl, "warc"]]
        assert catalog.index_files(crawl).to_pylist() == files.to_pylist()
    assert rows["CC-MAIN-2012", "warc"]["reason"] == "ARC"
    warc, robots = rows[crawl, "warc"], rows[crawl, "robotstxt"]
    assert [warc[name] for name in ("expected", "harvested", "failed", "missing")] == [3, 1, 1, 1]
    assert (warc["row_groups"], warc["rows"], warc["without_statistics"]) == (2, 20, 1)
    assert (robots["expected"], robots["missing"], robots["row_groups"]) == (1, 1, 0)


@pytest.mark.parametrize("rows", [slice(None), slice(0)])
def test_a_crawls_tables_are_those_of_the_views_on_all_crawls(rows: slice):
    """Groups with and without bounds, files that failed, a subset without files."""
    crawl = "CC-MAIN-2024-22"
    groups = row_groups([{"url_surtkey_min": b"a", "url_surtkey_max": b"b"}, {"url_surtkey_min": b"a"}, {}])
    files = [
        {"crawl": crawl, "subset": "warc", "path": "a.parquet", "part": 1, "outcome": "decoded", "columns": ["url"]},
        {"crawl": crawl, "subset": "warc", "path": "b.parquet", "outcome": "failed", "reason": "x"},
    ]
    with connect() as connection:
        stored = pack_rows(
            connection,
            row_groups=groups,
            index_files=pa.Table.from_pylist(files, INDEX_FILES_SCHEMA),
            coverage=pa.concat_tables([coverage(expected=3), coverage(subset="robotstxt", expected=1, reason="y")]),
        )[rows]
        connection.register("stored", stored)
        for table, schema in VIEW_SCHEMAS.items():
            assert read_view(table, stored).equals(
                connection.sql(table_query(table, "stored")).to_arrow_table().cast(schema)
            )


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path):
    (tmp_path / "broken.parquet").write_bytes(b"no parquet")
    broken = Catalog({"c1": [str(tmp_path / "broken.parquet")]})
    with broken as catalog, pytest.raises(EnvironmentFault, match=r"broken\.parquet"):
        catalog.row_groups_for("c1", None, [KeyRange(b"", None)])
    with Catalog({}) as catalog:
        assert catalog.crawls() == ()
        assert not len(catalog.row_groups_for("c1", None, [KeyRange(b"", None)]))
        assert not catalog.connection.sql("FROM coverage").fetchall()


@pytest.mark.parametrize("system", [None, SubTreeFileSystem("/", LocalFileSystem())])
def test_files_elsewhere_answer_as_those_on_this_machine(tmp_path: Path, system):
    other = {"crawl": "CC-MAIN-2018-05"}
    groups = row_groups(
        [
            *({"url_surtkey_min": low, "url_surtkey_max": high} for low, high in ((b"a", b"b"), (b"c", b"d"))),
            {},
            other,
        ]
    )
    with opened(tmp_path / "it's", groups) as here, Catalog(here._files, system) as catalog:
        found = catalog.row_groups_for("CC-MAIN-2024-22", ["warc"], [KeyRange(b"c", b"d")])
        assert places(found) == [("a.parquet", 1), ("a.parquet", 2)]
        counts = catalog.connection.sql("SELECT crawl, count(*) FROM catalog.row_groups GROUP BY ALL ORDER BY ALL")
        assert counts.fetchall() == [("CC-MAIN-2018-05", 1), ("CC-MAIN-2024-22", 3)]


def test_row_groups_without_bounds_are_counted_among_those_that_may_match(tmp_path: Path):
    groups = row_groups([{"url_surtkey_min": b"a", "url_surtkey_max": b"b"}, {"url_surtkey_min": b"x"}, {}])
    with opened(tmp_path, groups) as catalog:
        assert catalog.unbounded("CC-MAIN-2024-22", ["warc"], [prefix_range(b"a")]) == 1
        assert catalog.unbounded("CC-MAIN-2023-14", ["warc"], [prefix_range(b"a")]) == 0
