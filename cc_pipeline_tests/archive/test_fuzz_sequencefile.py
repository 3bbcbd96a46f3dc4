"""Mutated SequenceFiles: pairs or faults, never anything else, and bounded."""

from __future__ import annotations

from typing import get_args

from cc_pipeline.archive.sequencefile import (
    Compression,
    SequencePair,
    iter_pairs,
)
from cc_pipeline.errors import DataFault
from cc_pipeline_tests.archive.sequencefile_writer import write_sequencefile
from cc_pipeline_tests.corpus import CORPUS
from cc_pipeline_tests.fuzzing import edits, fuzz

LIMIT = 1 << 16


PAIRS = [(f"http://example.com/{number}", "text " * (number % 40)) for number in range(60)]
BASES = [
    write_sequencefile(PAIRS, how, codec, block_bytes=1500)
    for how in get_args(Compression)
    for codec in ("default", "gzip")
]
if CORPUS.is_dir():
    BASES += [path.read_bytes() for path in sorted((CORPUS / "sequencefile").rglob("*.seq*"))]


@fuzz(80, data=edits(BASES))
def test_mutated_files(data: bytes) -> None:
    for one in iter_pairs(data, "s", LIMIT):
        assert isinstance(one, SequencePair | DataFault)
        if isinstance(one, SequencePair):
            assert all(len(part) <= LIMIT for part in (one.key, one.value))
