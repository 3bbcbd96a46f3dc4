"""The table filled: from what is fetched, once, for the hosts of targets of every kind; gone with its target."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.documents.page import PageInput
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.extensions.policies.fill import _Bodies, _fill_state, _RobotsCapture, fill_policies, find_stale_targets
from cc_pipeline.extensions.policies.hosts import crawls_with_robots, policy_targets
from cc_pipeline.maintenance.purge import purge
from cc_pipeline.maintenance.purge_plan import plan_purge
from cc_pipeline_tests.extensions.policies.conftest import CRAWLS
from cc_pipeline_tests.world import extract, harvest, workspace_of

HOSTS = {
    "example.com": "example.com",
    "tld:museum": "tld:museum",
    "prefix:https://www.example.com:8443/a?b": "host:www.example.com:8443",
    "url:http://example.org/": "host:example.org",
    "rev:com.example.www/a": "host:www.example.com",
    "example.com where mime=application/pdf": "example.com",
    "set:press = example.com, example.org": "set:press = example.com, example.org",
    "set:press = example.com, prefix:http://x.org/a, url:http://x.org/b": (
        "set:press-robotstxt-hosts = example.com, host:x.org"
    ),
}


@pytest.mark.parametrize("text", HOSTS)
def test_a_targets_robots_txt_is_its_hosts(text: str) -> None:
    [found] = policy_targets([parse_target(text)])
    assert found.definition == HOSTS[text]
    assert parse_target(found.definition) == found


def test_a_location_that_is_no_url_leads_nowhere() -> None:
    answer = _RobotsCapture({}, "", "unreadable")
    where = (("Location", "http://[bad/robots.txt"),)
    page = PageInput("c", "robotstxt", "http://a.com/robots.txt", b"", http_status=301, http_headers=where)
    with pa.ipc.new_stream(pa.BufferOutputStream(), pa.schema([])) as writer:
        _fill_state(answer, page, _Bodies(writer))
    assert (answer.state, answer.location) == ("redirect", None)


def test_crawls_without_the_subset_are_left_out() -> None:
    crawls = ["CC-MAIN-2012", "CC-MAIN-2016-30", "CC-MAIN-2016-36", "newest", "CC-NEWS-2026-05", "LOCAL-x"]
    assert crawls_with_robots(crawls) == ["CC-MAIN-2016-36", "newest"]


def test_only_what_is_fetched_is_read_and_once(policies_bucket: Path, tmp_path: Path) -> None:
    crawl, [host] = CRAWLS[0], policy_targets([parse_target("prefix:https://docs.example.org/")])
    workspace = workspace_of(policies_bucket, tmp_path / "home", subsets=("robotstxt",))
    workspace.register_targets([host])
    with pytest.raises(EnvironmentFault, match="have not been fetched"):
        fill_policies(workspace, crawl, [host.slug])
    assert find_stale_targets(workspace, crawl, [host.slug]) == []
    harvest(workspace, crawl)
    extract(workspace, host.definition, crawl=crawl)
    assert find_stale_targets(workspace, crawl, [host.slug]) == [host.slug]
    report = fill_policies(workspace, crawl, [host.slug])
    rows = workspace.lake.read("site_policies").to_pylist()
    assert report.written == len(rows) > 0 and {row["host"] for row in rows} == {"docs.example.org"}
    assert len({row["robots"] for row in rows}) == len(rows)
    # the lines of a body stand once
    bodies = [row["content_digest"] for row in rows if row["content_digest"]]
    assert sum(row["lines"] is not None for row in rows) == len(set(bodies)) <= len(bodies)
    version = workspace.lake.version("site_policies")
    again = fill_policies(workspace, crawl, [host.slug])
    assert (again.fresh_slices, again.written, workspace.lake.version("site_policies")) == (0, 0, version)
    purge(workspace, plan_purge(workspace, host.slug, host.definition))
    assert workspace.lake.read("site_policies").num_rows == 0
