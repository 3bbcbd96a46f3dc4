"""Answers on disk: found again as they were, never when damaged, and not more of them than there is room for."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa

from cc_pipeline.index.answer_cache import AnswerCache


def table(number: int) -> pa.Table:
    # noise, which no codec makes smaller
    return pa.table({"n": [number], "noise": [os.urandom(4000)]})


def test_an_answer_is_found_as_it_was_and_never_when_damaged(tmp_path: Path) -> None:
    kept = AnswerCache(tmp_path)
    kept.keep("a", given := table(1))
    assert kept.find("a") == given and kept.find("b") is None
    [file] = [path for path in tmp_path.rglob("*") if path.is_file()]
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    assert kept.find("a") is None


def test_those_that_nobody_asks_for_make_room_for_others(tmp_path: Path) -> None:
    kept = AnswerCache(tmp_path, max_bytes=50_000)
    for number in range(40):
        kept.keep(f"answer {number}", table(number))
        for place, path in enumerate(path for path in tmp_path.rglob("*") if path.is_file()):
            os.utime(path, ns=(place, place))
        assert kept.find("answer 0") is not None, "it is asked for all the time"
    sizes = [path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()]
    assert 30_000 < sum(sizes) <= 50_000
