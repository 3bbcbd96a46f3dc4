"""The web graph's ranks against DuckDB over the same text, for both rules of ``www``, and against everything that such
a text may have wrong."""

from __future__ import annotations

import gzip
import multiprocessing
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.errors import DataFault, EnvironmentFault, PlaceFault, UserInputError
from cc_pipeline.extensions.host_facts import rank_text
from cc_pipeline.extensions.host_facts import ranks as ranks_of
from cc_pipeline.extensions.host_facts.datasets import shipped_datasets
from cc_pipeline.extensions.host_facts.host_facts import host_facts
from cc_pipeline.extensions.host_facts.host_keys import host_key
from cc_pipeline.extensions.host_facts.rank_text import (
    LEVELS,
    SCHEMA,
    Level,
    Tally,
    _host_keys,
    graph_key,
    inflate_stream,
    parse_release,
    read_rank_rows,
)
from cc_pipeline.extensions.host_facts.ranks import (
    Ranks,
    all_ranks,
    convert_ranks,
    estimate_ranks,
    find_ranks,
    fold_keys,
    ranks_dataset,
    ranks_datasets,
)
from cc_pipeline.publish.publish import delete_leftovers
from cc_pipeline.workspace.workspace import Workspace
from cc_pipeline_tests.extensions.host_facts.graph import GraphSpec, nodes, write_graph
from cc_pipeline_tests.extensions.host_facts.keyed import KeyedSpec, plain_hosts, write_keyed
from cc_pipeline_tests.world import workspace_of

CRAWL = "CC-MAIN-2025-51"
OLD, NEW = parse_release("cc-main-2025-oct-nov-dec"), parse_release("cc-main-2025-26-nov-dec-jan")
KEYED = KeyedSpec((CRAWL,), domains=90)
ODD_HOSTS = (
    "www.com",
    "www.www.example.com",
    "www2.example.com",
    "xn--bcher-kva.de",
    "example.co.uk",
    "www.example.co.uk",
)
HOSTS = tuple(dict.fromkeys((*plain_hosts(KEYED, CRAWL), *ODD_HOSTS)))


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("graph") / "bucket"
    write_keyed(root, KEYED)
    for release in (OLD, NEW):
        write_graph(root, GraphSpec(release, HOSTS, members=release is NEW))
    return root


@pytest.fixture
def home(bucket: Path, tmp_path: Path) -> Workspace:
    return workspace_of(bucket, tmp_path)


def convert(workspace: Workspace, release: Any, level: Level = "host") -> Ranks:
    return convert_ranks(workspace, release, level, estimate_ranks(workspace, release, level))


def stored(workspace: Workspace, ranks: Ranks) -> pa.Table:
    root = ranks_dataset(workspace.settings, ranks, "ranks").root
    return pa.concat_tables([pq.read_table(f"{root}/{name}") for name in ranks.files])


def brute(path: Path, level: Level, *, www_kept: bool) -> list[dict[str, Any]]:
    """One row a key, by DuckDB over the text: smallest positions, largest scores, in the order of keys."""
    hosts = ", max(CAST(n_hosts AS BIGINT)) AS n_hosts" if level == "domain" else ""
    with duckdb.connect() as session:
        session.create_function("key_of", lambda name: graph_key(name, www_kept), ["VARCHAR"], "VARCHAR")
        lines = "read_csv(?, delim = '\t', header = true, all_varchar = true, quote = '', normalize_names = false)"
        names = [name for name, *_ in session.execute(f"DESCRIBE SELECT * FROM {lines}", [str(path)]).fetchall()]
        renamed = ", ".join(f'"{name}" AS {name.removeprefix("#")}' for name in names)
        found = session.execute(
            f"SELECT key_of(host_rev) AS surt_host_name, min(CAST(harmonicc_pos AS BIGINT)) AS harmonicc_pos, "
            f"max(CAST(harmonicc_val AS DOUBLE)) AS harmonicc_val, min(CAST(pr_pos AS BIGINT)) AS pr_pos, "
            f"max(CAST(pr_val AS DOUBLE)) AS pr_val{hosts} FROM (SELECT {renamed} FROM {lines}) GROUP BY 1 ORDER BY 1",
            [str(path)],
        )
        columns = [name for name, *_ in found.description]
        return [dict(zip(columns, row, strict=True)) for row in found.fetchall()]


