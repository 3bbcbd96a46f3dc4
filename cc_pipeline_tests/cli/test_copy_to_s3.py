"""Copying to an S3 server: whole parts only, and a stop in between costs nothing that was sent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import botocore.session
import pytest
from moto.server import ThreadedMotoServer

from cc_pipeline.errors import CcPipelineError
from cc_pipeline.records.copying import copy_parts, list_key, plan_copy
from cc_pipeline.transport.client import Transport
from cc_pipeline_tests.cli.conftest import NEW, World
from cc_pipeline_tests.world import workspace_of

pytestmark = pytest.mark.xdist_group("cli")


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "someone")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "something")
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    address = f"http://{host}:{port}"
    client = botocore.session.Session().create_client("s3", region_name="us-east-1", endpoint_url=address)
    client.create_bucket(Bucket="mine")
    yield address
    server.stop()


class Stopped(Exception):
    """Somebody pressed Ctrl-C."""


def test_a_stopped_copy_goes_on_where_it_was(world: World, endpoint: str, tmp_path: Path) -> None:
    workspace = workspace_of(world.bucket, world.home)
    records = workspace.lake.read("records", {"crawl": NEW})
    parts = plan_copy(records, NEW, part_bytes=8_000)
    assert len(parts) > 4
    assert sum(part.rows.num_rows for part in parts) == records["outcome"].to_pylist().count("fetched")

    def stop(done: int, total: int, sent: int, size: int) -> None:
        if done == 2:
            raise Stopped

    storage = workspace.storage
    with Transport("s3://mine/some/prefix", s3_endpoint=endpoint) as place:
        with pytest.raises(Stopped):
            copy_parts(parts, storage, place, tmp_path, crawl=NEW, parallel=1, progress=stop)
        there = {listed.key for listed in place.listing("") if not listed.key.endswith(".parquet")}
        assert 2 <= len(there) < len(parts)
        report = copy_parts(parts, storage, place, tmp_path, crawl=NEW, parallel=3)
        assert report.held == len(there)
        assert report.records == sum(part.rows.num_rows for part in parts)
        keys = {listed.key for listed in place.listing("")}
        assert keys == {part.key for part in parts} | {list_key(part.key) for part in parts}
        assert copy_parts(parts, storage, place, tmp_path, crawl=NEW).bytes == 0
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_is_not_there_is_an_error(world: World, endpoint: str, tmp_path: Path) -> None:
    workspace = workspace_of(world.bucket, world.home)
    parts = plan_copy(workspace.lake.read("records", {"crawl": NEW}), NEW)
    with Transport("s3://nobodys", s3_endpoint=endpoint) as place, pytest.raises(CcPipelineError):
        copy_parts(parts, workspace.storage, place, tmp_path, crawl=NEW)
    assert list(tmp_path.iterdir()) == []
