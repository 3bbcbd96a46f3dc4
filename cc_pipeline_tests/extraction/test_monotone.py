"""Whatever commands come in whatever order, and wherever they are killed: what is published is what a model says.
Thresholds are small here, so that a few captures go the ways of a million."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cc_pipeline_tests.extraction.sequences import prepare, run_sequence
from cc_pipeline_tests.thresholds import shrunk
from cc_pipeline_tests.world import Bucket

pytestmark = pytest.mark.matrix


@pytest.fixture(scope="module", autouse=True)
def thresholds_are_small() -> Iterator[None]:
    with shrunk():
        yield


@pytest.fixture(scope="module")
def two_homes(bucket: Bucket, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("sequences") / "all"
    prepare(bucket[0], root)
    return root


@pytest.mark.parametrize("seed", range(5))
def test_two_homes_on_a_lake_publish_what_the_model_says(bucket: Bucket, two_homes: Path, seed: int) -> None:
    """More of them: ``python -m cc_pipeline_tests.extraction.sequences FIRST COUNT SECONDS``."""
    run_sequence(bucket[0], two_homes, bucket[1], seed)
