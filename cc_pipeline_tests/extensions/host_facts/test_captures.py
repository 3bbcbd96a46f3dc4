"""What datasets keyed by URL say of captures, against DuckDB over the same files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cc_pipeline.capture_columns import TIMESTAMP
from cc_pipeline.errors import UserInputError
from cc_pipeline.extensions.host_facts import host_facts
from cc_pipeline.extensions.host_facts.datasets import Dataset, parse_dataset, shipped_datasets
from cc_pipeline.extensions.host_facts.host_facts import facts_of_captures
from cc_pipeline.testing.mini_crawl.truth import MiniCrawlTruth
from cc_pipeline_tests.extensions.host_facts.keyed import KeyedSpec, KeyedTruth, write_keyed
from cc_pipeline_tests.world import NEW, workspace_of

URLS = shipped_datasets()["gneissweb-urls"]
TOPICS = list(URLS.columns or ())
#: One capture, which a dataset of these tests has.
ONE = pa.table({"url_surtkey": ["com,example)/"], "fetch_time": pa.array([None], TIMESTAMP)})


@pytest.fixture(scope="module")
def keyed(bucket: tuple[Path, MiniCrawlTruth], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, KeyedTruth]:
    root = tmp_path_factory.mktemp("keyed") / "bucket"
    spec = KeyedSpec((NEW,), domains=8, row_group_rows=9, page_rows=4)
    return root, write_keyed(root, spec, bucket[1].captures)


def captures_of(truth: MiniCrawlTruth, domain: str) -> pa.Table:
    """Captures as the table ``captures`` has them, newest first, with one that no dataset knows."""
    rows = sorted(truth.captures_of(NEW, domain=domain), key=lambda one: (one.fetch_time, one.url), reverse=True)
    found = [{"url": one.url, "url_surtkey": one.url_surtkey, "fetch_time": one.fetch_time} for one in rows]
    schema = pa.schema([("url", pa.string()), ("url_surtkey", pa.string()), ("fetch_time", TIMESTAMP)])
    return pa.Table.from_pylist([*found, {"url": "http://x/", "url_surtkey": "x)/", "fetch_time": None}], schema=schema)


def by_duckdb(root: Path, paths: list[str], captures: pa.Table) -> list[dict[str, Any]]:
    columns = ", ".join(f"any_value({name}) AS {name}" for name in TOPICS)
    numbered = captures.append_column("place", pa.array(range(captures.num_rows)))
    with duckdb.connect() as session:
        session.register("asked", numbered)
        found = session.execute(
            f"SELECT url, {', '.join(TOPICS)} FROM asked LEFT JOIN (SELECT url_surtkey, fetch_time, {columns} "
            "FROM read_parquet(?) GROUP BY ALL) USING (url_surtkey, fetch_time) ORDER BY place",
            [[str(root / path) for path in paths]],
        ).fetchall()
    return [dict(zip(("url", *TOPICS), row, strict=True)) for row in found]


@pytest.mark.parametrize("most", [20_000, 3])
def test_captures_get_what_is_said_of_them(
    bucket: tuple[Path, MiniCrawlTruth],
    keyed: tuple[Path, KeyedTruth],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    most: int,
) -> None:
    monkeypatch.setattr(host_facts, "_MAX_KEYS", most)
    root, written = keyed
    workspace = workspace_of(root, tmp_path)
    for domain in bucket[1].domains(NEW)[:3]:
        captures = captures_of(bucket[1], domain)
        found = facts_of_captures(workspace, NEW, captures, [URLS])
        assert found.table.column_names == ["url", "url_surtkey", "fetch_time", *TOPICS]
        rows = found.table.select(["url", *TOPICS]).to_pylist()
        assert rows == by_duckdb(root, written.files["gneissweb-urls", NEW], captures)
        assert 0 < sum(row[TOPICS[0]] is not None for row in rows) < len(rows)


def test_a_filter_and_a_label_of_ones_own(
    bucket: tuple[Path, MiniCrawlTruth], keyed: tuple[Path, KeyedTruth], tmp_path: Path
) -> None:
    root, _ = keyed
    captures = captures_of(bucket[1], bucket[1].domains(NEW)[0])
    chosen = captures.slice(2, 5).select(["url_surtkey", "fetch_time"])
    lists = tmp_path / "lists"
    lists.mkdir()
    pq.write_table(chosen.rename_columns(["key", "at"]).append_column("n", pa.array(range(5))), lists / "mine.parquet")

    def mine(name: str, action: str) -> Dataset:
        return parse_dataset(
            f"name: {name}\nwhere: {{root: {lists}, files: [mine.parquet], crawl: none}}\n"
            f"key: {{column: key, form: url_key, time: at}}\naction: {action}",
            "mine.yaml",
        )

    workspace = workspace_of(root, tmp_path / "home")
    marked = facts_of_captures(workspace, NEW, captures, [mine("seen", "label")])
    places = set(zip(chosen["url_surtkey"].to_pylist(), chosen["fetch_time"].to_pylist(), strict=True))
    assert marked.table["seen"].to_pylist() == [
        (row["url_surtkey"], row["fetch_time"]) in places for row in captures.to_pylist()
    ]
    left = facts_of_captures(workspace, NEW, captures, [URLS, mine("only", "filter"), mine("n", "join")])
    assert left.table.select(captures.column_names).equals(captures.filter(marked.table["seen"]))
    assert left.table["n"].to_pylist() == list(range(5))


def test_datasets_of_hosts_are_refused(keyed: tuple[Path, KeyedTruth], tmp_path: Path) -> None:
    workspace = workspace_of(keyed[0], tmp_path)
    with pytest.raises(UserInputError, match="about hosts"):
        facts_of_captures(workspace, NEW, ONE, [shipped_datasets()["degrees"]])


def test_a_file_without_times_is_a_gap(tmp_path: Path) -> None:
    pq.write_table(pa.table({"key": ["com,example)/"], "n": [1]}), tmp_path / "mine.parquet")
    mine = parse_dataset(
        "name: mine\nwhere: {files: [mine.parquet], crawl: none}\nkey: {column: key, form: url_key, time: at}",
        "mine.yaml",
    )
    found = facts_of_captures(workspace_of(tmp_path, tmp_path / "home"), NEW, ONE, [mine])
    assert [gap.path for gap in found.gaps["mine"]] == ["mine.parquet"]