@pytest.mark.parametrize("release", [OLD, NEW])
@pytest.mark.parametrize("level", LEVELS)
def test_rows_are_those_of_duckdb_over_the_text(bucket: Path, home: Workspace, release: Any, level: Level) -> None:
    ranks = convert(home, release, level)
    found = stored(home, ranks)
    assert found.column("graph_release").unique().to_pylist() == [release.name]
    expected = brute(bucket / release.ranks_key(level), level, www_kept=release.www_kept)
    assert found.drop_columns("graph_release").to_pylist() == expected
    assert (ranks.rows, ranks.skipped) == (len(expected), 0)
    if level == "host":
        assert ranks.nodes == len(nodes(HOSTS, release))
        # the two names of a site are folded where both are there
        assert (ranks.nodes > ranks.rows + 20) is release.www_kept
    assert find_ranks(home.settings, release, level) == ranks == convert(home, release, level)
    assert all_ranks(home.settings) == [ranks]


def test_many_ranges_that_are_sorted_on_disk_are_the_same_rows(
    bucket: Path, home: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranks_of, "_RANGE_ROWS", 200)
    monkeypatch.setattr(ranks_of, "_MEMORY_BYTES", 0)
    monkeypatch.setattr(rank_text, "_BLOCK_BYTES", 4_000)
    monkeypatch.setattr(rank_text, "_PIECE_BYTES", 1_000)
    monkeypatch.setattr(rank_text, "_MAX_LINE_BYTES", 2_000)
    ranks = convert(home, NEW)
    expected = brute(bucket / NEW.ranks_key("host"), "host", www_kept=True)
    assert stored(home, ranks).drop_columns("graph_release").to_pylist() == expected


def test_facts_of_hosts_have_them_beside_the_host_index(bucket: Path, home: Workspace) -> None:
    ready = shipped_datasets()["host-index"]
    for level in LEVELS:
        convert(home, OLD, level)
        convert(home, NEW, level)
    here = ranks_datasets(home.settings)
    datasets = [ready, here["host-ranks"], here["domain-ranks"]]
    by_key = {row["surt_host_name"]: row for row in brute(bucket / NEW.ranks_key("host"), "host", www_kept=True)}
    domains = {row["surt_host_name"]: row for row in brute(bucket / NEW.ranks_key("domain"), "domain", www_kept=True)}
    seen = []
    for text in ("tld:com", "example.co.uk", "host:www.example.com", "nobody.example"):
        rows = host_facts(home, CRAWL, parse_target(text), datasets).to_pylist()
        for row in rows:
            key = row["surt_host_name"]
            assert row["pr_pos"] == by_key.get(key, {}).get("pr_pos")
            assert row["harmonicc_val"] == by_key.get(key, {}).get("harmonicc_val")
            domain = host_key(row["domain"] or "")
            assert row["domain_n_hosts"] == (domains.get(domain.surt, {}).get("n_hosts") if domain else None)
            assert row["graph_release"] in (NEW.name, None)
            seen.append(row)
    assert len(seen) > 20
    for name in ("prank10", "domain_pr_pos"):
        assert {row[name] is None for row in seen} == {True, False}


def test_datasets_are_of_the_newest_release_that_spans_a_crawl_and_of_each(home: Workspace) -> None:
    assert ranks_datasets(home.settings) == {}
    convert(home, OLD)
    convert(home, NEW)
    named = {"host-ranks", "host-ranks-2025-oct-nov-dec", "host-ranks-2025-26-nov-dec-jan"}
    for crawl, release in ((None, NEW), (CRAWL, NEW), ("CC-MAIN-2025-43", OLD), ("CC-MAIN-2012", NEW)):
        found = ranks_datasets(home.settings, crawl)
        assert set(found) == named
        assert release.name in found["host-ranks"].title
        assert OLD.name in found["host-ranks-2025-oct-nov-dec"].title
    for release in (OLD, NEW):
        one = found[f"host-ranks-{release.name.removeprefix('cc-main-')}"]
        rows = host_facts(home, CRAWL, parse_target("example.co.uk"), [one]).to_pylist()
        assert {row["graph_release"] for row in rows} == {release.name}


