"""Data sets from Python: the pages that each filter removed, and words that mean nothing."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

import cc_pipeline
from cc_pipeline.errors import UserInputError
from cc_pipeline.extensions.policies.api import dataset
from cc_pipeline.workspace.workspace import Workspace
from cc_pipeline_tests.api.test_home import Home, used
from cc_pipeline_tests.publish.test_without_status import SITE as ITS_SITE
from cc_pipeline_tests.publish.test_without_status import control, silent

__all__ = ["control", "silent", "used"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"rules": "golf"}, "'golf' is not a set of rules"),
        ({"languages": "klingon"}, "'klingon' is not a language"),
        ({"near": 0.2}, "give 0.5 to 1"),
        ({"words": "9..3"}, "write the smaller number first"),
        ({"as_of": "never"}, "not 'never'"),
        ({"targets": "set:nobody"}, "do not have set:nobody"),
    ],
)
def test_words_that_mean_nothing_are_said_and_write_nothing(
    used: Home,
    tmp_path: Path,
    words: dict[str, str],
    said: str,
) -> None:
    with pytest.raises(UserInputError, match=said):
        dataset(used, tmp_path / "x", **words)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_a_data_set_has_every_page_that_came_with_200(
    control: Workspace,
    silent: Workspace,
    tmp_path: Path,
) -> None:
    def texts(workspace: Workspace, name: str) -> list[str]:
        home = cc_pipeline.open(workspace.settings.home, source=workspace.settings.source, quiet=True)
        dataset(home, tmp_path / name, ITS_SITE, words="0..", rules="none", near=0, keep_copies=True)
        return sorted(
            url for file in (tmp_path / name).rglob("*.parquet") for url in pq.read_table(file)["url"].to_pylist()
        )

    expected = texts(control, "control")
    assert expected
    assert texts(silent, "silent") == expected
