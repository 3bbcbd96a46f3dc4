"""The tables of settings in docs/, made from what declares them.

``make docs`` (``python -m cc_pipeline_tests.settings_page``) writes them between the markers of a page,
``<!-- settings -->`` of the core and ``<!-- settings of NAME -->`` of an extension; a test compares.
"""

from __future__ import annotations

import re
from dataclasses import MISSING
from pathlib import Path

from cc_pipeline.settings.all_settings import ProcessSettings, Settings
from cc_pipeline.settings.declaration import Declaration, declarations
from cc_pipeline.settings.reading import settings_of_extensions

DOCS = Path(__file__).resolve().parents[1] / "docs"
_BLOCK = re.compile(r"(<!-- settings(?: of (\w+))? -->\n).*?(<!-- end -->)", re.DOTALL)


def pages() -> list[Path]:
    """The pages that have a table of settings."""
    return [path for path in sorted(DOCS.rglob("*.md")) if _BLOCK.search(path.read_text("utf-8"))]


def page_of(text: str) -> str:
    """The page with its tables as they should be. A table of no extension is an error (``KeyError``)."""
    return _BLOCK.sub(lambda block: f"{block[1]}{_table(_declared(block[2]))}{block[3]}", text)


def _declared(extension: str | None) -> tuple[Declaration, ...]:
    if extension is None:
        return (*declarations(Settings), *declarations(ProcessSettings))
    return declarations(settings_of_extensions()[extension], extension)


def _table(declared: tuple[Declaration, ...]) -> str:
    rows = "".join(f"| `{one.variable}` | {_default(one)} | {_help(one)} |\n" for one in declared)
    return f"\n| variable | default | what |\n|---|---|---|\n{rows}\n"


def _help(one: Declaration) -> str:
    belongs = " ([belongs to the home](#settings-that-belong-to-a-home))" if one.facts.decides_rows else ""
    return one.facts.help + belongs


def _default(one: Declaration) -> str:
    value = one.default
    if one.facts.default_text or value is MISSING:
        return one.facts.default_text
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return f"{value:,}" if isinstance(value, int) else f"{value:g}"
    texts = value if isinstance(value, tuple) else (value,) if value else ()
    return ", ".join(f"`{text}`" for text in texts) or "–"


if __name__ == "__main__":
    for page in pages():
        page.write_text(page_of(page.read_text("utf-8")), "utf-8")
