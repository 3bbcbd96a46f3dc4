"""A lake on a real S3 server: from the stages to a query's answer, with wrong secrets, without the server, and with
two homes on it."""

from __future__ import annotations

import csv
import importlib.util
import io
import os
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest

from cc_pipeline.checks.doctor import examine
from cc_pipeline.cli.sql_results import run_statements as write_answer
from cc_pipeline.errors import EnvironmentFault, UserInputError
from cc_pipeline.extraction.parse import parse_records
from cc_pipeline.home import LAKE_NOTE as NOTE
from cc_pipeline.lake import published_file
from cc_pipeline.lake.published_file import open_for_queries
from cc_pipeline.lake.slice import PARSE, Slice
from cc_pipeline.lake.slices import invalidate_slices, read_purged
from cc_pipeline.lake.snapshot import read_pinned_versions
from cc_pipeline.maintenance.maintain import run_maintenance
from cc_pipeline.maintenance.purge import purge
from cc_pipeline.maintenance.purge_plan import plan_purge
from cc_pipeline.maintenance.stored_files import verify
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


def test_without_the_extension_views_are_refused_with_both_ways_out(
    bucket: Bucket, weed: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(published_file, "_PACKAGE", "no_such_package")
    monkeypatch.setenv("HOME", str(tmp_path))
    far = on_s3(weed, bucket[0], tmp_path / "far", "refused")
    harvest(far)
    extract(far, SITE)
    with pytest.raises(EnvironmentFault, match=f"DuckDB {duckdb.__version__} has no httpfs") as refused:
        publish(far)
    assert "pip install" in refused.value.advice
    assert "CC_PIPELINE_PUBLISH=copy" in refused.value.advice
    assert not far.settings.published_path.exists()
    found = [(found.level, found.text, found.advice) for found in examine(far.settings)]
    assert ("bad", refused.value.problem, refused.value.advice) in found


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


def test_pages_are_parsed_with_a_handful_of_requests(bucket: Bucket, weed: S3Server, tmp_path: Path) -> None:
    far = on_s3(weed, bucket[0], tmp_path / "far", "ranges")
    harvest(far)
    extract(far, SITE)
    stored = sum(file is not None for file in far.lake.read("records", columns=["stored_file"])[0].to_pylist())
    invalidate_slices(far.lake, PARSE, [Slice(NEW, SITE)])
    before = far.place.stats.requests
    assert parse_records(far, NEW, [SITE]).fresh_slices == 1
    assert stored > 20
    assert far.place.stats.requests - before <= 5
    pages = far.lake.read("page_metadata", columns=["disposition", "failure_reason"]).to_pylist()
    assert sum(page["failure_reason"] != "Missing" for page in pages) >= stored


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


def test_a_purge_leaves_nothing_in_the_bucket_and_others_as_they_were(
    weed: S3Server, bucket: Bucket, tmp_path: Path
) -> None:
    workspace = on_s3(weed, bucket[0], tmp_path / "home", "purged", publish="copy")
    harvest(workspace)
    # they share a stored file, so that it is written again without the records of one
    extract(workspace, SITE, OTHER)
    publish(workspace)

    def everything() -> dict[str, bytes]:
        return {one.key: workspace.place.read_all(one.key).data for one in list(workspace.place.listing(""))}

    rows, before = workspace.lake.read("records").to_pylist(), everything()
    stored = {row["target"]: {} for row in rows}
    for row in rows:
        if (file := row["stored_file"]) is not None:
            start = row["stored_offset"]
            stored[row["target"]][before[file][start : start + row["stored_length"]]] = file
    own = stored[SITE].keys() - stored[OTHER].keys()
    assert len(own) > 2 and {*stored[SITE].values()} & {*stored[OTHER].values()}

    report = purge(workspace, plan_purge(workspace, SITE, SITE), now=True)
    assert (report.fetches, report.deleted_after) == (0, None)
    left = everything()
    assert not [key for key, data in left.items() if any(member in data for member in own)]
    tables = [data for key, data in left.items() if key.endswith(".parquet") and key.startswith("tables/page_")]
    targets = {target for data in tables for target in pq.read_table(io.BytesIO(data))["target"].to_pylist()}
    assert targets == {OTHER}
    theirs = [row["url"] for row in rows if row["target"] == OTHER]
    assert workspace.lake.read("records")["url"].to_pylist() == theirs
    done = verify(workspace.lake, workspace.storage, None)
    assert (done.records, done.is_complete) == (0, True)
    assert read_purged(workspace.lake).num_rows == 0
