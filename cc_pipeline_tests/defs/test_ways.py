"""Every way in which people have partitions made, by real processes: what is made is what Dagster shows, and one bad
partition is the only one that fails.

Each way has two targets of its own in two crawls. One of these four partitions is bad until it is mended, and then what
failed is asked for again in the manner of that way.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Final

import dagster as dg
import pytest
import yaml
from cc_pipeline.defs.declared.collected_parts import listed_ops
from cc_pipeline.defs.internals import LOCATION as NAME
from cc_pipeline.defs.internals import open_backfills
from cc_pipeline.defs.launcher import Launcher
from cc_pipeline.defs.partitions_in_flight import EXTRACTED, UNFINISHED
from cc_pipeline.defs.run_notes import listed_partitions

from cc_pipeline.defs.home_namespace import OWN_HOME
from cc_pipeline.defs.instance import DAGSTER_YAML, open_instance_in
from cc_pipeline.defs.partitions import PARTITION_TAG, config_of, range_tags
from cc_pipeline.settings import Settings, load_settings
from cc_pipeline.testing.mini_crawl.generate import ensure
from cc_pipeline.testing.mini_crawl.spec import CrawlSpec, MiniCrawlSpec
from cc_pipeline.testing.mini_crawl.truth import MiniCrawlTruth
from cc_pipeline.workspace.workspace import open_workspace
from cc_pipeline_tests.defs.graph import EXTRACT
from cc_pipeline_tests.defs.short_waits import with_short_waits
from cc_pipeline_tests.defs.test_dagster_process import (
    BIN,
    LOCATION,
    PATIENCE_SECONDS,
    Server,
    environment,
    serving,
)
from cc_pipeline_tests.ports import free_port
from cc_pipeline_tests.world import NEW, OLD

pytestmark = [pytest.mark.process, pytest.mark.xdist_group("ways"), pytest.mark.timeout(1200)]

#: The module with the bad partitions, and the variable with the path of the file that names them.
BAD_LOCATION: Final = "cc_pipeline_tests.defs.ways_location"
BAD: Final = "WAYS_BAD"
CRAWLS: Final = (OLD, NEW)
#: Not harvested before the sensor asks for it.
LATER: Final = "CC-MAIN-2018-09"
#: No crawl.
NOWHERE: Final = "CC-MAIN-2018-01"
_PLANNED: Final = dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED
_MADE: Final = dg.DagsterEventType.ASSET_MATERIALIZATION
_FAILURE: Final = dg.DagsterRunStatus.FAILURE
_LAUNCHED: Final = "__typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message }"
_ASKED: Final = "__typename ... on LaunchBackfillSuccess { backfillId } ... on PythonError { message }"


@dataclass(frozen=True, slots=True)
class Place:
    """A home, its truth, and Dagster's own processes on it."""

    settings: Settings
    env: dict[str, str]
    truth: MiniCrawlTruth
    server: Server
    port: int
    numbers: Iterator[int] = field(default_factory=count)
    #: Every partition that was ever bad.
    named_bad: set[str] = field(default_factory=set)

    @property
    def folder(self) -> Path:
        """Where commands run."""
        return Path(self.settings.home).parent

    @property
    def bad(self) -> Path:
        """The file that names bad partitions."""
        return Path(self.env[BAD])

    def pair_of_targets(self) -> list[str]:
        """Two targets that no other way has, side by side among Dagster's keys."""
        number = next(self.numbers)
        return list(self.truth.domains()[2 * number : 2 * number + 2])

    def run(self, *command: str | Path) -> None:
        """Runs a command to its end; that partitions failed is no matter here."""
        done = subprocess.run(
            command, cwd=self.folder, env=self.env, capture_output=True, text=True, check=False,
            timeout=PATIENCE_SECONDS,
        )  # fmt: skip
        assert "Usage:" not in done.stderr, done.stderr

    def wait(self) -> None:
        """Until no run and no backfill goes on."""
        deadline = time.monotonic() + 3 * PATIENCE_SECONDS
        with open_instance_in(self.settings.dagster_home) as instance:
            while open_backfills(instance) or instance.get_runs(dg.RunsFilter(statuses=list(UNFINISHED)), limit=1):
                assert time.monotonic() < deadline, [
                    (run.job_name, run.status) for run in instance.get_runs(dg.RunsFilter(statuses=list(UNFINISHED)))
                ]
                time.sleep(1)

    def status(self, asset: str, keys: Sequence[str], of: dg.PartitionsDefinition = OWN_HOME.pairs) -> dict[str, str]:
        """What Dagster shows of partitions of an asset; nothing for one that was never asked for."""
        with open_instance_in(self.settings.dagster_home) as instance:
            found = instance.get_status_by_partition(dg.AssetKey(asset), keys, of) or {}
        return {key: status.value for key, status in found.items() if status is not None}

    def rows(self, table: str, key: str) -> int:
        """Rows of a partition in the lake."""
        crawl, target = key.split("|")
        with open_workspace(self.settings) as workspace:
            return workspace.lake.read(table, {"crawl": crawl, "target": target}, ["target"]).num_rows

    def graphql(self, mutation: str, **variables: Any) -> dict[str, Any]:
        """The answer of a mutation that must not fail."""
        [answer] = self.server.ask(mutation, **variables).values()
        assert answer["__typename"].endswith("Success"), answer
        return dict(answer)


