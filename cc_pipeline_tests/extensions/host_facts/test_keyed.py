"""Generated data keyed by host: the published schemas, and each trap of the published files."""

from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from cc_pipeline.extensions.host_facts.host_keys import host_key
from cc_pipeline.extensions.host_facts.rank_text import parse_release
from cc_pipeline.testing.mini_crawl.spec import spec_for
from cc_pipeline_tests.extensions.host_facts.__main__ import write_hosts
from cc_pipeline_tests.extensions.host_facts.keyed import (
    DEGREES_LIST,
    GNEISSWEB_HOSTS_LIST,
    HOST_INDEX_LIST,
    KeyedSpec,
    KeyedTruth,
    plain_hosts,
    write_keyed,
)

NEW, ODD = "CC-MAIN-2025-18", "CC-MAIN-2024-51"
SPEC = KeyedSpec((NEW, ODD), domains=50, odd=ODD)


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, KeyedTruth]:
    root = tmp_path_factory.mktemp("keyed")
    return root, write_keyed(root, SPEC)


def test_path_lists_name_every_file(keyed: tuple[Path, KeyedTruth]) -> None:
    root, truth = keyed
    for dataset, key in (
        ("host-index", HOST_INDEX_LIST),
        ("degrees", DEGREES_LIST),
        ("gneissweb-hosts", GNEISSWEB_HOSTS_LIST),
    ):
        listed = gzip.decompress((root / key).read_bytes()).decode().split()
        assert listed == [path for crawl in SPEC.crawls for path in truth.files[dataset, crawl]]
        for crawl in SPEC.crawls:
            tables = [pq.read_table(root / path) for path in truth.files[dataset, crawl]]
            assert [row for table in tables for row in table.to_pylist()] == truth.rows[dataset, crawl]


def test_the_host_index_has_its_traps(keyed: tuple[Path, KeyedTruth]) -> None:
    root, truth = keyed
    schemas = {crawl: pq.read_schema(root / truth.files["host-index", crawl][0]) for crawl in SPEC.crawls}
    assert len(schemas[NEW]) == 42
    assert schemas[NEW].names[0] == "nutch_unfetched_pct"
    assert set(schemas[NEW].names) - set(schemas[ODD].names) == {
        "fetch_200_lote_pct",
        "warc_record_length_median",
        "prank10",
    }
    assert str(schemas[ODD].field("fetch_200").type) == "double"
    rows = truth.rows["host-index", NEW]
    assert any(row["hcrank"] is None for row in rows)
    keys = [
        pq.read_table(root / path, columns=["surt_host_name"])["surt_host_name"].to_pylist()
        for path in truth.files["host-index", NEW]
    ]
    com, others = keys[: SPEC.com_shards], keys[SPEC.com_shards :]
    assert all(part != sorted(part) for part in com)
    assert all(part == sorted(part) for part in others)
    assert any(not key.startswith("com,") for part in com for key in part)


def test_hosts_come_with_and_without_www() -> None:
    hosts = plain_hosts(SPEC, NEW)
    keys = [key.surt for host in hosts if (key := host_key(host)) is not None]
    assert len(keys) == len(hosts)
    assert len(set(keys)) < len(keys)


def test_the_same_specification_gives_the_same_bytes(keyed: tuple[Path, KeyedTruth], tmp_path: Path) -> None:
    write_keyed(tmp_path, SPEC)
    files = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file())
    assert files == sorted(path.relative_to(keyed[0]) for path in keyed[0].rglob("*") if path.is_file())
    assert all((tmp_path / path).read_bytes() == (keyed[0] / path).read_bytes() for path in files)


def test_data_by_host_is_added_to_a_bucket(tmp_path: Path) -> None:
    write_hosts(tmp_path / "b", spec_for(20))
    lists = [HOST_INDEX_LIST, parse_release("cc-main-2024-apr-may-jun").ranks_key("host")]
    assert all((tmp_path / "b" / key).is_file() for key in lists)
