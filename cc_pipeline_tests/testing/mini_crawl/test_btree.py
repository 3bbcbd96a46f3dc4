"""The writer against the original 2012 writer's files, and what it refuses."""

from __future__ import annotations

import gzip
import io
import json
import struct

from cc_pipeline.testing.mini_crawl.btree import pack_pointer, write_btree
from cc_pipeline_tests.corpus import CORPUS, needs_corpus


def _written(items: list[tuple[bytes, bytes]], block_size: int) -> bytes:
    out = io.BytesIO()
    write_btree(items, out, block_size)
    return out.getvalue()


@needs_corpus
def test_equals_the_original_writer_with_three_levels() -> None:
    original = (CORPUS / "btree_golden" / "url-index-1024.pbtree").read_bytes()
    with gzip.open(CORPUS / "btree_golden" / "expected-1024.json.gz") as lines:
        every_item = json.load(lines)[""]
    items = [(key.encode("latin-1"), pack_pointer(*numbers)) for key, numbers in every_item]
    assert _written(items, 1024) == original


@needs_corpus
def test_equals_the_original_writer_on_real_captures() -> None:
    original = (CORPUS / "realcrawl/bucket/projects/url-index/url-index.1356128792").read_bytes()
    with gzip.open(CORPUS / "realcrawl" / "expected.json.gz") as lines:
        rows = json.load(lines)["CC-MAIN-2012"]
    items = [(row[0].encode(), pack_pointer(*row[1])) for row in rows]
    assert _written(items, struct.unpack_from("<I", original)[0]) == original
