"""``team init``: what the folder of a team has, and what it never has."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from cc_pipeline.settings import load_settings
from cc_pipeline.testing.mini_crawl.truth import MiniCrawlTruth
from cc_pipeline_tests.cli.conftest import Cli

REPOSITORY = Path(__file__).resolve().parents[3]
PLACES = ("--lake", "s3://our-lake/cc", "--logs", "s3://our-logs/some/where")
SECRETS = {"PGPASSWORD", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}


def variables(folder: Path) -> dict[str, str]:
    lines = (folder / ".env").read_text("utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def named(config: Any) -> set[str]:
    """The variables that a configuration takes values from."""
    if isinstance(config, dict):
        return {config["env"]} if set(config) == {"env"} else set().union(*map(named, config.values()))
    return set().union(*map(named, config)) if isinstance(config, list) else set()


def test_a_team_gets_a_folder_without_secrets(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SECRETS:
        monkeypatch.setenv(name, "hunter2")
    monkeypatch.setenv("CC_PIPELINE_SOURCE", "https://me:hunter2@crawls.example/?token=hunter2")
    folder = tmp_path / "team"
    said = cli("team", "init", folder, *PLACES)
    assert said.status == 0, said.err
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert {path.name for path in files} >= {"dagster.yaml", "workspace.yaml", ".env", "compose.yaml", "Dockerfile"}
    assert [path for path in files if "hunter2" in path.read_text("utf-8")] == []
    assert (folder / ".env").stat().st_mode & 0o077 == 0
    told = variables(folder)
    assert {name for name in SECRETS if told[name] == ""} == SECRETS
    instance = yaml.safe_load((folder / "dagster/dagster.yaml").read_text("utf-8"))
    workspace = yaml.safe_load((folder / "workspace.yaml").read_text("utf-8"))
    # every variable that a file takes has its line
    assert named(instance) | named(workspace) <= set(told)
    assert instance["storage"]["postgres"]["postgres_db"]["scheme"] == "postgresql+psycopg2"
    assert (instance["compute_logs"]["config"]["bucket"], instance["compute_logs"]["config"]["prefix"]) == (
        "our-logs",
        "some/where",
    )
    # what one person's instance has, a team's has too
    assert instance["concurrency"]["runs"]["max_concurrent_runs"] >= 1
    settings = load_settings(told, home=str(folder))
    assert (settings.lake, settings.publish) == ("s3://our-lake/cc", "copy")


def test_what_is_there_stays(cli: Cli, tmp_path: Path) -> None:
    cli("team", "init", tmp_path, *PLACES)
    (tmp_path / ".env").write_text("PGPASSWORD=mine\n", "utf-8")
    (tmp_path / "compose.yaml").unlink()
    said = cli("team", "init", tmp_path, *PLACES)
    assert said.out.split() == ["wrote", str(tmp_path / "compose.yaml")]
    assert (tmp_path / ".env").read_text("utf-8") == "PGPASSWORD=mine\n"
    assert "all files exist already" in cli("team", "init", tmp_path, *PLACES).out


def test_the_services_agree_with_each_other(cli: Cli, tmp_path: Path) -> None:
    cli("team", "init", tmp_path, *PLACES, "--endpoint", "http://s3.example:9000")
    services = yaml.safe_load((tmp_path / "compose.yaml").read_text("utf-8"))["services"]
    assert set(services) == {"postgres", "code", "webserver", "daemon"}
    ours = [services[name] for name in ("code", "webserver", "daemon")]
    inside = {service["environment"]["CC_PIPELINE_HOME"] for service in ours}
    assert len(inside) == 1
    # the home is mounted where fetching happens, and there alone
    assert [f".:{next(iter(inside))}" in service["volumes"] for service in ours] == [True, False, False]
    instance = yaml.safe_load((tmp_path / "dagster/dagster.yaml").read_text("utf-8"))
    assert instance["compute_logs"]["config"]["endpoint_url"] == "http://s3.example:9000"
    assert variables(tmp_path)["CC_PIPELINE_LAKE_ENDPOINT"] == "http://s3.example:9000"


def test_the_image_is_of_the_locked_set_and_nothing_of_ours_runs_as_root(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 0)
    cli("team", "init", tmp_path, *PLACES)
    services = yaml.safe_load((tmp_path / "compose.yaml").read_text("utf-8"))["services"]
    users = {services[name]["user"] for name in ("code", "webserver", "daemon")}
    lines = (tmp_path / "Dockerfile").read_text("utf-8").splitlines()
    assert [f"USER {user}" for user in users] == lines[-1:] == ["USER 10001:10001"]
    assert "ARG BASE_DIGEST=" in lines
    assert next(line for line in lines if line.startswith("FROM")).endswith("-slim@sha256:${BASE_DIGEST}")
    copied = next(line for line in lines if line.startswith("COPY")).split()[1:-1]
    assert {f"!{name}" for name in copied} < set((tmp_path / ".dockerignore").read_text("utf-8").splitlines())
    # what is copied there: all that the wheel and its extra need here, with hashes, and none of our tools
    told = subprocess.run([sys.executable, REPOSITORY / ".ci/requirements"], capture_output=True, text=True, check=True)
    pinned = {block.partition("==")[0]: block for block in re.split(r"\n(?=\S)", told.stdout)}
    assert {"dagster-postgres", "psycopg2-binary", "numpy", "sqlalchemy"} < set(pinned)
    assert set(pinned) & {"pytest", "ruff", "moto", "cc-pipeline"} == set()
    assert all("--hash=sha256:" in block for block in pinned.values())


def test_hosts_share_the_budget_and_the_queue_has_room_for_all(cli: Cli, tmp_path: Path) -> None:
    said = cli("team", "init", tmp_path, *PLACES, "--hosts", "one.internal, two.internal:4001,three")
    assert said.status == 0, said.err
    instance = yaml.safe_load((tmp_path / "dagster/dagster.yaml").read_text("utf-8"))
    servers = instance["run_launcher"]["config"]["hosts"]
    assert [(one["host"], one["port"]) for one in servers] == [
        ("one.internal", 4000), ("two.internal", 4001), ("three", 4000),
    ]  # fmt: skip
    runs = instance["concurrency"]["runs"]
    assert (runs["max_concurrent_runs"], runs["tag_concurrency_limits"][0]["limit"]) == (6, 5)
    told = variables(tmp_path)
    assert load_settings(told, home=str(tmp_path)).rate_shares == 3
    assert (told["CC_PIPELINE_CODE_HOST"], told["CC_PIPELINE_CODE_PORT"]) == ("one.internal", "4000")


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        ((*PLACES, "--hosts", "one.internal"), "names one host"),
        ((*PLACES, "--hosts", "one,"), "names of hosts"),
        ((*PLACES, "--hosts", "one,127.0.0.1"), "another host on each host"),
        (("--logs", "s3://b/p"), "--lake"),
        (("--lake", "s3://b/p"), "--logs"),
        (("--lake", "/srv/lake", "--logs", "s3://b/p"), "/srv/lake"),
        ((*PLACES, "--endpoint", "http://a:hunter2@b"), "credentials"),
    ],
)
def test_a_mistake_writes_nothing(cli: Cli, tmp_path: Path, flags: tuple[str, ...], why: str) -> None:
    said = cli("team", "init", tmp_path / "team", *flags)
    assert said.status == 1
    assert why in said.err
    assert "hunter2" not in said.err
    assert not (tmp_path / "team").exists()


def test_an_instance_that_cannot_be_opened_is_named(
    cli: Cli, bucket: tuple[Path, MiniCrawlTruth], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PGHOST", "PGPORT", "PGDATABASE", "PGUSER", "PGPASSWORD"):
        monkeypatch.delenv(name, raising=False)
    cli("team", "init", tmp_path, *PLACES)
    # the crawl is looked for before Dagster is asked for anything
    run = ("run", "--home", tmp_path, "--source", bucket[0], "-c", "newest", "example.com")
    said = cli(*run)
    assert said.status == 1
    assert ".env" in said.err
    assert "Traceback" not in said.err
