"""The real thing: Dagster's own processes on a fresh home, driven through GraphQL as the UI drives them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest

from cc_pipeline.defs.instance import DAEMON_VARIABLES, DAGSTER_YAML, prepare_files, prepare_instance
from cc_pipeline.settings import load_settings
from cc_pipeline_tests.defs.published import query
from cc_pipeline_tests.ports import free_port
from cc_pipeline_tests.world import NEW, Bucket

pytestmark = [pytest.mark.process, pytest.mark.xdist_group("dagster_process"), pytest.mark.timeout(600)]

REPOSITORY = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
LOCATION = {"repositoryLocationName": "cc_pipeline", "repositoryName": "__repository__"}
#: Waiting ends here on the slowest machine; nothing waits longer than what it waits for.
PATIENCE_SECONDS = 480
Answer = TypeVar("Answer")


@pytest.fixture(scope="module")
def checkout(bucket: Bucket, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that looks like a fresh clone after ``make setup``, its home a new one for the mini crawl."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in ("pyproject.toml", "workspace.yaml", "cc_pipeline"):
        (folder / name).symlink_to(REPOSITORY / name)
    done = subprocess.run(
        [BIN / "cc-pipeline", "ui", "--init"],
        cwd=folder,
        env=environment(bucket[0], folder),
        check=True,
        capture_output=True,
    )
    assert b".env" in done.stdout
    return folder


def environment(source: Path, folder: Path) -> dict[str, str]:
    """This process's environment without settings of its own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("CC_PIPELINE_", "DAGSTER_"))}
    return kept | {"CC_PIPELINE_SOURCE": str(source), "PYTHONPATH": str(REPOSITORY), "NO_COLOR": "1", "COLUMNS": "200"}


def wait_for_answer(ask: Callable[[], Answer | None], what: str = "it does not end") -> Answer:
    """Asks until there is an answer, and gives it."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        # a busy machine's webserver may not take every connection
        with suppress(urllib.error.URLError, ConnectionError, TimeoutError):
            if answer := ask():
                return answer
        time.sleep(0.3)
    raise AssertionError(what)


class Server:
    """A running webserver and daemon."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, log: Path) -> None:
        self._process, self._port, self._log = process, port, log

    def ask(self, question: str, **variables: Any) -> dict[str, Any]:
        body = json.dumps({"query": question, "variables": variables}).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._port}/graphql", body, {"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:
                read = json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code == 503:  # the guard of the UI is there, and Dagster is not yet
                raise
            raise AssertionError(error.read().decode()) from error
        assert "errors" not in read, read["errors"]
        return read["data"]

    def change(self, types: str, call: str, fields: str = "", **variables: Any) -> dict[str, Any]:
        """Calls a mutation, as a button of the UI does; its answer."""
        question = f"mutation ({types}) {{ {call} {{ __typename {fields} ... on PythonError {{ message }} }} }}"
        answer: dict[str, Any] = self.ask(question, **variables)[call.partition("(")[0]]
        assert answer["__typename"].endswith("Success"), answer
        return answer

    def _wait(self, ask: Callable[[], Answer | None]) -> Answer:
        def ask_living() -> Answer | None:
            assert self._process.poll() is None, self._log.read_text("utf-8")[-3000:]
            return ask()

        return wait_for_answer(ask_living, f"see {self._log}")

    def wait_until_loaded(self) -> list[str]:
        """The assets of the code location, once it is there."""
        nodes = self._wait(lambda: self.ask("{ assetNodes { assetKey { path } } }")["assetNodes"])
        return ["/".join(node["assetKey"]["path"]) for node in nodes]

    def add_partition(self, dimension: str, key: str) -> None:
        self.change(
            "$where: RepositorySelector!, $name: String!, $key: String!",
            "addDynamicPartition(repositorySelector: $where, partitionsDefName: $name, partitionKey: $key)",
            where=LOCATION, name=dimension, key=key,
        )  # fmt: skip

    def backfill(self, assets: Sequence[str], keys: Sequence[str]) -> str:
        """Asks for a backfill as the UI's dialog does; gives its id."""
        params = {"assetSelection": [{"path": [name]} for name in assets], "partitionNames": [*keys], "tags": []}
        call, fields = "launchPartitionBackfill(backfillParams: $params)", "... on LaunchBackfillSuccess { backfillId }"
        return str(self.change("$params: LaunchBackfillParams!", call, fields, params=params)["backfillId"])

    def retry_backfill(self, backfill: str) -> str:
        """Re-executes the failed and missing partitions of a backfill; gives the new id."""
        how = {"parentRunId": backfill, "strategy": "FROM_FAILURE"}
        call = "reexecutePartitionBackfill(reexecutionParams: $how)"
        fields = "... on LaunchBackfillSuccess { backfillId }"
        return str(self.change("$how: ReexecutionParams!", call, fields, how=how)["backfillId"])

    def terminate(self, run: str) -> None:
        """Cancels a run."""
        self.change("$run: String!", "terminateRun(runId: $run)", run=run)

    def wait_for_backfill(self, backfill: str) -> str:
        """The status a backfill ended with."""
        question = (
            "query ($id: String!) { partitionBackfillOrError(backfillId: $id) { ... on PartitionBackfill { status } } }"
        )

        def ask() -> str:
            status = str(self.ask(question, id=backfill)["partitionBackfillOrError"]["status"])
            return "" if status == "REQUESTED" else status

        return self._wait(ask)

    def launch(self, job: str, tags: dict[str, str], config: Mapping[str, Any] | None = None) -> str:
        """Starts a run of a job; gives its id."""
        params = {
            "selector": {**LOCATION, "jobName": job},
            "runConfigData": config or {},
            "executionMetadata": {"tags": [{"key": key, "value": value} for key, value in tags.items()]},
        }
        call, fields = "launchRun(executionParams: $params)", "... on LaunchRunSuccess { run { runId } }"
        return str(self.change("$params: ExecutionParams!", call, fields, params=params)["run"]["runId"])

    def wait_for(self, run: str) -> str:
        """The status a run ended with."""
        question = "query ($run: ID!) { runOrError(runId: $run) { ... on Run { status } } }"

        def ask() -> str:
            status = str(self.ask(question, run=run)["runOrError"]["status"])
            return status if status in ("SUCCESS", "FAILURE", "CANCELED") else ""

        return self._wait(ask)

    def retry(self, run: str) -> str:
        """Goes on from a failed run; gives the id of the new one."""
        how = {"parentRunId": run, "strategy": "FROM_FAILURE"}
        call, fields = "launchRunReexecution(reexecutionParams: $how)", "... on LaunchRunSuccess { run { runId } }"
        return str(self.change("$how: ReexecutionParams!", call, fields, how=how)["run"]["runId"])

    def failure(self, run: str) -> str:
        events = self.ask(
            """query ($run: ID!) { logsForRun(runId: $run) { ... on EventConnection { events { __typename
                ... on ExecutionStepFailureEvent { error { message cause { message } } } } } } }""",
            run=run,
        )["logsForRun"]["events"]
        errors = [event["error"] for event in events if event["__typename"] == "ExecutionStepFailureEvent"]
        return "\n".join((error["cause"] or error)["message"] for error in errors)


