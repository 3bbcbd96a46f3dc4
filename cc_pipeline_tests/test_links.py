"""Links of the docs and the README: every page, picture and heading that one leads to is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def prose(page: Path) -> str:
    """A page without its blocks of code."""
    return re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """What a link may name behind its ``#``: headings as GitHub spells them, and anchors set by hand."""
    headings = re.findall(r"^#+ (.+)$", text := prose(page), re.MULTILINE)
    plain = (re.sub(r"\]\([^)]*\)", "", heading).lower() for heading in headings)
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in plain} | set(
        re.findall(r'<a id="([^"]+)"', text)
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        path, _, anchor = link.partition("#")
        there = page.parent / path if path else page
        if ":" not in path and not (there.exists() and (not anchor or anchor in anchors(there))):
            broken.append(link)
    assert broken == []


def test_pages_that_the_code_names_are_there() -> None:
    named = {
        (page, path.name)
        for folder in ("cc_pipeline", "cc_pipeline_tests", "benchmarks")
        for path in (ROOT / folder).rglob("*.py")
        for page in re.findall(r"docs/([\w/-]+\.md)", path.read_text("utf-8"))
    }
    assert sorted(one for one in named if not (ROOT / "docs" / one[0]).exists()) == []
