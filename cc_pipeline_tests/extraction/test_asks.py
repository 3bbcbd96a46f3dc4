"""What a source does not give, day by day on a simulated clock: three asks, an ill source, and when to ask again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from cc_pipeline.checks.tables import missing_captures_verdict
from cc_pipeline.extraction import fetch as fetch_stage
from cc_pipeline.extraction.fetch import fetch_captures
from cc_pipeline.extraction.fetch_counts import FetchSummary, SliceFetchCounts
from cc_pipeline.extraction.locate import locate_captures
from cc_pipeline.extraction.loss_policy import CommandTotals, FetchIncomplete, is_due, next_ask_time
from cc_pipeline.extraction.parse import parse_records
from cc_pipeline.harvesting.archives import register_archives
from cc_pipeline.harvesting.build_index import build_index
from cc_pipeline.lake.slice import FETCH, Slice, StageReport
from cc_pipeline.testing.mini_crawl.generate import ensure
from cc_pipeline.testing.mini_crawl.truth import Capture
from cc_pipeline.workspace.workspace import Workspace
from cc_pipeline_tests.faultlies import LIES
from cc_pipeline_tests.faultmatrix import CRAWL, SPEC
from cc_pipeline_tests.faultserver import FaultServer, Rule
from cc_pipeline_tests.world import Bucket, extract, harvest, notes_of, workspace_of

SITE, OTHER = "example.com", "example.org"
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
#: Files that are wrong in the same way each time; beside these a source that has indexes and no archives.
EVERY_LIE = ["404", *(kind for kind in LIES if kind != "login_page")]


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
    """A harvested home on a simulated clock, whose runs are of new processes."""

    def __init__(self, server: FaultServer, home: Path, patch: pytest.MonkeyPatch) -> None:
        self._server, self.folder = server, home
        self.time = NOON
        patch.setattr(fetch_stage, "current_time", lambda: self.time)
        workspace = self.workspace()
        harvest(workspace, CRAWL)
        workspace.targets([SITE, OTHER])
        locate_captures(workspace, CRAWL, [SITE, OTHER])

    def workspace(self, **chosen: Any) -> Workspace:
        return workspace_of(self._server.url, self.folder, **chosen)

    def run(self, *sites: str, **chosen: Any) -> tuple[StageReport, FetchIncomplete | None, int]:
        """The report, the refusal if there was one, and the requests that the source saw."""
        seen = len(self._server.hits)
        workspace = self.workspace(**chosen)
        try:
            report, refusal = fetch_captures(workspace, CRAWL, sites or (SITE,)), None
        except FetchIncomplete as error:
            report, refusal = error.report, error
        return report, refusal, len(self._server.hits) - seen

    def wait(self, hours: float) -> None:
        self.time += timedelta(hours=hours)

    def note(self, site: str = SITE) -> dict[str, Any]:
        [row] = notes_of(self.workspace(), FETCH, {"crawl": CRAWL, "target": site})
        return row


@pytest.fixture
def home(server: FaultServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    return Home(server, tmp_path / "home", monkeypatch)


def archives(lie: str) -> list[Rule]:
    return [Rule(lie, times=None, key=key) for key in ("*.warc.gz", "*.arc.gz")]


def test_a_file_that_is_gone_for_good_is_lost_on_the_third_day_and_the_rest_is_whole(
    home: Home, server: FaultServer, mine: list[Capture]
) -> None:
    gone = mine[0].warc_filename
    lost = sum(one.warc_filename == gone for one in mine)
    server.set_rules([Rule("404", times=None, key=f"*{gone}")])
    for day in (1, 2, 3):
        report, refusal, sent = home.run(max_pending=1.0)
        assert refusal is None
        # only those of the file, and a few records that show that the source works
        assert day == 1 or 0 < sent <= 1 + lost + 3
        note = home.note()
        assert (note["fetched"], note["pending"], note["lost"]) == (
            len(mine) - lost, lost * (day < 3), lost * (day == 3)
        )  # fmt: skip
        parsed = parse_records(home.workspace(), CRAWL, [SITE])
        assert (parsed.fresh_slices, parsed.rows) == (int(day == 1), len(mine)), "asks are no new parse"
        if day < 3:
            assert any(f"asked {day} of 3 times, next after 2026-03-0{day + 1} 08:00" in text for text in report.notes)
            assert missing_captures_verdict(home.workspace().lake).severity == "error"
        home.wait(24)
    assert missing_captures_verdict(home.workspace().lake).severity == "warn"
    assert home.run()[1:] == (None, 0)
    # lost is final, and refetching is asking at once
    assert (home.run(refetch=True)[1], home.note()["lost"]) == (None, lost)
    server.set_rules([])
    assert home.run()[1:] == (None, 0)
    assert (home.run(refetch=True)[1], home.note()["lost"]) == (None, 0)


@pytest.mark.matrix
@pytest.mark.parametrize("lie", EVERY_LIE)
def test_a_source_without_a_good_record_loses_nothing_and_a_sound_day_heals(
    home: Home, server: FaultServer, mine: list[Capture], lie: str
) -> None:
    server.set_rules(archives(lie))
    for _ in range(3):
        _, refusal, _ = home.run()
        assert refusal is not None
        note = home.note()
        assert (note["pending"], note["fetched"], note["asks"]) == (len(mine), 0, 0)
        home.wait(24)
    server.set_rules([])
    report, refusal, _ = home.run()
    assert refusal is None
    assert report.per_target[SITE]["fetched"] == len(mine)
    assert home.run()[2] == 0


@pytest.mark.parametrize("lie", EVERY_LIE[:2])
def test_no_ask_of_an_ill_source_counts_and_the_message_names_the_way_out(
    home: Home, server: FaultServer, mine: list[Capture], lie: str
) -> None:
    assert home.run(OTHER)[1] is None
    server.set_rules(archives(lie))
    for _ in range(3):
        _, refusal, _ = home.run()
        assert refusal is not None
        assert "CC_PIPELINE_MAX_LOST" in refusal.advice
        assert (home.note()["pending"], home.note()["asks"]) == (len(mine), 0)
        home.wait(2)
    # a person who knows better
    assert home.run(max_lost=1.0)[1] is not None
    assert home.note()["asks"] == 1
    server.set_rules([])
    report, refusal, _ = home.run()
    assert (refusal, report.per_target[SITE]["fetched"]) == (None, len(mine))


def test_records_of_files_of_ones_own_are_no_proof_of_the_source(
    home: Home, server: FaultServer, bucket: Bucket, mine: list[Capture]
) -> None:
    server.set_rules(archives("404"))
    own = home.workspace()
    register_archives(own, [str(bucket[0] / mine[0].warc_filename)], "LOCAL-own")
    build_index(own, "LOCAL-own")
    harvest(own, "LOCAL-own")
    _, fetched, _ = extract(own, SITE, crawl="LOCAL-own")
    assert fetched.per_target[SITE]["fetched"]
    home.run(max_lost=1.0)
    assert (home.note()["pending"], home.note()["asks"]) == (len(mine), 0)


def test_a_good_record_proves_a_source_for_a_day_and_asks_prolong_nothing(
    home: Home, server: FaultServer, mine: list[Capture]
) -> None:
    home.run(OTHER)
    server.set_rules(archives("404"))
    [note] = home.workspace().settings.cache_path.glob("good_record")
    text = note.read_bytes()
    note.write_bytes(text.replace(b"http:", b"https:"))
    home.run(max_lost=1.0)
    assert home.note()["asks"] == 0, "it is of another source"
    note.write_bytes(text)
    for asks in (1, 2, 2):
        home.run(max_lost=1.0)
        assert (home.note()["pending"], home.note()["asks"]) == (len(mine), asks)
        home.wait(20)


def test_a_damaged_note_of_the_last_good_record_is_none(home: Home, server: FaultServer, mine: list[Capture]) -> None:
    home.run(OTHER)
    server.set_rules([Rule("404", times=None, key=f"*{mine[0].warc_filename}")])
    [note] = home.workspace().settings.cache_path.glob("good_record")
    for damage in (b"", b"\xff\xfe", note.read_bytes()[:-20]):
        note.write_bytes(damage)
        home.run(max_lost=1.0)
    assert home.note()["asks"] == 1


def test_asks_outlive_the_bytes_that_came_instead(home: Home, server: FaultServer, mine: list[Capture]) -> None:
    server.set_rules([Rule("bit_each", times=None, key=f"*{mine[0].warc_filename}")])
    for day in (1, 2, 3):
        home.run()
        for file in home.folder.rglob("*.quarantine"):
            file.unlink()
        note = home.note()
        assert (note["asks"], note["lost"] > 0) == ((day, False) if day < 3 else (0, True))
        home.wait(24)


def counts(pending: int, ask_pending: int = 0, last_ask_at: datetime | None = None, **more: Any) -> SliceFetchCounts:
    chosen: dict[str, Any] = {"planned": 100, "fetched": 100 - pending, "lost": 0, "slice_": Slice(CRAWL, SITE)} | more
    return SliceFetchCounts(**chosen, pending=pending, ask_pending=ask_pending, last_ask_at=last_ask_at)


def test_schedules_ask_every_twenty_hours_or_at_growing_distances() -> None:
    def hours(failed_runs: int, asked: SliceFetchCounts) -> float | None:
        time = next_ask_time(asked, failed_runs, NOON)
        return None if time is None else (time - NOON) / timedelta(hours=1)

    assert [hours(runs, counts(1)) for runs in (1, 2, 3, 40)] == [0.5, 1, 2, 64 * 24]
    earlier, ahead = NOON - timedelta(hours=6), NOON + timedelta(days=365)
    assert [hours(0, counts(1, 1, asked)) for asked in (None, NOON, earlier, ahead)] == [20, 20, 14, 20]
    # some of both kinds: whichever is earlier
    assert [hours(runs, counts(2, 1, NOON)) for runs in (1, 9)] == [0.5, 20]
    assert hours(0, counts(0)) is None
    note = FetchSummary(
        planned=2, fetched=1, pending=1, lost=0, last_attempt_at=NOON, next_ask_at=NOON + timedelta(hours=20)
    )
    times = [NOON, NOON + timedelta(hours=19), NOON + timedelta(hours=20), NOON - timedelta(hours=1)]
    assert [is_due(note, time) for time in times] == [False, False, True, True]
    assert not is_due(replace(note, next_ask_at=None), times[2])


def test_a_source_is_judged_by_all_that_a_command_fetched() -> None:
    def slice_(number: int, losses: dict[str, int], planned: int = 100) -> SliceFetchCounts:
        return counts(sum(losses.values()), planned=planned, losses=losses, slice_=Slice(CRAWL, f"{number}.example"))

    totals = CommandTotals()
    # one archive file is one accident
    totals.take(slice_(1, {"a": 90, "b": 9}))
    assert not totals.is_ill(0.05)
    totals.take(slice_(2, {"a": 50, "c": 1}))
    assert totals.is_ill(0.04) and not totals.is_ill(0.05)
    # a slice counts once, as it is now
    totals.take(slice_(2, {"a": 50}))
    assert not totals.is_ill(0.04)
    totals.take(slice_(3, {"b": 50, "c": 50}))
    assert totals.is_ill(0.2)
    totals.take(slice_(4, {}, planned=100_000))
    assert not totals.is_ill(0.05)
