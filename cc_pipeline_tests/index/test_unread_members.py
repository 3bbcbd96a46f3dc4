"""Members of a ZipNum index that cannot be read are a gap that is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from cc_pipeline.commoncrawl.paths import cluster_key
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.errors import IndexIncomplete
from cc_pipeline.index import locator
from cc_pipeline.index.gaps import IndexGaps, index_incomplete
from cc_pipeline.index.lookup import IndexSources, look_up
from cc_pipeline.testing.mini_crawl.generate import generate
from cc_pipeline.testing.mini_crawl.spec import CrawlSpec, MiniCrawlSpec
from cc_pipeline.transport.client import Transport
from cc_pipeline_tests.index.lookup_world import World, harvest_world
from cc_pipeline_tests.world import copy_of, replace_file

OLD, NEW = "CC-MAIN-2018-05", "CC-MAIN-2024-22"
SITE, ELSEWHERE = "example.com", "example.org"
SPEC = MiniCrawlSpec(
    pages=120,
    sites=8,
    crawls=tuple(
        CrawlSpec(crawl, segments=1, parts=2, row_group_rows=30, zipnum_lines=9, zipnum_shards=2)
        for crawl in (NEW, OLD)
    ),
)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    home = tmp_path_factory.mktemp("members")
    truth = generate(home / "bucket", SPEC)
    return harvest_world(home / "bucket", home, truth, (NEW, OLD))


@pytest.fixture(autouse=True)
def zipnum_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """The columnar index of a small bucket is always cheap enough to be asked at once."""
    monkeypatch.setattr(locator, "weight", lambda price: price.row_groups)
    monkeypatch.setattr(locator, "CHEAP", -1)


def members_of(root: Path, crawl: str, site: str) -> list[tuple[Path, int, int]]:
    """File, offset and length of the members that begin with a page of ``site``."""
    key = ",".join(reversed(site.split("."))) + ")"
    cluster = root / cluster_key(crawl)
    found = []
    for line in cluster.read_text("utf-8").splitlines():
        first, shard, offset, length, _ = line.split("\t")
        if first.startswith(key):
            found.append((cluster.parent / shard, int(offset), int(length)))
    assert len(found) > 2
    return found


def damage(root: Path, crawl: str, how: str) -> None:
    file, offset, length = members_of(root, crawl, SITE)[1]
    data = file.read_bytes()
    if how == "no gzip":
        replace_file(file, data[:offset] + bytes(length) + data[offset + length :])
    elif how == "half of it":
        replace_file(file, data[: offset + length // 2] + b"\0" * (length - length // 2) + data[offset + length :])
    elif how == "cut off":
        replace_file(file, data[: offset + 3])
    else:
        file.unlink()


DAMAGES = ("no gzip", "half of it", "cut off", "gone")


@pytest.mark.matrix
@pytest.mark.parametrize("crawl", [NEW, OLD])
@pytest.mark.parametrize("how", DAMAGES)
def test_members_that_cannot_be_read_are_a_named_gap(world: World, tmp_path: Path, crawl: str, how: str) -> None:
    root = copy_of(world.root, tmp_path / "bucket")
    damage(root, crawl, how)
    with Transport(str(root)) as transport:
        sources = IndexSources(transport, world.catalog, footers=world.home / "footers")
        with pytest.raises(IndexIncomplete, match="blocks of the URL index") as lacking:
            look_up(crawl, ["warc"], [parse_target(SITE)], sources)
        assert "--index parquet" in str(lacking.value.advice)
        assert look_up(crawl, ["warc"], [parse_target(SITE)], sources, via="parquet").captures[SITE].num_rows
        if how != "gone":
            assert look_up(crawl, ["warc"], [parse_target(ELSEWHERE)], sources).gaps is None


def test_no_harvest_is_advised_for_a_crawl_without_a_columnar_index() -> None:
    gaps = IndexGaps("CC-MAIN-2008-2009", 3, 1, (("warc", 1, 3),), (("cdx-00000.gz at byte 5", "x"),), "blocks")
    assert "harvest" not in str(index_incomplete([gaps]).advice)
