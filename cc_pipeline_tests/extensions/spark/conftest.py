"""One cluster for all tests of a session that ask for it; they are in one xdist group, so there is one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cc_pipeline_tests.extensions.spark.spark_cluster import SparkCluster, spark_cluster
from cc_pipeline_tests.weedserver import CREDENTIALS
from cc_pipeline_tests.wheel import install_wheel


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """A master and two workers, which may use the S3 servers of tests."""
    with spark_cluster(tmp_path_factory.mktemp("spark"), environment=CREDENTIALS, brief=True) as started:
        yield started


@pytest.fixture(scope="session")
def wheel_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python that has the wheel, with its compiled parts, and nothing else of ours."""
    return install_wheel(tmp_path_factory.mktemp("wheel")) / "python"
