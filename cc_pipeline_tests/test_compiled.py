"""Compiled modules of another source are left alone, and say so: a page costs more then, and is not lost."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import cc_pipeline

SOURCES = sorted(Path(cc_pipeline.__file__).parent.rglob("*.c"))
#: What the functions of all modules take and give, for the number that they are made for.
TAKEN_AND_GIVEN = {1: "c7da4fe4a4239019"}

PARSE = """
import sys
import cc_pipeline
cc_pipeline.MADE_FOR += int(sys.argv[1])
from cc_pipeline.documents.document2012 import simhash
from cc_pipeline.documents.html import bounds, features, model, scan, walk, whitespace
from cc_pipeline.documents.page import PageInput
from cc_pipeline.documents.parse import parse_page
from cc_pipeline.documents.signals import quality
from cc_pipeline.index.footers import decode
markup = b"<title>T</title><h1>A heading</h1><p>" + b"Prose, with words enough to count. " * 9 + b"<a href=/x>x</a>"
page = parse_page(PageInput("CC-MAIN-2024-22", "warc", "http://a.example/", payload=markup, http_status=200))
compiled = [module.COMPILED for module in (simhash, model, scan, walk, quality, decode)]
compiled += [bounds.scanned is not bounds.scanned_plainly, features._nearest is not features.nearest_plainly]
print(compiled.count(True), repr((sorted(page.metadata.items()), sorted(page.text.items()), page.links)))
"""


def parsed(raised: int) -> tuple[str, str, str]:
    done = subprocess.run([sys.executable, "-c", PARSE, str(raised)], capture_output=True, text=True, check=True)
    count, _, rows = done.stdout.partition(" ")
    return count, rows, done.stderr


def test_a_page_is_the_same_with_modules_of_another_source() -> None:
    ours, of_another = parsed(0), parsed(1)
    assert (ours[0], ours[2]) == ("8", "")
    assert of_another[0] == "0"
    assert of_another[1] == ours[1]
    assert of_another[2].count("`make setup` builds them") == 1


@pytest.mark.parametrize("made_for", [None, cc_pipeline.MADE_FOR - 1, cc_pipeline.MADE_FOR + 1])
def test_another_number_or_none_is_of_another_source(made_for: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("cc_pipeline._older")
    vars(module).update({"function": print} | ({} if made_for is None else {"made_for": made_for}))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    cc_pipeline._warn_of_old_modules.cache_clear()
    with pytest.warns(RuntimeWarning, match="make setup"):
        assert cc_pipeline.compiled("_older", "function") is None


def test_the_number_is_raised_with_what_functions_take_and_give() -> None:
    """By the formats in the sources. Another change of what both sides agree on is known to its author alone."""
    formats = re.compile(r"\b(?:PyArg_Parse\w+|Py_BuildValue)\([^;]*?\"([^\"]*)\"")
    found = "\n".join(f"{path.name} {' '.join(formats.findall(path.read_text()))}" for path in SOURCES)
    digest = hashlib.sha256(found.encode()).hexdigest()[:16]
    assert {cc_pipeline.MADE_FOR: digest} == TAKEN_AND_GIVEN, (
        "raise MADE_FOR in __init__.py and _module.h; note both here"
    )