def tags_of(key: str) -> dict[str, str]:
    """The tags that Dagster gives a run over one partition."""
    crawl, domain = key.split("|")
    return {"dagster/partition": key, "dagster/partition/crawl": crawl, "dagster/partition/target": domain}


def launch(
    place: Place,
    tags: Mapping[str, str],
    job: str = "extract_domain",
    assets: Sequence[str] = (),
    config: object = None,
) -> None:
    """As the page of a job does, or with ``assets`` that of assets."""
    selector: dict[str, Any] = {**LOCATION, "jobName": "__ASSET_JOB" if assets else job}
    if assets:
        selector["assetSelection"] = [{"path": [asset]} for asset in assets]
    told = [{"key": key, "value": value} for key, value in tags.items()]
    place.graphql(
        "mutation ($params: ExecutionParams!) { launchRun(executionParams: $params) {" + _LAUNCHED + "} }",
        params={"selector": selector, "runConfigData": config or {}, "executionMetadata": {"tags": told}},
    )


def backfill(place: Place, keys: Sequence[str], **of: Any) -> str:
    """As the UI's dialog does; its id."""
    answer = place.graphql(
        "mutation ($of: LaunchBackfillParams!) { launchPartitionBackfill(backfillParams: $of) {" + _ASKED + "} }",
        of={"partitionNames": list(keys), "tags": [], **of},
    )
    return str(answer["backfillId"])


def of_job(job: str) -> dict[str, Any]:
    """A backfill of a job."""
    where = {"repositoryLocationName": NAME, "repositoryName": "__repository__"}
    return {"selector": {"partitionSetName": f"{job}_partition_set", "repositorySelector": where}}


def again_by_backfill(place: Place, asked: str, strategy: str) -> None:
    """Goes on from a backfill, as its page's button does."""
    place.graphql(
        "mutation ($how: ReexecutionParams!) { reexecutePartitionBackfill(reexecutionParams: $how) {" + _ASKED + "} }",
        how={"parentRunId": asked, "strategy": strategy},
    )


#: Asks for partitions; gives what goes on from that, where it is not each failed run that is tried again.
Way = Callable[[Place, list[str]], Callable[[], None] | None]


def asset_page(place: Place, keys: list[str]) -> None:
    for key in keys:
        launch(place, tags_of(key), assets=EXTRACTED)


def asset_page_range(place: Place, keys: list[str]) -> None:
    launch(place, range_tags(keys[0], keys[-1]), assets=EXTRACTED)


def asset_backfill(place: Place, keys: list[str]) -> Callable[[], None]:
    asked = backfill(place, keys, assetSelection=[{"path": [asset]} for asset in EXTRACTED])
    return lambda: again_by_backfill(place, asked, "FROM_FAILURE")


def job_page_range(place: Place, keys: list[str]) -> None:
    launch(place, range_tags(keys[0], keys[-1]))


def job_page_list(place: Place, keys: list[str]) -> None:
    launch(place, {}, EXTRACT, config=config_of(listed_ops()[EXTRACT], keys))


def job_backfill(place: Place, keys: list[str]) -> None:
    backfill(place, keys, **of_job("extract_domain"))


def job_backfill_all_again(place: Place, keys: list[str]) -> Callable[[], None]:
    asked = backfill(place, keys, **of_job("extract_domain"))
    return lambda: again_by_backfill(place, asked, "ALL_STEPS")


def schedule(place: Place, keys: list[str]) -> Callable[[], None]:
    """What a tick asks for: the next one is after half an hour."""
    watched = sorted({key.split("|")[1] for key in keys})
    (Path(place.settings.home) / "domains.txt").write_text("\n".join(watched), "utf-8")

    def tick() -> None:
        answer = place.server.ask(
            """mutation ($of: ScheduleSelector!, $at: Float) { scheduleDryRun(selectorData: $of, timestamp: $at) {
                __typename ... on DryRunInstigationTick { evaluationResult { skipReason error { message }
                runRequests { runConfigYaml tags { key value } } } } } }""",
            of={**LOCATION, "scheduleName": "backfill_missing"},
            at=time.time() + next(place.numbers) * 1_800,
        )["scheduleDryRun"]["evaluationResult"]
        assert answer["runRequests"], answer
        for request in answer["runRequests"]:
            tags = {tag["key"]: tag["value"] for tag in request["tags"]}
            launch(place, tags, EXTRACT, config=yaml.safe_load(request["runConfigYaml"]))

    tick()
    return lambda: job_page_list(place, keys)


