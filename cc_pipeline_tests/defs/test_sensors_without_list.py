"""The sensor for new crawls while no list of crawls can be read: what is no news is not harvested as if it were."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import dagster as dg
import pytest

from cc_pipeline.commoncrawl import crawls as packaged
from cc_pipeline.defs.automation.sensors import new_crawls
from cc_pipeline.minicrawl.truth import MiniCrawlTruth
from cc_pipeline.settings import Settings, load_settings, places
from cc_pipeline_tests.defs.test_sensors import Ticks, asked, reason
from cc_pipeline_tests.faultserver import FaultServer, Rule
from cc_pipeline_tests.world import NEW, OLD, closed_port

Bucket = tuple[Path, MiniCrawlTruth]


def settings_of(source: str, home: Path, *crawls: str) -> Settings:
    settings = load_settings({}, source=source, home=str(home), collinfo=f"{closed_port()}/collinfo.json")
    return replace(settings, crawls=crawls)


@pytest.mark.parametrize("selection", ["newest", "all"])
def test_what_was_known_at_release_is_no_news(
    bucket: Bucket,
    tmp_path: Path,
    instance: dg.DagsterInstance,
    selection: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(places, "_PUBLIC_HOST", "127.0.0.1")
    monkeypatch.setattr(packaged, "_WEEKS", "2018 05\n2024 22\n")
    with FaultServer(bucket[0]) as server:
        said = reason(Ticks(new_crawls, instance, settings_of(server.url, tmp_path, selection)).tick())
        assert "known at this version's release" in said
        assert instance.get_dynamic_partitions("crawl") == []
        # a crawl that the setting names is looked for, and harvested
        ticks = Ticks(new_crawls, instance, settings_of(server.url, tmp_path, OLD, "newest"))
        assert asked(ticks.tick()) == [OLD]
        assert instance.get_dynamic_partitions("crawl") == [OLD]


def test_a_named_crawl_is_harvested_without_any_list(
    bucket: Bucket, tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    with FaultServer(bucket[0], rules=[Rule("403", key=f"*{OLD}*", times=None)]) as server:
        ticks = Ticks(new_crawls, instance, settings_of(server.url, tmp_path, NEW, OLD, "CC-MAIN-2031-01"))
        assert asked(ticks.tick()) == [NEW]
        said = reason(ticks.tick())
        assert f"has {OLD} is unknown" in said
        assert "'CC-MAIN-2031-01' is not a crawl of" in said
        heads = [hit.key for hit in server.hits if hit.method == "HEAD"]
    # what is refused is asked for once more, when one that came has shown that others are not
    assert sorted(Counter(heads).values()) == [1, 2, 2], "each is asked for once a day"
