"""Extensions can be deleted: a copy of the checkout without any of them is whole.

That no extension imports another, and the core none, is an import contract. So what holds without all of them holds
without each."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cc_pipeline.extension import extensions
from cc_pipeline_tests.world import NEW, Bucket

pytestmark = [pytest.mark.process, pytest.mark.timeout(900)]
ROOT = Path(__file__).resolve().parents[1]
#: Compiled modules are copied too: to compile all of them anew takes longer than what is asked of a copy.
_NOT_COPIED = shutil.ignore_patterns(".*cache*", ".git", ".venv*", "*.egg-info", "build", "data", "dist", "results")
_COMMAND = ("-c", "from cc_pipeline.cli import main; main()")
_IMPORT_ALL = """
import pkgutil
from importlib import import_module
import cc_pipeline
for module in pkgutil.walk_packages(cc_pipeline.__path__, "cc_pipeline."):
    if not module.name.endswith(".__main__"):
        import_module(module.name)
print(cc_pipeline.__path__[0])
"""


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the checkout without the folders, tests and pages of extensions, and without the lines that name these
    pages or run their commands."""
    copy = tmp_path_factory.mktemp("core") / "copy"
    shutil.copytree(ROOT, copy, ignore=_NOT_COPIED)
    words = ["(extensions/", *(f"cc-pipeline {command} " for one in extensions() for command in one.commands())]
    for one in extensions():
        shutil.rmtree(copy / "cc_pipeline" / "extensions" / one.name)
        shutil.rmtree(copy / "cc_pipeline_tests" / "extensions" / one.name, ignore_errors=True)
        (copy / "docs" / "extensions" / f"{one.name}.md").unlink(missing_ok=True)
    for path in (copy / "docs" / "extensions.md", copy / "README.md"):
        lines = path.read_text("utf-8").splitlines(keepends=True)
        path.write_text("".join(line for line in lines if not any(word in line for word in words)), "utf-8")
    return copy


def run_in(copy: Path, *command: object) -> str:
    """What a command printed that finds the code of ``copy`` and settings of nobody."""
    # a run of pytest in the copy is none of the workers of this one
    others = ("CC_PIPELINE_", "DAGSTER_", "PYTEST_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(others)}
    done = subprocess.run(
        [str(part) for part in command], cwd=copy, env=kept | {"PYTHONPATH": str(copy), "COLUMNS": "200"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout[-6000:]}\n{done.stderr[-3000:]}"
    return done.stdout


def test_contracts_lists_and_tests_hold(core: Path) -> None:
    run_in(core, Path(sys.executable).with_name("lint-imports"), "--no-cache")
    tests = [f"cc_pipeline_tests/test_{name}.py" for name in ("architecture", "links", "settings", "declared_settings")]
    pytest_ = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    run_in(core, *pytest_, *tests)
    # every module of the core's tests is imported: none needs an extension
    run_in(core, *pytest_, "--collect-only", "cc_pipeline_tests", "--ignore", "cc_pipeline_tests/extensions")


def test_every_module_can_be_imported(core: Path) -> None:
    assert run_in(core, sys.executable, "-c", _IMPORT_ALL).strip() == str(core / "cc_pipeline")


def test_a_run_from_the_index_to_the_published_file(core: Path, bucket: Bucket, tmp_path: Path) -> None:
    place = ("--home", tmp_path / "home")
    program = (sys.executable, *_COMMAND)
    run_in(core, *program, "run", "example.com", "-c", NEW, *place, "--source", bucket[0])
    count = len(bucket[1].captures_of(NEW, subset="warc", domain="example.com"))
    rows = run_in(core, *program, "sql", "SELECT count(*) AS n FROM page_metadata", "--format", "csv", *place)
    assert rows.split() == ["n", str(count)]
    run_in(core, *program, "doctor", *place, "--source", bucket[0])
