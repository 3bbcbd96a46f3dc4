"""A file that a command writes appears whole or not at all."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from cc_pipeline.cli.capture_output import capture_writer
from cc_pipeline.cli.output import whole_file
from cc_pipeline.commoncrawl.index_schema import NAMED_CAPTURES
from cc_pipeline.errors import EnvironmentFault


def test_what_fails_leaves_nothing_and_a_full_disk_is_named_as_one(tmp_path: Path) -> None:
    out = tmp_path / "found.csv"
    with pytest.raises(EnvironmentFault) as full, capture_writer("csv", ["url"], out) as write:
        write(NAMED_CAPTURES.empty_table())
        raise OSError(errno.ENOSPC, "No space left on device")
    assert "Free some space" in full.value.advice
    with pytest.raises(KeyError), capture_writer("csv", ["url"], out):
        raise KeyError("something else")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault) as gone, whole_file(tmp_path / "nowhere" / "found.csv"):
        pass
    assert str(tmp_path / "nowhere") in gone.value.advice
