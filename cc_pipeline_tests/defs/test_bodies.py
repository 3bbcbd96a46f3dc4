"""Bodies are loaded with their first call, whichever threads of a code server call them."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, BrokenBarrierError
from types import ModuleType, SimpleNamespace

import pytest
from cc_pipeline.defs.automation import schedules, sensors
from cc_pipeline.defs.declared import late_loading


def test_bodies_are_loaded_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    both, met = Barrier(2), []

    def load(module: str) -> SimpleNamespace:
        try:
            both.wait(0.5)
            met.append(module)
        except BrokenBarrierError:
            pass
        return SimpleNamespace(called=lambda: module)

    monkeypatch.setattr(late_loading, "import_module", load)
    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(lambda place: late_loading.load_later(place)(), ("one.called", "two.called")))
    assert done == ["one", "two"]
    assert not met


@pytest.mark.parametrize("module", [schedules, sensors], ids=lambda module: module.__name__.rpartition(".")[2])
def test_ticks_load_modules_one_after_the_other(module: ModuleType) -> None:
    tree = ast.parse(inspect.getsource(module))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    locks = [node for node in ast.walk(tree) if isinstance(node, ast.With) and "LOADING" in ast.unparse(node.items[0])]
    loads = {ast.unparse(node) for one in functions for node in ast.walk(one) if isinstance(node, ast.ImportFrom)}
    locked = {ast.unparse(node) for lock in locks for node in ast.walk(lock) if isinstance(node, ast.ImportFrom)}
    assert loads and loads == locked


def test_definitions_load_nothing_that_only_bodies_need() -> None:
    heavy = {"duckdb", "deltalake", "aiohttp", "botocore", "jinja2"}
    code = (
        "import sys, dagster; before = set(sys.modules); from cc_pipeline.definitions import defs; "
        f"defs().get_repository_def(); print(sorted({heavy!r} & set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
