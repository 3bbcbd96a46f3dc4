"""Exports in a lake on S3: the same bytes as in a folder."""

from __future__ import annotations

import hashlib
from pathlib import Path

from cc_pipeline.derived_files.export import ExportOptions, export_slices
from cc_pipeline.workspace.workspace import export_prefix
from cc_pipeline_tests.motoserver import client_of
from cc_pipeline_tests.publish.lake_pages import CRAWL, TARGET, commit_pages, make_workspace, page
from cc_pipeline_tests.world import workspace_of


def test_files_on_s3_are_those_of_a_folder(endpoint: str, tmp_path: Path) -> None:
    client = client_of(endpoint)
    local = make_workspace(tmp_path / "local")
    remote = workspace_of(local.settings.source, tmp_path / "remote", lake="s3://lake/prefix", lake_endpoint=endpoint)
    pages = [page(number) for number in range(8)]
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
    assert len(wanted) == 4