@contextmanager
def serving(
    command: list[str], folder: Path, env: dict[str, str], port: int, *, killed: bool = False
) -> Iterator[Server]:
    """Runs ``command`` with everything it starts in a process group of its own, and ends all of it: asks it to end, or
    has it ``killed`` (a code server waits a minute for those who watch it)."""
    log = folder / f"server-{port}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=folder, env=env, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        yield Server(process, port, log)
    finally:
        _end_group(process, killed)


def _end_group(process: subprocess.Popen[bytes], killed: bool) -> None:
    with suppress(ProcessLookupError, subprocess.TimeoutExpired):
        if not killed:
            os.killpg(process.pid, signal.SIGINT)
            process.wait(PATIENCE_SECONDS)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(PATIENCE_SECONDS)


def test_a_domain_from_the_index_to_duckdb_through_plain_dagster_dev(bucket: Bucket, checkout: Path) -> None:
    env, port = environment(bucket[0], checkout), free_port()
    home = checkout / "data"
    command = [str(BIN / "dagster"), "dev", "-h", "127.0.0.1", "-p", str(port)]
    with serving(command, checkout, env, port, killed=True) as server:
        assets = server.wait_until_loaded()
        assert {"crawls", "row_groups", "captures", "records", "page_metadata", "warehouse"} <= set(assets)
        for dimension, key in (("crawl", NEW), ("target", "example.com"), ("target", "no-such.example")):
            server.add_partition(dimension, key)
        harvested = server.launch("harvest_crawl", {"dagster/partition": NEW})
        assert server.wait_for(harvested) == "SUCCESS", server.failure(harvested)
        # several partitions in one run, as the sensor of the backfill asks for them
        sites = {NEW: ["example.com", "no-such.example"]}
        asked = {"ops": {"extract_listed": {"config": {"partitions": sites}}}}
        extracted = server.launch("extract_targets", {}, asked)
        assert server.wait_for(extracted) == "SUCCESS", server.failure(extracted)
        published = server.launch("publish", {})
        assert server.wait_for(published) == "SUCCESS", server.failure(published)
        partitions = server.ask(
            """{ assetNodeOrError(assetKey: {path: ["page_metadata"]}) { ... on AssetNode {
                partitionStats { numMaterialized numFailed } } } }"""
        )
        assert partitions["assetNodeOrError"]["partitionStats"]["numMaterialized"] == 2
    truth = bucket[1].captures_of(NEW, subset="warc", domain="example.com")
    assert query(home, "SELECT count(*), count(DISTINCT url) FROM captures") == [
        (len(truth), len({capture.url for capture in truth}))
    ]
    assert query(home, "SELECT outcome, count(*) FROM ledger GROUP BY 1") == [("fetched", len(truth))]
    assert query(home, "SELECT count(*) FROM page_metadata") == [(len(truth),)]
    assert query(home, "SELECT count(*) > 0 FROM page_text") == [(True,)]


@pytest.mark.smoke
def test_files_for_dagster_are_written_once_and_stay_a_persons_own(bucket: Bucket, tmp_path: Path) -> None:
    settings = load_settings({}, source=str(bucket[0]), home=str(tmp_path / "home"))
    env, config = tmp_path / ".env", settings.dagster_home / "dagster.yaml"
    assert set(prepare_files(settings, tmp_path)) == {env, config}
    for name, value in DAEMON_VARIABLES.items():
        assert f"{name}=${{{name}:-{value}}}\n" in env.read_text("utf-8")
    assert config.read_text("utf-8") == DAGSTER_YAML
    env.write_text("CC_PIPELINE_CONTACT=me@example.org\n", "utf-8")
    config.write_text("telemetry: {enabled: false}\n", "utf-8")
    assert prepare_files(settings, tmp_path) == []
    prepare_instance(settings)
    assert config.read_text("utf-8") == "telemetry: {enabled: false}\n"