def asset_materialize(place: Place, keys: list[str]) -> Callable[[], None]:
    def each(some: Sequence[str]) -> None:
        for key in some:
            place.run(
                BIN / "dagster", "asset", "materialize", "-m", BAD_LOCATION, "--select",
                ",".join(EXTRACTED), "--partition", key,
            )  # fmt: skip

    each(keys)
    return lambda: each([key for key in keys if key in place.named_bad])


def command_line(place: Place, keys: list[str]) -> Callable[[], None]:
    crawls, targets = ({key.split("|")[at]: None for key in keys} for at in (0, 1))
    told = [word for crawl in crawls for word in ("-c", crawl)] + [*targets]

    def run() -> None:
        place.run(BIN / "python", "-m", BAD_LOCATION, "run", *told)

    run()
    return run


#: The ways over lists, of whose failed partitions Dagster has an observation, and no more.
_LISTS: Final = ("schedule", "job page, a list", "command line")
#: By its name: the way, and how many of the four partitions it is asked for; the bad one is among them. Two where each
#: is a run. A run over one partition from the page of a job, and `dagster job backfill`, take the same way as their
#: neighbours here.
WAYS: Final[Mapping[str, tuple[Way, int]]] = {
    "schedule": (schedule, 4),
    "asset page, one partition": (asset_page, 2),
    "asset page, a range": (asset_page_range, 4),
    "asset backfill": (asset_backfill, 2),
    "job page, a range": (job_page_range, 4),
    "job page, a list": (job_page_list, 4),
    "job backfill": (job_backfill, 2),
    "job backfill, all of it again": (job_backfill_all_again, 2),
    "dagster asset materialize": (asset_materialize, 2),
    "command line": (command_line, 4),
}


@dataclass(frozen=True, slots=True)
class Asked:
    """What one way was asked for, and what goes on from it."""

    every: list[str]
    keys: list[str]
    bad: str
    listed: bool
    again: Callable[[], None] | None


def ask(place: Place, name: str) -> Asked:
    """Has two new targets made in the way ``name``, one partition of them bad."""
    way, asked = WAYS[name]
    targets = place.pair_of_targets()
    every = [f"{crawl}|{target}" for crawl in CRAWLS for target in targets]
    # one of each crawl and of each target
    keys = every if asked == 4 else [every[0], every[3]]
    # in turns the first of all, which is what a backfill's runs are named by, and the last
    bad = keys[-1 if list(WAYS).index(name) % 2 else 0]
    with place.bad.open("a", encoding="utf-8") as file:
        file.write(f"{bad}\n")
    place.named_bad.add(bad)
    return Asked(every, keys, bad, name in _LISTS, way(place, keys))


def judge(place: Place, asked: Asked, bad: str | None) -> None:
    """In the lake and in Dagster: what was asked for is made and nothing else, ``bad`` alone failed."""
    made = [key for key in asked.keys if key != bad]
    for asset in EXTRACTED:
        shown = dict.fromkeys(made, "MATERIALIZED") | ({} if bad is None or asked.listed else {bad: "FAILED"})
        assert place.status(asset, asked.every) == shown, asset
    for key in asked.every:
        crawl, target = key.split("|")
        planned = len(place.truth.captures_of(crawl, subset="warc", domain=target)) if key in made else 0
        for table in ("captures", "records", "page_metadata"):
            assert place.rows(table, key) == planned, (table, key)
        assert planned or key not in made


