"""One cluster for all tests of a session that ask for it; they are in one xdist group, so there is one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cc_pipeline_tests.sparkcluster import SparkCluster, spark_cluster


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """A master and two workers. A test that kills a worker starts another of the same name."""
    with spark_cluster(tmp_path_factory.mktemp("spark")) as started:
        yield started
