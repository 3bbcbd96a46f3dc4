"""A look at a source names just those assumptions that do not hold there, and asks no more than it may."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from cc_pipeline.checks import live as live_look
from cc_pipeline.checks.assumptions import ASSUMPTIONS, Facts, OldMember
from cc_pipeline.checks.live import HEADERS, MOST_REQUESTS, Live, look_live, rate_for
from cc_pipeline.errors import UserInputError
from cc_pipeline.minicrawl.generate import ensure
from cc_pipeline.minicrawl.indexes import write_zipnum
from cc_pipeline.minicrawl.spec import TEST, CrawlSpec
from cc_pipeline.settings import Settings, load_settings
from cc_pipeline_tests.faultserver import FaultServer, Rule
from cc_pipeline_tests.frontmanners import CLOUDFRONT, Manners
from cc_pipeline_tests.recordmirror import ensure_recent, front_and_mirror
from cc_pipeline_tests.world import closed_port

ARC = "CC-MAIN-2008-2009"
CLUSTER = f"cc-index/collections/{ARC}/indexes/cluster.idx"
#: What a sound source cannot show: no refusal; S3 and the mirror are asked where it is Common Crawl's own.
UNSEEN = {"retry_after", "lone_503", "s3_same", "mirror_same"}
NO_CLUSTER = Rule("404", key=f"*{CLUSTER}", times=None)
#: As the front, but for the time it takes.
FRONT = replace(CLOUDFRONT, latency=0.0)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a bucket in it that has all that is assumed of the real one: two ARC crawls are listed, and one has
    a ZipNum index (of the captures of another)."""
    root = tmp_path_factory.mktemp("served") / "commoncrawl"
    announced, arc = (CrawlSpec(name, has_data=False) for name in ("CC-MAIN-2024-26", ARC))
    old, pacific = CrawlSpec("CC-MAIN-2015-06", segments=1), CrawlSpec("CC-MAIN-2009-2010", segments=1, cdx=True)
    crawls = [replace(crawl, record_ids=True) if crawl.id == "CC-MAIN-2024-22" else crawl for crawl in TEST.crawls]
    spec = replace(TEST, crawls=(announced, *crawls, old, pacific, arc))
    truth = ensure(root, spec)
    write_zipnum(root, spec, CrawlSpec(ARC), truth.of("CC-MAIN-2012"))
    return root.parent


def settings_of(server: FaultServer, home: Path, **chosen: object) -> Settings:
    return load_settings({}, source=f"{server.url}commoncrawl", home=str(home), **chosen)


def told(live: Live) -> dict[str, set[str]]:
    """The names of assumptions by what is said of them."""
    found: dict[str, set[str]] = {"held": set(), "did not hold": set(), "not seen": set()}
    for one in live.verdicts:
        found[one.told].add(one.name)
    return found


