"""docs/architecture.md against the tree: every room and module it names is there, and every room is named."""

from __future__ import annotations

import re
from pathlib import Path

from cc_pipeline.duck import connect

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
PACKAGE = ROOT / "cc_pipeline"


def section(title: str) -> str:
    return PAGE.split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]


def test_the_tree_has_the_rooms_that_there_are_and_no_other() -> None:
    tree = PAGE.split("<!-- rooms -->", 1)[1].split("<!-- end of rooms -->", 1)[0]
    named = " ".join(found[0] for line in tree.splitlines() if (found := re.match(r" *((\w+(/|\.py) ?)+)", line)))
    # extensions are listed by their own pages: each can be deleted
    folders = [path.parent for path in PACKAGE.rglob("*/__init__.py") if PACKAGE / "extensions" not in path.parents[1:]]
    rooms = sorted([PACKAGE.name, *(folder.name for folder in folders)])
    modules = {path.name for path in PACKAGE.glob("*.py")} - {"__init__.py"}
    assert sorted(re.findall(r"(\w+)/", named)) == rooms
    assert set(re.findall(r"\w+\.py", named)) == modules


def test_what_a_targets_way_names_is_there() -> None:
    named = re.findall(r"`([a-z_]+)\.([a-z_]+)`", section("How a run processes a target"))
    assert len(named) > 5
    for module, function in named:
        places = [path for path in PACKAGE.rglob(f"{module}.py") if f"def {function}(" in path.read_text("utf-8")]
        assert places, (module, function)


def test_duckdb_is_opened_in_one_place_which_fetches_no_extension_and_draws_nothing() -> None:
    """Functions of DuckDB's module would open, or share, connections of their own."""
    opening = re.compile(
        r"\bduckdb\.(?:connect|sql|query|execute|from_|read_|default_connection)|duckdb import .*connect"
    )
    # what is said to a person, who opens the file with it
    said = "f\"duckdb.connect('{published_file}'"
    ours = {
        path.relative_to(PACKAGE).as_posix(): path.read_text("utf-8").replace(said, "")
        for path in PACKAGE.rglob("*.py")
    }
    assert [name for name, text in ours.items() if opening.search(text)] == ["duck.py"]
    with connect() as connection:
        for name in ("autoinstall_known_extensions", "enable_progress_bar"):
            assert connection.sql(f"SELECT current_setting('{name}')").fetchall() == [(False,)], name


def test_the_page_of_contents_links_every_page() -> None:
    contents = (ROOT / "docs" / "contents.md").read_text("utf-8")
    linked = set(re.findall(r"\]\(([a-zA-Z0-9-]+\.md)\)", contents))
    there = {path.name for path in (ROOT / "docs").glob("*.md")} - {"contents.md"}
    assert linked == there
    assert "](docs/contents.md)" in (ROOT / "README.md").read_text("utf-8")
