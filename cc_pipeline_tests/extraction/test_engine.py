"""The engine of the core does what every engine does, and in groups of captures the same."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from cc_pipeline.extraction import fetch as fetch_stage
from cc_pipeline.extraction.engine import LOCAL, Engine
from cc_pipeline.records.orders import RecordOptions
from cc_pipeline_tests.extraction.engine_tests import EngineTests, assert_same
from cc_pipeline_tests.world import Bucket, extract, harvested


class TestLocal(EngineTests):
    @contextmanager
    def open_engine(self) -> Iterator[Engine]:
        yield LOCAL


def test_groups_give_the_same_rows_and_read_each_record_once(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # two targets that share captures, and another one
    targets = ("example.com", "host:www.example.com", "example-foo.com")
    whole, grouped = (harvested(bucket[0], tmp_path / name) for name in ("whole", "grouped"))
    _, fetched, _ = extract(whole, *targets)
    monkeypatch.setattr(fetch_stage, "RecordOptions", partial(RecordOptions, group=3))
    monkeypatch.setattr("cc_pipeline.lake.ordered.IN_MEMORY", 0)
    _, in_groups, _ = extract(grouped, *targets)
    assert_same(whole, grouped, fetched.per_target)
    places = whole.lake.read("records", columns=["warc_filename", "warc_record_offset"]).to_pylist()
    assert in_groups.requests <= len({tuple(place.values()) for place in places})
    assert [path for path in (tmp_path / "grouped" / "scratch").rglob("*") if path.is_file()] == []