def test_the_price_is_known_before_and_kept_to(home: Workspace) -> None:
    price = estimate_ranks(home, NEW, "host")
    assert (price.requests, home.transport.stats.bytes) == (1, 0)
    before = home.transport.stats.bytes
    convert_ranks(home, NEW, "host", price)
    assert home.transport.stats.bytes - before == price.bytes
    with pytest.raises(UserInputError, match="has no projects/hyperlinkgraph/cc-main-2024"):
        estimate_ranks(home, parse_release("cc-main-2024-may-jun-jul"), "host")
    with pytest.raises(PlaceFault, match="GB free"):
        convert_ranks(home, OLD, "host", replace(price, scratch=10**18))


def _killed(bucket: str, home: str) -> None:
    real = ranks_of._write_files

    def killed(*given: Any) -> Any:
        real(*given)
        os._exit(9)

    ranks_of._write_files = killed
    convert(workspace_of(bucket, Path(home)), NEW)


@pytest.mark.process
def test_a_killed_conversion_leaves_nothing_that_counts(bucket: Path, home: Workspace, tmp_path: Path) -> None:
    process = multiprocessing.get_context("spawn").Process(target=_killed, args=(str(bucket), str(tmp_path)))
    process.start()
    process.join(120)
    assert process.exitcode == 9
    assert any((tmp_path / "scratch").rglob("*.parquet"))
    assert (find_ranks(home.settings, NEW, "host"), all_ranks(home.settings)) == (None, [])
    assert delete_leftovers(home.settings) == 1
    assert not any((tmp_path / "scratch").rglob("*.parquet"))
    assert convert(home, NEW).rows


@pytest.mark.parametrize("after", [0, 1])
def test_a_source_that_fails_half_way_leaves_the_home_as_it_was(
    bucket: Path, home: Workspace, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    monkeypatch.setattr(ranks_of, "_REQUEST_BYTES", 1_000)
    price = estimate_ranks(home, NEW, "host")
    real, left = home.transport.read, [after]

    def read(key: str, offset: int, length: int) -> Any:
        if offset and not left[0]:
            raise EnvironmentFault("the source is gone", "Wait.")
        left[0] -= bool(offset)
        return real(key, offset, length)

    with monkeypatch.context() as patched:
        patched.setattr(home.transport, "read", read)
        with pytest.raises(EnvironmentFault, match="the source is gone"):
            convert_ranks(home, NEW, "host", price)
    assert find_ranks(home.settings, NEW, "host") is None
    assert not any(home.settings.home.rglob("*.parquet"))
    assert convert_ranks(home, NEW, "host", price).rows


HEADER = "#harmonicc_pos\t#harmonicc_val\t#pr_pos\t#pr_val\t#host_rev\n"


def rows_of(text: str, *, www_kept: bool = True) -> tuple[list[tuple[Any, ...]], Tally]:
    tally = Tally()
    batches = list(read_rank_rows([text.encode("latin-1")], "it", tally, www_kept=www_kept))
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()], tally


def test_columns_go_by_name_and_numbers_are_java_s() -> None:
    text = "#host_rev\t#new\t#pr_val\t#pr_pos\ncom.example.www\tx\t5.439944157144132E-4\t3\norg.a\t\tNaN\t4.0E0\n"
    found, tally = rows_of(text)
    assert found == [("com,example", None, None, 3, 5.439944157144132e-4, None), ("org,a", None, None, 4, None, None)]
    assert (tally.rows, tally.skipped) == (2, 0)


def test_lines_that_say_no_rank_are_counted_and_left_out() -> None:
    lines = [
        "1\t3.546816E7\t3\t0.005\tcom.facebook.www", "x\t1.0\t1\t1.0\tcom.a", "2\tmuch\t1\t1.0\tcom.b", "3\t1.0\t1", "",
        "4\t1.0\t1\t1.0\t", "5\t1.0\t1.5\t1.0\tcom.c", "6\t1.0\t99999999999999999999\t1.0\tcom.d",
        '7\tInfinity\t1\t\tcom."e',
        "8\t1.0\t2\t2.0\tCOM.F\xe4:8080",
    ]  # fmt: skip
    found, tally = rows_of(HEADER + "\n".join(lines))
    assert [row[0] for row in found] == ["com,facebook", 'com,"e', found[2][0]]
    assert found[0] == ("com,facebook", 1, 35468160.0, 3, 0.005, None)
    assert found[1][1:] == (7, None, 1, None, None)
    assert found[2][0].startswith("com,f") and found[2][0].endswith(":8080")
    assert (tally.rows, tally.skipped) == (3, 6)
    assert tally.example


