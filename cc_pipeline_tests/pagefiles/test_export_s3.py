"""Exports in a lake on S3: the same bytes as in a folder."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from moto.server import ThreadedMotoServer

from cc_pipeline.pagefiles.export import ExportOptions, export_slices
from cc_pipeline.workspace.workspace import export_prefix
from cc_pipeline_tests.publish.lake_pages import CRAWL, TARGET, commit_pages, make_workspace, page
from cc_pipeline_tests.world import workspace_of


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Any]]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    endpoint = "http://{}:{}".format(*server.get_host_and_port())
    client = botocore.session.get_session().create_client("s3", endpoint_url=endpoint, region_name="us-east-1")
    client.create_bucket(Bucket="lake")
    yield endpoint, client
    server.stop()


def test_files_on_s3_are_those_of_a_folder(s3: tuple[str, Any], tmp_path: Path) -> None:
    endpoint, client = s3
    local = make_workspace(tmp_path / "local")
    remote = workspace_of(local.settings.source, tmp_path / "remote", lake="s3://lake/prefix", lake_endpoint=endpoint)
    pages = [page(number) for number in range(20)]
    for workspace in (local, remote):
        commit_pages(workspace, pages)
        export_slices(workspace, CRAWL, [TARGET], options=ExportOptions(records_per_file=3))
        # fewer files than before: those beyond are gone
        export_slices(workspace, CRAWL, [TARGET], options=ExportOptions(records_per_file=8))
    assert export_slices(remote, CRAWL, [TARGET], options=ExportOptions(records_per_file=8)).written == 0
    folder = Path(local.settings.lake) / export_prefix(CRAWL, TARGET)
    wanted = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}
    listed = client.list_objects_v2(Bucket="lake", Prefix=f"prefix/{export_prefix(CRAWL, TARGET)}")["Contents"]
    found = {
        entry["Key"].rpartition("/")[2]: hashlib.sha256(
            client.get_object(Bucket="lake", Key=entry["Key"])["Body"].read()
        ).hexdigest()
        for entry in listed
    }
    assert found == wanted
    assert len(wanted) == 8
