"""Odd domains, from the command line and as keys made in the UI: looked up as meant, or refused with a reason.

Whatever they are, nothing is written outside the home.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import dagster as dg
import pytest

from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.defs.recording import FAILED
from cc_pipeline.testing.mini_crawl.generate import ensure
from cc_pipeline.testing.mini_crawl.spec import CrawlSpec, MiniCrawlSpec
from cc_pipeline.testing.mini_crawl.truth import MiniCrawlTruth
from cc_pipeline_tests.defs.graph import (
    cc_pipeline,
    everything_in,
    execute,
    execute_listed,
    failure_of,
    materialize,
    settings_of,
    state_of,
)
from cc_pipeline_tests.defs.published import query
from cc_pipeline_tests.world import NEW, extract, harvest, publish, workspace_of

pytestmark = [pytest.mark.process, pytest.mark.xdist_group("odd_domains")]

#: What a person types, and which hosts (with their ports) of the bucket are meant.
MEANT: dict[str, set[str]] = {
    "münchen-example.de": {"www.xn--mnchen-example-gsb.de"},
    "XN--MNCHEN-EXAMPLE-GSB.DE": {"www.xn--mnchen-example-gsb.de"},
    "Example.COM.": {
        "www.example.com", "example.com", "blog.example.com", "shop.example.com:8080", "deep.archive.blog.example.com",
    },
    "example-foo.com": {"www.example-foo.com", "example-foo.com"},
    "https://www.example.co.uk/": {"www.example.co.uk"},
    "suffix:co.uk": {"www.example.co.uk", "news.example.co.uk"},
    "192.0.2.17": {"192.0.2.17", "192.0.2.17:8088"},
    "192.0.2.17:8088": {"192.0.2.17:8088"},
    "shop.example.com:8080": {"shop.example.com:8080"},
    "host:example.com": {"example.com"},
    "münchen.de": set(),
    "[2001:db8::17]": set(),
    "2001:db8::17": set(),
}  # fmt: skip


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, MiniCrawlTruth]:
    """A folder with a bucket and a home beside each other, and the truth about the bucket."""
    folder = tmp_path_factory.mktemp("odd")
    spec = MiniCrawlSpec(
        pages=200, sites=10, crawls=(CrawlSpec(NEW, coverage=1.0, segments=1, parts=2, row_group_rows=20, page_rows=8),)
    )
    return folder, ensure(folder / "bucket", spec)


@pytest.fixture
def run(world: tuple[Path, MiniCrawlTruth], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """The command line on the world's home."""
    folder, _ = world
    monkeypatch.chdir(folder)

    def command(*arguments: str) -> tuple[int, str, str]:
        status, out, err = cc_pipeline(monkeypatch, capsys, *arguments, "--home", str(folder / "home"))
        assert "Traceback" not in out + err
        return status, out, err

    return command


@pytest.fixture(autouse=True)
def nothing_outside_the_home(world: tuple[Path, MiniCrawlTruth]) -> Iterator[None]:
    folder, _ = world
    before = {path: seen for path, seen in everything_in(folder).items() if not path.startswith("home/")}
    beside = sorted(folder.parent.iterdir())
    yield
    after = {path: seen for path, seen in everything_in(folder).items() if not path.startswith("home/")}
    assert after == before
    assert sorted(folder.parent.iterdir()) == beside
    for path in (folder / "home").rglob("*"):
        assert path.resolve().is_relative_to(folder), path
        assert "|" not in path.name
        assert "%2e" not in path.name.lower()


def test_odd_names_find_what_is_meant_each_for_itself(run, world: tuple[Path, MiniCrawlTruth]) -> None:
    folder, truth = world
    arguments = [*MEANT]
    status, out, err = run("run", "--crawl", NEW, *arguments, "--source", str(folder / "bucket"))
    assert status == 0, err
    urls = [capture.url for capture in truth.captures_of(NEW, subset="warc")]
    status, out, _ = run("targets", "add", *MEANT)
    assert status == 0
    for text, hosts in MEANT.items():
        slug = parse_target(text).slug
        assert f"(partition key {slug})" in out
        found = Counter(
            row[0] for row in query(folder / "home", f"SELECT url FROM capture_targets WHERE target = '{slug}'")
        )
        assert found == Counter(url for url in urls if urlsplit(url).netloc in hosts), text
        assert bool(found) == bool(hosts), text


#: Keys as the UI takes them, whatever a person types into its box (all kinds: ``extraction/test_locate.py``).
KEYS_REFUSED: dict[str, str] = {
    "münchen-example.de": "its key is 'xn--mnchen-example-gsb.de'",
    "../x": "not a host name",
    "host:www.example.org": "its key is 'host_www.example.org': add that key",
    "url:http://example.org/": "targets add url:http://example.org/ --home",
    "new\nline.com": "control character",
}


def test_keys_made_in_the_ui_are_looked_up_as_meant_or_fail_with_a_reason(
    world: tuple[Path, MiniCrawlTruth], instance: dg.DagsterInstance
) -> None:
    folder, truth = world
    home = folder / "home"
    workspace = workspace_of(folder / "bucket", home)
    harvest(workspace)
    extract(workspace, "example.co.uk")
    publish(workspace)
    settings = settings_of(folder / "bucket", home)
    before = state_of(home)
    instance.add_dynamic_partitions("crawl", [NEW])
    instance.add_dynamic_partitions("target", list(KEYS_REFUSED))
    alone = materialize(instance, settings, f"{NEW}|../x")
    assert KEYS_REFUSED["../x"] in failure_of(alone)
    result = execute_listed(instance, settings, [f"{NEW}|{key}" for key in KEYS_REFUSED])
    [failure] = [event.step_failure_data for event in result.all_events if event.is_step_failure]
    rows = failure.user_failure_data.metadata[FAILED].records
    reasons = {row.data["partition"]: row.data["reason"] for row in rows}
    for key, why in KEYS_REFUSED.items():
        assert why in reasons.pop(f"{NEW}|{key}")
    assert reasons == {}
    assert state_of(home) == before
    instance.add_dynamic_partitions("target", ["kunst-example.museum", "host_www.example.org"])
    for key in ("kunst-example.museum", "host_www.example.org"):
        assert materialize(instance, settings, f"{NEW}|{key}").success
    assert [target.definition for target in workspace.targets(["host_www.example.org"]).values()] == [
        "host:www.example.org"
    ]
    assert execute(instance, settings, "publish").success
    found = query(home, "SELECT count(*) FROM capture_targets WHERE target = 'kunst-example.museum'")
    assert found == [(len(truth.captures_of(NEW, subset="warc", domain="kunst-example.museum")),)]
    assert query(home, "SELECT kind FROM targets WHERE slug = 'kunst-example.museum'") == [("domain",)]