def test_all_that_can_be_seen_of_a_sound_source_holds(source: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    with FaultServer(source, manners=FRONT) as server:
        live = look_live(settings_of(server, home))
        assert live.requests == len(server.hits) == len(live.answers) <= MOST_REQUESTS
    assert {step.name: step.outcome for step in live.steps if step.outcome != "done"} == {
        "s3": "skipped",
        "mirror": "skipped",
    }
    assert told(live) == {"held": {one.name for one in ASSUMPTIONS} - UNSEEN, "did not hold": set(), "not seen": UNSEEN}
    assert not live.failed
    assert not home.exists(), "without a limit on requests, not even a budget is kept"
    said = json.loads(json.dumps(live.as_json()))
    assert [one["held"] for one in said["assumptions"]] == [one.told for one in live.verdicts]
    assert said["requests"] == len(said["answers"])
    assert sum(one["bytes"] for one in said["answers"]) == said["bytes"] > 0
    assert set().union(*(one["headers"] for one in said["answers"])) <= set(HEADERS)
    footer = next(one for one in said["answers"] if one["step"] == "footer")
    assert footer["status"] == 206
    assert footer["asked"].startswith("bytes=-")
    assert footer["headers"]["etag"].endswith('-15"')
    assert footer["headers"]["x-cache"] == "Miss from cloudfront"


@pytest.mark.parametrize(
    ("wrong", "broken"),
    [
        ((Manners(suffixes="whole"),), {"suffix_ranges"}),
        ((Manners(suffixes="refused"),), {"suffix_ranges"}),
        ((Manners(etags="two"),), {"one_etag"}),
        ((Manners(etags="weak"),), {"strong_etags"}),
        ((Manners(etags="none"),), {"strong_etags"}),
        ((Manners(totals=False),), {"totals"}),
        ((Manners(archives=False),), {"records", "arc_records"}),
        ((Manners(most=5, front=True),), {"no_refusal", "retry_after"}),
        ((Rule("login_page", times=None),), {"digests"}),
        ((Rule("other_url", times=None),), {"records", "arc_records"}),
        ((NO_CLUSTER,), {"arc_zipnum"}),
        ((Rule("403", key="*no-such-key", times=None),), {"missing_404", "no_refusal", "retry_after"}),
        ((Rule("404", key="*paths.gz", times=None),), {"path_list"}),
        ((Rule("empty", key="*collinfo.json", times=None),), {"list"}),
        ((Manners(suffixes="whole", etags="two"), NO_CLUSTER), {"suffix_ranges", "one_etag", "arc_zipnum"}),
    ],
    ids=lambda given: "+".join(sorted(given)) if isinstance(given, set) else "",
)
def test_what_does_not_hold_is_named_and_nothing_else(
    source: Path, tmp_path: Path, wrong: tuple[Manners | Rule, ...], broken: set[str]
) -> None:
    rules = [one for one in wrong if isinstance(one, Rule)]
    manners = next((one for one in wrong if isinstance(one, Manners)), Manners())
    with FaultServer(source, rules=rules, manners=manners) as server:
        live = look_live(settings_of(server, tmp_path))
    assert told(live)["did not hold"] == broken
    if wrong == (NO_CLUSTER,):
        assert not live.failed, "a crawl without an index is no failure"
    elif rules and manners == Manners():
        assert live.failed


def verdicts_of(facts: Facts) -> dict[str, bool | None]:
    return {one.name: one.judge(facts, ())[0] for one in ASSUMPTIONS}


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (Facts(keys=[("a)/", "a)/"), ("b)/", "b)/%e4")]), {"keys": False}),
        (Facts(old_keys=[("b)/%25e4", "b)/%25e4")]), {"old_keys": True}),
        (Facts(record_ids=[(b"1", b"1"), (None, b"2")]), {"record_ids": False}),
        (Facts(old_member=OldMember(9, 0, is_ended=False, is_joined=True)), {"old_members": True, "old_status": True}),
        (
            Facts(old_member=OldMember(9, 9, is_ended=True, is_joined=False)),
            {"old_members": False, "old_status": False},
        ),
        (Facts(pacific_hours=[7.01]), {"pacific_dates": True}),
        (Facts(pacific_hours=[0.0]), {"pacific_dates": False}),
    ],
    ids=str,
)
def test_facts_are_judged(facts: Facts, expected: dict[str, bool]) -> None:
    assert {name: held for name, held in verdicts_of(facts).items() if held is not None} == expected


@pytest.mark.parametrize("times", [1, None])
def test_a_503_is_by_chance_where_it_does_not_come_again(source: Path, tmp_path: Path, times: int | None) -> None:
    rule = Rule("503", key="*cluster.idx", times=times, by_key=True)
    with FaultServer(source, rules=[rule]) as server:
        live = look_live(settings_of(server, tmp_path))
    assert {one.name: one.held for one in live.verdicts if one.name in ("lone_503", "no_refusal")} == {
        "lone_503": times == 1, "no_refusal": False,
    }  # fmt: skip
    assert live.failed == (times is None)


def test_a_list_without_the_arc_years_is_told(bucket: tuple[Path, object], tmp_path: Path) -> None:
    with FaultServer(bucket[0]) as server:
        live = look_live(load_settings({}, source=server.url, home=str(tmp_path)))
    assert told(live)["did not hold"] == {"arc_listed", "arc_zipnum"}


