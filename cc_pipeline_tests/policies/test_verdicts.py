"""The verdict on ``site_policies``: what is wrong is named, and many slices are read at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cc_pipeline.checks.scope import Scope
from cc_pipeline.lake.slice import POLICIES, Slice
from cc_pipeline.policies import verdicts
from cc_pipeline.workspace.schemas import SITE_POLICIES_SCHEMA
from cc_pipeline_tests.world import workspace_of

A, B = "CC-MAIN-2024-22", "CC-MAIN-2023-50"


def row(crawl: str, target: str, robots: str, digest: str | None, lines: list[Any] | None) -> dict[str, Any]:
    found: dict[str, Any] = {
        "crawl": crawl, "target": target, "robots": robots, "scheme": "https", "host": target, "port": 443,
        "segment": "1", "url": f"https://{target}/robots.txt", "state": "read", "content_digest": digest,
        "read_from": "", "lines": lines, "warc_filename": "a", "warc_record_offset": 0, "warc_record_length": 1,
    }  # fmt: skip
    return found


def test_what_stands_twice_or_lacks_its_lines_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace, rows = workspace_of(tmp_path, tmp_path / "home"), {
        A: [row(A, "sound.com", "1", "x", []), row(A, "sound.com", "2", "x", None),
            row(A, "sound.com", "3", None, None), row(A, "twice.com", "1", "x", []), row(A, "twice.com", "1", "x", [])],
        B: [row(B, "twice.com", "1", "x", []), row(B, "lacks.com", "1", "x", []), row(B, "lacks.com", "2", "y", None)],
    }  # fmt: skip
    for crawl, own in rows.items():
        made = {Slice(crawl, one["target"]): "0" * 16 for one in own}
        POLICIES.commit(
            workspace.lake, made, {"site_policies": pa.Table.from_pylist(own, SITE_POLICIES_SCHEMA).to_batches}
        )
    real, reads = verdicts.stream_slices, list[str]()

    def noted(*asked: Any) -> Any:
        reads.append(asked[2])
        return real(*asked)

    monkeypatch.setattr(verdicts, "stream_slices", noted)
    found = verdicts.site_policies_verdict(workspace, Scope())
    assert found.severity == "error"
    assert {*found.wrong} == {f"{A}|twice.com", f"{B}|lacks.com"}
    assert "1 robots.txt captures stand twice" in found.message
    assert reads == [B, A], "one read a crawl"
    sound = verdicts.site_policies_verdict(workspace, Scope([Slice(A, "sound.com"), Slice(B, "twice.com")]))
    assert sound.severity == "ok"
