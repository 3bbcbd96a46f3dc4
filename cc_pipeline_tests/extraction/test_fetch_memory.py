"""Fetching a target of many captures takes the memory of a group of them."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from benchmarks import large_target
from cc_pipeline.extraction import engine
from cc_pipeline.extraction import fetch as fetch_stage
from cc_pipeline.lake import ordered
from cc_pipeline.records.fetch import RecordsResult
from cc_pipeline.records.range_plan import RecordOptions
from cc_pipeline_tests.peak import own_peak


@pytest.mark.process
def test_four_times_the_captures_take_hardly_more_memory(tmp_path: Path) -> None:
    peaks = []
    for captures in (4_000, 12_000):
        bucket, home = tmp_path / f"bucket-{captures}", tmp_path / f"home-{captures}"
        large_target.make(bucket, captures)
        large_target.run(bucket, home, ["harvest", "locate"])
        # in a process of its own, since a peak is its process's
        code = f"from {__name__} import fetch; fetch({str(bucket)!r}, {str(home)!r})"
        told = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
        peaks.append(int(told))
    few, many = peaks
    assert many < few + (6 << 10), "the rows of 8,000 captures are 9 MB where they are kept"


def fetch(bucket: str, home: str) -> None:
    """Prints the peak (KiB) once all records of the large target were fetched, in small groups and sorted on disk; the
    commit behind it is the lake's."""
    ordered.IN_MEMORY, ordered._PIECE = 1 << 20, 1 << 16
    fetch_stage.RecordOptions = partial(RecordOptions, group=2_000)  # type: ignore[misc,assignment]
    fetch_records = engine.fetch_records

    def fetched(*planned: Any, **how: Any) -> RecordsResult:
        result = fetch_records(*planned, **how)
        print(own_peak())
        return result

    engine.fetch_records = fetched
    large_target.run(Path(bucket), Path(home), ["fetch"])
