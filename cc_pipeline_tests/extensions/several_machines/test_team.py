"""A team's instance from end to end: the processes that compose.yaml starts, on a real PostgreSQL, with tables, stored
records and compute logs on a real S3 server."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import botocore.session
import psycopg2
import pytest
import yaml
from botocore.config import Config

from cc_pipeline.defs.partitions import range_tags
from cc_pipeline.extensions.several_machines.team import IN_CONTAINER
from cc_pipeline.workspace.workspace import Workspace
from cc_pipeline_tests.defs.backfills import backfill, wait_for_backfill
from cc_pipeline_tests.defs.published import published_rows, query
from cc_pipeline_tests.defs.test_dagster_process import (
    BIN,
    PATIENCE_SECONDS,
    Server,
    environment,
    serving,
    until_listening,
)
from cc_pipeline_tests.ports import free_port
from cc_pipeline_tests.postgres import Postgres, postgres_server
from cc_pipeline_tests.weedserver import REGION, S3Server, weed_server
from cc_pipeline_tests.world import NEW, OLD, Bucket, extract, harvest, publish, workspace_of

pytestmark = [pytest.mark.process, pytest.mark.xdist_group("team"), pytest.mark.timeout(900)]

SITES = ("example.com", "example.org", "example-foo.com")
#: Of several crawls and in no order of theirs: no range holds just these.
LISTED = (f"{NEW}|example.com", f"{OLD}|example-foo.com")
BACKFILLED = (f"{NEW}|example.org", f"{OLD}|example.org")


@dataclass(frozen=True, slots=True)
class Team:
    """A running instance: its folder, the environment of its processes, its servers."""

    folder: Path
    env: dict[str, str]
    ui: Server
    postgres: Postgres
    s3: S3Server


@dataclass(frozen=True, slots=True)
class State:
    """A team's folder and servers, none of its own processes running, and the ports that those will have."""

    folder: Path
    env: dict[str, str]
    code_port: int
    postgres: Postgres
    s3: S3Server


@pytest.fixture(scope="module")
def state(bucket: Bucket, tmp_path_factory: pytest.TempPathFactory) -> Iterator[State]:
    folder = tmp_path_factory.mktemp("team") / "folder"
    with postgres_server() as postgres, weed_server(folder.parent / "weed", "lake", "logs") as s3:
        init = ["team", "init", folder, "--lake", "s3://lake/cc", "--logs", "s3://logs/cc", "--endpoint", s3.endpoint]
        subprocess.run(
            [BIN / "cc-pipeline", *init], check=True, capture_output=True, env=environment(bucket[0], folder)
        )
        code_port = free_port()
        told = fill_in(
            folder / ".env",
            postgres.environment
            | {
                "AWS_ACCESS_KEY_ID": s3.key,
                "AWS_SECRET_ACCESS_KEY": s3.secret,
                "CC_PIPELINE_CODE_PORT": str(code_port),
            },
        )
        env = environment(bucket[0], folder) | told
        env |= {"CC_PIPELINE_HOME": str(folder), "DAGSTER_HOME": str(folder / "dagster")}
        env |= {"CC_PIPELINE_CODE_HOST": "127.0.0.1", "PATH": f"{BIN}:{env['PATH']}"}
        env |= {"AWS_EC2_METADATA_DISABLED": "true", "CC_PIPELINE_WORKERS": "1"}
        yield State(folder, env, code_port, postgres, s3)


@pytest.fixture(scope="module")
def team(state: State) -> Iterator[Team]:
    folder, env, ui_port = state.folder, state.env, free_port()
    # what the containers' own host and port would be, and the folder that is mounted there
    here = {"0.0.0.0": "127.0.0.1", "4000": str(state.code_port), "3000": str(ui_port)}
    services = yaml.safe_load((folder / "compose.yaml").read_text("utf-8"))["services"]

    def command(argument: list[str]) -> list[str]:
        return on_this_machine(argument, folder, here)

    with ExitStack() as running:
        # not the folder itself: a .env there would win over the environment of each process
        place = folder.parent
        code = running.enter_context(
            serving(command(services["code"]["command"]), place, env, state.code_port, killed=True)
        )
        until_listening(state.code_port)
        until_healthy(command(services["code"]["healthcheck"]["test"][1:]), env, place)
        ui = running.enter_context(serving(command(services["webserver"]["command"]), place, env, ui_port))
        daemon = running.enter_context(serving(command(services["daemon"]["command"]), place, env, ui_port + 1))
        assert "warehouse" in ui.wait_until_loaded()
        until_healthy(command(services["daemon"]["healthcheck"]["test"][1:]), env, place)
        assert code is not daemon
        yield Team(folder, env, ui, state.postgres, state.s3)


def on_this_machine(argument: list[str], folder: Path, here: Mapping[str, str]) -> list[str]:
    """A command of compose.yaml outside its container: its ``folder``, and what other words are ``here``."""
    program, *rest = [here.get(part, part).replace(IN_CONTAINER, str(folder)).replace("$$", "$") for part in argument]
    return ["sh", *rest] if program == "sh" else [str(BIN / program), *rest]


def fill_in(path: Path, values: dict[str, str]) -> dict[str, str]:
    """Writes values into the lines of ``.env`` that are there for them, and gives all of its variables."""
    lines = path.read_text("utf-8").splitlines()
    told = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
    assert set(values) <= set(told)
    told |= values
    path.write_text("".join(f"{name}={value}\n" for name, value in told.items()), "utf-8")
    return told


