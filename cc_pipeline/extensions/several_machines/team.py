"""The folder of a team's instance: Dagster's storage in PostgreSQL, queued runs, lake and compute logs on S3."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from string import Template
from types import MappingProxyType
from typing import Final

from cc_pipeline.defs.instance import DAEMON_VARIABLES, DAGSTER_YAML

#: The path of the folder in the containers.
IN_CONTAINER: Final = "/srv/cc_pipeline"


@dataclass(frozen=True, slots=True)
class Team:
    """The choices of a team: ``source`` of the crawls, ``lake`` and ``logs`` (``s3://bucket/prefix``), ``endpoint`` of
    an S3 server that is not AWS (else empty), ``region``, and ``contact``. ``owner`` is the user and group id of the
    containers (``user:group``), not root's. ``hosts`` are the code servers (name and port) of several hosts that
    fetch, with the publishing host first; empty for one host.
    """

    source: str
    lake: str
    logs: str
    endpoint: str
    region: str
    contact: str
    owner: str
    hosts: tuple[tuple[str, int], ...] = ()


def team_files(team: Team) -> Mapping[str, str]:
    """The texts of the files by their path in the folder. No file has a secret; ``.env`` has the lines for secrets."""
    bucket, _, prefix = team.logs.removeprefix("s3://").partition("/")
    words = {
        "common": _for_hosts(DAGSTER_YAML.split("\n", 2)[2], team.hosts),
        "hosts": _HOSTS.format(len(team.hosts)) if team.hosts else "",
        "code_host": team.hosts[0][0] if team.hosts else "127.0.0.1",
        "code_port": str(team.hosts[0][1] if team.hosts else 4000),
        "waits": "\n".join(f"{name}={value}" for name, value in DAEMON_VARIABLES.items()),
        "bucket": bucket,
        "prefix": prefix.strip("/") or "compute-logs",
        "endpoint_line": f"\n    endpoint_url: {team.endpoint}" if team.endpoint else "",
        "region": team.region,
        "source": team.source,
        "lake": team.lake,
        "endpoint": team.endpoint,
        "contact": team.contact,
        "owner": team.owner,
        "inside": IN_CONTAINER,
        "python": f"{sys.version_info[0]}.{sys.version_info[1]}",
    }
    # $$ is a dollar sign
    return {path: Template(text).substitute(words) for path, text in _FILES.items()}


def _for_hosts(common: str, hosts: tuple[tuple[str, int], ...]) -> str:
    """Replaces the queue of one host (two runs at a time, one of them a backfill's) and its launcher by those of
    several hosts.
    """
    runs = 2 * max(1, len(hosts))
    spreading_launcher = _LAUNCHER + "".join(_SERVER.format(*server) for server in hosts)
    for before, after in (
        ("max_concurrent_runs: 2", f"max_concurrent_runs: {runs}"),
        ("value: backfill, limit: 1}", f"value: backfill, limit: {runs - 1}}}"),
        (_SINGLE_LAUNCHER, spreading_launcher if hosts else _SINGLE_LAUNCHER),
    ):
        assert before in common
        common = common.replace(before, after)
    return common


_SINGLE_LAUNCHER = "run_launcher: {module: cc_pipeline.defs.run_launcher, class: WatchingRunLauncher}\n"
#: The launcher of several hosts. It needs names, not loopback addresses: daemon, webserver and all hosts use them.
_LAUNCHER = """\
run_launcher:
  module: cc_pipeline.extensions.several_machines.run_launcher
  class: SpreadingRunLauncher
  config:
    # partitions go to whoever has the fewest runs; harvests, publications and exports to the first
    hosts:
"""
_SERVER = "      - {{host: {}, port: {}}}\n"
_HOSTS = """\
# the same on all hosts: how many there are, and that they lease the requests they send from the database below. With
# "own" each sends its even share, whether the others work or not
CC_PIPELINE_RATE_SHARES={}
CC_PIPELINE_RATE_SOURCE=postgresql
"""

_DAGSTER_YAML = """\
# Written once by cc-pipeline team init; yours to change. What is secret comes from the environment (.env).
${common}storage:
  postgres:
    postgres_db:
      # the driver has to be named: SQLAlchemy 2.1 takes plain postgresql:// for psycopg 3, which is not installed
      scheme: postgresql+psycopg2
      hostname: {env: PGHOST}
      port: {env: PGPORT}
      db_name: {env: PGDATABASE}
      username: {env: PGUSER}
      password: {env: PGPASSWORD}
      # connections are kept, and a server that restarts is waited for for a minute
      params: {plugin: cc_pipeline}
compute_logs:
  module: dagster_aws.s3.compute_log_manager
  class: S3ComputeLogManager
  config:
    bucket: ${bucket}
    prefix: ${prefix}
    region: ${region}${endpoint_line}
    skip_empty_files: true
    # seconds between two uploads of what a run has said so far
    upload_interval: 30
"""

_WORKSPACE = """\
# The code server that sensors and schedules live in, and runs too, unless dagster.yaml names several hosts for them.
load_from:
  - grpc_server:
      host: {env: CC_PIPELINE_CODE_HOST}
      port: {env: CC_PIPELINE_CODE_PORT}
      location_name: cc_pipeline
"""

_ENV = """\
# Settings and secrets of this instance. Readable by its owner alone; keep it out of version control.
# Fill the empty lines. Everything else that can be set is in docs/settings.md.
CC_PIPELINE_SOURCE=${source}
CC_PIPELINE_CONTACT=${contact}
CC_PIPELINE_LAKE=${lake}
CC_PIPELINE_LAKE_ENDPOINT=${endpoint}
CC_PIPELINE_S3_REGION=${region}
# copy: cc.duckdb holds the rows, and whoever opens it needs neither S3 nor an extension of DuckDB. Of several hosts
# the first publishes; on all others write none
CC_PIPELINE_PUBLISH=copy
${hosts}
# for the lake and the compute logs; leave both out on a machine that has a role
AWS_ACCESS_KEY_ID=
AWS_SECRET_ACCESS_KEY=
AWS_DEFAULT_REGION=${region}

# Dagster's state. compose.yaml makes this database; without Docker, name a server that is there
PGHOST=127.0.0.1
PGPORT=5432
PGDATABASE=dagster
PGUSER=dagster
PGPASSWORD=

# a backfill waits for a code server that is being started; a tick may take ten minutes
${waits}
# names by which browsers reach the UI, with commas (ui.example.org), where a proxy is in front of it. Requests to other
# names, and from pages of other sites, are refused
CC_PIPELINE_UI_HOSTS=
# what lies in the folder that a process is started in is data
PYTHONSAFEPATH=1
# where webserver and daemon find the code server
CC_PIPELINE_CODE_HOST=${code_host}
CC_PIPELINE_CODE_PORT=${code_port}
"""

_COMPOSE = """\
# An example that was never run as a whole: there was no Docker where it was written. The commands of code, webserver
# and daemon are those that the end-to-end test runs, against a real PostgreSQL and a real S3 server.
x-ours: &ours
  build: .
  # never root; this folder has to belong to it (chown -R ${owner} .)
  user: "${owner}"
  cap_drop: [ALL]
  security_opt: ["no-new-privileges:true"]
  restart: unless-stopped
  env_file: .env
  # Dagster runs modules of the current folder, and a .env there would win over what is said here: one that nobody here
  # may write to
  working_dir: /
  environment:
    HOME: /tmp
    CC_PIPELINE_HOME: ${inside}
    DAGSTER_HOME: ${inside}/dagster
    CC_PIPELINE_CODE_HOST: code
    PGHOST: postgres
    PGPORT: "5432"

services:
  postgres:
    # with @sha256: behind it, it is the one that you looked at
    image: postgres:17
    restart: unless-stopped
    environment:
      POSTGRES_DB: $${PGDATABASE}
      POSTGRES_USER: $${PGUSER}
      POSTGRES_PASSWORD: $${PGPASSWORD:?fill PGPASSWORD in .env}
    volumes: ["postgres:/var/lib/postgresql/data"]
    healthcheck:
      test: [CMD-SHELL, "pg_isready -U $$$${POSTGRES_USER} -d $$$${POSTGRES_DB}"]
      interval: 5s

  # one of these a host: request budget, catalog and cc.duckdb lie in its folder, and every run is a process of it
  code:
    <<: *ours
    command: [dagster, api, grpc, -m, cc_pipeline.definitions, -h, 0.0.0.0, -p, "4000", --location-name, cc_pipeline]
    volumes: [".:${inside}"]
    depends_on: {postgres: {condition: service_healthy}}
    # a run that is going has this long to end itself; what it committed stays in any case
    stop_grace_period: 1m
    healthcheck: {test: [CMD, dagster, api, grpc-health-check, -p, "4000"], interval: 15s, start_period: 2m}

  webserver:
    <<: *ours
    # dagster-webserver behind a guard: by itself it obeys any page that is open in the operator's browser
    command: [python, -P, -m, cc_pipeline.defs.webserver, -h, 0.0.0.0, -p, "3000", -w, "${inside}/workspace.yaml"]
    volumes: ["./dagster:${inside}/dagster", "./workspace.yaml:${inside}/workspace.yaml:ro"]
    # this host alone: the UI asks for no password, so put a proxy that does in front of it. One that is a service of
    # this file reaches webserver:3000 without this line: take it away then
    ports: ["127.0.0.1:3000:3000"]
    depends_on: {code: {condition: service_healthy}}

  # exactly one; it tries a failed run again at once or never, so not before the code server is there
  daemon:
    <<: *ours
    command:
      - sh
      - -c
      - >-
        until dagster api grpc-health-check -h "$$$$CC_PIPELINE_CODE_HOST" -p "$$$$CC_PIPELINE_CODE_PORT";
        do sleep 2; done;
        exec dagster-daemon run -w ${inside}/workspace.yaml
    volumes: ["./dagster:${inside}/dagster", "./workspace.yaml:${inside}/workspace.yaml:ro"]
    depends_on: {code: {condition: service_healthy}}
    healthcheck: {test: [CMD, dagster-daemon, liveness-check], interval: 1m, start_period: 2m}

volumes:
  postgres:
"""

_DOCKERFILE = """\
# Put two files of a checkout beside it first: make wheel, then cp dist/cc_pipeline-*.whl dist/requirements.txt here.
# Which image this one is built on is yours to say: the digest behind sha256: that you looked at, as
# docker buildx imagetools inspect python:${python}-slim shows it. Without one nothing is built.
ARG BASE_DIGEST=
FROM python:${python}-slim@sha256:$${BASE_DIGEST}
COPY requirements.txt cc_pipeline-*.whl /opt/
# the versions that were tested together, by their hashes, and nothing else
RUN pip install --no-cache-dir --require-hashes --no-deps -r /opt/requirements.txt \\
    && pip install --no-cache-dir --no-deps /opt/cc_pipeline-*.whl \\
    && pip check && rm /opt/requirements.txt /opt/cc_pipeline-*.whl
USER ${owner}
"""

_DOCKERIGNORE = """\
# what a build of the image does not need: secrets, and whatever the home holds
*
!Dockerfile
!requirements.txt
!cc_pipeline-*.whl
"""

_FILES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "dagster/dagster.yaml": _DAGSTER_YAML,
        "workspace.yaml": _WORKSPACE,
        ".env": _ENV,
        "compose.yaml": _COMPOSE,
        "Dockerfile": _DOCKERFILE,
        ".dockerignore": _DOCKERIGNORE,
        ".gitignore": ".env\n",
    }
)
