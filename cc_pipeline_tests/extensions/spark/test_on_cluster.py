"""The Spark engine on a real cluster, with the lake on a real S3 server: the local engine's tables, row for row."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cc_pipeline import progress
from cc_pipeline.extensions.spark import driver as module
from cc_pipeline.extensions.spark import plans as cutting
from cc_pipeline.extensions.spark.driver import SparkEngine
from cc_pipeline.extraction.engine import LOCAL, LocalEngine
from cc_pipeline.extraction.run import TABLES
from cc_pipeline.maintenance.stored_files import list_named_files
from cc_pipeline.records.sweep import sweep
from cc_pipeline.testing.mini_crawl.generate import ensure
from cc_pipeline.testing.mini_crawl.spec import spec_for
from cc_pipeline.workspace.workspace import Workspace
from cc_pipeline_tests.extensions.spark.compared import Bucket, located, made
from cc_pipeline_tests.extensions.spark.spark_cluster import GROUP, SparkCluster, with_pyspark
from cc_pipeline_tests.extraction.engine_tests import assert_same, find_leftovers, find_unnamed_files
from cc_pipeline_tests.weedserver import REGION, S3Server
from cc_pipeline_tests.world import NEW

pytestmark = [pytest.mark.process, pytest.mark.xdist_group(GROUP)]

PAGES = TABLES[1:]
#: Distinct pages of the bucket; three quarters as many captures.
SIZE = 3_000


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Bucket:
    root = tmp_path_factory.mktemp("large") / "bucket"
    return root, ensure(root, spec_for(SIZE, crawls=(NEW,)))


@contextmanager
def variables(**more: str) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(more)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@pytest.fixture(scope="module")
def context(cluster: SparkCluster, weed: S3Server) -> Iterator[Any]:
    """A Spark application with this process as its driver; workers know the lake's keys and nothing else of ours."""
    with_pyspark()
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415  # what is only here if Spark is

    keys = {
        "AWS_ACCESS_KEY_ID": weed.key,
        "AWS_SECRET_ACCESS_KEY": weed.secret,
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    conf = SparkConf().setExecutorEnv(pairs=[*keys.items(), ("HOME", "/nonexistent")])
    with variables(**cluster.environment, **keys):
        with SparkContext(cluster.address, "test", conf=conf) as started:
            yield started
        gateway = SparkContext._gateway
        if gateway is not None:
            # the driver's Java would stay until this process ends
            gateway.shutdown()
            gateway.proc.stdin.close()
            gateway.proc.wait()
            SparkContext._gateway = SparkContext._jvm = None


@pytest.fixture
def names(large: Bucket) -> list[str]:
    return sorted(large[1].domains(NEW))


@pytest.fixture
def place(weed: S3Server) -> dict[str, str]:
    return {"lake_endpoint": weed.endpoint, "s3_region": REGION}


def on_cluster(context: Any) -> SparkEngine:
    return SparkEngine(context, 2)


def home(large: Bucket, tmp_path: Path, name: str, targets: list[str], place: dict[str, str]) -> Workspace:
    lake = f"s3://lake/{tmp_path.name}-{name}"
    return located(large[0], tmp_path / name, targets, lake=lake, **place)


@pytest.mark.smoke
def test_a_domain_gets_the_same_tables_on_a_cluster_as_here(
    bucket: Bucket, place: dict[str, str], tmp_path: Path, context: Any
) -> None:
    slugs = ["example.com"]
    homes = [located(bucket[0], tmp_path / "local", slugs), home(bucket, tmp_path, "spark", slugs, place)]
    for workspace, by in zip(homes, (LOCAL, on_cluster(context)), strict=True):
        assert all(one.error is None for one in made(workspace, slugs, by, PAGES).values())
    assert_same(*homes, slugs)
    assert not find_leftovers(homes[1])


def test_a_worker_lost_half_way_and_a_failure_after_all_was_uploaded(
    large: Bucket,
    names: list[str],
    place: dict[str, str],
    tmp_path: Path,
    context: Any,
    cluster: SparkCluster,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # some dozen tasks
    monkeypatch.setattr(cutting, "MIN_ROWS", 50)
    monkeypatch.setattr(cutting, "MAX_ROWS", 50)
    slugs = names[::4]
    local, mine = (home(large, tmp_path, name, slugs, place) for name in ("local", "spark"))
    made(local, slugs, LocalEngine(captures=100_000), PAGES)
    lost: dict[str, tuple[int, int | None]] = {}

    def half_way(stage: str, done: int, total: int | None, detail: str) -> None:
        del detail
        if stage not in lost and done and total and done < total:
            lost[stage] = done, total
            name = cluster.workers[0]
            cluster.kill(name)
            cluster.add_worker(name)

    def fails(*_: object) -> None:
        raise OSError("the driver's host is gone")

    with progress.progress_to(half_way):
        with monkeypatch.context() as patched:
            patched.setattr(module, "_merge_task_results", fails)
            found = made(mine, slugs[:1], on_cluster(context), ["records"])
            assert all(one.error is not None for one in found.values())
        found = made(mine, slugs, on_cluster(context), PAGES)
    assert all(one.error is None for one in found.values())
    assert set(lost) == {"fetch", "parse"}, "tasks had ended, and others had not"
    assert any("that a stopped run had fetched" in note for note in found[slugs[0]].reports["records"].notes)
    assert_same(local, mine, slugs)
    assert not find_leftovers(mine)
    # what a lost attempt had stored is no row's
    sweep(mine.storage, NEW, lambda: list_named_files(mine.lake, NEW), retention=0)
    assert not find_unnamed_files(mine)
