"""docs/architecture.md against the tree: every module it names is there, and every room is named."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
PACKAGE = ROOT / "cc_pipeline"


def section(title: str) -> str:
    return PAGE.split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]


def test_every_room_is_in_the_tree() -> None:
    tree = section("Rooms")
    rooms = [path.name for path in PACKAGE.iterdir() if path.is_dir() and (path / "__init__.py").exists()]
    modules = [path.name for path in PACKAGE.glob("*.py") if path.stem not in ("__init__", "definitions")]
    assert [name for name in rooms if f"  {name}/" not in tree] == []
    assert [name for name in modules if name not in tree] == []
    inner = [path.name for room in ("index", "documents") for path in (PACKAGE / room).iterdir() if path.is_dir()]
    assert [name for name in inner if not name.startswith("__") and f" {name}/" not in tree] == []


def test_what_a_domains_way_names_is_there() -> None:
    named = re.findall(r"`([a-z_]+)\.([a-z_]+)`", section("A domain's way"))
    assert len(named) > 5
    for module, function in named:
        places = [path for path in PACKAGE.rglob(f"{module}.py") if f"def {function}(" in path.read_text("utf-8")]
        assert places, (module, function)


def test_the_readme_links_every_page() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    linked = set(re.findall(r"\]\(docs/([a-zA-Z0-9-]+\.md)\)", readme))
    there = {path.name for path in (ROOT / "docs").glob("*.md")}
    assert there - linked == set()
    assert linked - there == set()
