"""Compiled modules of another source are left alone, and say so: a page costs more then, and is not lost."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

import cc_pipeline
from cc_pipeline import COMPILED
from cc_pipeline.checks.doctor import _check_program

ROOT = Path(cc_pipeline.__file__).parents[1]
SOURCES = sorted(Path(cc_pipeline.__file__).parent.rglob("*.c"))
#: What the functions of all modules take and give, for the number that they are made for.
TAKEN_AND_GIVEN = {6: "19c259c4c395f170"}

PARSE = """
import sys
import cc_pipeline
cc_pipeline.MADE_FOR += int(sys.argv[1])
from cc_pipeline.documents.document2012 import simhash
from cc_pipeline.documents.html import bounds, model, walk
from cc_pipeline.documents.page import PageInput
from cc_pipeline.documents.parse import parse_page
from cc_pipeline.documents.signals import quality
markup = b"<title>T</title><h1>A heading</h1><p>" + b"Prose, with words enough to count. " * 9 + b"<a href=/x>x</a>"
page = parse_page(PageInput("CC-MAIN-2024-22", "warc", "http://a.example/", payload=markup, http_status=200))
compiled = [module.COMPILED for module in (simhash, model, walk, quality)]
compiled += [bounds.scanned is not bounds.scanned_plainly]
print(compiled.count(True), repr((sorted(page.metadata.items()), sorted(page.text.items()), page.links)))
"""


def parsed(raised: int) -> tuple[str, str, str]:
    done = subprocess.run([sys.executable, "-c", PARSE, str(raised)], capture_output=True, text=True, check=True)
    count, _, rows = done.stdout.partition(" ")
    return count, rows, done.stderr


def test_a_page_is_the_same_with_modules_of_another_source() -> None:
    ours, of_another = parsed(0), parsed(1)
    assert (ours[0], ours[2]) == ("5", "")
    assert of_another[0] == "0"
    assert of_another[1] == ours[1]
    assert of_another[2].count("Run `make setup`") == 1


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


def test_the_list_of_compiled_parts_is_that_of_the_build() -> None:
    build = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]
    assert sorted(f"cc_pipeline.{name}" for name in COMPILED) == sorted(one["name"] for one in build["ext-modules"])


def without(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """An installation that has no such parts."""
    for name in names:
        monkeypatch.setitem(sys.modules, f"cc_pipeline.{name}", None)


def test_parts_that_are_missing_or_old_are_told_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in COMPILED:
        module = ModuleType(name)
        vars(module)["made_for"] = cc_pipeline.MADE_FOR
        monkeypatch.setitem(sys.modules, f"cc_pipeline.{name}", module)
    assert cc_pipeline.describe_missing_modules() is None
    assert [one.level for one in _check_program()] == ["ok", "ok"]
    without(monkeypatch, COMPILED[0])
    vars(sys.modules[f"cc_pipeline.{COMPILED[1]}"])["made_for"] = cc_pipeline.MADE_FOR - 1
    said = cc_pipeline.describe_missing_modules()
    assert said is not None and "\n" not in said
    assert "1 of 5 are missing, 1 of 5 are old, so pages take 7 to 9 times as long" in said
    _, finding = _check_program()
    assert (finding.level, "compiler" in finding.advice) == ("note", True)


#: A package with one compiled part that may fail.
PROJECT = """
[build-system]
requires = ["setuptools>=80"]
build-backend = "setuptools.build_meta"
[project]
name = "small"
version = "1"
[tool.setuptools]
packages = ["small"]
[[tool.setuptools.ext-modules]]
name = "small._part"
sources = ["small/_part.c"]
optional = true
[tool.setuptools.cmdclass]
bdist_wheel = "small.build_wheel.BuildWheel"
"""


@pytest.mark.parametrize("compiles", [True, False])
def test_a_wheel_without_compiled_parts_fits_every_machine(tmp_path: Path, compiles: bool) -> None:
    if compiles and shutil.which("gcc") is None:
        pytest.skip("no compiler here")
    package = tmp_path / "small"
    package.mkdir()
    (tmp_path / "pyproject.toml").write_text(PROJECT, "utf-8")
    (package / "__init__.py").write_text("", "utf-8")
    shutil.copy(Path(cc_pipeline.__file__).with_name("build_wheel.py"), package)
    (package / "_part.c").write_text("int part;\n" if compiles else "#error none\n", "utf-8")
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-q",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        str(tmp_path),
        ".",
    ]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    [wheel] = tmp_path.glob("small-*.whl")
    assert wheel.name.endswith("-py3-none-any.whl") is not compiles
    with zipfile.ZipFile(wheel) as packed:
        names = packed.namelist()
        about = packed.read("small-1.dist-info/WHEEL").decode()
    assert ("small/__init__.py" in names, any(name.endswith(".so") for name in names)) == (True, compiles)
    assert ("Root-Is-Purelib: true" in about) is not compiles
