"""The backfill: lists bounded by work, nothing that is in flight, and no asking for ever for what fails."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeAlias

import cc_pipeline.defs.automation.schedules as schedules
import dagster as dg
import pytest
from cc_pipeline.defs.run_notes import note_tried

from cc_pipeline.automation import reparse
from cc_pipeline.automation.due import MAX_FAILURES
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.defs.home_namespace import WORKSPACE
from cc_pipeline.defs.instance import PROCESS_TAG
from cc_pipeline.defs.partitions import KIND_TAG, SUMMARY_TAG, range_tags
from cc_pipeline.documents.schemas import PARSER_VERSION
from cc_pipeline.errors import UserInputError
from cc_pipeline.extraction import plan
from cc_pipeline.extraction.blocklist import block
from cc_pipeline.extraction.capture_buffer import CaptureTotals
from cc_pipeline.extraction.crawl_plan import find_current_targets
from cc_pipeline.extraction.fetch_counts import SliceFetchCounts
from cc_pipeline.extraction.lookup_notes import LookupSummary, build_note
from cc_pipeline.extraction.loss_policy import build_fetch_notes
from cc_pipeline.extraction.plan import build_fetch_input, build_locate_input, build_parse_input, options_of
from cc_pipeline.lake import target_definitions as targets
from cc_pipeline.lake.slice import FETCH, LOCATE, PARSE, Slice, Stage
from cc_pipeline.lake.slices import SliceRow, TableState, commit_slices, empty_slices, read_base, read_slice_rows
from cc_pipeline.processes import this_process
from cc_pipeline.settings import load_settings
from cc_pipeline.workspace.workspace import Workspace
from cc_pipeline_tests.closing import closed_later
from cc_pipeline_tests.defs.graph import EXTRACT, began, began_listed, execute_asked, listed, schedule
from cc_pipeline_tests.world import NEW, OLD, Bucket, closed_port, harvest

backfill_missing = schedule("backfill_missing")

pytestmark = pytest.mark.xdist_group("schedules")

Inputs: TypeAlias = Mapping[Slice, Mapping[str, str]]
DOMAINS = [f"site-{n}.example" for n in range(8)]


def note_fetches(inputs: Inputs, **counts: int) -> dict[Slice, dict[str, object]]:
    none = dict.fromkeys(("quarantined", "missing", "pending", "retries_exhausted", "unsuccessful_runs"), 0)
    counts_by_slice = {
        slice_: SliceFetchCounts(slice_=slice_, reason=None, example=None, **(none | counts)) for slice_ in inputs
    }
    return build_fetch_notes(counts_by_slice, inputs, {})


class Backfill:
    """The schedule over a home whose index is harvested; ``ran`` stands for runs that the daemon launched."""

    def __init__(self, instance: dg.DagsterInstance, source: Path, home: Path) -> None:
        self.instance = instance
        self.source, self.home = source, home
        self._ticks = 0

    def watch(self, *definitions: str) -> None:
        self.home.mkdir(parents=True, exist_ok=True)
        (self.home / "domains.txt").write_text("".join(f"{text}\n" for text in definitions), "utf-8")
        self.workspace.register_targets([parse_target(text) for text in definitions])
        self.instance.add_dynamic_partitions("target", [parse_target(text).slug for text in definitions])

    @property
    def workspace(self) -> Workspace:
        """A new one, as each tick and each run has, with the settings of now."""
        return closed_later(Workspace(load_settings(source=str(self.source), home=str(self.home))))

    def materialized(self, asset: str, *keys: str) -> None:
        for key in keys:
            self.instance.report_runless_asset_event(dg.AssetMaterialization(asset, partition=key))

    def made(self, *slugs: str, parser: str = PARSER_VERSION, pages: int = 0) -> None:
        """Runs over these in the newest crawl have made so many pages of each, and recorded them."""
        workspace = self.workspace
        if not slugs:
            return
        lake, options = workspace.lake, replace(options_of(workspace.settings), parser=parser)

        def commit(stage: Stage, inputs: Inputs, notes: Mapping[Slice, Mapping[str, object]]) -> dict[Slice, str]:
            rows = [
                SliceRow(
                    one, stage.label, 0, 0, input_, {t: TableState(1, pages) for t in stage.tables}, notes.get(one, {})
                )
                for one, input_ in inputs.items()
            ]
            return {row.slice_: row.content for row in commit_slices(lake, rows, read_base(lake, stage, inputs))}

        versions = {Slice(NEW, slug): version for slug, version in targets.read_versions(lake, slugs).items()}
        located = {one: build_locate_input(version, "parquet", "") for one, version in versions.items()}
        lookups = {one: LookupSummary("parquet", "", version, None) for one, version in versions.items()}
        captures = commit(
            LOCATE, located, {one: build_note(one, noted, CaptureTotals(pages)) for one, noted in lookups.items()}
        )
        fetched = {one: build_fetch_input(content, options.digest_policy) for one, content in captures.items()}
        records = commit(FETCH, fetched, note_fetches(fetched, planned=pages, fetched=pages))
        commit(PARSE, {one: build_parse_input(content, options) for one, content in records.items()}, {})
        self.materialized("page_metadata", *(f"{NEW}|{slug}" for slug in slugs))

    def tick(self) -> list[dg.RunRequest] | dg.SkipReason:
        self._ticks += 1
        at = datetime(2024, 6, 1, tzinfo=UTC) + timedelta(minutes=30 * self._ticks)
        resources = {WORKSPACE: self.workspace}
        with dg.build_schedule_context(scheduled_execution_time=at, resources=resources) as context:
            # Dagster takes only instances on disk here, which cost a second each to make
            context._instance, context._instance_ref = self.instance, object()
            answer = backfill_missing(context)
        assert isinstance(answer, list | dg.SkipReason)
        return answer

    def began(self, tags: dict[str, str], job: str = "extract_domain") -> dg.DagsterRun:
        return began(self.instance, tags, job)

    def began_listed(self, *keys: str, tags: dict[str, str] | None = None, **config: object) -> dg.DagsterRun:
        return began_listed(self.instance, keys, tags, **config)

    def failed(self, *keys: str, but: tuple[str, ...] = (), **config: object) -> None:
        """A run over ``keys`` has failed, after it recorded those of ``but``."""
        run = self.began_listed(*keys, **config)
        self.made(*(key.partition("|")[2] for key in but))
        self.instance.report_run_failed(run)


def shown(answer: list[dg.RunRequest] | dg.SkipReason) -> list[tuple[str, list[str]]]:
    """Kind and domains (with other crawls than the newest in front) of each run that is asked for."""
    assert isinstance(answer, list), answer
    return [(one.tags[KIND_TAG], [key.removeprefix(f"{NEW}|") for key in listed(one.run_config)]) for one in answer]


def reason(answer: list[dg.RunRequest] | dg.SkipReason) -> str:
    assert isinstance(answer, dg.SkipReason), answer
    return answer.skip_message or ""


def hours_ahead(monkeypatch: pytest.MonkeyPatch, hours: float) -> None:
    monkeypatch.setattr(schedules, "_now", lambda: datetime.now(UTC) + timedelta(hours=hours))


@pytest.fixture
def backfill(bucket: Bucket, tmp_path: Path, instance: dg.DagsterInstance) -> Backfill:
    made = Backfill(instance, bucket[0], tmp_path / "home")
    # in the order in which a person came upon them
    instance.add_dynamic_partitions("crawl", [NEW, OLD])
    made.watch(*DOMAINS)
    made.materialized("row_groups", NEW)
    return made


def test_what_is_missing_is_asked_for_in_one_run_with_its_kind_and_priority(backfill: Backfill) -> None:
    [request] = backfill.tick()
    assert shown([request]) == [("watch", DOMAINS)]
    assert request.tags["dagster/priority"] == "-1"
    assert "starts 8 partitions (about" in request.tags[SUMMARY_TAG]
    assert "no run has ended yet" in request.tags[SUMMARY_TAG]
    assert request.partition_key is None


def test_what_is_in_flight_is_left_out_whoever_asked(backfill: Backfill) -> None:
    backfill.began({"dagster/partition": f"{NEW}|{DOMAINS[1]}"})
    backfill.began(range_tags(f"{NEW}|{DOMAINS[3]}", f"{NEW}|{DOMAINS[4]}"))
    backfill.began_listed(f"{NEW}|{DOMAINS[6]}", f"{OLD}|{DOMAINS[0]}")
    assert shown(backfill.tick()) == [("watch", [DOMAINS[n] for n in (0, 2, 5, 7)])]
    backfill.began(range_tags(f"{NEW}|{DOMAINS[0]}", f"{NEW}|{DOMAINS[-1]}"))
    assert "8 due partitions are queued or running" in reason(backfill.tick())


def test_a_run_whose_process_was_killed_holds_nothing_up(backfill: Backfill) -> None:
    key = {"dagster/partition": f"{NEW}|{DOMAINS[0]}"}
    alive = backfill.began(key | {PROCESS_TAG: this_process()})
    assert shown(backfill.tick()) == [("watch", DOMAINS[1:])]
    backfill.instance.delete_run(alive.run_id)
    dead = dg.DagsterRun("extract_domain", tags=key | {PROCESS_TAG: "999999999-1"}, status=dg.DagsterRunStatus.STARTED)
    backfill.instance.add_run(dead)
    assert shown(backfill.tick()) == [("watch", DOMAINS[1:])], "it failed just now"


def test_targets_go_to_the_chosen_crawls_that_are_harvested(
    backfill: Backfill, monkeypatch: pytest.MonkeyPatch
) -> None:
    backfill.materialized("row_groups", OLD)
    assert shown(backfill.tick()) == [("watch", DOMAINS)], "the newest, in whatever order they became partitions"
    monkeypatch.setenv("CC_PIPELINE_CRAWLS", "all")
    old = [f"{OLD}|{domain}" for domain in DOMAINS]
    assert shown(backfill.tick()) == [("watch", DOMAINS), ("backfill", old)]
    monkeypatch.setenv("CC_PIPELINE_CRAWLS", OLD)
    assert shown(backfill.tick()) == [("backfill", old)]
    monkeypatch.setenv("CC_PIPELINE_CRAWLS", "CC-MAIN-1999-01")
    assert reason(backfill.tick()) == "no partition has to be run"


def test_a_target_missing_in_many_crawls_is_few_runs(backfill: Backfill, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC_PIPELINE_CRAWLS", "all")
    crawls = [f"CC-MAIN-20{year:02}-{week:02}" for year in range(10, 20) for week in range(10, 20)]
    backfill.instance.add_dynamic_partitions("crawl", crawls)
    backfill.materialized("row_groups", *crawls)
    (backfill.home / "domains.txt").write_text(f"{DOMAINS[3]}\n", "utf-8")
    answer = backfill.tick()
    assert isinstance(answer, list), answer
    watch, older = answer
    assert [request.tags[KIND_TAG] for request in (watch, older)] == ["watch", "backfill"]
    newest_first = [f"{crawl}|{DOMAINS[3]}" for crawl in sorted(crawls, reverse=True)]
    assert listed(older.run_config) == newest_first


def test_what_is_done_is_not_asked_for(backfill: Backfill) -> None:
    backfill.made(DOMAINS[2], DOMAINS[5])
    assert shown(backfill.tick()) == [("watch", [DOMAINS[n] for n in (0, 1, 3, 4, 6, 7)])]
    backfill.made(*DOMAINS)
    assert reason(backfill.tick()) == "no partition has to be run"


def test_what_is_recorded_and_not_there_is_asked_for(backfill: Backfill) -> None:
    backfill.made(*DOMAINS)
    empty_slices(backfill.workspace.lake, PARSE, [Slice(NEW, DOMAINS[1])])
    assert shown(backfill.tick()) == [("watch", [DOMAINS[1]])]
    backfill.made(DOMAINS[1])
    assert reason(backfill.tick()) == "no partition has to be run"


def test_a_tick_asks_for_no_more_than_its_bounds_and_says_how_long_the_rest_takes(
    backfill: Backfill, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC_PIPELINE_PARTITIONS_PER_RUN", "2")
    assert [len(keys) for _, keys in shown(backfill.tick())] == [2, 2, 2, 2]
    monkeypatch.setenv("CC_PIPELINE_BACKFILL_PER_TICK", "3")
    answer = backfill.tick()
    assert [len(keys) for _, keys in shown(answer)] == [2, 1]
    assert isinstance(answer, list)
    assert "5 partitions wait for a later tick (about" in answer[0].tags[SUMMARY_TAG]
    # a partition that nothing is known of counts as a hundred captures and its fixed cost: 2.4 s at 50 a second
    monkeypatch.delenv("CC_PIPELINE_BACKFILL_PER_TICK")
    monkeypatch.setenv("CC_PIPELINE_BACKFILL_HOURS", str(4 / 3600))
    assert [len(keys) for _, keys in shown(backfill.tick())] == [2]
    backfill.began_listed(f"{NEW}|{DOMAINS[0]}")
    assert [len(keys) for _, keys in shown(backfill.tick())] == [1], "what is under way counts"
    backfill.began_listed(f"{NEW}|{DOMAINS[1]}")
    assert "6 partitions wait for a later tick" in reason(backfill.tick())


def test_a_queue_is_never_longer_than_a_look(backfill: Backfill, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC_PIPELINE_PARTITIONS_PER_RUN", "1")
    monkeypatch.setattr(schedules, "_MAX_RUNS", 3)
    for domain in DOMAINS[:2]:
        backfill.began_listed(f"{NEW}|{domain}", tags={KIND_TAG: "watch"})
    assert shown(backfill.tick()) == [("watch", [DOMAINS[2]])]


def test_a_bound_that_is_no_number_is_an_error(backfill: Backfill, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC_PIPELINE_BACKFILL_PER_TICK", "many")
    with pytest.raises(UserInputError, match="CC_PIPELINE_BACKFILL_PER_TICK"):
        backfill.tick()


def test_targets_that_left_the_watch_list_or_are_no_partition_yet_are_not_asked_for(backfill: Backfill) -> None:
    (backfill.home / "domains.txt").write_text(f"{DOMAINS[3]}\nnew-here.example\n", "utf-8")
    assert shown(backfill.tick()) == [("watch", [DOMAINS[3]])]


def test_a_bad_line_is_named_and_the_others_are_asked_for(backfill: Backfill) -> None:
    (backfill.home / "domains.txt").write_text(f"{DOMAINS[3]}\n../x\n", "utf-8")
    assert shown(backfill.tick()) == [("watch", [DOMAINS[3]])]
    backfill.made(DOMAINS[3])
    assert "line 2: '..'" in reason(backfill.tick())


def test_a_tick_that_was_interrupted_asks_for_the_rest_under_other_run_keys(
    backfill: Backfill, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC_PIPELINE_PARTITIONS_PER_RUN", "1")
    first = backfill.tick()
    backfill._ticks -= 1
    assert [one.run_key for one in backfill.tick()] == [one.run_key for one in first]
    for request in first[:3]:
        backfill.began_listed(*listed(request.run_config), tags=dict(request.tags))
    backfill._ticks -= 1
    again = backfill.tick()
    assert [one.run_key for one in again] == [one.run_key for one in first[3:]]
    assert len({one.run_key for one in first}) == len(first)


def test_requests_of_different_ticks_have_different_run_keys(backfill: Backfill) -> None:
    first, second = backfill.tick(), backfill.tick()
    assert isinstance(first, list)
    assert isinstance(second, list)
    assert first[0].run_key != second[0].run_key


def test_what_failed_is_tried_again_at_growing_distances_alone_at_last_and_then_left(
    backfill: Backfill, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, others = DOMAINS[0], DOMAINS[1:]
    key = f"{NEW}|{bad}"
    # the others of its run came through
    backfill.failed(*(f"{NEW}|{domain}" for domain in DOMAINS), but=tuple(f"{NEW}|{domain}" for domain in others))
    assert reason(backfill.tick()).startswith("1 partition failed, to be tried again later")
    for early, late in ((0.4, 0.6), (1.9, 2.1), (7.9, 8.1)):
        hours_ahead(monkeypatch, early)
        assert "tried again later" in reason(backfill.tick())
        hours_ahead(monkeypatch, late)
        assert shown(backfill.tick()) == [("repair", [bad])]
        # a person's run, or one of the UI, counts as well
        backfill.failed(key, tables=["page_metadata"])
    hours_ahead(monkeypatch, 48)
    said = reason(backfill.tick())
    assert (
        f"1 partition failed {MAX_FAILURES} times or more in a row, so this schedule does not try them for a week: "
        f"{key}." in said
    )
    assert "by hand" in said
    # a person who ran it by hand settles it
    backfill.made(bad)
    assert reason(backfill.tick()) == "no partition has to be run"


def test_what_failed_when_it_was_made_anew_is_tried_again_too(
    backfill: Backfill, monkeypatch: pytest.MonkeyPatch
) -> None:
    backfill.made(*DOMAINS)
    backfill.failed(f"{NEW}|{DOMAINS[4]}", tables=["page_metadata"])
    hours_ahead(monkeypatch, 1)
    assert shown(backfill.tick()) == [("repair", [DOMAINS[4]])]


def test_what_is_left_alone_does_not_stop_the_others(backfill: Backfill, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(MAX_FAILURES):
        backfill.failed(f"{NEW}|{DOMAINS[0]}")
    hours_ahead(monkeypatch, 1)
    assert shown(backfill.tick()) == [("watch", DOMAINS[1:])]
    hours_ahead(monkeypatch, 8 * 24)
    assert shown(backfill.tick()) == [("watch", DOMAINS)], "failures are forgotten after a week"


def test_what_runs_did_not_get_to_is_asked_for_as_if_it_were_new(
    backfill: Backfill, monkeypatch: pytest.MonkeyPatch
) -> None:
    for times in range(1, 2 * MAX_FAILURES):
        run = backfill.began_listed(*(f"{NEW}|{domain}" for domain in DOMAINS))
        # the first is in hand when the process of the run is killed, each time
        note_tried(backfill.instance, run.run_id, [f"{NEW}|{DOMAINS[0]}"])
        backfill.instance.report_run_failed(run)
        if times == 1:
            assert shown(backfill.tick()) == [("watch", DOMAINS[1:])], "at once"
    assert "7 partitions were not tried, since a run ended early; the next try is later" in reason(backfill.tick())
    hours_ahead(monkeypatch, 8.1)
    asked = shown(backfill.tick())
    assert sorted(domain for _, domains in asked for domain in domains) == DOMAINS[1:]
    assert {kind for kind, _ in asked} == {"watch"}
    assert max(len(domains) for _, domains in asked) == 3, "one of them may be why the runs ended"


def test_a_source_that_is_down_is_a_skip_and_nothing_is_asked_for(
    bucket: Bucket, tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    gone = Backfill(instance, closed_port(), tmp_path / "home")
    instance.add_dynamic_partitions("crawl", [NEW])
    gone.watch(*DOMAINS)
    gone.materialized("row_groups", NEW)
    said = reason(gone.tick())
    assert "does not answer" in said
    assert "8 partitions wait for the source" in said


def test_an_older_parsers_pages_have_a_price_and_wait_for_a_yes(
    backfill: Backfill, monkeypatch: pytest.MonkeyPatch
) -> None:
    backfill.made(*DOMAINS[2:], pages=3)
    backfill.made(DOMAINS[0], parser="1", pages=7)
    backfill.made(DOMAINS[1], parser="1", pages=5)
    said = reason(backfill.tick())
    assert "12 pages of 2 partitions came from an older parser" in said
    assert "cc-pipeline automation reparse --yes" in said
    settings = backfill.workspace.settings
    reparse.write_agreement(settings, yes=True)
    assert shown(backfill.tick()) == [("watch", [DOMAINS[1], DOMAINS[0]])]
    # whoever makes one settles it
    backfill.made(DOMAINS[1], pages=5)
    assert shown(backfill.tick()) == [("watch", [DOMAINS[0]])]
    reparse.write_agreement(settings, yes=False)
    assert "7 pages of 1 partition " in reason(backfill.tick())
    reparse.write_agreement(settings, yes=True)
    # a yes is for one version of the parser
    monkeypatch.setattr(plan, "PARSER_VERSION", str(int(PARSER_VERSION) + 1))
    assert "of 8 partitions came from an older parser" in reason(backfill.tick())
    monkeypatch.setattr(plan, "PARSER_VERSION", PARSER_VERSION)
    backfill.made(DOMAINS[0], pages=7)
    assert reason(backfill.tick()) == "no partition has to be run"


@pytest.mark.process
def test_the_tags_of_a_request_run_as_one_run_and_a_changed_set_is_asked_for_again(
    bucket: Bucket, tmp_path: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    backfill = Backfill(instance, bucket[0], tmp_path / "home")
    instance.add_dynamic_partitions("crawl", [NEW])
    backfill.watch("example.com", "no-such.example", "set:press = example-foo.com")
    harvest(backfill.workspace)
    backfill.materialized("row_groups", NEW)
    [request] = backfill.tick()
    assert execute_asked(instance, backfill.workspace, request).success
    assert instance.get_runs_count(dg.RunsFilter(job_name=EXTRACT)) == 1
    done = instance.get_materialized_partitions(dg.AssetKey("page_metadata"))
    assert done == {f"{NEW}|{slug}" for slug in ("example.com", "no-such.example", "set-press")}
    lake = backfill.workspace.lake
    domains = ("example.com", "example-foo.com")
    assert lake.read("page_metadata").num_rows == sum(
        len(bucket[1].captures_of(NEW, subset="warc", domain=domain)) for domain in domains
    )
    assert reason(backfill.tick()) == "no partition has to be run"
    # a set keeps its key: what its new members lack is missing all the same
    backfill.watch("example.com", "set:press = example-foo.com, example.org")
    [again] = backfill.tick()
    assert shown([again]) == [("watch", ["set-press"])]
    assert execute_asked(instance, backfill.workspace, again).success
    assert reason(backfill.tick()) == "no partition has to be run"
    # another parser is no changed set: that has a price
    assert find_current_targets(backfill.workspace, NEW, ["set-press"]).keys() == {"set-press"}
    monkeypatch.setattr(plan, "PARSER_VERSION", str(int(PARSER_VERSION) + 1))
    assert find_current_targets(backfill.workspace, NEW, ["set-press"]) == {}
    assert "To have them parsed: cc-pipeline automation reparse --yes" in reason(backfill.tick())
    press = {row["domain"] for row in lake.read("captures", {"target": "set-press"}).to_pylist()}
    assert press == {"example-foo.com", "example.org"}


@pytest.mark.process
def test_a_blocked_site_is_not_asked_for_and_leaves_the_sets_that_had_it(
    bucket: Bucket, tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    backfill = Backfill(instance, bucket[0], tmp_path / "home")
    instance.add_dynamic_partitions("crawl", [NEW])
    backfill.watch("example.com", "set:duo = example.com, example.org")
    harvest(backfill.workspace)
    backfill.materialized("row_groups", NEW)
    [request] = backfill.tick()
    assert execute_asked(instance, backfill.workspace, request).success
    assert reason(backfill.tick()) == "no partition has to be run"
    block(backfill.workspace, [parse_target("example.com"), parse_target("example.net")])
    [again] = backfill.tick()
    assert shown([again]) == [("watch", ["set-duo"])]
    assert execute_asked(instance, backfill.workspace, again).success
    # one that was never asked for is found to have nothing, and is asked for no more
    backfill.watch("example.com", "set:duo = example.com, example.org", "example.net")
    [once] = backfill.tick()
    assert shown([once]) == [("watch", ["example.net"])]
    assert execute_asked(instance, backfill.workspace, once).success
    held = backfill.workspace.lake.read("captures", {"target": ["set-duo", "example.net"]}, ["domain"])
    assert {*held.column("domain").to_pylist()} == {"example.org"}
    assert reason(backfill.tick()) == "no partition has to be run"


def test_what_the_source_did_not_give_is_asked_for_again_when_it_is_due(backfill: Backfill) -> None:
    backfill.made(*DOMAINS)
    slice_ = Slice(NEW, DOMAINS[0])
    lake = backfill.workspace.lake
    row = read_slice_rows(lake, [slice_], [FETCH])[slice_, FETCH.label]
    [note] = note_fetches(
        {slice_: row.input}, planned=10, fetched=9, missing=1, pending=1, unsuccessful_runs=1
    ).values()

    def stands(minutes: int) -> None:
        at = {"last_attempt_at": (datetime.now(UTC) - timedelta(minutes=minutes)).isoformat()}
        commit_slices(lake, [replace(row, note=note | at)], read_base(lake, FETCH, [slice_]))

    stands(20)
    assert reason(backfill.tick()) == "no partition has to be run"
    stands(40)
    # a failed run is not in the way of what is due
    for _ in range(4):
        assert shown(backfill.tick()) == [("repair", [DOMAINS[0]])]
        backfill.failed(f"{NEW}|{DOMAINS[0]}")
    assert shown(backfill.tick()) == [("repair", [DOMAINS[0]])]
