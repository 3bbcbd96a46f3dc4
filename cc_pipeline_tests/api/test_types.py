"""The notebook and the page on Python, as type checkers of users see them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cc_pipeline_tests.api.test_code_blocks import REPOSITORY, RUN, cells_of

pytestmark = [pytest.mark.process, pytest.mark.xdist_group("types")]
#: What Python says wrongly here.
_WRONG = """
home.lookup("example.com", crawl="2018")
home.get("https://example.com/", at=2018)
home.table("page_text").nothing
"""


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The cells of the notebook and of the page as modules, and one with mistakes."""
    folder = tmp_path_factory.mktemp("typed")
    cells = {"notebook": cells_of(REPOSITORY / "docs" / "example.ipynb"), "page": RUN[Path("docs/python.md")]}
    cells["wrong"] = [*cells["page"][:1], _WRONG]
    for name, code in cells.items():
        (folder / f"{name}.py").write_text("\n".join(code), "utf-8")
    return [folder / f"{name}.py" for name in cells]


def test_mypy_finds_the_mistakes_alone(modules: list[Path]) -> None:
    # with the settings and what is known of the last run of mypy, a look takes seconds
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-pretty", *map(str, modules)],
        cwd=REPOSITORY, capture_output=True, text=True, check=False,
    )  # fmt: skip
    found = [line for line in done.stdout.splitlines() if ": error:" in line]
    assert len(found) == 3 and all("wrong.py" in line for line in found), done.stdout + done.stderr
