"""A source that lies the same way twice: nothing is lost before it gave a good record, and a run alone heals it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from cc_pipeline.checks.tables import missing_captures_verdict
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.errors import UserInputError
from cc_pipeline.extraction.fetch import fetch_captures
from cc_pipeline.extraction.fetch_counts import FetchSummary
from cc_pipeline.extraction.locate import locate_captures
from cc_pipeline.extraction.loss_policy import MAX_RECHECKED_FILES, FetchIncomplete, next_recheck_time
from cc_pipeline.harvesting.archives import register_archives
from cc_pipeline.harvesting.build_index import build_index
from cc_pipeline.lake.slice import FETCH, StageReport
from cc_pipeline.lake.slices import commit_slices, read_base, read_notes
from cc_pipeline.testing.mini_crawl.generate import ensure
from cc_pipeline.testing.mini_crawl.truth import Capture
from cc_pipeline.transport.faults import RangeFault
from cc_pipeline.workspace.workspace import Workspace
from cc_pipeline_tests.faultlies import LIES
from cc_pipeline_tests.faultmatrix import CRAWL, SPEC
from cc_pipeline_tests.faultserver import FaultServer, Rule
from cc_pipeline_tests.world import Bucket, extract, harvest, notes_of, workspace_of

SITE, OTHER = "example.com", "example.org"
#: Files that are wrong in the same way each time; beside these a source that has indexes and no archives.
EVERY_LIE = [kind for kind in LIES if kind not in ("login_page", "other_url")]


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Bucket:
    root = tmp_path_factory.mktemp("bucket")
    return root, ensure(root, SPEC)


@pytest.fixture
def server(bucket: Bucket) -> Iterator[FaultServer]:
    with FaultServer(bucket[0]) as one:
        yield one


@pytest.fixture
def mine(bucket: Bucket) -> list[Capture]:
    return bucket[1].captures_of(CRAWL, subset="warc", domain=SITE)


class Home:
    """A harvested home whose runs are of new processes."""

    def __init__(self, server: FaultServer, home: Path) -> None:
        self._server, self._home = server, home
        workspace = self.workspace()
        harvest(workspace, CRAWL)
        workspace.targets([SITE, OTHER])
        locate_captures(workspace, CRAWL, [SITE, OTHER])

    def workspace(self, **chosen: Any) -> Workspace:
        return workspace_of(self._server.url, self._home, **chosen)

    def run(self, *sites: str, **chosen: Any) -> tuple[StageReport, FetchIncomplete | None, int]:
        """The report, the refusal if there was one, and the requests that the source saw."""
        seen = len(self._server.hits)
        workspace = self.workspace(**chosen)
        try:
            report, refusal = fetch_captures(workspace, CRAWL, sites or (SITE,)), None
        except FetchIncomplete as error:
            report, refusal = error.report, error
        return report, refusal, len(self._server.hits) - seen

    def note(self, site: str = SITE) -> dict[str, Any]:
        [row] = notes_of(self.workspace(), FETCH, {"crawl": CRAWL, "target": site})
        return row

    def wait(self, hours: float) -> None:
        """Nothing was asked for in the last hours."""
        self.rewrite(lambda note: note | {"last_attempt_at": _earlier(note["last_attempt_at"], hours)})

    def rewrite(self, change: Callable[[Mapping[str, Any]], dict[str, Any]]) -> None:
        """Changes the notes of all fetches."""
        lake = self.workspace().lake
        rows = [*read_notes(lake, (FETCH,))]
        base = read_base(lake, FETCH, [row.slice_ for row in rows])
        commit_slices(lake, [replace(row, note=change(row.note)) for row in rows], base)


def _earlier(time_: str, hours: float) -> str:
    return (datetime.fromisoformat(time_) - timedelta(hours=hours)).isoformat()


def doubting(server: FaultServer, place: Path, lie: str = "404") -> Home:
    """A home that was told that all archives of the target are gone, by a source that gave others."""
    home = Home(server, place)
    assert home.run(OTHER)[1] is None
    server.set_rules(archives(lie))
    _, refusal, _ = home.run()
    assert refusal is not None
    assert "--accept-losses" in (refusal.advice or "")
    return home


def archives(lie: str) -> list[Rule]:
    return [Rule(lie, times=None, key=key) for key in ("*.warc.gz", "*.arc.gz")]


@pytest.mark.matrix
@pytest.mark.parametrize(
    "lie", [*(pytest.param(lie, marks=pytest.mark.smoke) for lie in ("404", "other_url")), *EVERY_LIE]
)
def test_without_a_good_record_nothing_is_lost_and_a_run_heals(
    server: FaultServer, mine: list[Capture], tmp_path: Path, lie: str
) -> None:
    home = Home(server, tmp_path / "home")
    server.set_rules(archives(lie))
    for _ in range(2):
        report, refusal, _ = home.run()
        assert refusal is not None
        figures = report.per_target[SITE]
        assert figures["fetched"] == 0
        assert home.note()["pending"] == len(mine)
        assert not home.note()["losses_unconfirmed"]
        assert missing_captures_verdict(home.workspace().lake).severity == "error"
    server.set_rules([])
    report, refusal, _ = home.run()
    assert refusal is None
    assert report.per_target[SITE]["fetched"] == len(mine)
    assert missing_captures_verdict(home.workspace().lake).severity == "ok"
    assert home.run()[2] == 0


@pytest.mark.matrix
@pytest.mark.parametrize("lie", ["404", "other_url", *EVERY_LIE])
def test_of_a_source_that_gave_others_so_much_is_doubted_and_a_run_heals(
    server: FaultServer, mine: list[Capture], tmp_path: Path, lie: str
) -> None:
    home = doubting(server, tmp_path / "home", lie)
    assert home.note()["pending"] == 0
    assert home.note()["losses_unconfirmed"]
    # as long as it lies, a run looks again with a few requests
    _, refusal, requests = home.run()
    assert refusal is not None
    assert 0 < requests <= MAX_RECHECKED_FILES
    assert home.note()["second_looks"] == 1
    assert missing_captures_verdict(home.workspace().lake).severity == "error"
    server.set_rules([])
    report, refusal, _ = home.run()
    assert refusal is None
    assert report.per_target[SITE]["fetched"] == len(mine)
    assert home.run()[2] == 0


def test_a_good_record_of_the_day_before_is_no_proof(server: FaultServer, mine: list[Capture], tmp_path: Path) -> None:
    home = Home(server, tmp_path / "home")
    assert home.run(OTHER)[1] is None
    yesterday = time.time() - 90_000
    os.utime(tmp_path / "home" / "cache" / "good_record", (yesterday, yesterday))
    server.set_rules(archives("404"))
    home.run()
    assert home.note()["pending"] == len(mine)


def test_records_of_files_of_ones_own_are_no_proof_of_the_source(
    server: FaultServer, bucket: Bucket, mine: list[Capture], tmp_path: Path
) -> None:
    home = Home(server, tmp_path / "home")
    server.set_rules(archives("404"))
    own = home.workspace()
    register_archives(own, [str(bucket[0] / mine[0].warc_filename)], "LOCAL-own")
    build_index(own, "LOCAL-own")
    harvest(own, "LOCAL-own")
    _, fetched, _ = extract(own, SITE, crawl="LOCAL-own")
    assert fetched.per_target[SITE]["fetched"]
    home.run()
    assert home.note()["pending"] == len(mine)


def test_losses_are_accepted_by_their_number(server: FaultServer, mine: list[Capture], tmp_path: Path) -> None:
    home = doubting(server, tmp_path / "home")
    number = home.note()["losses"]
    assert home.run(accept_losses=("12345",))[1] is not None
    assert home.run(accept_losses=(number,))[1] is None
    assert home.note()["losses_accepted"] == number
    assert not home.note()["losses_unconfirmed"]
    assert home.run()[1:] == (None, 0)
    home.wait(1_000)
    assert home.run()[2] == 0
    assert missing_captures_verdict(home.workspace().lake).severity == "warn"


def test_one_file_that_is_gone_is_no_doubt_and_is_looked_for_once_a_day(
    server: FaultServer, mine: list[Capture], tmp_path: Path
) -> None:
    home = Home(server, tmp_path / "home")
    gone = mine[0].warc_filename
    lost = sum(one.warc_filename == gone for one in mine)
    server.set_rules([Rule("404", times=None, key=f"*{gone}")])
    report, refusal, _ = home.run()
    assert refusal is None
    assert report.per_target[SITE]["missing"] == lost > 5
    assert [note for note in report.notes if f"{lost:,} captures are missing or damaged in the source" in note]
    assert len([hit for hit in server.hits if hit.key.endswith(gone)]) <= 4
    assert home.run()[2] == 0
    home.wait(25)
    _, refusal, requests = home.run()
    assert (refusal, requests) == (None, 1)
    assert home.run()[2] == 0
    home.wait(25)
    server.set_rules([])
    report, refusal, requests = home.run()
    assert refusal is None
    assert report.per_target[SITE]["fetched"] == len(mine)
    assert requests <= 1 + lost


def test_what_is_doubted_stays_so_however_little_is_asked(
    server: FaultServer, mine: list[Capture], tmp_path: Path
) -> None:
    home = Home(server, tmp_path / "home")
    assert home.run(OTHER)[1] is None
    few = sorted({one.warc_filename for one in mine})[:2]
    server.set_rules([Rule("404", times=None, key=f"*{key}") for key in few])
    assert home.run()[1] is not None
    # more is allowed now than is lost, but what was doubted was not accepted
    for _ in range(3):
        assert home.run(max_lost=1.0)[1] is not None
    assert home.run(max_lost=1.0, accept_losses=(home.note()["losses"],))[1] is None


@pytest.mark.process
def test_a_loss_is_a_targets_own_until_it_was_asked_for_within_a_day(
    server: FaultServer, mine: list[Capture], tmp_path: Path
) -> None:
    home = Home(server, tmp_path / "home")
    file = mine[0].warc_filename
    server.set_rules([Rule("404", times=None, key=f"*{file}")])
    home.run(SITE)
    lost = home.note()["missing"]
    assert lost
    server.set_rules([])
    for wait, expected in ((0, lost), (25, 0)):
        home.wait(wait)
        workspace = home.workspace()
        # the same captures, of a target that never asked for them
        slug = f"set-own-{wait}"
        workspace.register_targets([parse_target(f"set:own-{wait} = {SITE}")])
        locate_captures(workspace, CRAWL, [slug])
        fetch_captures(workspace, CRAWL, [slug])
        assert home.note(slug)["missing"] == expected
    # what one of them has is good for all, whoever lost it
    home.run(SITE)
    workspace = home.workspace()
    workspace.register_targets([parse_target(f"set:third = {SITE}")])
    locate_captures(workspace, CRAWL, ["set-third"])
    assert fetch_captures(workspace, CRAWL, ["set-third"]).requests == 0
    assert home.note("set-third")["missing"] == 0


def test_a_home_that_judges_digests_otherwise_makes_nothing_of_another_due(bucket: Bucket, tmp_path: Path) -> None:
    lake = str(tmp_path / "lake")
    one = workspace_of(bucket[0], tmp_path / "one", lake=lake)
    harvest(one, CRAWL)
    for stage in (locate_captures, fetch_captures):
        one.targets([SITE])
        stage(one, CRAWL, [SITE])
    before = one.lake.version("records")
    other = workspace_of(bucket[0], tmp_path / "other", lake=lake, digest_policy="fail")
    with pytest.raises(UserInputError, match="digest_policy=record"):
        fetch_captures(other, CRAWL, [SITE])
    assert fetch_captures(one, CRAWL, [SITE]).fresh_slices == 0
    assert one.lake.version("records") == before


def test_a_look_that_nobody_answers_is_none(server: FaultServer, mine: list[Capture], tmp_path: Path) -> None:
    home = doubting(server, tmp_path / "home")
    server.set_rules(archives("500"))
    with pytest.raises(RangeFault):
        home.run()
    assert home.note()["second_looks"] == 0


def test_what_does_not_come_after_some_of_it_did_is_open(
    server: FaultServer, mine: list[Capture], tmp_path: Path
) -> None:
    home = doubting(server, tmp_path / "home")
    stuck = mine[0].warc_filename
    server.set_rules([Rule("500", times=None, key=f"*{stuck}")])
    report, refusal, _ = home.run()
    assert refusal is not None
    assert report.per_target[SITE]["pending"] == sum(one.warc_filename == stuck for one in mine)
    server.set_rules([])
    assert home.run()[0].per_target[SITE]["fetched"] == len(mine)


def test_schedules_look_at_growing_distances(server: FaultServer, tmp_path: Path) -> None:
    counts = dict.fromkeys(
        ("quarantined", "pending", "retries_exhausted", "unsuccessful_runs", "runs_without_response"), 0
    )
    now = datetime(2024, 6, 1, tzinfo=UTC)
    note = FetchSummary(
        **counts,
        planned=20,
        fetched=10,
        missing=10,
        reason=None,
        example=None,
        last_attempt_at=now,
        lost_in_top_file=10,
    )

    def days(looks: int, **more: Any) -> float | None:
        when = next_recheck_time(replace(note, second_looks=looks, **more))
        return None if when is None else (when - now) / timedelta(days=1)

    assert [days(looks) for looks in (0, 1, 2, 30)] == [1, 2, 4, 64]
    assert days(0, losses="a", losses_accepted="a") is None
    assert days(0, fetched=20, missing=0) is None
    assert [days(looks, losses_unconfirmed=True) for looks in (0, 1, 20)] == [0.5 / 24, 1 / 24, 2]


def test_payloads_of_another_digest_are_asked_for_once_more(
    server: FaultServer, mine: list[Capture], tmp_path: Path
) -> None:
    home = Home(server, tmp_path / "home")
    server.set_rules(archives("login_page"))
    report, refusal, _ = home.run()
    assert refusal is not None
    assert report.per_target[SITE]["fetched"] == len(mine)
    assert report.per_target[SITE]["payloads other than indexed"] == len(mine)
    assert missing_captures_verdict(home.workspace().lake).severity == "error"
    # a source that gives nothing meanwhile takes nothing away, and decides nothing
    server.set_rules(archives("500"))
    report, refusal, _ = home.run()
    assert refusal is not None
    assert report.per_target[SITE]["fetched"] == len(mine)
    # nor does one that answers for a part of them alone
    few = [Rule("500", times=None, key=f"*{mine[0].warc_filename}"), *archives("login_page")]
    server.set_rules(few)
    assert home.run()[1] is not None
    assert home.note()["mismatches_unconfirmed"]
    # the same again is believed, and noted
    server.set_rules(archives("login_page"))
    report, refusal, requests = home.run()
    assert refusal is None
    assert requests > 0
    assert home.note()["mismatched"] == len(mine)
    assert not home.note()["mismatches_unconfirmed"]
    assert missing_captures_verdict(home.workspace().lake).metrics["payloads other than indexed"] == len(mine)
    assert home.run()[2] == 0


def test_payloads_that_were_wrong_for_a_while_heal(server: FaultServer, mine: list[Capture], tmp_path: Path) -> None:
    home = Home(server, tmp_path / "home")
    server.set_rules(archives("login_page"))
    assert home.run()[1] is not None
    server.set_rules([])
    report, refusal, _ = home.run()
    assert refusal is None
    assert "payloads other than indexed" not in report.per_target[SITE]
    checks = home.workspace().lake.read("records", {"crawl": CRAWL, "target": SITE})["digest_check"]
    assert set(checks.to_pylist()) == {"match"}
    assert home.run()[2] == 0
