"""``cc-pipeline run`` on Spark in a process of its own: a real cluster whose workers have the wheel alone, the
source over HTTP, the lake on a real S3 server. Then the local engine, which finds nothing to do."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dagster as dg
import duckdb
import pytest

from cc_pipeline.defs.instance import open_instance
from cc_pipeline.defs.partitions import ENGINE_TAG
from cc_pipeline.extraction.engine import LOCAL
from cc_pipeline.extraction.run import TABLES
from cc_pipeline.settings import Settings, load_settings
from cc_pipeline.testing.mini_crawl.truth import MiniCrawlTruth
from cc_pipeline.workspace.workspace import Workspace
from cc_pipeline_tests.closing import closed_later
from cc_pipeline_tests.extensions.spark.compared import located, slugs_of
from cc_pipeline_tests.extensions.spark.compared import made as made_by
from cc_pipeline_tests.extensions.spark.spark_cluster import GROUP, SparkCluster
from cc_pipeline_tests.extraction.engine_tests import assert_same, find_leftovers, find_unnamed_files
from cc_pipeline_tests.faultserver import FaultServer
from cc_pipeline_tests.weedserver import CREDENTIALS, REGION, S3Server
from cc_pipeline_tests.world import NEW

pytestmark = [pytest.mark.process, pytest.mark.xdist_group(GROUP), pytest.mark.timeout(900)]

BIN = Path(sys.executable).parent
SITES = ("example.com", "example.org", "host:www.example.com")


def test_a_run_of_the_command_line_on_a_cluster(
    cluster: SparkCluster,
    wheel_python: Path,
    weed: S3Server,
    bucket: tuple[Path, MiniCrawlTruth],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with FaultServer(bucket[0]) as source:
        own = {
            "CC_PIPELINE_SOURCE": source.url,
            "CC_PIPELINE_HOME": str(tmp_path / "home"),
            "CC_PIPELINE_LAKE": "s3://lake/tables",
            "CC_PIPELINE_LAKE_ENDPOINT": weed.endpoint,
            "CC_PIPELINE_S3_REGION": REGION,
            "CC_PIPELINE_PUBLISH": "copy",
            "CC_PIPELINE_SPARK_MASTER": cluster.address,
            "CC_PIPELINE_SPARK_WORKERS": "2",
            "PYSPARK_PYTHON": str(wheel_python),
            "COLUMNS": "400",
        }
        kept = {
            name: text for name, text in cluster.environment.items() if not name.startswith(("CC_PIPELINE_", "AWS_"))
        }
        environment = kept | CREDENTIALS | own

        def run(engine: str) -> str:
            command = [str(BIN / "cc-pipeline"), "run", *SITES, "--crawl", NEW]
            wanted = environment | {"CC_PIPELINE_ENGINE": engine}
            done = subprocess.run(
                command, cwd=tmp_path, env=wanted, capture_output=True, text=True, check=False, timeout=600
            )
            assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
            return done.stdout

        run("spark")
        settings = load_settings(environment)
        with runs_in(settings) as instance:
            [on_spark] = instance.get_runs(dg.RunsFilter(job_name="extract_targets"))
            assert on_spark.tags[ENGINE_TAG] == "spark"
            for table in TABLES:
                records = instance.fetch_materializations(dg.AssetKey(table), limit=10).records
                made = [one for record in records if (one := record.asset_materialization)]
                assert sorted(str(one.partition) for one in made) == [f"{NEW}|{slug}" for slug in slugs_of(SITES)]
                assert all("dagster/partition_row_count" in one.metadata for one in made)
        near = located(source.url, tmp_path / "near", SITES)
        assert all(one.error is None for one in made_by(near, slugs_of(SITES), LOCAL).values())
        for name, text in CREDENTIALS.items():
            monkeypatch.setenv(name, text)
        far = closed_later(Workspace(settings))
        assert_same(far, near, slugs_of(SITES))
        assert find_leftovers(far) == []
        assert not find_unnamed_files(far)
        with duckdb.connect(str(tmp_path / "home" / "cc.duckdb"), read_only=True) as published:
            [(pages,)] = published.sql("SELECT count(*) FROM page_metadata").fetchall()
        assert pages
        before = len(source.hits)
        run("local")
        with runs_in(settings) as instance:
            assert len(instance.get_runs(dg.RunsFilter(job_name="extract_targets"))) == 1
        assert not [hit for hit in source.hits[before:] if hit.key.endswith(".warc.gz")]


@contextmanager
def runs_in(settings: Settings) -> Iterator[dg.DagsterInstance]:
    instance = open_instance(settings)
    try:
        yield instance
    finally:
        instance.dispose()
