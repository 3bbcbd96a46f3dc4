"""The backfill: bounded, contiguous, quiet while it runs, and no asking for ever for what fails."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cc_pipeline.defs.schedules as schedules
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.definitions import defs
from cc_pipeline.defs.instance import PROCESS_TAG, this_process
from cc_pipeline.defs.partitions import RANGE_END_TAG, RANGE_START_TAG, contiguous_ranges, run_partitions
from cc_pipeline.defs.resources import WORKSPACE
from cc_pipeline.defs.schedules import backfill_missing, recent_failures
from cc_pipeline.errors import UserInputError
from cc_pipeline.minicrawl.truth import MiniCrawlTruth
from cc_pipeline.settings import load_settings
from cc_pipeline.stages.automation import decide_backfill
from cc_pipeline.stages.locate import locate_captures
from cc_pipeline.stages.shortfall import MOST_ROUNDS
from cc_pipeline.stages.workspace import Workspace
from cc_pipeline_tests.closing import closed_later
from cc_pipeline_tests.world import NEW, OLD, harvest, workspace_of

pytestmark = pytest.mark.xdist_group("schedules")

Bucket = tuple[Path, MiniCrawlTruth]
QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
DOMAINS = [f"site-{n}.example" for n in range(8)]


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "SOURCE", "COLLINFO", "SUBSETS", "VIA", "BACKFILL_PER_TICK"):
        monkeypatch.delenv(f"CC_PIPELINE_{name}", raising=False)


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as made:
        yield made


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
        self.instance.add_dynamic_partitions("domain", [parse_target(text).slug for text in definitions])

    @property
    def workspace(self) -> Workspace:
        """A new one, as each tick and each run has, with the settings of now."""
        return closed_later(Workspace(load_settings(source=str(self.source), home=str(self.home))))

    def materialized(self, asset: str, *keys: str) -> None:
        for key in keys:
            self.instance.report_runless_asset_event(dg.AssetMaterialization(asset, partition=key))

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

    def failed(self, request: dg.RunRequest, status: dg.DagsterRunStatus = dg.DagsterRunStatus.FAILURE) -> None:
        tags = dict(request.tags)
        if request.partition_key:
            tags["dagster/partition"] = request.partition_key
        self.instance.add_run(dg.DagsterRun(job_name="extract_domain", tags=tags, status=status))


def shown(answer: list[dg.RunRequest] | dg.SkipReason) -> list[tuple[str, str]]:
    assert isinstance(answer, list), answer
    found = []
    for request in answer:
        start = request.partition_key or request.tags[RANGE_START_TAG]
        found.append((start, request.tags.get(RANGE_END_TAG, start)))
    return found


def reason(answer: list[dg.RunRequest] | dg.SkipReason) -> str:
    assert isinstance(answer, dg.SkipReason), answer
    return answer.skip_message or ""


@pytest.fixture
def backfill(bucket: Bucket, tmp_path: Path, instance: dg.DagsterInstance) -> Backfill:
    made = Backfill(instance, bucket[0], tmp_path / "home")
    instance.add_dynamic_partitions("crawl", [OLD, NEW])
    made.watch(*DOMAINS)
    made.materialized("row_groups", NEW)
    return made


def test_what_is_missing_is_asked_for_in_one_contiguous_range(backfill: Backfill) -> None:
    assert shown(backfill.tick()) == [(f"{NEW}|{DOMAINS[0]}", f"{NEW}|{DOMAINS[-1]}")]


def test_a_run_whose_process_was_killed_holds_nothing_up(backfill: Backfill) -> None:
    started = dg.DagsterRunStatus.STARTED
    tags = {PROCESS_TAG: this_process(), "dagster/partition": f"{NEW}|{DOMAINS[0]}"}
    alive = dg.DagsterRun(job_name="extract_domain", tags=tags, status=started)
    backfill.instance.add_run(alive)
    assert reason(backfill.tick()) == f"run {alive.run_id} has not ended yet"
    backfill.instance.delete_run(alive.run_id)
    backfill.instance.add_run(
        dg.DagsterRun(job_name="extract_domain", tags=tags | {PROCESS_TAG: "999999999-1"}, status=started)
    )
    assert shown(backfill.tick()) == [
        (f"{NEW}|{DOMAINS[0]}", f"{NEW}|{DOMAINS[0]}"),
        (f"{NEW}|{DOMAINS[1]}", f"{NEW}|{DOMAINS[-1]}"),
    ]


def test_crawls_nobody_harvested_are_left_until_they_are(backfill: Backfill) -> None:
    assert {start.split("|")[0] for start, _ in shown(backfill.tick())} == {NEW}
    backfill.materialized("row_groups", OLD)
    assert [start.split("|")[0] for start, _ in shown(backfill.tick())] == [NEW, OLD], "newest first"


def test_what_is_done_is_not_asked_for_and_splits_the_range(backfill: Backfill) -> None:
    backfill.materialized("page_metadata", f"{NEW}|{DOMAINS[2]}", f"{NEW}|{DOMAINS[5]}")
    assert shown(backfill.tick()) == [
        (f"{NEW}|{DOMAINS[0]}", f"{NEW}|{DOMAINS[1]}"),
        (f"{NEW}|{DOMAINS[3]}", f"{NEW}|{DOMAINS[4]}"),
        (f"{NEW}|{DOMAINS[6]}", f"{NEW}|{DOMAINS[7]}"),
    ]
    backfill.materialized("page_metadata", *(f"{NEW}|{domain}" for domain in DOMAINS))
    assert reason(backfill.tick()) == "no partition is missing"


def test_a_tick_asks_for_no_more_than_its_bound(backfill: Backfill, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC_PIPELINE_BACKFILL_PER_TICK", "3")
    backfill.materialized("page_metadata", f"{NEW}|{DOMAINS[1]}")
    assert shown(backfill.tick()) == [
        (f"{NEW}|{DOMAINS[0]}", f"{NEW}|{DOMAINS[0]}"),
        (f"{NEW}|{DOMAINS[2]}", f"{NEW}|{DOMAINS[3]}"),
    ]


@pytest.mark.parametrize("wrong", ["0", "-1", "many", "1.5"])
def test_a_bound_that_is_no_number_is_an_error(backfill: Backfill, monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    monkeypatch.setenv("CC_PIPELINE_BACKFILL_PER_TICK", wrong)
    with pytest.raises(UserInputError, match="CC_PIPELINE_BACKFILL_PER_TICK"):
        backfill.tick()


@pytest.mark.parametrize("status", ["NOT_STARTED", "STARTING", "STARTED", "CANCELING"])
def test_nothing_is_asked_for_while_a_run_is_at_it(backfill: Backfill, status: str) -> None:
    run = backfill.instance.add_run(
        dg.DagsterRun(job_name="extract_domain", status=dg.DagsterRunStatus[status], tags={})
    )
    assert reason(backfill.tick()) == f"run {run.run_id} has not ended yet"


def test_targets_that_left_the_watch_list_or_are_no_partition_yet_are_not_asked_for(backfill: Backfill) -> None:
    (backfill.home / "domains.txt").write_text(f"{DOMAINS[3]}\nnew-here.example\n", "utf-8")
    assert shown(backfill.tick()) == [(f"{NEW}|{DOMAINS[3]}", f"{NEW}|{DOMAINS[3]}")]


def test_requests_of_different_ticks_have_different_run_keys(backfill: Backfill) -> None:
    first, second = backfill.tick(), backfill.tick()
    assert isinstance(first, list)
    assert isinstance(second, list)
    assert first[0].run_key != second[0].run_key


def test_what_failed_in_company_is_tried_alone_few_at_a_time_and_then_left(backfill: Backfill) -> None:
    [request] = backfill.tick()
    backfill.failed(request)
    alone = shown(backfill.tick())
    assert alone == [(f"{NEW}|{domain}", f"{NEW}|{domain}") for domain in DOMAINS[: schedules._RETRIES_PER_TICK]]
    # its neighbours come through alone; one does not
    backfill.materialized("page_metadata", *(f"{NEW}|{domain}" for domain in DOMAINS[1:]))
    for _ in range(2):
        answer = backfill.tick()
        assert shown(answer) == [(f"{NEW}|{DOMAINS[0]}",) * 2]
        assert isinstance(answer, list)
        backfill.failed(answer[0])
    for _ in range(2):
        said = reason(backfill.tick())
        assert said.startswith(f"1 partitions failed 3 times in 7 days and are not tried again: {NEW}|{DOMAINS[0]}.")
        assert "by hand" in said
    # a person who ran it by hand settles it
    backfill.materialized("page_metadata", f"{NEW}|{DOMAINS[0]}")
    assert reason(backfill.tick()) == "no partition is missing"


def test_what_is_left_alone_does_not_stop_the_others(backfill: Backfill) -> None:
    for _ in range(3):
        backfill.failed(dg.RunRequest(partition_key=f"{NEW}|{DOMAINS[0]}"))
    assert shown(backfill.tick()) == [(f"{NEW}|{DOMAINS[1]}", f"{NEW}|{DOMAINS[-1]}")]


def test_canceled_runs_and_other_jobs_do_not_count_as_failures(backfill: Backfill) -> None:
    for _ in range(3):
        backfill.failed(dg.RunRequest(partition_key=f"{NEW}|{DOMAINS[0]}"), dg.DagsterRunStatus.CANCELED)
        backfill.instance.add_run(
            dg.DagsterRun(
                job_name="publish",
                status=dg.DagsterRunStatus.FAILURE,
                tags={"dagster/partition": f"{NEW}|{DOMAINS[0]}"},
            )
        )
    assert shown(backfill.tick()) == [(f"{NEW}|{DOMAINS[0]}", f"{NEW}|{DOMAINS[-1]}")]


def test_failures_are_forgotten_after_a_while(backfill: Backfill) -> None:
    backfill.failed(dg.RunRequest(partition_key=f"{NEW}|{DOMAINS[0]}"))
    keys = (backfill.instance, "extract_domain", [OLD, NEW], DOMAINS)
    assert recent_failures(*keys, timedelta(days=1)) == {(NEW, DOMAINS[0]): 1}
    assert recent_failures(*keys, timedelta(0)) == {}


def test_ranges_of_runs_are_read_back_as_the_partitions_they_are_for() -> None:
    crawls, domains = ["A", "B", "C"], ["x", "y", "z"]
    over_both = {RANGE_START_TAG: "A|y", RANGE_END_TAG: "B|z"}
    assert run_partitions(over_both, crawls, domains) == [("A", "y"), ("A", "z"), ("B", "y"), ("B", "z")]
    assert run_partitions({"dagster/partition": "C|x"}, crawls, domains) == [("C", "x")]
    assert run_partitions({RANGE_START_TAG: "A|gone", RANGE_END_TAG: "A|z"}, crawls, domains) == []
    assert run_partitions({}, crawls, domains) == []


@given(
    failures=st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 5)),
    limit=st.integers(1, 6),
    retries=st.integers(0, 4),
)
def test_a_tick_is_bounded_and_every_pair_is_fresh_again_or_left(
    failures: dict[str, int], limit: int, retries: int
) -> None:
    missing = [("C", domain) for domain in "abcdefgh"]
    counts = {("C", domain): count for domain, count in failures.items()}
    found = decide_backfill(missing, counts, limit=limit, retries=retries, most_failures=3)
    assert len(found.fresh) + len(found.again) <= limit
    assert len(found.again) <= retries
    assert set(found.left) == {pair for pair in missing if counts.get(pair, 0) >= 3}
    assert all(counts.get(pair, 0) == 0 for pair in found.fresh)
    assert all(0 < counts[pair] < 3 for pair in found.again)
    untouched = [pair for pair in missing if not counts.get(pair, 0)]
    assert list(found.fresh) == untouched[: len(found.fresh)]
    assert len(found.fresh) == min(len(untouched), limit - len(found.again))


def run_request(backfill: Backfill, request: dg.RunRequest) -> dg.ExecuteInProcessResult:
    return (
        dg.Definitions.merge(defs(), dg.Definitions())
        .resolve_job_def("extract_domain")
        .execute_in_process(
            instance=backfill.instance,
            partition_key=request.partition_key,
            tags=dict(request.tags),
            run_config=QUIET,
            resources={WORKSPACE: backfill.workspace},
            raise_on_error=False,
        )
    )


def test_the_tags_of_a_request_run_as_one_run_and_a_changed_set_is_asked_for_again(
    bucket: Bucket, tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    backfill = Backfill(instance, bucket[0], tmp_path / "home")
    instance.add_dynamic_partitions("crawl", [NEW])
    backfill.watch("example.com", "no-such.example", "set:press = example-foo.com")
    harvest(backfill.workspace)
    backfill.materialized("row_groups", NEW)
    [request] = backfill.tick()
    assert request.tags[RANGE_START_TAG] == f"{NEW}|example.com"
    result = run_request(backfill, request)
    assert result.success
    assert instance.get_runs_count(dg.RunsFilter(job_name="extract_domain")) == 1
    done = instance.get_materialized_partitions(dg.AssetKey("page_metadata"))
    assert done == {f"{NEW}|{slug}" for slug in ("example.com", "no-such.example", "set-press")}
    lake = backfill.workspace.lake
    domains = ("example.com", "example-foo.com")
    assert lake.read("page_metadata").num_rows == sum(
        len(bucket[1].of(NEW, subset="warc", domain=domain)) for domain in domains
    )
    assert reason(backfill.tick()) == "no partition is missing"
    # a set keeps its key: what its new members lack is missing all the same
    backfill.watch("example.com", "set:press = example-foo.com, example.org")
    [again] = backfill.tick()
    assert again.partition_key == f"{NEW}|set-press"
    assert run_request(backfill, again).success
    assert reason(backfill.tick()) == "no partition is missing"
    press = {row["domain"] for row in lake.read("captures", {"target": "set-press"}).to_pylist()}
    assert press == {"example-foo.com", "example.org"}


def test_a_partition_that_really_fails_is_given_up_and_its_neighbours_come_through(
    bucket: Bucket, tmp_path: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    backfill = Backfill(instance, bucket[0], tmp_path / "home")
    instance.add_dynamic_partitions("crawl", [NEW])
    backfill.watch("example-foo.com", "example.org", "no-such.example")
    harvest(backfill.workspace)
    # the budget gate refuses the larger one
    elsewhere = workspace_of(bucket[0], tmp_path / "elsewhere")
    harvest(elsewhere)
    figures = locate_captures(elsewhere, NEW, ["example-foo.com", "example.org"]).per_target
    sizes = {domain: int(values["fetch bytes"]) for domain, values in figures.items()}
    big = max(sizes, key=lambda domain: sizes[domain])
    monkeypatch.setenv("CC_PIPELINE_MAX_BYTES", str(max(sizes.values()) - 1))
    backfill.materialized("row_groups", NEW)
    asked = []
    for _ in range(6):
        answer = backfill.tick()
        if isinstance(answer, dg.SkipReason):
            break
        asked.append(shown(answer))
        for request in answer:
            run_request(backfill, request)
    assert asked[0] == [(f"{NEW}|example-foo.com", f"{NEW}|no-such.example")]
    assert len(asked) == 3
    assert asked[2] == [(f"{NEW}|{big}",) * 2]
    assert f"not tried again: {NEW}|{big}" in reason(answer)
    done = instance.get_materialized_partitions(dg.AssetKey("page_metadata"))
    assert done == {f"{NEW}|{slug}" for slug in ("example-foo.com", "example.org", "no-such.example") if slug != big}


@pytest.mark.parametrize("keys", [["a"], ["a", "b", "c"]])
def test_ranges_of_one_key_are_plain_partitions(keys: list[str]) -> None:
    ranges = contiguous_ranges(["a", "b", "c"], keys)
    [request] = [schedules._request("key", f"C|{first}", f"C|{last}") for first, last in ranges]
    assert (request.partition_key is None) == (len(keys) > 1)


def test_what_the_source_did_not_give_is_asked_for_again_with_a_growing_distance(
    instance: dg.DagsterInstance, bucket: Bucket, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    backfill = Backfill(instance, bucket[0], home)
    harvest(backfill.workspace)
    instance.add_dynamic_partitions("crawl", [NEW])
    backfill.materialized("row_groups", NEW)
    backfill.watch("example.com")
    key = f"{NEW}|example.com"
    backfill.materialized("page_metadata", key)

    def stands(*, unsettled: int, given_up: int = 0, rounds: int = 1, silent_runs: int = 0, ago: timedelta) -> None:
        row = {
            "crawl": NEW, "target": "example.com", "planned": 10, "fetched": 10 - unsettled, "quarantined": 0,
            "missing": unsettled, "unsettled": unsettled, "given_up": given_up, "rounds": rounds,
            "silent_runs": silent_runs, "asked_at": datetime.now(UTC) - ago, "made_from": "x",
        }  # fmt: skip
        lake = backfill.workspace.lake
        table = pa.Table.from_pylist([row], schema=lake.specs["fetches"].schema)
        lake.commit("fetches", table, [{"crawl": NEW, "target": "example.com"}], {})

    def asked() -> list[str | None]:
        answer = backfill.tick()
        return [] if isinstance(answer, dg.SkipReason) else [request.partition_key for request in answer]

    assert asked() == []
    stands(unsettled=1, ago=timedelta(minutes=20))
    assert asked() == []
    stands(unsettled=1, ago=timedelta(minutes=40))
    assert asked() == [key]
    stands(unsettled=1, rounds=3, ago=timedelta(minutes=100))
    assert asked() == []
    stands(unsettled=1, rounds=3, ago=timedelta(minutes=130))
    assert asked() == [key]
    # a source that is down does not use rounds up, and is asked at least every other day
    stands(unsettled=10, rounds=0, silent_runs=40, ago=timedelta(days=1))
    assert asked() == []
    stands(unsettled=10, rounds=0, silent_runs=40, ago=timedelta(days=3))
    assert asked() == [key]
    stands(unsettled=2, given_up=2, rounds=MOST_ROUNDS, ago=timedelta(days=30))
    assert asked() == []
    # a failed run is not in the way of what is due, nor does it hurry what is not
    stands(unsettled=1, ago=timedelta(minutes=40))
    for _ in range(4):
        run = instance.create_run_for_job(defs().resolve_job_def("extract_domain"), tags={"dagster/partition": key})
        instance.report_run_failed(run)
    assert asked() == [key]
