"""The limited link of the test server: everything arrives, in order, and not faster than it may."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from cc_pipeline.transport.client import Transport
from cc_pipeline.transport.ranges import ByteRange, RangeBytes
from cc_pipeline_tests.faultlink import Link
from cc_pipeline_tests.faultserver import FaultServerProcess


def test_answers_share_the_link_and_lose_nothing(tmp_path: Path) -> None:
    content = bytes(range(256)) * 1000
    (tmp_path / "f").write_bytes(content)
    wanted = [ByteRange("f", start, 60_000) for start in range(0, 240_000, 7_777) if start + 60_000 <= len(content)]
    with FaultServerProcess(tmp_path, bandwidth=100e6) as server, Transport(server.url) as transport:
        started = time.perf_counter()
        found = list(transport.read_many(wanted))
        seconds = time.perf_counter() - started
    assert len(found) == len(wanted)
    for answer in found:
        assert isinstance(answer, RangeBytes)
        assert answer.data == content[answer.offset : answer.offset + 60_000]
    # a lower bound only: the machine may be slow, the link must not be fast
    assert seconds >= len(wanted) * 60_000 * 8 / 100e6


def test_a_link_that_carries_nothing_is_refused() -> None:
    async def made() -> Link:
        return Link(0)

    with pytest.raises(ValueError, match="carries nothing"):
        asyncio.run(made())
