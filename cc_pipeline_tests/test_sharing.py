"""What goes to one worker, and what is begun first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cc_pipeline_tests.sharing import LONGEST, mark_first_cells, share_out

HERE = Path(__file__).parent


class _Item:
    """As much of a test as is looked at."""

    def __init__(self, name: str, *marks: pytest.MarkDecorator) -> None:
        self.nodeid, self.marks = f"cc_pipeline_tests/{name}", list(marks)

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        return next((mark.mark for mark in self.marks if mark.name == name), None)

    def add_marker(self, mark: pytest.MarkDecorator) -> None:
        self.marks.append(mark)

    @property
    def group(self) -> object:
        mark = self.get_closest_marker("xdist_group")
        return mark and mark.args[0]


def test_a_module_stays_together_and_the_longest_are_begun_first() -> None:
    long = pytest.mark.xdist_group(LONGEST[1])
    items: list[Any] = [
        _Item("test_hosts.py::test_a"),
        _Item("zoo/test_b.py::test_c[::1]", long),
        _Item(f"{LONGEST[4]}::test_d"),
        _Item("test_hosts.py::test_e"),
    ]
    first, second, *rest = share_out(items) or items
    assert (first.group, second.group) == (LONGEST[1], LONGEST[4])
    assert [(item.nodeid[-6:], item.group) for item in rest] == [
        ("test_a", "test_hosts.py"),
        ("test_e", "test_hosts.py"),
    ]


def test_all_that_is_named_is_there() -> None:
    sources = [path.read_text("utf-8") for path in HERE.rglob("*.py") if path.name != "sharing.py"]
    for name in LONGEST:
        folder, _, rest = name.partition("/")
        if folder == "extensions" and not (HERE / folder / rest.partition("/")[0]).exists():
            # an extension may be deleted with its tests
            continue
        assert (HERE / name).is_file() if name.endswith(".py") else any(f'"{name}"' in text for text in sources), name
    assert len(set(LONGEST)) == len(LONGEST)


def test_one_cell_of_each_matrix_stays_in_the_first_gear() -> None:
    matrix, smoke = pytest.mark.matrix, pytest.mark.smoke
    items: list[Any] = [
        _Item("test_a.py::test_first[x]", matrix),
        _Item("test_a.py::test_first[y]", matrix),
        _Item("test_a.py::test_chosen[x]", matrix),
        _Item("test_a.py::test_chosen[y]", matrix, smoke),
        # no cell of anything
        _Item("test_a.py::test_alone", matrix),
        _Item("test_a.py::test_other[x]"),
    ]
    mark_first_cells(items)
    found = [item.nodeid.rpartition("::")[2] for item in items if item.get_closest_marker("smoke")]
    assert found == ["test_first[x]", "test_chosen[y]"]
