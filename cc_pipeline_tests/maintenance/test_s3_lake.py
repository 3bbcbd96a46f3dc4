"""A lake on a real S3 server: from the stages to a query's answer, with wrong secrets, without the server, and with
two homes on it."""

from __future__ import annotations

import csv
import importlib.util
import os
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cc_pipeline.cli.sql_results import run_statements as write_answer
from cc_pipeline.errors import UserInputError
from cc_pipeline.home import LAKE_NOTE as NOTE
from cc_pipeline.lake import published_file
from cc_pipeline.lake.published_file import open_for_queries
from cc_pipeline.lake.snapshot import read_pinned_versions
from cc_pipeline.maintenance.maintain import run_maintenance
from cc_pipeline.workspace.workspace import Workspace
from cc_pipeline_tests.weedserver import REGION, S3Server, weed_server
from cc_pipeline_tests.world import NEW, Bucket, extract, harvest, harvested, publish, workspace_of

pytestmark = pytest.mark.process

SITE, OTHER = "example.com", "example-foo.com"
WRONG = "n0t-the-secret-at-all"
CAPTURES = (
    "SELECT c.url, c.fetch_time, outcome FROM captures c JOIN records USING (crawl, warc_filename, warc_record_offset)"
)
#: Publishes the home named first, in a process with another DuckDB.
PUBLISH = """
import sys
from cc_pipeline.settings import load_settings
from cc_pipeline.publish.publish import publish_warehouse
from cc_pipeline.workspace.workspace import open_workspace
with open_workspace(load_settings()) as workspace:
    publish_warehouse(workspace)
"""
COMMAND = "import sys; from cc_pipeline.cli import main; sys.exit(main())"


