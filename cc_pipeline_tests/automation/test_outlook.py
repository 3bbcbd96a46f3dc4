"""What stands of all that is watched is looked at again when something changed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cc_pipeline.automation import staleness as module
from cc_pipeline.automation.staleness import assess_staleness
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.errors import CcPipelineError
from cc_pipeline.extraction.fetch import fetch_captures
from cc_pipeline.extraction.locate import locate_captures
from cc_pipeline_tests.faultserver import FaultServer, Rule
from cc_pipeline_tests.world import NEW, Bucket, extract, harvested, workspace_of

SITE, OTHER = "example.com", "example.org"
NOW = datetime.now(UTC)


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_last_reports", {})


def test_nothing_is_looked_at_while_nothing_changed(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, looks = tmp_path / "home", []
    look = module.plan_crawl
    monkeypatch.setattr(module, "plan_crawl", lambda *given, **named: looks.append(given[1]) or look(*given, **named))

    def tick(now: datetime = NOW, slugs: tuple[str, ...] = (SITE, OTHER), **chosen: object) -> tuple[object, int]:
        looks.clear()
        # each tick opens a workspace of its own
        workspace = workspace_of(server.url, home, **chosen)
        found = assess_staleness(workspace, [NEW], slugs, now)
        assert assess_staleness(workspace, [NEW], slugs, now) is found
        workspace.close()
        return (found.pairs, found.stale, found.due, found.waiting), len(looks)

    with FaultServer(bucket[0]) as server:
        workspace = harvested(server.url, home)
        extract(workspace, SITE)
        workspace.register_targets([parse_target(OTHER)])  # as the schedule does
        pairs = [(NEW, SITE), (NEW, OTHER)]
        fresh = (pairs, {(NEW, OTHER)}, set(), set())
        assert tick() == (fresh, 1)
        assert tick() == (fresh, 0)
        assert tick(NOW + timedelta(hours=23)) == (fresh, 0)
        assert tick(NOW + timedelta(hours=25)) == (fresh, 1)
        assert tick(slugs=(SITE,))[1] == tick()[1] == 1
        assert tick(markdown=True)[1] == tick()[1] == 1
        # what came incompletely is due when its time has come, and no commit says so
        server.set_rules([Rule("500", key="*/warc/*.warc.gz", times=None)])
        locate_captures(workspace, NEW, [OTHER])
        with pytest.raises(CcPipelineError):
            fetch_captures(workspace, NEW, [OTHER])
        told, looked = tick(datetime.now(UTC))
        assert (told[3], looked) == ({(NEW, OTHER)}, 1)
        assert tick(datetime.now(UTC))[1] == 0
        later, looked = tick(datetime.now(UTC) + timedelta(hours=12))
        assert (later[2], later[3], looked) == ({(NEW, OTHER)}, set(), 1)