def test_no_more_is_asked_than_may_be(source: Path, tmp_path: Path) -> None:
    with FaultServer(source) as server:
        live = look_live(settings_of(server, tmp_path), most=6)
        assert live.requests == len(server.hits) == 6
    assert live.failed
    assert "6 requests" in next(step.text for step in live.steps if step.outcome == "failed")
    assert not told(live)["did not hold"]


def test_the_rate_is_kept_in_the_budget_of_the_home(source: Path, tmp_path: Path) -> None:
    with FaultServer(source) as server:
        settings = settings_of(server, tmp_path / "home")
        look_live(settings, rate=40)
        moments = sorted(hit.at for hit in server.hits)
    # no more than a slow machine can make of it
    assert moments[-1] - moments[0] >= (len(moments) - 2) / (40 * 1.05)
    assert {path.name.partition("-")[0] for path in settings.home.iterdir()} == {settings.budget_path.name}


def test_a_public_source_is_asked_once_a_second_at_most(tmp_path: Path) -> None:
    public = load_settings({}, home=str(tmp_path))
    assert rate_for(public) == 1.0
    assert rate_for(replace(public, rate=50.0)) == 1.0
    assert rate_for(replace(public, rate=0.2)) == 0.2
    assert rate_for(replace(public, source="http://127.0.0.1:80")) is None


def test_s3_is_compared_where_there_are_credentials(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    with FaultServer(source) as server:
        settings = settings_of(server, tmp_path / "home", s3_endpoint=server.url.rstrip("/"))
        without = look_live(settings, bucket="s3://commoncrawl")
        assert {step.name: step.text for step in without.steps}["s3"] == "no credentials"
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "someone")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "something")
        live = look_live(settings, bucket="s3://commoncrawl")
        assert server.hits[-1].authorization.startswith("AWS4-HMAC-SHA256")
    assert (without.failed, live.failed) == (False, False)
    assert told(without)["not seen"] == UNSEEN
    assert told(live)["not seen"] == UNSEEN - {"s3_same"}
    assert not told(live)["did not hold"]


@pytest.mark.parametrize("same", [True, False])
def test_the_mirror_is_compared_where_the_setting_is_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, same: bool
) -> None:
    root = tmp_path / "bucket"
    ensure_recent(root)
    monkeypatch.setattr(live_look, "PUBLIC_BUCKET", "")
    with front_and_mirror(root, monkeypatch) as (front, mirror):
        mirror.set_rules([] if same else [Rule("other_total", times=None)])
        given = {"source": front.url, "collinfo": f"{front.url}collinfo.json", "home": str(tmp_path / "home")}
        off = look_live(load_settings({}, **given))
        assert not mirror.hits
        on = look_live(load_settings({}, **given, record_mirror=True))
        assert {hit.method for hit in mirror.hits} == {"GET"}
    assert "mirror_same" in told(off)["not seen"]
    assert "mirror_same" in told(on)["held" if same else "did not hold"]
    assert {step.name: step.outcome for step in on.steps}["mirror"] == "done"


def test_a_source_that_is_not_there_holds_nothing(tmp_path: Path) -> None:
    live = look_live(load_settings({}, source=closed_port(), home=str(tmp_path)))
    assert live.failed
    assert told(live)["not seen"] == {one.name for one in ASSUMPTIONS}
    assert {seen.trouble for _, seen in live.answers} == {"unreachable"}


def test_the_page_has_every_assumption() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "live.md").read_text("utf-8")
    rows = [line.strip("|").split("|")[:2] for line in page.splitlines() if line.startswith("| `")]
    assert [(name.strip(" `"), says.strip()) for name, says in rows] == [(one.name, one.says) for one in ASSUMPTIONS]


def test_a_folder_is_no_source_to_look_at(source: Path, tmp_path: Path) -> None:
    with pytest.raises(UserInputError):
        look_live(load_settings({}, source=str(source / "commoncrawl"), home=str(tmp_path)))
