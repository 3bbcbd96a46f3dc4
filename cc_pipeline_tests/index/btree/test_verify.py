"""A whole file gone over: sound ones are, and each kind of damage has a sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from cc_pipeline.errors import DataFault
from cc_pipeline.index.btree.format import HEADER, pack_pointer
from cc_pipeline.index.btree.source import LocalRanges
from cc_pipeline.index.btree.writer import write_btree
from cc_pipeline_tests.corpus import CORPUS, needs_corpus
from cc_pipeline_tests.index.btree.verifying import BTreeHealth, verify_btree


def _tree(folder: Path, count: int = 500, block_size: int = 256) -> bytes:
    with (folder / "tree").open("wb") as out:
        write_btree([(b"com.example/%05d" % n, pack_pointer(n, 0, 0, 0, 1)) for n in range(count)], out, block_size)
    return (folder / "tree").read_bytes()


def _verified(folder: Path) -> BTreeHealth:
    return verify_btree(LocalRanges(folder), "tree")


def test_a_sound_tree(tmp_path: Path) -> None:
    _tree(tmp_path)
    health = _verified(tmp_path)
    assert health.sound
    assert (health.items, health.problems) == (500, ())
    assert health.levels >= 2


@needs_corpus
def test_the_original_writers_files_are_sound() -> None:
    health = verify_btree(LocalRanges(CORPUS / "btree_golden"), "url-index-1024.pbtree")
    assert (health.items, health.levels, health.index_blocks, health.sound) == (18862, 3, 56, True)
    real = LocalRanges(CORPUS / "realcrawl/bucket/projects/url-index")
    assert verify_btree(real, "url-index.1356128792").sound


def test_pointers_that_drift_are_named(tmp_path: Path) -> None:
    content = bytearray(_tree(tmp_path))
    _, index_blocks = HEADER.unpack_from(content)
    start = HEADER.size + (index_blocks - 1) * 256
    separator_end = content.index(0, start + 4)
    drifted = int.from_bytes(content[separator_end + 1 : separator_end + 5], "little") + 1
    content[separator_end + 1 : separator_end + 5] = drifted.to_bytes(4, "little")
    (tmp_path / "tree").write_bytes(content)
    health = _verified(tmp_path)
    assert not health.sound
    assert any(f"no pointer leads to data block {drifted - 1}" in problem for problem in health.problems)


@pytest.mark.parametrize(
    ("block", "patch", "reason"),
    [
        (-1, b"\xff" * 256, "runs over its end"),
        (-2, b"aaa\0" + bytes(252), "begins with b'aaa'"),
        (0, b"\0" * 256, "points to block 0"),
    ],
)
def test_damage_is_named_and_the_rest_still_counted(tmp_path: Path, block: int, patch: bytes, reason: str) -> None:
    content = bytearray(_tree(tmp_path))
    start = HEADER.size if block == 0 else len(content) + block * 256
    content[start : start + 256] = patch
    (tmp_path / "tree").write_bytes(content)
    health = _verified(tmp_path)
    assert any(reason in problem for problem in health.problems)
    assert health.items > 400


def test_what_is_no_tree_at_all_raises(tmp_path: Path) -> None:
    (tmp_path / "tree").write_bytes(b"not a tree")
    with pytest.raises(DataFault):
        _verified(tmp_path)
