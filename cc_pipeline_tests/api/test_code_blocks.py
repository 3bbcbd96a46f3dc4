"""Every box of Python in the README and the docs runs as it stands there, but those that say what they would need;
those of python.md where the wheel is installed (``cli/test_wheel.py``)."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import cc_pipeline
from cc_pipeline.testing.mini_crawl.truth import MiniCrawlTruth

REPOSITORY = Path(__file__).resolve().parents[2]
PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]
#: A box, and the reason in front of it why it is not run here.
_BOX = re.compile(r"(?:<!-- not run here: ([^>]+) -->\n)?```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
#: A box that is a file begins with the file's path.
_FILE = re.compile(r"# \S+\.py\n")
#: Cells one after the other while an event loop runs, as in a notebook; each cell's last expression is shown.
_NOTEBOOK = """
import ast, asyncio, json, sys

async def main():
    names = {"__name__": "__main__"}
    for cell in json.load(sys.stdin):
        tree = ast.parse(cell)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, "cell", "exec"), names)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
            shown = getattr(value, "_repr_html_", value.__repr__)()
            assert isinstance(shown, str) and len(shown) < 100_000

asyncio.run(main())
"""


def boxes(page: Path) -> list[tuple[str, str]]:
    """Why each box of a page is not run (empty for one that is), and the box."""
    return [(why.strip(), code) for why, code in _BOX.findall(page.read_text("utf-8"))]


RUN = {
    page.relative_to(REPOSITORY): [code for why, code in boxes(page) if not why and not _FILE.match(code)]
    for page in PAGES
}


def cells_of(notebook: Path) -> list[str]:
    """The code of a notebook's cells."""
    said = json.loads(notebook.read_text("utf-8"))
    return ["".join(cell["source"]) for cell in said["cells"] if cell["cell_type"] == "code"]


def run_cells(python: Path | str, cells: list[str], folder: Path, bucket: Path) -> None:
    """Runs cells in a process of ``python``, in ``folder``, on the mini crawl."""
    done = subprocess.run(
        [str(python), "-c", _NOTEBOOK],
        cwd=folder,
        input=json.dumps(cells),
        text=True,
        capture_output=True,
        check=False,
        env={**os.environ, "CC_PIPELINE_SOURCE": str(bucket), "XDG_CACHE_HOME": str(folder / "cache")},
    )
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.fixture(scope="module")
def used_home(bucket: tuple[Path, MiniCrawlTruth], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with the pages of a site. Tests copy it."""
    home = tmp_path_factory.mktemp("used") / "home"
    cc_pipeline.open(home, source=str(bucket[0]), quiet=True).run("example.com", "CC-MAIN-2024-22")
    return home


@pytest.mark.process
@pytest.mark.parametrize("page", [page for page, cells in RUN.items() if cells and page.name != "python.md"], ids=str)
def test_the_boxes_of_a_page_run(
    page: Path, bucket: tuple[Path, MiniCrawlTruth], used_home: Path, tmp_path: Path
) -> None:
    shutil.copytree(used_home, tmp_path / ("data/demo" if page.name == "README.md" else "data"))
    some = next(one for one in bucket[1].captures_of("CC-MAIN-2024-22", subset="warc") if one.kind == "html")
    (tmp_path / "CC-MAIN-20240517233122-20240518023122-00000.warc.gz").symlink_to(bucket[0] / some.warc_filename)
    run_cells(sys.executable, RUN[page], tmp_path, bucket[0])


def test_a_box_that_is_not_run_says_what_it_needs() -> None:
    reasons = {why for page in PAGES for why, _ in boxes(page) if why}
    assert all(re.search(r"S3|PostgreSQL|Spark|network|EMR", why) for why in reasons), reasons
    assert sum(page.read_text("utf-8").count("```python") for page in PAGES) == sum(len(boxes(page)) for page in PAGES)
