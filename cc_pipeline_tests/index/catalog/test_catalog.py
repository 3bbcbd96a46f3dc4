"""The catalog against going through all row groups one by one, and what its checks and pictures say."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cc_pipeline.checks.tables import (
    check_coverage,
    check_plausible_rows,
    check_row_counts,
    check_schema_drift,
    check_sortedness,
    check_statistics,
    schema_changes,
)
from cc_pipeline.cli.commands.catalog import athena_sql
from cc_pipeline.commoncrawl.crawls import WITHOUT_KEY_STATISTICS
from cc_pipeline.commoncrawl.key_ranges import KeyRange, prefix_range
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.errors import EnvironmentFault, UserInputError
from cc_pipeline.index.catalog import build as catalog_build
from cc_pipeline.index.catalog.build import build_catalog
from cc_pipeline.index.catalog.catalog import open_catalog
from cc_pipeline.index.catalog.pictures import plot_key_ranges
from cc_pipeline.index.catalog.schemas import (
    ANSWER_SCHEMA,
    COLUMN_CHUNKS_SCHEMA,
    COVERAGE_SCHEMA,
    INDEX_FILES_SCHEMA,
    ROW_GROUPS_SCHEMA,
)


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


def build(path: Path, groups: pa.Table, **tables: object) -> Path:
    sources = {
        "index_files": INDEX_FILES_SCHEMA.empty_table(),
        "column_chunks": COLUMN_CHUNKS_SCHEMA.empty_table(),
        "coverage": COVERAGE_SCHEMA.empty_table(),
    }
    build_catalog(path, row_groups=groups, **(sources | tables))
    return path


def places(table: pa.Table) -> list[tuple[str, int]]:
    return sorted(zip(table["path"].to_pylist(), table["row_group"].to_pylist(), strict=True))


key = st.text("ab,)-é\x7f", max_size=5).map(str.encode) | st.binary(max_size=3)
bounds = st.none() | st.tuples(key, key).map(sorted)


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(bounds, st.sampled_from(["c1", "c2"]), st.sampled_from(["warc", "robotstxt"])), max_size=40),
    st.lists(st.tuples(key, st.none() | key), min_size=1, max_size=4),
    st.sampled_from([None, "c1", ("c1", "c2"), ()]),
    st.sampled_from([None, ("warc",)]),
    st.integers(1, 5),
)
def test_finds_exactly_what_a_scan_finds(tmp_path, monkeypatch, groups, wanted, crawls, subsets, block):
    monkeypatch.setattr(catalog_build, "BLOCK_ROWS", block)
    rows = [
        {"crawl": crawl, "subset": subset, "url_surtkey_min": known and known[0], "url_surtkey_max": known and known[1]}
        for known, crawl, subset in groups
    ]
    ranges = [KeyRange(start, end) for start, end in wanted]
    some = (crawls,) if isinstance(crawls, str) else crawls

    def may_match(row, asked):
        return (
            (some is None or row["crawl"] in some)
            and (subsets is None or row["subset"] in subsets)
            and any(r.may_overlap(row["url_surtkey_min"], row["url_surtkey_max"]) for r in asked)
        )

    with open_catalog(build(tmp_path / "catalog.duckdb", row_groups(rows))) as catalog:
        found = catalog.row_groups_for(crawls, subsets, ranges)
        assert found.schema.equals(ANSWER_SCHEMA)
        assert places(found) == [("a.parquet", n) for n, row in enumerate(rows) if may_match(row, ranges)]


def test_half_known_bounds_are_never_pruned_wrongly(tmp_path: Path):
    groups = row_groups([{"url_surtkey_min": b"b", "url_surtkey_max": None}, {"url_surtkey_max": b"d"}])
    with open_catalog(build(tmp_path / "c.duckdb", groups)) as catalog:
        assert len(catalog.row_groups_for(None, None, [KeyRange(b"c", b"d")])) == 2


def test_a_domain_and_its_look_alikes(tmp_path: Path):
    keys = [b"com,example)/", b"com,example,sub)/", b"com,example-foo)/", b"com,example:8080)/", b"com,examplf)/"]
    groups = row_groups([{"url_surtkey_min": key, "url_surtkey_max": key} for key in keys])
    with open_catalog(build(tmp_path / "c.duckdb", groups)) as catalog:
        found = catalog.row_groups_for("CC-MAIN-2024-22", ["warc"], parse_target("example.com").ranges)
        assert set(found["url_surtkey_min"].to_pylist()) == {keys[0], keys[1], keys[3]}


def test_a_crawl_is_replaced_under_an_open_reader(tmp_path: Path):
    path = tmp_path / "catalog.duckdb"
    everything = [KeyRange(b"", None)]
    build(path, row_groups([{"url_surtkey_min": b"a", "url_surtkey_max": b"b"}]))
    with open_catalog(path) as old:
        assert len(old.row_groups_for(None, None, everything)) == 1
        build(path, row_groups([{"url_surtkey_min": b"a", "url_surtkey_max": b"b"}] * 3))
        with open_catalog(path) as new:
            assert len(new.row_groups_for(None, None, everything)) == 3
        assert len(old.row_groups_for(None, None, everything)) == 1
    assert [child.name for child in tmp_path.iterdir()] == ["catalog.duckdb"]


def test_built_from_parquet_files_whose_crawl_is_in_the_path(tmp_path: Path):
    """Delta leaves partition columns out of the files."""
    groups = row_groups([{"url_surtkey_min": b"a", "url_surtkey_max": b"b"}])
    folder = tmp_path / "row_groups" / "crawl=CC-MAIN-2024-22"
    folder.mkdir(parents=True)
    pq.write_table(groups.drop_columns(["crawl"]), folder / "part-0.parquet")
    build(tmp_path / "c.duckdb", [folder / "part-0.parquet"])
    with open_catalog(tmp_path / "c.duckdb") as catalog:
        assert len(catalog.row_groups_for("CC-MAIN-2024-22", ["warc"], [KeyRange(b"a", None)])) == 1


def test_coverage_is_counted_from_the_path_lists(tmp_path: Path):
    groups = row_groups([{"url_surtkey_min": b"a", "url_surtkey_max": b"b"}, {}])
    crawl = "CC-MAIN-2024-22"
    files = pa.Table.from_pylist(
        [
            {"crawl": crawl, "subset": "warc", "path": "a.parquet", "outcome": "decoded"},
            {"crawl": crawl, "subset": "warc", "path": "b.parquet", "outcome": "failed", "reason": "x"},
        ],
        schema=INDEX_FILES_SCHEMA,
    )
    manifest = pa.table(
        {"crawl": [crawl] * 4, "subset": ["warc"] * 3 + ["robotstxt"], "path": ["a.parquet", "b.parquet", "c", "d"]}
    )
    build(
        tmp_path / "c.duckdb", groups, index_files=files, coverage=None, manifest=manifest,
        reasons={"CC-MAIN-2012": "ARC", crawl: "ignored"},
    )  # fmt: skip
    with open_catalog(tmp_path / "c.duckdb") as catalog:
        assert catalog.crawls() == ("CC-MAIN-2012", crawl)
        rows = {(row["crawl"], row["subset"]): row for row in catalog.coverage().to_pylist()}
    assert rows["CC-MAIN-2012", "warc"]["reason"] == "ARC"
    warc, robots = rows[crawl, "warc"], rows[crawl, "robotstxt"]
    assert [warc[name] for name in ("expected", "harvested", "failed", "missing")] == [3, 1, 1, 1]
    assert (warc["row_groups"], warc["rows"], warc["without_statistics"]) == (2, 20, 1)
    assert (robots["expected"], robots["missing"], robots["row_groups"]) == (1, 1, 0)


def test_column_chunks_of_an_answer(tmp_path: Path):
    groups = row_groups([{"url_surtkey_min": b"a", "url_surtkey_max": b"b"}] * 2)
    chunk = {"crawl": "CC-MAIN-2024-22", "path": "a.parquet", "codec": "GZIP", "encodings": "", "compressed_bytes": 5}
    chunks = pa.Table.from_pylist(
        [chunk | {"row_group": n, "column": c, "chunk_offset": 4} for n in range(3) for c in ("url", "url_surtkey")],
        schema=COLUMN_CHUNKS_SCHEMA,
    )
    build(tmp_path / "c.duckdb", groups, column_chunks=chunks)
    with open_catalog(tmp_path / "c.duckdb") as catalog:
        answer = catalog.row_groups_for(None, None, [KeyRange(b"", None)])
        assert len(catalog.column_chunks(answer)) == 4
        assert catalog.column_chunks(answer, ["url"])["column"].to_pylist() == ["url", "url"]


def test_what_is_no_catalog_is_said_plainly(tmp_path: Path):
    with pytest.raises(EnvironmentFault, match="no catalog"):
        open_catalog(tmp_path / "none.duckdb")
    (tmp_path / "broken.duckdb").write_bytes(b"no database")
    with pytest.raises(EnvironmentFault, match="cannot be opened"):
        open_catalog(tmp_path / "broken.duckdb")


def test_a_failed_build_leaves_the_old_catalog(tmp_path: Path):
    path = build(tmp_path / "c.duckdb", row_groups([{"url_surtkey_min": b"a", "url_surtkey_max": b"b"}]))
    with pytest.raises(EnvironmentFault):
        build(path, [tmp_path / "missing.parquet"])
    with open_catalog(path) as catalog:
        assert len(catalog.row_groups_for(None, None, [KeyRange(b"", None)])) == 1
    assert [child.name for child in tmp_path.iterdir()] == ["c.duckdb"]


def test_many_threads_ask_one_catalog(tmp_path: Path):
    rows = [{"url_surtkey_min": b"%05d" % n, "url_surtkey_max": b"%05d" % n} for n in range(5000)]
    with open_catalog(build(tmp_path / "c.duckdb", row_groups(rows))) as catalog:
        wrong: list[int] = []

        def ask(first: int) -> None:
            for number in range(first, 5000, 500):
                found = catalog.row_groups_for(None, None, [prefix_range(b"%05d" % number)])
                if found["row_group"].to_pylist() != [number]:
                    wrong.append(number)

        threads = [threading.Thread(target=ask, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong


def test_another_process_reads_while_this_one_has_it_open(tmp_path: Path):
    path = build(tmp_path / "c.duckdb", row_groups([{"url_surtkey_min": b"a", "url_surtkey_max": b"b"}]))
    code = (
        "import sys; from pathlib import Path; from cc_pipeline.index.catalog.catalog import open_catalog;"
        "print(len(open_catalog(Path(sys.argv[1])).sql('SELECT * FROM catalog.row_groups')))"
    )
    with open_catalog(path):
        done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "1"


def test_row_groups_without_bounds_are_counted_among_those_that_may_match(tmp_path: Path):
    groups = row_groups([{"url_surtkey_min": b"a", "url_surtkey_max": b"b"}, {"url_surtkey_min": b"x"}, {}])
    with open_catalog(build(tmp_path / "c.duckdb", groups)) as catalog:
        assert catalog.unbounded("CC-MAIN-2024-22", ["warc"], [prefix_range(b"a")]) == 1
        assert catalog.unbounded("CC-MAIN-2023-14", ["warc"], [prefix_range(b"a")]) == 0


def test_checks_tell_good_from_bad():
    assert check_coverage(coverage(expected=3, harvested=3)).passed
    assert check_coverage(coverage(expected=3, harvested=2, failed=1)).severity == "warn"
    assert check_coverage(coverage(expected=3, harvested=2, missing=1)).severity == "error"
    assert "ARC" in check_coverage(coverage(reason="ARC years")).message
    assert check_plausible_rows(coverage(expected=4, rows=12)).passed
    assert check_plausible_rows(coverage(expected=300, rows=2_709_877_975)).passed
    assert check_plausible_rows(coverage(expected=300, rows=2_709_877)).severity == "warn"
    ordered = row_groups(
        [{"url_surtkey_min": b"a", "url_surtkey_max": b"b"}, {"url_surtkey_min": b"b", "url_surtkey_max": b"c"}]
    )
    assert check_sortedness(ordered).passed
    assert check_statistics(ordered).passed
    overlapping = row_groups(
        [{"url_surtkey_min": b"a", "url_surtkey_max": b"c"}, {"url_surtkey_min": b"b", "url_surtkey_max": b"d"}, {}]
    )
    assert check_sortedness(overlapping).figures == {"pairs": 1, "overlapping": 1}
    assert check_statistics(overlapping).figures["none"] == 1
    assert check_sortedness(row_groups([])).passed


def test_row_counts_of_files_and_row_groups():
    files = pa.Table.from_pylist(
        [{"crawl": "c", "subset": "warc", "path": "a.parquet", "outcome": "decoded", "rows": 20, "row_groups": 2}],
        schema=INDEX_FILES_SCHEMA,
    )
    assert check_row_counts(files, row_groups([{}, {}])).passed
    assert "a.parquet" in check_row_counts(files, row_groups([{}, {"rows": 9}])).message


def test_schema_drift_is_named_column_by_column():
    before = ["a INT32 required", "fetch_time INT96 required", "gone BYTE_ARRAY optional UTF8"]
    after = ["a INT32 required", "fetch_time INT64 required TIMESTAMP_MILLIS", "new INT64 optional"]
    assert schema_changes(before, after) == [
        "fetch_time was INT96 required, is INT64 required TIMESTAMP_MILLIS",
        "gone is gone (was BYTE_ARRAY optional UTF8)",
        "new is new (INT64 optional)",
    ]
    rows = [
        {
            "crawl": "c",
            "subset": "warc",
            "path": str(n),
            "outcome": "decoded",
            "schema_digest": str(n // 2),
            "columns": columns,
        }
        for n, columns in enumerate([before, before, after])
    ]
    files = pa.Table.from_pylist(rows, schema=INDEX_FILES_SCHEMA)
    result = check_schema_drift(files)
    assert result.severity == "warn"
    assert "1 files: new is new" in result.message
    same = files.slice(0, 2)
    assert check_schema_drift(same).passed
    assert "gone is gone" in check_schema_drift(files.slice(2), before).message
    assert check_schema_drift(files.slice(0, 0)).passed


def test_pictures_are_pictures():
    groups = row_groups(
        [
            {"path": f"part-{n % 70:05d}", "url_surtkey_min": b"k%03d" % n, "url_surtkey_max": b"k%03d" % (n + 9)}
            for n in range(140)
        ]
    )
    for png in (plot_key_ranges(groups), plot_key_ranges(row_groups([]))):
        assert png.startswith(b"\x89PNG")
        assert len(png) > 2000


def test_sql_for_athena() -> None:
    text = athena_sql(sorted(WITHOUT_KEY_STATISTICS))
    assert all(crawl in text for crawl in WITHOUT_KEY_STATISTICS)
    assert 'GROUP BY crawl, subset, "$path"' in text
    assert len(WITHOUT_KEY_STATISTICS) == 13
    for wrong in ({"subset": "x"}, {"column": "a; drop"}, {"table": "a b"}, {"crawls": ()}, {"crawls": ("'",)}):
        with pytest.raises(UserInputError):
            athena_sql(**{"crawls": ("CC-MAIN-2018-05",), **wrong})
