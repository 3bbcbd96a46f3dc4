"""Two hosts that fetch for one team: a home and a code server each, one queue, one PostgreSQL, one lake on S3."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import psycopg2
import pytest
import yaml

from cc_pipeline.defs.instance import SERVER_TAG
from cc_pipeline.defs.partitions import PARTITION_TAG
from cc_pipeline_tests.defs.published import published_rows, query
from cc_pipeline_tests.defs.test_dagster_process import BIN, Server, environment, serving, until_listening
from cc_pipeline_tests.extensions.several_machines.test_team import fill_in, login, on_this_machine, until_healthy
from cc_pipeline_tests.faultserver import FaultServer
from cc_pipeline_tests.ports import free_port
from cc_pipeline_tests.postgres import Postgres, postgres_server
from cc_pipeline_tests.transport.test_budget import LATE, most_in_a_second
from cc_pipeline_tests.weedserver import weed_server
from cc_pipeline_tests.world import NEW, Bucket, extract, harvest, publish, workspace_of

pytestmark = [pytest.mark.process, pytest.mark.xdist_group("team"), pytest.mark.timeout(900)]

#: Requests a second that the source allows both hosts together.
RATE = 12
HOSTS = ("one.internal", "two.internal")
#: A run each.
ASKED = tuple(f"{NEW}|{site}" for site in ("example.com", "example.org", "example-foo.com"))


@dataclass(frozen=True, slots=True)
class Hosts:
    """The homes of both hosts, what they ask of whom, and the ports of their code servers."""

    homes: tuple[Path, Path]
    ports: tuple[int, int]
    ui: Server
    postgres: Postgres
    source: FaultServer


@pytest.fixture(scope="module")
def hosts(bucket: Bucket, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    place = tmp_path_factory.mktemp("hosts")
    homes = (place / HOSTS[0], place / HOSTS[1])
    ports, ui_port = (free_port(), free_port()), free_port()
    with ExitStack() as running:
        source = running.enter_context(FaultServer(bucket[0]))
        postgres = running.enter_context(postgres_server())
        s3 = running.enter_context(weed_server(place / "weed", "lake", "logs"))
        names = ",".join(f"{name}:{port}" for name, port in zip(HOSTS, ports, strict=True))
        init = ["team", "init", homes[0], "--lake", "s3://lake/cc", "--logs", "s3://logs/cc"]
        init += ["--endpoint", s3.endpoint, "--hosts", names]
        of_source = environment(bucket[0], place) | {"CC_PIPELINE_SOURCE": source.url}
        subprocess.run([BIN / "cc-pipeline", *init], check=True, capture_output=True, env=of_source)
        secrets = {
            "AWS_ACCESS_KEY_ID": s3.key,
            "AWS_SECRET_ACCESS_KEY": s3.secret,
            "CC_PIPELINE_CODE_HOST": "127.0.0.1",
        }
        told = fill_in(homes[0] / ".env", postgres.environment | secrets)
        config = homes[0] / "dagster/dagster.yaml"
        for name in HOSTS:  # here all are on loopback
            config.write_text(config.read_text("utf-8").replace(name, "127.0.0.1"), "utf-8")
        shutil.copytree(homes[0], homes[1])
        services = yaml.safe_load((homes[0] / "compose.yaml").read_text("utf-8"))["services"]
        common = of_source | told | {"CC_PIPELINE_RATE": str(RATE), "CC_PIPELINE_WORKERS": "1"}
        common |= {"AWS_EC2_METADATA_DISABLED": "true", "PATH": f"{BIN}:{of_source['PATH']}"}
        envs = [common | {"CC_PIPELINE_HOME": str(home), "DAGSTER_HOME": str(home / "dagster")} for home in homes]
        for env, name in zip(envs, HOSTS, strict=True):
            env["CC_PIPELINE_CONTACT"] = name
        envs[1]["CC_PIPELINE_PUBLISH"] = "none"

        def command(argument: list[str], port: int) -> list[str]:
            here = {"0.0.0.0": "127.0.0.1", "4000": str(port), "3000": str(port)}
            return on_this_machine(argument, homes[0], here)

        code = services["code"]
        for env, port in zip(envs, ports, strict=True):
            running.enter_context(serving(command(code["command"], port), place, env, port, killed=True))
        for env, port in zip(envs, ports, strict=True):
            until_listening(port)
            until_healthy(command(code["healthcheck"]["test"][1:], port), env, place)
        ui = running.enter_context(serving(command(services["webserver"]["command"], ui_port), place, envs[0], ui_port))
        running.enter_context(serving(command(services["daemon"]["command"], 0), place, envs[0], ui_port + 1))
        ui.wait_until_loaded()
        yield Hosts(homes, ports, ui, postgres, source)


def host_of_runs(hosts: Hosts, runs: list[str]) -> Counter[int]:
    """How many of ``runs`` each code server had, by its port."""
    with psycopg2.connect(**login(hosts.postgres)) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT value FROM run_tags WHERE key = %s AND run_id = ANY(%s)", [SERVER_TAG, runs])
        return Counter(int(json.loads(value)["port"]) for (value,) in cursor.fetchall())


def test_both_hosts_take_runs_and_each_partition_is_made_once_within_the_rate(hosts: Hosts, tmp_path: Path) -> None:
    ui, (one, two) = hosts.ui, hosts.homes
    ui.add_partition("crawl", NEW)
    for key in ASKED:
        ui.add_partition("target", key.split("|")[1])
    harvested = ui.launch("harvest_crawl", {PARTITION_TAG: NEW})
    assert ui.wait_for(harvested) == "SUCCESS", ui.failure(harvested)
    runs = [ui.launch_listed([key]) for key in ASKED]
    # of the first host, while the other one fetches
    kept_up = ui.launch("maintenance", {})
    for run in (*runs, kept_up):
        assert ui.wait_for(run) == "SUCCESS", ui.failure(run)
    published = ui.launch("publish", {})
    assert ui.wait_for(published) == "SUCCESS", ui.failure(published)

    assert host_of_runs(hosts, [harvested, kept_up, published]) == {hosts.ports[0]: 3}
    assert set(host_of_runs(hosts, runs)) == set(hosts.ports)
    assert Counter(key for run in runs for key in ui.recorded_by(run)) == Counter(ASKED)
    assert not (two / "footers").exists()
    assert not (two / "cc.duckdb").exists()

    hits = hosts.source.hits
    assert all(any(name in hit.agent for hit in hits) for name in HOSTS)
    # both lease of one rate, as the folder says
    assert most_in_a_second([hit.at for hit in hits]) <= RATE * (1 + LATE) * 1.05
    with psycopg2.connect(**login(hosts.postgres)) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT host FROM cc_pipeline_turns")
        assert cursor.fetchall() == [(hosts.source.url.partition("//")[2].rstrip("/"),)]
    # one host harvests the wanted subset; the other asks for footers of files that it looks into, and for no others
    footers = Counter(hit.key for hit in hits if hit.range and hit.range.startswith("bytes=-"))
    footers = Counter({key: count for key, count in footers.items() if key.endswith(".parquet")})
    assert footers
    assert all("subset=warc" in key and count <= 2 for key, count in footers.items())

    alone = workspace_of(hosts.source.url, tmp_path / "alone")
    harvest(alone)
    extract(alone, *(key.split("|")[1] for key in ASKED))
    publish(alone)
    assert published_rows(one) == published_rows(tmp_path / "alone")
    [(captures, fetched)] = query(one, "SELECT count(*), count(*) FILTER (outcome = 'fetched') FROM ledger")
    assert captures == fetched > 0
