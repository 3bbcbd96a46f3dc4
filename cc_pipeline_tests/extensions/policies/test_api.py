"""Data sets from Python."""

from __future__ import annotations

from pathlib import Path

import pytest

import cc_pipeline
from cc_pipeline.api.facade import WrongKeyword
from cc_pipeline.extensions.policies.api import dataset


def test_a_wrong_keyword_names_the_nearest_right_one(tmp_path: Path) -> None:
    with pytest.raises(WrongKeyword, match=r"dataset\(\) has no keyword 'language'; did you mean 'languages'\?"):
        dataset(cc_pipeline.open(tmp_path), "out", language="en")
