"""Which targets can share captures: by definition alone, and nothing is read of the others."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.extraction.reusable_records import find_overlapping, find_sharing
from cc_pipeline.lake.target_definitions import delete_definitions
from cc_pipeline.workspace.workspace import Workspace
from cc_pipeline_tests.world import workspace_of

TEXTS = [
    "example.com",
    "host:www.example.com",
    "host:blog.example.com",
    "prefix:http://example.com/a",
    "prefix:http://example.com/a/b",
    "prefix:http://blog.example.com/",
    "example.org",
    "example-foo.com",
    "suffix:org",
    "rev:com.exam",
    "set:both = example.net, host:www.example.org",
    "set:far = a.example, z.example",
    "m.example",
    "tld:example",
]


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return workspace_of(tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("home"))


def pairs(texts: Sequence[str]) -> dict[str, set[str]]:
    """Each target's slug, and those of all it meets: every range compared with every other."""
    targets = [parse_target(text) for text in texts]
    found: dict[str, set[str]] = {}
    for one in targets:
        found[one.slug] = {
            other.slug
            for other in targets
            for left in one.ranges
            for right in other.ranges
            if (left.end is None or right.start < left.end) and (right.end is None or left.start < right.end)
        }
    return found


@given(st.lists(st.sampled_from(TEXTS), min_size=1, unique=True), st.data())
@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_meets_is_what_comparing_all_ranges_says(
    workspace: Workspace, texts: list[str], data: st.DataObject
) -> None:
    lake = workspace.lake
    delete_definitions(lake, lake.read("targets")["slug"].to_pylist())
    workspace.register_targets([parse_target(text) for text in texts])
    expected = pairs(texts)
    asked = data.draw(st.lists(st.sampled_from(sorted(expected)), min_size=1, unique=True))
    assert set(find_overlapping(workspace, asked)) == {*asked}.union(*(expected[slug] for slug in asked))
    assert find_sharing(lake) == {slug for slug, met in expected.items() if met - {slug}}


def test_a_set_that_lost_a_member_still_meets_what_it_met(tmp_path: Path) -> None:
    made = workspace_of(tmp_path / "source", tmp_path / "home")
    made.register_targets([parse_target("set:s = example.com, example.org"), parse_target("example.com")])
    assert find_sharing(made.lake) == {"set-s", "example.com"}
    made.register_targets([parse_target("set:s = example.org")])
    assert find_sharing(made.lake) == {"set-s", "example.com"}
    assert find_overlapping(made, ["example.com"]) == ["example.com", "set-s"]
