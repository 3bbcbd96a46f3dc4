"""Objects that come whole, whatever is asked of them: what is needed of an index is read, the rest is not taken, and
beyond a bound another index is asked. Footers and records are left out, and asked for again."""

from __future__ import annotations

import pytest

from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.index.lookup import IndexSources, look_up
from cc_pipeline.index.parquet import read
from cc_pipeline.index.zipnum import cluster_cache
from cc_pipeline.testing.mini_crawl.generate import generate
from cc_pipeline.testing.mini_crawl.spec import CrawlSpec, MiniCrawlSpec
from cc_pipeline.transport.client import Transport
from cc_pipeline.transport.ranges import RetryPolicy
from cc_pipeline.transport.source_client import SourceOptions
from cc_pipeline_tests.faultserver import FaultServer, Rule
from cc_pipeline_tests.index.lookup_world import World, harvest_world, places

CRAWL, SITE = "CC-MAIN-2024-22", "example.com"
SPEC = MiniCrawlSpec(
    pages=200, sites=8, crawls=(CrawlSpec(CRAWL, segments=1, parts=4, row_group_rows=60, zipnum_lines=20),)
)
OPTIONS = SourceOptions(retry=RetryPolicy(base=0.001, longest=0.005))
SOME_FILE, ALL_FILES, CLUSTER = "*subset=warc/part-00000*", "*subset=warc/*", "*cluster.idx"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    home = tmp_path_factory.mktemp("whole")
    truth = generate(home / "bucket", SPEC)
    with FaultServer(home / "bucket") as server:
        return harvest_world(home / "bucket", home, truth, (CRAWL,), server.url)


@pytest.mark.matrix
@pytest.mark.parametrize("which", [SOME_FILE, ALL_FILES, CLUSTER, "*cdx-*"])
@pytest.mark.parametrize("via", ["auto", "parquet", "zipnum"])
def test_an_index_whose_files_come_whole_answers(world: World, which: str, via: str) -> None:
    target = parse_target(SITE)
    with FaultServer(world.root) as server, Transport(server.url, OPTIONS) as transport:
        sources = IndexSources(transport, world.catalog, footers=world.home / "footers")
        right = places(look_up(CRAWL, ["warc"], [target], sources, via="parquet"))
        server.set_rules([Rule("whole_object", which, times=None)])
        found = look_up(CRAWL, ["warc"], [target], sources, via=via)
    assert (places(found), found.gaps) == (right, None)
    assert len(right) == len(world.truth.captures_of(CRAWL, subset="warc", domain=SITE))


def test_beyond_the_bound_another_index_answers(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "MAX_WHOLE_OBJECT", 0)
    monkeypatch.setattr(cluster_cache, "_MAX_WHOLE_OBJECT", 0)
    target = parse_target(SITE)
    with FaultServer(world.root, rules=[Rule("whole_object", ALL_FILES, times=None)]) as server:
        with Transport(server.url, OPTIONS) as transport:
            sources = IndexSources(transport, world.catalog, footers=world.home / "footers")
            found = look_up(CRAWL, ["warc"], [target], sources)
            assert (found.index, len(places(found))) == (
                "zipnum",
                len(world.truth.captures_of(CRAWL, subset="warc", domain=SITE)),
            )
            assert "only as a whole" in (found.reason or "")
            with pytest.raises(EnvironmentFault, match="sends whole files"):
                look_up(CRAWL, ["warc"], [target], sources, via="parquet")
        server.set_rules([Rule("whole_object", CLUSTER, times=None)])
        with Transport(server.url, OPTIONS) as transport:
            sources = IndexSources(transport, world.catalog, footers=world.home / "footers")
            assert look_up(CRAWL, ["warc"], [target], sources).index == "parquet"
            with pytest.raises(EnvironmentFault, match="sends whole files"):
                look_up(CRAWL, ["warc"], [target], sources, via="zipnum")
