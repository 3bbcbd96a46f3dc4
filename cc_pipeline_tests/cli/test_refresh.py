"""Index files that were published anew are refused with what to do, and harvested again."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from cc_pipeline_tests.cli.conftest import NEW, Cli, World
from cc_pipeline_tests.world import copy_of

pytestmark = pytest.mark.xdist_group("cli homes")


@pytest.mark.process
def test_index_files_that_were_published_anew_are_harvested_again(
    cli: Cli, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = copy_of(world.bucket, tmp_path / "bucket")
    monkeypatch.setenv("CC_PIPELINE_SOURCE", str(bucket))
    home = tmp_path / "home"
    assert cli("index", "harvest", "-c", NEW, "--home", home).status == 0
    asked = ("lookup", "example.org", "-c", NEW, "--format", "csv", "--home", home)
    before = cli(*asked)
    for path in [path for path in bucket.rglob("*.parquet") if NEW in str(path)]:
        table, rows = pq.read_table(path, partitioning=None), pq.read_metadata(path).row_group(0).num_rows
        # the copy is of links to files that other tests use
        path.unlink()
        pq.write_table(table, path, compression="zstd", row_group_size=rows)
    said = cli(*asked)
    assert (said.status, f"cc-pipeline index harvest --crawl {NEW} --refresh" in said.told) == (1, True), said.err
    assert cli("index", "harvest", "-c", NEW, "--home", home).status == 0, "which asks nothing of files that it has"
    assert cli(*asked).status == 1
    assert cli("index", "harvest", "-c", NEW, "--refresh", "--home", home).status == 0
    after = cli(*asked)
    assert (after.status, after.out) == (0, before.out), after.err