@contextmanager
def place_in(folder: Path, spec: MiniCrawlSpec, **variables: str) -> Iterator[Place]:
    """``dagster dev`` on a home with two harvested crawls, whose targets are partitions."""
    bucket, home, port = folder / "bucket", folder / "home", free_port()
    truth = ensure(bucket, spec)
    settings = load_settings({}, source=str(bucket), home=str(home))
    settings.dagster_home.mkdir(parents=True)
    config = with_short_waits(yaml.safe_load(DAGSTER_YAML))
    (settings.dagster_home / "dagster.yaml").write_text(yaml.safe_dump(config), "utf-8")
    with open_workspace(settings) as workspace, Launcher(workspace) as launcher:
        launcher.harvest(CRAWLS)
        launcher.instance.add_dynamic_partitions("target", list(truth.domains()))
    env = environment(bucket, folder) | {"CC_PIPELINE_HOME": str(home), "DAGSTER_HOME": str(settings.dagster_home)}
    env |= {BAD: str(folder / "bad"), "CC_PIPELINE_CRAWLS": "all", "CC_PIPELINE_WORKERS": "1", **variables}
    (folder / "bad").touch()
    location = {"python_module": {"module_name": BAD_LOCATION, "location_name": NAME}}
    (folder / "workspace.yaml").write_text(yaml.safe_dump({"load_from": [location]}), "utf-8")
    command = [str(BIN / "dagster"), "dev", "-w", "workspace.yaml", "-h", "127.0.0.1", "-p", str(port)]
    with serving(command, folder, env, port, killed=True) as server:
        server.wait_until_loaded()
        yield Place(settings, env, truth, server, port)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    crawls = tuple(CrawlSpec(crawl) for crawl in (NEW, LATER, OLD))
    with place_in(
        tmp_path_factory.mktemp("ways"), MiniCrawlSpec(pages=120, sites=2 * len(WAYS) + 8, crawls=crawls)
    ) as found:
        yield found


@pytest.fixture(scope="module")
def ways(place: Place) -> dict[str, Asked]:
    """All ways at once, when all is done that they ask for."""
    asked = {name: ask(place, name) for name in WAYS}
    place.wait()
    return asked


@pytest.fixture(scope="module")
def mended(place: Place, ways: dict[str, Asked]) -> dict[str, Asked]:
    """The same, after nothing was bad any more and each was asked for again."""
    place.bad.write_text("", "utf-8")
    failed = {one.bad for one in ways.values() if one.again is None}
    with open_instance_in(place.settings.dagster_home) as instance:
        for run in instance.get_runs(dg.RunsFilter(statuses=[_FAILURE])):
            if failed & {*(key for _, key in logged(instance, run.run_id, _PLANNED)), *(listed_partitions(run) or ())}:
                place.server.retry(run.run_id)
    for one in ways.values():
        if one.again is not None:
            one.again()
    place.wait()
    return ways


def logged(instance: dg.DagsterInstance, run: str, kind: dg.DagsterEventType) -> set[tuple[str, str]]:
    """Assets and partitions of a run's events: those that it was planned to make, or that it made."""
    events = [one.dagster_event for one in instance.all_logs(run, of_type=kind)]
    return {
        (event.asset_key.to_user_string(), str(event.partition))
        for event in events
        if event is not None and event.asset_key is not None and event.partition is not None
    }


@pytest.mark.parametrize("name", WAYS)
def test_the_bad_partition_fails_alone(place: Place, ways: dict[str, Asked], name: str) -> None:
    judge(place, ways[name], ways[name].bad)


@pytest.mark.parametrize("name", WAYS)
def test_what_failed_is_made_when_it_is_asked_for_again(place: Place, mended: dict[str, Asked], name: str) -> None:
    judge(place, mended[name], None)


def test_a_jobs_backfill_and_a_sensor_over_crawls(place: Place) -> None:
    place.server.add_partition("crawl", NOWHERE)
    backfill(place, [NOWHERE, *CRAWLS], **of_job("harvest_crawl"))
    started = place.server.ask(
        "mutation ($of: SensorSelector!) { startSensor(sensorSelector: $of) { __typename } }",
        of={**LOCATION, "sensorName": "new_crawls"},
    )
    assert started["startSensor"]["__typename"] == "Sensor"
    with open_instance_in(place.settings.dagster_home) as instance:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not instance.get_runs(dg.RunsFilter(tags={PARTITION_TAG: LATER})):
            assert time.monotonic() < deadline
            time.sleep(1)
    place.wait()
    for asset in ("index_manifest", "index_footers", "row_groups"):
        shown = dict.fromkeys([*CRAWLS, LATER], "MATERIALIZED") | {NOWHERE: "FAILED"}
        assert place.status(asset, [*shown], OWN_HOME.crawl) == shown


@pytest.mark.usefixtures("mended")
def test_each_run_makes_what_dagster_shows_for_it(place: Place) -> None:
    """Of all that ran here, in whatever way."""
    bad = {NOWHERE, *place.named_bad}
    with open_instance_in(place.settings.dagster_home) as instance:
        for run in instance.get_runs():
            planned, made = logged(instance, run.run_id, _PLANNED), logged(instance, run.run_id, _MADE)
            if listed_partitions(run) is None:
                failed = {one for one in planned if one[1] in bad} if run.status is _FAILURE else set()
                assert made == planned - failed, run.tags