def test_text_with_too_many_such_lines_or_no_header_is_refused(tmp_path: Path) -> None:
    release = replace(NEW)
    bad = {
        "has 60 lines": HEADER + "1\t1.0\t1\t1.0\tcom.a\n" * 40 + "what\n" * 60,
        "does not begin with a header": "1\t1.0\t1\t1.0\tcom.a\n",
        "is empty": "",
        "has 0 lines": HEADER,
    }
    for said, text in bad.items():
        path = tmp_path / "bucket" / release.ranks_key("host")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(text.encode()))
        workspace = workspace_of(tmp_path / "bucket", tmp_path / "home")
        with pytest.raises(DataFault, match=said):
            convert(workspace, release)
        assert all_ranks(workspace.settings) == []


def test_gzip_is_read_to_its_end_whatever_its_members_and_no_further_than_makes_sense() -> None:
    data = gzip.compress(b"a" * 10) + gzip.compress(b"b") + b"\0" * 7
    for step in (1, 3, len(data)):
        pieces = [data[at : at + step] for at in range(0, len(data), step)]
        assert b"".join(inflate_stream(pieces, "it")) == b"a" * 10 + b"b"
    for cut, said in ((data[:-12], "ends too early"), (b"PK", "no gzip"), (b"", "ends too early")):
        with pytest.raises(DataFault, match=said):
            list(inflate_stream([cut], "it"))
    with pytest.raises(DataFault, match="inflates to more"):
        for _ in inflate_stream([gzip.compress(bytes(1 << 24))], "it"):
            pass
    with pytest.raises(DataFault, match="a line of more than"):
        list(read_rank_rows([HEADER.encode(), *[b"x" * (1 << 20)] * 9], "it", Tally(), www_kept=True))


LABEL = st.sampled_from(
    ["a", "www", "www2", "wwww", "x-y", "b_c", "xn--bcher-kva", "7", "", "WWW", "é", "com", "uk", "a:80"]
)


@settings(max_examples=100)
@example(["7...7"], False)
@example(["a.www.www2", "a.www2.www", "a.www", "a.www2"], False)
@given(st.lists(st.lists(LABEL, max_size=5).map(".".join), max_size=8), st.booleans())
def test_keys_in_bulk_are_those_of_one_by_one(names: list[str], www_kept: bool) -> None:
    found = _host_keys(pa.array([name.encode() for name in names], pa.binary()), www_kept).to_pylist()
    assert found == [graph_key(name, www_kept) for name in names]


@settings(max_examples=50)
@given(
    st.lists(st.tuples(st.sampled_from("abcd"), st.none() | st.integers(0, 9), st.none() | st.floats(0, 1))),
    st.integers(1, 4),
)
def test_rows_of_a_key_are_folded_over_the_ends_of_batches(
    rows: list[tuple[str, int | None, float | None]], step: int
) -> None:
    rows = sorted(rows, key=lambda row: row[0])
    full = [
        {"surt_host_name": k, "harmonicc_pos": p, "harmonicc_val": v, "pr_pos": p, "pr_val": v, "n_hosts": p}
        for k, p, v in rows
    ]
    table = pa.Table.from_pylist(full, schema=SCHEMA)
    found = [row for part in fold_keys(iter(table.to_batches(max_chunksize=step))) for row in part.to_pylist()]
    assert [row["surt_host_name"] for row in found] == sorted({key for key, _, _ in rows})
    for row in found:
        same = [one for one in rows if one[0] == row["surt_host_name"]]
        positions = [p for _, p, _ in same if p is not None]
        assert row["pr_pos"] == row["harmonicc_pos"] == min(positions, default=None)
        assert row["n_hosts"] == max(positions, default=None)
        assert row["pr_val"] == max((v for _, _, v in same if v is not None), default=None)