def log_in(monkeypatch: pytest.MonkeyPatch, weed: S3Server) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", weed.key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", weed.secret)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.fixture(autouse=True)
def _logged_in(weed: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    log_in(monkeypatch, weed)


def on_s3(weed: S3Server, source: Path | str, home: Path, lake: str, **more: object) -> Workspace:
    place = {"lake": f"s3://lake/{lake}", "lake_endpoint": weed.endpoint, "s3_region": REGION}
    return workspace_of(source, home, **place, **more)


def with_httpfs(workspace: Workspace, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Runs Python on the workspace's home with a DuckDB that has httpfs; skips the test where there is none."""
    beside = Path(sys.prefix) / "httpfs"
    path = os.environ.get("PYTHONPATH", "")
    if importlib.util.find_spec("duckdb_extension_httpfs") is None:
        if not beside.is_dir():
            pytest.skip("no DuckDB with httpfs here; install one beside the locked one with: make httpfs")
        path = f"{beside}:{path}"
    settings = workspace.settings
    assert settings.lake_endpoint
    own = {
        "PYTHONPATH": path,
        "CC_PIPELINE_HOME": str(settings.home),
        "CC_PIPELINE_LAKE": settings.lake,
        "CC_PIPELINE_LAKE_ENDPOINT": settings.lake_endpoint,
        "COLUMNS": "500",
    }
    return subprocess.run(
        [sys.executable, "-c", *arguments],
        env={**os.environ, **own, **more},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def answer(workspace: Workspace, query: str, capsys: pytest.CaptureFixture[str]) -> Counter[str]:
    capsys.readouterr()
    settings = workspace.settings
    with open_for_queries(settings) as connection:
        write_answer(connection, query, "csv")
    return Counter(map(str, list(csv.reader(capsys.readouterr().out.splitlines()))[1:]))


def near(bucket: Bucket, home: Path, *targets: str) -> Workspace:
    """The same in a home with a lake of its own, published."""
    workspace = harvested(bucket[0], home)
    for target in targets:
        extract(workspace, target)
    publish(workspace)
    return workspace


def test_views_over_s3_answer_through_a_packaged_extension(
    bucket: Bucket, weed: S3Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    far = on_s3(weed, bucket[0], tmp_path / "far", "views")
    harvest(far)
    extract(far, SITE)
    closed = {"HOME": str(tmp_path)}  # where DuckDB would put what it fetches
    published = with_httpfs(far, PUBLISH, **closed)
    assert published.returncode == 0, published.stderr
    asked = with_httpfs(far, COMMAND, "sql", "--format", "csv", CAPTURES, **closed)
    assert asked.returncode == 0, asked.stderr
    here = answer(near(bucket, tmp_path / "near", SITE), CAPTURES, capsys)
    assert here
    assert Counter(map(str, list(csv.reader(asked.stdout.splitlines()))[1:])) == here
    calls = [f"captures_of('{SITE}')", f"page_versions('{SITE}')", f"changes_between('{NEW}', '{NEW}')"]
    calls += [f"near_duplicates('{NEW}')", "timeline()", "feed_timeline()", "feeds_advertised()", "link_graph()"]
    counts = f"SELECT {', '.join(f'(SELECT count(*) FROM {call})' for call in calls)}"
    macros = with_httpfs(far, COMMAND, "sql", "--format", "csv", counts, **closed)
    assert macros.returncode == 0, macros.stderr
    [counted] = list(csv.reader(macros.stdout.splitlines()))[1:]
    assert Counter([str(counted)]) == answer(near(bucket, tmp_path / "near", SITE), counts, capsys)
    assert all(int(count) for count in counted)
    assert not (tmp_path / ".duckdb").exists()
    held = far.settings.published_path.read_bytes()
    assert weed.secret.encode() not in held
    assert weed.key.encode() not in held
    refused = with_httpfs(far, COMMAND, "sql", CAPTURES, AWS_SECRET_ACCESS_KEY=WRONG)
    assert refused.returncode == 1
    assert "cannot be read from S3" in refused.stderr
    assert WRONG not in refused.stderr


def test_a_copy_answers_when_the_server_is_gone(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with weed_server(tmp_path / "weed", "lake") as weed:
        log_in(monkeypatch, weed)
        far = on_s3(weed, bucket[0], tmp_path / "far", "copy", publish="copy")
        harvest(far)
        extract(far, SITE)
        monkeypatch.setattr(published_file, "enable_s3_reads", None)  # neither the extension nor a secret is asked for
        publish(far)
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    here = near(bucket, tmp_path / "near", SITE)
    for query in (CAPTURES, "FROM page_metadata", "FROM page_links", "FROM row_groups"):
        found = answer(far, query, capsys)
        assert found
        assert found == answer(here, query, capsys), query
    held = far.settings.published_path.read_bytes()
    assert weed.secret.encode() not in held


def test_one_of_many_homes_claims_a_lake(weed: S3Server, tmp_path: Path) -> None:
    homes = [on_s3(weed, f"https://{number}.example/", tmp_path / str(number), "race") for number in range(8)]

    def claim(workspace: Workspace) -> str | None:
        try:
            workspace.claim()
        except UserInputError as error:
            return str(error)
        return None

    with ThreadPoolExecutor(len(homes)) as pool:
        said = list(pool.map(claim, homes))
    winners = [home for home, refused in zip(homes, said, strict=True) if refused is None]
    assert len(winners) == 1
    assert winners[0].settings.source.encode() in homes[0].place.read_all(NOTE).data
    assert all(winners[0].settings.source in refused for refused in said if refused)


def test_two_homes_on_one_lake_run_publish_and_sweep_side_by_side(
    bucket: Bucket, weed: S3Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = (on_s3(weed, bucket[0], tmp_path / name, "both", publish="copy") for name in ("one", "two"))
    work = {one: SITE, two: OTHER}

    def at_work(workspace: Workspace) -> None:
        harvest(workspace)
        extract(workspace, work[workspace])
        publish(workspace)
        run_maintenance(workspace, max_files=1)

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(at_work, workspace) for workspace in (one, two)]:
            done.result()
    whole = answer(near(bucket, tmp_path / "near", SITE, OTHER), CAPTURES, capsys)
    for workspace in (one, two):
        run_maintenance(workspace, max_files=1)
        assert answer(workspace, CAPTURES, capsys) == whole
    assert read_pinned_versions(one.place) == {}
