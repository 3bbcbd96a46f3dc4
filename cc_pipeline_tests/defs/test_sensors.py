"""The sensors on an instance that forgets: what each tick registers, asks for, skips, and refuses."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import cc_pipeline.defs.automation.sensors as sensors
import dagster as dg
import pytest

from cc_pipeline.commoncrawl import crawls as packaged
from cc_pipeline.defs import partitions
from cc_pipeline.defs.home_namespace import WORKSPACE
from cc_pipeline.settings import Settings, load_settings, source_addresses
from cc_pipeline.transport.ranges import RetryPolicy
from cc_pipeline.workspace.workspace import open_workspace
from cc_pipeline_tests.defs.graph import sensor
from cc_pipeline_tests.faultserver import FaultServer, Rule
from cc_pipeline_tests.world import (
    ANNOUNCED,
    ARC,
    NEW,
    OLD,
    Bucket,
    announce,
    closed_port,
    copy_of,
    harvest,
    replace_file,
    workspace_of,
)

new_crawls = sensor("new_crawls")
path_lists = sensor("path_lists")
watch_list = sensor("watch_list")


class Ticks:
    """One sensor ticked again and again, as the daemon does: requests are carried out, the cursor is kept."""

    def __init__(self, sensor: dg.SensorDefinition, instance: dg.DagsterInstance, settings: Settings) -> None:
        self._sensor, self._instance, self._settings = sensor, instance, settings
        self.cursor: str | None = None

    def tick(self) -> dg.SensorResult | dg.SkipReason:
        with open_workspace(self._settings) as workspace:
            context = dg.build_sensor_context(
                instance=self._instance, cursor=self.cursor, resources={WORKSPACE: workspace}
            )
            answer = self._sensor(context)
        assert isinstance(answer, dg.SensorResult | dg.SkipReason)
        if isinstance(answer, dg.SensorResult):
            for request in answer.dynamic_partitions_requests or ():
                assert isinstance(request, dg.AddDynamicPartitionsRequest)
                self._instance.add_dynamic_partitions(request.partitions_def_name, list(request.partition_keys))
            self.cursor = answer.cursor or self.cursor
        return answer


def asked(answer: dg.SensorResult | dg.SkipReason) -> list[str | None]:
    assert isinstance(answer, dg.SensorResult), answer
    return [request.partition_key for request in answer.run_requests or ()]


def reason(answer: dg.SensorResult | dg.SkipReason) -> str:
    assert isinstance(answer, dg.SkipReason), answer
    return answer.skip_message or ""


def ran(instance: dg.DagsterInstance, crawl: str, status: dg.DagsterRunStatus) -> None:
    """A harvest that the sensor asked for has come to this."""
    tags = {"dagster/partition": crawl, "dagster/sensor_name": "new_crawls"}
    instance.add_run(dg.DagsterRun(job_name="harvest_crawl", status=status, tags=tags))


def hours_ahead(monkeypatch: pytest.MonkeyPatch, hours: float) -> None:
    """Lets the next ticks be as many hours from now."""
    monkeypatch.setattr(sensors, "_now", lambda: datetime.now(UTC) + timedelta(hours=hours))


def settings_of(source: Path | str, home: Path) -> Settings:
    return load_settings(source=str(source), home=str(home))


@pytest.fixture
def ticks(bucket: Bucket, tmp_path: Path, instance: dg.DagsterInstance) -> Ticks:
    return Ticks(new_crawls, instance, settings_of(bucket[0], tmp_path))


@pytest.fixture
def watching(bucket: Bucket, tmp_path: Path, instance: dg.DagsterInstance) -> Ticks:
    return Ticks(watch_list, instance, settings_of(bucket[0], tmp_path))


def test_the_first_tick_registers_all_and_runs_the_newest_the_second_has_nothing_to_do(
    ticks: Ticks, instance: dg.DagsterInstance
) -> None:
    assert asked(ticks.tick()) == [NEW]
    assert instance.get_dynamic_partitions("crawl") == [ARC, OLD, NEW], "oldest first, as they came"
    assert reason(ticks.tick()) == "no new crawl"


def test_a_harvest_that_failed_is_asked_for_again_but_not_for_ever(
    ticks: Ticks, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = []
    # the distance doubles; all failures are of now, so the later tick is as many hours ahead
    for early, late in ((0, 0), (1, 6), (6, 12)):
        if early:
            hours_ahead(monkeypatch, early)
            assert reason(ticks.tick()) == "no new crawl"
        hours_ahead(monkeypatch, late)
        answer = ticks.tick()
        assert asked(answer) == [NEW]
        assert isinstance(answer, dg.SensorResult)
        keys += [request.run_key for request in answer.run_requests or ()]
        ran(instance, NEW, dg.DagsterRunStatus.FAILURE)
    assert len(set(keys)) == 3, "a key that was used is not run again"
    assert reason(ticks.tick()) == f"no new crawl; the harvest failed 3 times and must be launched by hand: {NEW}"
    ran(instance, NEW, dg.DagsterRunStatus.SUCCESS)
    assert reason(ticks.tick()) == "no new crawl"


@pytest.mark.parametrize("status", [dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELED])
def test_a_harvest_under_way_or_called_off_is_not_asked_for_again(
    ticks: Ticks, instance: dg.DagsterInstance, status: dg.DagsterRunStatus, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks.tick()
    ran(instance, NEW, dg.DagsterRunStatus.FAILURE)
    hours_ahead(monkeypatch, 6)
    assert asked(ticks.tick()) == [NEW]
    ran(instance, NEW, status)
    assert reason(ticks.tick()) == "no new crawl"


def test_only_the_configured_selection_runs(
    bucket: Bucket, tmp_path: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC_PIPELINE_CRAWLS", f"newest,{OLD},CC-MAIN-1999-01")
    assert asked(Ticks(new_crawls, instance, settings_of(bucket[0], tmp_path)).tick()) == [NEW, OLD]
    assert set(instance.get_dynamic_partitions("crawl")) == {ARC, OLD, NEW}


def test_a_crawl_that_is_announced_waits_until_its_path_list_answers(
    bucket: Bucket, tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    root = copy_of(bucket[0], tmp_path / "bucket")
    ticks = Ticks(new_crawls, instance, settings_of(root, tmp_path / "home"))
    assert asked(ticks.tick()) == [NEW]
    announce(root)
    assert asked(ticks.tick()) == []
    assert instance.get_dynamic_partitions("crawl")[-1] == ANNOUNCED
    assert reason(ticks.tick()) == f"no new crawl; listed and not published yet: {ANNOUNCED}"
    published = root / "crawl-data" / ANNOUNCED / "cc-index-table.paths.gz"
    published.parent.mkdir(parents=True)
    published.write_bytes(b"\x1f\x8b")
    answer = ticks.tick()
    assert asked(answer) == [ANNOUNCED]
    assert reason(ticks.tick()) == "no new crawl"
    assert json.loads(ticks.cursor or "") == {"requested": [NEW, ANNOUNCED]}


def test_new_keys_are_capped_and_the_rest_comes_with_later_ticks(
    ticks: Ticks, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sensors, "_NEW_KEYS_PER_TICK", 2)
    assert asked(ticks.tick()) == [NEW]
    assert set(instance.get_dynamic_partitions("crawl")) == {OLD, NEW}, "the newest first"
    assert asked(ticks.tick()) == []
    assert set(instance.get_dynamic_partitions("crawl")) == {ARC, OLD, NEW}
    assert reason(ticks.tick()) == "no new crawl"


def test_a_list_that_does_not_come_is_a_skip_with_the_last_good_copy(
    bucket: Bucket, tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    with FaultServer(bucket[0]) as server:
        ticks = Ticks(new_crawls, instance, settings_of(server.url, tmp_path))
        ticks.tick()
        cursor, keys = ticks.cursor, instance.get_dynamic_partitions("crawl")
        server.set_rules([Rule("500", key="collinfo.json", times=None)])
        asked_before = len(server.hits)
        said = reason(ticks.tick())
        assert "the list of crawls" in said
        assert "the copy from less than a minute ago is used instead" in said
        assert len(server.hits) - asked_before <= RetryPolicy().attempts, "polite also when refused"
        assert (ticks.cursor, instance.get_dynamic_partitions("crawl")) == (cursor, keys)
        server.set_rules([])
        assert reason(ticks.tick()) == "no new crawl"


def test_a_list_that_cannot_be_read_is_a_skip_with_or_without_a_copy(
    bucket: Bucket, tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    root = copy_of(bucket[0], tmp_path / "bucket")
    ticks = Ticks(new_crawls, instance, settings_of(root, tmp_path / "home"))
    ticks.tick()
    cursor = ticks.cursor
    replace_file(root / "collinfo.json", b"<html>")
    assert "is not JSON" in reason(ticks.tick())
    assert ticks.cursor == cursor
    elsewhere = Ticks(new_crawls, instance, settings_of(root, tmp_path / "new"))
    assert "is not JSON" in reason(elsewhere.tick()), "there is no copy either"
    assert elsewhere.cursor is None


def test_crawls_that_there_is_no_room_for_are_not_registered_and_the_newest_is(
    ticks: Ticks, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitions, "MAX_PARTITIONS", 7)
    instance.add_dynamic_partitions("target", ["a.example", "b.example", "c.example"])
    instance.add_dynamic_partitions("crawl", [ARC])
    ticks.tick()
    assert instance.get_dynamic_partitions("crawl") == [ARC, NEW]
    assert "into a set" in reason(ticks.tick())


def test_a_tick_asks_for_little(bucket: Bucket, tmp_path: Path, instance: dg.DagsterInstance) -> None:
    with FaultServer(bucket[0]) as server:
        ticks = Ticks(new_crawls, instance, settings_of(server.url, tmp_path))
        ticks.tick()
        keys = [hit.key for hit in server.hits]
        assert keys == ["collinfo.json", f"crawl-data/{NEW}/cc-index-table.paths.gz"]
        server.hits.clear()
        ticks.tick()
        assert [hit.key for hit in server.hits] == ["collinfo.json"]


def test_the_public_list_is_asked_for_once_a_day(
    tmp_path: Path, bucket: Bucket, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    (home / "cache").mkdir(parents=True)
    (home / "cache" / "collinfo.json").write_bytes((bucket[0] / "collinfo.json").read_bytes())
    monkeypatch.setattr("cc_pipeline.harvesting.crawls.is_published", lambda workspace, crawl: True)
    # the default source: a fresh copy is at hand, so nothing is sent
    assert asked(Ticks(new_crawls, instance, load_settings(home=str(home))).tick()) == [NEW]


def without_list(source: str, home: Path, *crawls: str) -> Settings:
    """No list of crawls can be read: what is no news is not harvested as if it were."""
    settings = load_settings({}, source=source, home=str(home), collinfo=f"{closed_port()}/collinfo.json")
    return replace(settings, crawls=crawls)


@pytest.mark.parametrize("selection", ["newest", "all"])
def test_what_was_known_at_release_is_no_news(
    bucket: Bucket, tmp_path: Path, instance: dg.DagsterInstance, selection: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_addresses, "_PUBLIC_HOST", "127.0.0.1")
    monkeypatch.setattr(packaged, "_WEEKS", "2018 05\n2024 22\n")
    with FaultServer(bucket[0]) as server:
        said = reason(Ticks(new_crawls, instance, without_list(server.url, tmp_path, selection)).tick())
        assert "The list of this release (" in said
        assert instance.get_dynamic_partitions("crawl") == []
        # a crawl that the setting names is looked for, and harvested
        ticks = Ticks(new_crawls, instance, without_list(server.url, tmp_path, OLD, "newest"))
        assert asked(ticks.tick()) == [OLD]
        assert instance.get_dynamic_partitions("crawl") == [OLD]


def test_a_named_crawl_is_harvested_without_any_list(
    bucket: Bucket, tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    with FaultServer(bucket[0], rules=[Rule("403", key=f"*{OLD}*", times=None)]) as server:
        ticks = Ticks(new_crawls, instance, without_list(server.url, tmp_path, NEW, OLD, "CC-MAIN-2031-01"))
        assert asked(ticks.tick()) == [NEW]
        said = reason(ticks.tick())
        assert f"it is not known whether {server.url.rstrip('/')} has {OLD}: forbidden" in said
        assert "'CC-MAIN-2031-01' is not a crawl of" in said
        lists = [hit.key for hit in server.hits if hit.key.endswith(".paths.gz")]
    # what is refused is asked for once more, when one that came has shown that others are not
    assert sorted(Counter(lists).values()) == [1, 2, 2], "each is asked for once a day"


def test_a_changed_path_list_is_harvested_again_once_for_each_content(
    bucket: Bucket, tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    root = copy_of(bucket[0], tmp_path / "bucket")
    settings = settings_of(root, tmp_path / "home")
    harvest(workspace_of(root, tmp_path / "home"))
    ticks = Ticks(path_lists, instance, settings)
    assert reason(ticks.tick()) == "no path list of the newest crawls has changed", "nothing is harvested"
    crawls = [NEW, "CC-NEWS-2026-04", "CC-NEWS-2026-05", "LOCAL-press"]
    instance.add_dynamic_partitions("crawl", crawls)
    for crawl in crawls:
        # what is built here, for a person's yes alone, takes no place among the newest
        instance.report_runless_asset_event(dg.AssetMaterialization("row_groups", partition=crawl))
    assert reason(ticks.tick()) == "no path list of the newest crawls has changed"
    listed = root / "crawl-data" / NEW / "cc-index-table.paths.gz"
    paths = gzip.decompress(listed.read_bytes()).splitlines(keepends=True)
    replace_file(listed, gzip.compress(b"".join(paths)))
    assert reason(ticks.tick()) == "no path list of the newest crawls has changed", "other bytes, the same content"
    replace_file(listed, gzip.compress(b"".join(paths[:-1])))
    assert asked(ticks.tick()) == [NEW]
    assert reason(ticks.tick()) == "no path list of the newest crawls has changed", "asked for once"
    replace_file(listed, gzip.compress(b"".join(paths[:-2])))
    assert asked(ticks.tick()) == [NEW]
    replace_file(listed, b"")
    assert reason(ticks.tick()).endswith("is empty")
    instance.delete_dynamic_partition("crawl", NEW)
    assert reason(ticks.tick()) == "no path list of the newest crawls has changed", "its records stay, the key does not"


class TestWatchList:
    """``domains.txt`` becomes partitions of the ``target`` dimension."""

    def test_targets_become_partitions_once(
        self, watching: Ticks, bucket: Bucket, tmp_path: Path, instance: dg.DagsterInstance
    ) -> None:
        assert reason(watching.tick()) == "no new target: every target of the watch list is a partition already"
        (tmp_path / "domains.txt").write_text("example.com\n# note\nmünchen.de\nset:press = example.com, example.org\n")
        watching.tick()
        slugs = ["example.com", "xn--mnchen-3ya.de", "set-press"]
        assert instance.get_dynamic_partitions("target") == slugs
        assert reason(watching.tick()) == "no new target: every target of the watch list is a partition already"
        known = definitions(bucket[0], tmp_path, slugs)
        assert known["set-press"] == "set:press = example.com, example.org"

    def test_a_set_keeps_its_key_and_its_new_members_are_written_down(
        self, watching: Ticks, bucket: Bucket, tmp_path: Path, instance: dg.DagsterInstance
    ) -> None:
        (tmp_path / "domains.txt").write_text("set:press = example.com\n")
        watching.tick()
        (tmp_path / "domains.txt").write_text("set:press = example.com, example.org\n")
        watching.tick()
        assert instance.get_dynamic_partitions("target") == ["set-press"]
        assert definitions(bucket[0], tmp_path, ["set-press"])["set-press"] == "set:press = example.com, example.org"

    def test_a_bad_line_is_named_and_the_others_are_partitions(
        self, watching: Ticks, tmp_path: Path, instance: dg.DagsterInstance
    ) -> None:
        (tmp_path / "domains.txt").write_text("example.com\n../x\n")
        watching.tick()
        assert instance.get_dynamic_partitions("target") == ["example.com"]
        assert "domains.txt, line 2: '..'" in reason(watching.tick())

    def test_new_targets_are_capped_each_tick(
        self, watching: Ticks, tmp_path: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sensors, "_NEW_KEYS_PER_TICK", 2)
        (tmp_path / "domains.txt").write_text("".join(f"site-{n}.example.org\n" for n in range(5)))
        counts = []
        for _ in range(3):
            watching.tick()
            counts.append(len(instance.get_dynamic_partitions("target")))
        assert counts == [2, 4, 5]

    def test_more_partitions_than_dagster_copes_with_are_refused_with_a_way_out(
        self, watching: Ticks, tmp_path: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(partitions, "MAX_PARTITIONS", 5)
        instance.add_dynamic_partitions("crawl", ["A", "B", "C"])
        (tmp_path / "domains.txt").write_text("example.com\nexample.org\n")
        assert "3 crawls × 2 targets would be 6 partitions, and Dagster supports 5" in reason(watching.tick())
        assert "into a set" in reason(watching.tick())
        assert instance.get_dynamic_partitions("target") == []


def definitions(source: Path, home: Path, slugs: list[str]) -> dict[str, str]:
    workspace = workspace_of(source, home)
    rows = workspace.lake.read("targets").to_pylist()
    assert sorted(row["slug"] for row in rows) == sorted(slugs)
    return {row["slug"]: row["definition"] for row in rows}
