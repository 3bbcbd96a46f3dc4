"""Only files that no row names, no journal vouches for, and no running fetch may hold are removed."""

from __future__ import annotations

import os
from pathlib import Path

from cc_pipeline.records.segments import sweep, unneeded_files
from cc_pipeline_tests.records.planned import shelf_at

CRAWL = "CC-MAIN-2024-22"


def test_the_sweep_takes_what_nobody_needs(tmp_path: Path) -> None:
    folder = tmp_path / "records" / CRAWL
    (folder / "open").mkdir(parents=True)
    (tmp_path / "records" / "CC-MAIN-2018-05").mkdir()
    for name in (
        "named.warc.gz",
        "garbage.warc.gz",
        "garbage.arc.gz",
        "garbage.quarantine",
        "adoptable.warc.gz",
        "adoptable.warc.gz.rows.jsonl",
        "young.warc.gz",
        "note.txt",
        "open/writing.warc.gz",
        "../CC-MAIN-2018-05/other.warc.gz",
    ):
        (folder / name).write_bytes(b"12345")
        os.utime(folder / name, (1, 1))
    os.utime(folder / "young.warc.gz")
    named = {f"records/{CRAWL}/named.warc.gz"}
    with shelf_at(tmp_path) as storage:
        expected = [f"records/{CRAWL}/garbage{suffix}" for suffix in (".arc.gz", ".quarantine", ".warc.gz")]
        assert unneeded_files(storage, CRAWL, named) == [(key, 5) for key in expected]
        assert sweep(storage, CRAWL, named) == (3, 15)
        assert sweep(storage, CRAWL, named) == (0, 0)
        assert len(unneeded_files(storage, CRAWL, named, min_age_seconds=-1)) == 1
    assert (folder / "named.warc.gz").exists()
    assert (folder / "open" / "writing.warc.gz").exists()