def until_healthy(check: list[str], env: dict[str, str], folder: Path) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        done = subprocess.run(check, cwd=folder, env=env, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return
        assert time.monotonic() < deadline, done.stdout + done.stderr
        time.sleep(0.5)


def logged(team: Team) -> set[str]:
    """The runs whose output lies in the bucket of logs."""
    client = botocore.session.Session().create_client(
        "s3", endpoint_url=team.s3.endpoint, region_name=REGION, aws_access_key_id=team.s3.key,
        aws_secret_access_key=team.s3.secret, config=Config(s3={"addressing_style": "path"}),
    )  # fmt: skip
    keys = [entry["Key"] for entry in client.list_objects_v2(Bucket="logs").get("Contents", [])]
    assert all(key.startswith("cc/") for key in keys)
    return {key.split("/")[2] for key in keys}


def test_a_team_gets_the_same_tables_as_one_person(bucket: Bucket, team: Team, tmp_path: Path) -> None:
    ui = team.ui
    for crawl in (OLD, NEW):
        ui.add_partition("crawl", crawl)
    for site in SITES:
        ui.add_partition("target", site)
    harvested = ui.launch("harvest_crawl", range_tags(OLD, NEW))
    assert ui.wait_for(harvested) == "SUCCESS", ui.failure(harvested)
    listed = ui.launch_listed(LISTED)
    asked = backfill(ui, BACKFILLED)
    assert ui.wait_for(listed) == "SUCCESS", ui.failure(listed)
    assert wait_for_backfill(ui, asked) == "COMPLETED_SUCCESS"
    published = ui.launch("publish", {})
    assert ui.wait_for(published) == "SUCCESS", ui.failure(published)

    counted = ui.ask(
        """{ assetNodeOrError(assetKey: {path: ["page_metadata"]}) { ... on AssetNode {
            partitionStats { numMaterialized numFailed } } } }"""
    )["assetNodeOrError"]["partitionStats"]
    assert counted == {"numMaterialized": len(LISTED) + len(BACKFILLED), "numFailed": 0}
    alone = workspace_of(bucket[0], tmp_path / "alone")
    _extract_alone(alone)
    assert published_rows(team.folder) == published_rows(tmp_path / "alone")
    assert query(team.folder, "SELECT count(*) > 0 FROM page_text") == [(True,)]
    # state is in PostgreSQL and output in the bucket; nothing of either lies in the folder
    with psycopg2.connect(**login(team.postgres)) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM runs WHERE status = 'SUCCESS'")
        [(count,)] = cursor.fetchall()
    assert count >= 4
    assert not list((team.folder / "dagster").rglob("*.db"))
    assert {listed, published} <= logged(team)


def _extract_alone(workspace: Workspace) -> None:
    for crawl in (OLD, NEW):
        harvest(workspace, crawl)
    for key in (*LISTED, *BACKFILLED):
        crawl, site = key.split("|")
        extract(workspace, site, crawl=crawl)
    publish(workspace)


def login(postgres: Postgres) -> dict[str, Any]:
    return {
        "host": postgres.host, "port": postgres.port, "user": postgres.user, "password": postgres.password,
        "dbname": postgres.database,
    }  # fmt: skip


#: Records a run as one that the code server started, and lost when it was killed and started again; prints its id.
LOST = """
import json, os, sys
from pathlib import Path
import dagster as dg
from cc_pipeline.defs.instance import SERVER_TAG
from cc_pipeline.defs.instance import open_instance_in
@dg.job
def lost(): pass
server = json.dumps({"host": "127.0.0.1", "port": int(os.environ["CC_PIPELINE_CODE_PORT"])})
with open_instance_in(Path(os.environ["DAGSTER_HOME"])) as instance:
    started = dg.DagsterRunStatus.STARTED
    sys.stdout.write(instance.create_run_for_job(lost, tags={SERVER_TAG: server}, status=started).run_id)
"""


@pytest.mark.smoke
def test_a_run_of_the_command_line_is_recorded_in_postgresql(state: State) -> None:
    run(state, "cc-pipeline", "index", "harvest", "-c", NEW)
    with psycopg2.connect(**login(state.postgres)) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM runs WHERE status = 'SUCCESS' AND pipeline_name = 'harvest_crawl'")
        [(count,)] = cursor.fetchall()
    assert count
    assert not list((state.folder / "dagster").rglob("*.db"))


def run(state: State | Team, *command: str) -> str:
    done = subprocess.run(
        [str(BIN / command[0]), *command[1:]],
        cwd=state.folder.parent, env=state.env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_command_line_works_on_the_same_instance(team: Team) -> None:
    lost = run(team, "python", "-c", LOST).split()[-1]
    run(team, "cc-pipeline", "run", "-c", NEW, SITES[0])
    with psycopg2.connect(**login(team.postgres)) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM run_tags WHERE key = '.dagster/cc_pipeline_process'")
        [(count,)] = cursor.fetchall()
        cursor.execute("SELECT status FROM runs WHERE run_id = %s", [lost])
        statuses = cursor.fetchall()
    assert count > 0
    # its code server answers, and has not got it
    assert statuses == [("FAILURE",)]
