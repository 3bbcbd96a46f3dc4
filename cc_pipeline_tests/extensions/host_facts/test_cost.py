"""What a lookup reads: it follows what is asked for where files are sorted, and is told before where they are not."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.extensions.host_facts.host_keys import HostRanges
from cc_pipeline.extensions.host_facts.keyed_lookup import Endings, KeyedLookup
from cc_pipeline.extensions.host_facts.shards import Shard, open_shard
from cc_pipeline.index.parquet.fetch import PageIndexes
from cc_pipeline.transport.client import Transport

HOSTS = 120_000
SCHEMA = pa.schema([(f"n{number}", pa.int64()) for number in range(12)])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two files of the same rows, sorted and not, each with 24 row groups and pages of 1,000 rows."""
    folder = tmp_path_factory.mktemp("cost")
    draw = random.Random(7)
    keys = [f"com,site{place:06d}{sub}" for place in range(0, HOSTS // 2) for sub in ("", ",blog")]
    numbers = {name: [draw.getrandbits(40) for _ in keys] for name in SCHEMA.names}
    table = pa.table({"key": sorted(keys), **numbers})
    order = list(range(len(keys)))
    draw.shuffle(order)
    for name, rows in (("sorted", table), ("unsorted", table.take(order))):
        pq.write_table(
            rows, folder / name, row_group_size=HOSTS // 24, write_page_index=True, max_rows_per_page=1000,
            write_batch_size=1000, use_dictionary=False,
        )  # fmt: skip
    return folder


def shard(folder: Path, name: str) -> Shard:
    data = (folder / name).read_bytes()
    return open_shard(name, data[-8 - int.from_bytes(data[-8:-4], "little") :], len(data), None, "key")


def test_sorted_files_are_read_where_the_hosts_are(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cc_pipeline.index.parquet.fetch.GAP", 0)
    target = parse_target("site030123.com")
    lookup = KeyedLookup([shard(folder, "sorted")], HostRanges(target).surt, SCHEMA, None)
    price = lookup.estimate()
    assert (price.to_read, price.searched, price.without_bounds) == (1, 0, 0)
    with Transport(str(folder)) as reader:
        found = lookup.read(reader, PageIndexes())
        assert reader.stats.bytes == found.cost.bytes
    assert found.table["_key"].to_pylist() == ["com,site030123", "com,site030123,blog"]
    assert found.cost.bytes < (folder / "sorted").stat().st_size / 60
    assert found.cost.bytes <= price.likely_bytes


def test_files_in_no_order_cost_their_keys_and_that_is_known_before(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cc_pipeline.index.parquet.fetch.GAP", 0)
    target = parse_target("site030123.com")
    one = shard(folder, "unsorted")
    lookup = KeyedLookup([one], HostRanges(target).surt, SCHEMA, None)
    price = lookup.estimate()
    assert (price.to_read, price.searched) == (24, 24)
    with Transport(str(folder)) as reader:
        found = lookup.read(reader, PageIndexes())
    assert sorted(found.table["_key"].to_pylist()) == ["com,site030123", "com,site030123,blog"]
    keys = sum(place.columns["key"].size for place in one.row_groups(range(24), ()))
    assert keys <= found.cost.bytes <= price.likely_bytes <= price.bytes
    assert found.cost.bytes < price.bytes / 4
    assert price.bytes > 0.8 * (folder / "unsorted").stat().st_size


def test_all_of_it_costs_all_of_it(folder: Path) -> None:
    lookup = KeyedLookup([shard(folder, "sorted")], HostRanges(parse_target("tld:com")).surt, SCHEMA, None)
    price = lookup.estimate()
    assert price.likely_bytes == price.bytes


def test_strays_are_found_by_a_small_column(folder: Path, tmp_path: Path) -> None:
    """``.com`` hosts in no order, others in every row group: those with a ``.de`` host are found by their endings."""
    table = pq.read_table(folder / "unsorted")
    keys, ends = table["key"].to_pylist(), ["com"] * table.num_rows
    for place in range(0, len(keys), 1000):
        keys[place], ends[place] = f"org,site{place}", "org"
    for place, key, end in ((7_000, "de,site1", "de"), (61_000, "de,site1,blog", None)):
        keys[place], ends[place] = key, end
    strays = table.set_column(0, "key", pa.array(keys)).append_column("tld", pa.array(ends))
    pq.write_table(strays, tmp_path / "com", row_group_size=HOSTS // 24)
    pq.write_table(pa.table({"key": ["de,a", "de,site1,shop"], "tld": ["de", "de"]}), tmp_path / "de")
    hosts = HostRanges(parse_target("site1.de"))
    ends_of = hosts.endings()
    assert ends_of == {"de"}
    read, likely = {}, {}
    for endings in (Endings("tld", ends_of), None):
        lookup = KeyedLookup([shard(tmp_path, "com"), shard(tmp_path, "de")], hosts.surt, SCHEMA, None, endings)
        with Transport(str(tmp_path)) as reader:
            found = lookup.read(reader, PageIndexes())
        assert sorted(found.table["_key"].to_pylist()) == ["de,site1", "de,site1,blog", "de,site1,shop"]
        price = lookup.estimate()
        assert (price.to_read, price.searched) == (25, 24)
        read[endings is None], likely[endings is None] = found.cost.bytes, price.likely_bytes
    groups = shard(tmp_path, "com").row_groups(range(24), ["tld"])
    keys_of, ends_bytes = (sum(group.columns[name].size for group in groups) for name in ("key", "tld"))
    assert read[True] - read[False] > keys_of * 20 / 24 - ends_bytes
    assert likely[False] < likely[True]
