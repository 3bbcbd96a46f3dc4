"""A second look tells what is back at a source from what is not."""

from __future__ import annotations

import gzip
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cc_pipeline.extraction.loss_recheck import _recheck_locations
from cc_pipeline.lake.slice import Slice
from cc_pipeline.records.range_plan import FIRST_READ
from cc_pipeline.transport.client import Transport
from cc_pipeline.workspace.workspace import Workspace
from cc_pipeline_tests.records.planned import captures_table, html_record

CRAWL = "CC-MAIN-2024-22"
HERE = "https://example.com/"


@pytest.mark.parametrize("gzipped", [True, False])
@pytest.mark.parametrize(
    ("size", "url", "kept", "back"),
    [
        (9, HERE, 1.0, True),
        (3 * FIRST_READ, HERE, 1.0, True),
        (20 * FIRST_READ, HERE, 1.0, True),
        # of another page, and cut off at the end of its file
        (3 * FIRST_READ, "https://example.com/other", 1.0, False),
        (3 * FIRST_READ, HERE, 0.9, False),
    ],
)
def test_a_record_that_nobody_said_the_length_of_is_read_to_its_end(
    tmp_path: Path, size: int, url: str, kept: float, back: bool, gzipped: bool
) -> None:
    member = html_record(url, random.Random(size).randbytes(size))
    data = member if gzipped else gzip.decompress(member)
    (tmp_path / "f").write_bytes(data[: int(len(data) * kept)])
    row = captures_table([{"warc_filename": "f", "warc_record_offset": 0, "url": HERE}], CRAWL).to_pylist()[0]
    slice_ = Slice(CRAWL, "example.com")
    with Transport(str(tmp_path)) as transport:
        workspace = cast("Workspace", SimpleNamespace(archives=lambda crawl: transport))
        # a lost record has no length in its row
        lost: dict[str, Any] = row | {"warc_record_length": 0, "outcome": "missing"}
        looked = _recheck_locations(workspace, CRAWL, {("f", 0): lost}, {("f", 0): [slice_]})
    assert (looked.recovered, looked.still_lost) == (
        (frozenset({slice_}), frozenset()) if back else (frozenset(), {slice_})
    )
