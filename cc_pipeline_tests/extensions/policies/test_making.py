"""Data sets from Python: the pages that each filter removed, and words that mean nothing."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
import pytest

import cc_pipeline
from cc_pipeline.errors import UserInputError
from cc_pipeline.extensions.policies.api import dataset
from cc_pipeline.workspace.workspace import Workspace
from cc_pipeline_tests.api.test_home import SITE, Home, used
from cc_pipeline_tests.publish.test_without_status import SITE as ITS_SITE
from cc_pipeline_tests.publish.test_without_status import control, silent

__all__ = ["control", "silent", "used"]


def test_a_data_set_says_what_each_filter_took(used: Home, tmp_path: Path) -> None:
    out = tmp_path / "corpus"
    made = dataset(used, out, SITE, words="1..100000", rules="none", near=0, keep_copies=True)
    left = {row["filter"]: row for row in made.rows}["left"]["came"]
    texts = pl.read_parquet(out / "texts.parquet")
    assert 0 < left == texts.height < used.table("page_text", SITE).to_arrow().num_rows
    assert "datasheet" in made.notes[0] and {*made.files} == {*made.path.iterdir()}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"rules": "golf"}, "'golf' is not a set of rules"),
        ({"languages": "klingon"}, "'klingon' is not a language"),
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
