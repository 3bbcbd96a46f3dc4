"""Cells of the fault matrix: each kind of fault at its worst."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from _pytest.mark import ParameterSet

from cc_pipeline_tests.faultmatrix import (
    FOLDER_KINDS,
    PLACES,
    Cell,
    Place,
    place_at,
    run_cell,
)
from cc_pipeline_tests.faultserver import FAULT_KINDS

#: one worker: making the places costs more than a dozen cells
pytestmark = [pytest.mark.matrix, pytest.mark.xdist_group("fault matrix")]

#: Of kinds that end alike one.
_ALIKE = ("404", "416", "500", "bit_flip", "changed_etag", "garbage")
#: Two of them for each of these, others than for its neighbours.
_TURNS = [("some", "run"), ("file", "once"), ("all", "once"), ("file", "lasting"), ("some", "lasting")]


def short() -> list[Cell]:
    """Of each kind the worst over HTTP, of some two more; of S3 and folders one each."""
    worst = [Cell("http", kind, "all", "lasting") for kind in FAULT_KINDS]
    turns = [(kind, _TURNS[(number + step) % len(_TURNS)]) for number, kind in enumerate(_ALIKE) for step in (0, 2)]
    others = [Cell("http", kind, *turn) for kind, turn in turns]
    s3 = [Cell("s3", kind, scope, "run") for kind, scope in (("404", "file"), ("whole_object", "all"), ("500", "some"))]
    return [*worst, *others, *s3, *(Cell("folder", kind, "all", "run") for kind in FOLDER_KINDS)]


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Place]]:
    sound = tmp_path_factory.mktemp("sound")
    opened = {name: place_at(name, tmp_path_factory.mktemp(name), sound) for name in PLACES}
    try:
        yield {name: place.__enter__() for name, place in opened.items()}
    finally:
        for place in opened.values():
            place.__exit__(None, None, None)


def marked() -> Iterator[ParameterSet]:
    """The cells; the worst one of kinds that end alike is in the first gear, and of S3 and folders one each."""
    seen = {*FAULT_KINDS} - {*_ALIKE}
    for cell in short():
        new = cell.kind if cell.place == "http" else cell.place
        marks = () if new in seen else pytest.mark.smoke
        seen.add(new)
        yield pytest.param(cell, marks=marks, id="-".join((cell.place, cell.kind, cell.scope, cell.time)))


@pytest.mark.parametrize("cell", marked())
def test_a_cell_is_as_docs_faults_promises(places: dict[str, Place], cell: Cell) -> None:
    assert run_cell(places[cell.place], cell).wrongs() == []
