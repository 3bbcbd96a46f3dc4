"""Extensions of other people at the command line: their commands, the list of them, and what a broken one costs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.cells import cell_len

from cc_pipeline_tests.cli.test_widths import seen_on_a_terminal

pytestmark = pytest.mark.process

_PROGRAM = Path(sys.executable).with_name("cc-pipeline")
_HELLO = """
from cc_pipeline.cli.command import HOME, Command
from cc_pipeline.extension import Extension

def hello() -> None:
    "Say hello."
    print("hello there")

EXTENSION = Extension(name="hello", summary="Says hello.", commands=lambda: {"hello": Command(hello, HOME)})
"""
_TAKEN = """
from cc_pipeline.extension import Extension

def run() -> None:
    print("another run")

EXTENSION = Extension(name="taken", summary="Wants a name.", commands=lambda: {"run": run, "walk": run})
"""
_ODD = """
from cc_pipeline.extension import Extension

def odd(value: complex) -> None:
    print(value)

EXTENSION = Extension(name="odd", summary="Has a parameter that no shell can give.", commands=lambda: {"odd": odd})
"""
_CLASHING = """
from cc_pipeline.extension import Extension

def define(at):
    from cc_pipeline.defs.declarations import AssetJob, HomeDefinitions
    return HomeDefinitions(jobs=[AssetJob(name="maintenance", description="", assets=["captures"])])

EXTENSION = Extension(name="clashing", summary="Wants a job.", definitions=define)
"""
_NOT_LOADED = "import a_library_that_is_nowhere"
_LACKING = """
from cc_pipeline.extension import Extension

EXTENSION = Extension(
    name="lacking", summary="Needs more.", needs={"a_library_that_is_nowhere": "nowhere>=1"}, doctor=lambda _: 1 / 0
)
"""


def install(folder: Path, **texts: str) -> Path:
    """Lays distributions into a folder for ``PYTHONPATH``, each with one module and one entry point."""
    for name, text in texts.items():
        (folder / f"toy_{name}.py").write_text(text, "utf-8")
        about = folder / f"toy_{name}-1.0.dist-info"
        about.mkdir(parents=True)
        about.joinpath("METADATA").write_text(f"Metadata-Version: 2.1\nName: toy-{name}\nVersion: 1.0\n", "utf-8")
        about.joinpath("entry_points.txt").write_text(
            f"[cc_pipeline.extensions]\n{name} = toy_{name}:EXTENSION\n", "utf-8"
        )
    return folder


def said_by(folder: Path, *words: object, status: int = 0, **variables: str) -> str:
    environment = {name: text for name, text in os.environ.items() if not name.startswith("CC_PIPELINE_")}
    environment |= {"PYTHONPATH": str(folder), "COLUMNS": "200", **variables}
    done = subprocess.run([_PROGRAM, *map(str, words)], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == status, done.stderr + done.stdout
    return done.stdout


def listed(folder: Path, **variables: str) -> dict[str, dict[str, str]]:
    lines = said_by(folder, "extensions", "--format", "jsonl", **variables).splitlines()
    return {row["extension"]: row for row in map(json.loads, lines)}


def test_a_command_of_a_stranger_is_in_the_tree_and_works(tmp_path: Path) -> None:
    folder = install(tmp_path, hello=_HELLO)
    assert said_by(folder, "hello") == "hello there\n"
    help_text = said_by(folder, "--help")
    assert help_text.index("Home and source") < help_text.index("Say hello.") < help_text.index("Features")
    assert listed(folder)["hello"] == {
        "extension": "hello", "state": "in use", "from": "toy-hello", "adds": "commands: hello", "problem": None,
        "to_do": None
    }  # fmt: skip


def test_an_extension_that_is_left_out_has_no_command(tmp_path: Path) -> None:
    folder = install(tmp_path, hello=_HELLO)
    said_by(folder, "hello", status=2, CC_PIPELINE_WITHOUT="hello")
    assert listed(folder, CC_PIPELINE_WITHOUT="other, hello")["hello"]["state"] == "left out"


def test_a_broken_extension_is_named_and_costs_only_itself(tmp_path: Path) -> None:
    folder = install(
        tmp_path, hello=_HELLO, taken=_TAKEN, odd=_ODD, unloaded=_NOT_LOADED, lacking=_LACKING, clashing=_CLASHING
    )
    assert said_by(folder, "hello") == "hello there\n"
    # the core's own run, and nothing of an extension with a name that is taken
    assert "--refetch" in said_by(folder, "run", "--help")
    said_by(folder, "walk", status=2)
    found = listed(folder)
    assert {name: found[name]["state"] for name in ("hello", "taken", "odd", "unloaded", "lacking", "clashing")} == {
        "hello": "in use", "taken": "broken", "odd": "broken", "unloaded": "broken", "lacking": "lacks libraries",
        "clashing": "broken",
    }  # fmt: skip
    assert "the core has the job 'maintenance' already" in found["clashing"]["problem"]
    assert "the name run is already used" in found["taken"]["problem"]
    assert "complex" in found["odd"]["problem"]
    assert "a_library_that_is_nowhere" in found["unloaded"]["problem"]
    assert "pip install nowhere>=1" in found["lacking"]["to_do"]
    told = " ".join(said_by(folder, "doctor", "--home", tmp_path / "home", "--source", tmp_path, status=1).split())
    for name in ("taken (toy-taken)", "odd (toy-odd)", "unloaded (toy-unloaded)", "clashing (toy-clashing)"):
        assert f"bad extension {name}" in told
    assert "note extension lacking (toy-lacking)" in told
    assert "bad extension the doctor checks of the extension lacking failed: ZeroDivisionError" in told


@pytest.mark.parametrize("width", [80, 120])
def test_the_table_of_extensions_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    folder = install(tmp_path, hello=_HELLO, taken=_TAKEN, lacking=_LACKING)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    lines = seen_on_a_terminal(width, "extensions")
    assert any("hello" in line for line in lines)
    assert [line for line in lines if cell_len(line) > width] == []
