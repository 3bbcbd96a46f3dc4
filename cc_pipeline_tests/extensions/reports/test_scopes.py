"""Every kind of target is a scope of reports and changes: its own captures, however targets overlap, and as many as
``run``, ``doctor`` and SQL count."""

from __future__ import annotations

from collections import Counter

import duckdb
import pytest

from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.extensions.reports.findings import find_target, target_scope
from cc_pipeline.extensions.reports.page import render_page
from cc_pipeline.lake.published_file import open_bounded
from cc_pipeline.settings import Settings
from cc_pipeline_tests.world import NEW, OLD, Bucket, extract, harvest, publish, workspace_of

pytestmark = pytest.mark.xdist_group("scopes")
#: Each overlaps others. The first is located in one crawl alone, which ``suffix:com`` is in both.
ONCE = "example-foo.com"
TARGETS = (
    "example.com", "www.example.com", "blog.example.com", "host:www.example.com", "host:example.com",
    "prefix:https://www.example.com/", "url:https://www.example.com/", "suffix:com", "tld:org", "rev:com.example",
    "set:both = www.example.com, example.org", "example.com where status=200", "suffix:co.uk",
)  # fmt: skip
#: A domain, a set, a condition, and what is in one crawl alone.
IN_FIRST_GEAR = ("example.com", "set:both = www.example.com, example.org", "example.com where status=200", ONCE)


@pytest.fixture(scope="module")
def overlapping(bucket: Bucket, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    workspace = workspace_of(bucket[0], tmp_path_factory.mktemp("scopes"))
    for crawl in (NEW, OLD):
        harvest(workspace, crawl)
        extract(workspace, *TARGETS, *([ONCE] if crawl == NEW else []), crawl=crawl)
    publish(workspace)
    return workspace.settings


@pytest.fixture(scope="module")
def bridge(overlapping: Settings) -> Counter[tuple[str, str]]:
    """Captures by target and crawl, as SQL counts them."""
    with duckdb.connect(str(overlapping.published_path), read_only=True) as connection:
        rows = connection.execute("SELECT target, crawl, count(*) FROM capture_targets GROUP BY ALL").fetchall()
    return Counter({(target, crawl): count for target, crawl, count in rows})


@pytest.mark.matrix
@pytest.mark.parametrize(
    "text", [pytest.param(text, marks=pytest.mark.smoke if text in IN_FIRST_GEAR else ()) for text in [*TARGETS, ONCE]]
)
def test_a_report_is_of_the_targets_own_captures(
    overlapping: Settings, bridge: Counter[tuple[str, str]], text: str
) -> None:
    slug = parse_target(text).slug
    crawls = [OLD, NEW] if text != ONCE else [NEW]
    own = {crawl: bridge[slug, crawl] for crawl in crawls}
    assert bridge[slug, OLD] == own.get(OLD, 0)
    with open_bounded(overlapping) as connection:
        _, scope, _ = target_scope(connection, slug)
        asked = f"SELECT crawl, count(*) FROM {scope('captures')} GROUP BY ALL"
        assert dict(connection.execute(asked).fetchall()) == {crawl: count for crawl, count in own.items() if count}
        pages = connection.execute(
            f"SELECT count(DISTINCT url_surtkey) FROM {scope('captures')} WHERE comparable(fetch_status, url)"
        ).fetchone()
        found = find_target(connection, slug)
    assert {row["crawl"]: row["captures"] for row in found.lookups} == own
    assert sum(row["captures"] for row in found.outcomes) == sum(own.values())
    assert sum(row["captures"] + row["left_out"] for row in found.crawls) == sum(own.values()) > 0
    assert pages is not None
    assert sum(row["new_pages"] for row in found.crawls) == pages[0] > 0
    assert "No comparable capture" not in render_page(found)
    if text != ONCE:
        assert sum(found.became.values()) + found.became["moved"] == pages[0]
