"""The notebook and the page on Python, as type checkers of users see them: strict mypy, and pyright where the machine
has the node that runs it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cc_pipeline_tests.api.test_code_blocks import REPOSITORY, RUN, cells_of

pytestmark = [pytest.mark.process, pytest.mark.xdist_group("types")]
#: What Python says wrongly here: both checkers have to find each.
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


@pytest.mark.skipif(shutil.which("node") is None, reason="pyright brings its program, and needs the machine's node")
def test_pyright_finds_the_mistakes_alone(modules: list[Path]) -> None:
    pytest.importorskip("pyright")
    settings = {"extraPaths": [str(REPOSITORY)], "reportUnusedExpression": False, "typeCheckingMode": "standard"}
    (modules[0].parent / "pyrightconfig.json").write_text(json.dumps(settings), "utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, "-p", "pyrightconfig.json"],
        cwd=modules[0].parent, capture_output=True, text=True, check=False,
        env={**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"},
    )  # fmt: skip
    errors = [one for one in json.loads(done.stdout)["generalDiagnostics"] if one["severity"] == "error"]
    assert len(errors) == 3 and all("wrong.py" in one["file"] for one in errors), errors
