"""Bytes of a home by part, and which parts can be deleted."""

from __future__ import annotations

from pathlib import Path

from cc_pipeline.checks.home_sizes import size_findings
from cc_pipeline.progress import human_bytes


def test_each_part_is_counted_once_and_says_whether_it_may_go(tmp_path: Path) -> None:
    files = {"lake/records/c/a.warc.gz": 900_000, "lake/tables/t/b.parquet": 500_000, "cache/c.json": 100_000,
             "cc.duckdb": 300_000, "demo/lake/records/d.warc.gz": 50_000, "home.json": 10}  # fmt: skip
    for name, size in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * size)
    (tmp_path / "lake" / "gone").symlink_to("nowhere")
    assert [*size_findings(tmp_path / "nothing")] == []
    found = [one.text for one in size_findings(tmp_path)]
    assert [text.split(" in ")[1].split(":")[0] for text in found][:4] == [
        "lake/records", "lake/tables", "cc.duckdb", "cache"
    ]  # fmt: skip
    [demo] = [text for text in found if "in demo:" in text]
    assert demo.endswith("the demo, which is its own home; can be deleted: make clean")
    [others] = [text for text in found if "in others:" in text]
    assert human_bytes(50_000) not in others
    assert "there is no other copy" in found[0] and "can be deleted" in found[2]
