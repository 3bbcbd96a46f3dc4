"""The wheel, installed into an environment of its own and used from another folder; built without a compiler, so that
the twins of the compiled parts do the work."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

pytestmark = [pytest.mark.xdist_group("wheel"), pytest.mark.timeout(600)]

REPOSITORY = Path(__file__).resolve().parents[2]
#: All that a build reads.
_SOURCES = ("pyproject.toml", "README.md", "docs/LICENSE", "cc_pipeline")


def run(*command: object, folder: Path, **more: str) -> str:
    """What a command printed, in an environment without settings of ours."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("CC_PIPELINE_", "DAGSTER_"))}
    kept.pop("PYTHONPATH", None)
    done = subprocess.run(
        [str(part) for part in command], cwd=folder, env=kept | {"NO_COLOR": "1", "COLUMNS": "200"} | more,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of a fresh environment with the wheel; what the wheel needs is borrowed from ours."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in _SOURCES:
        of, to = REPOSITORY / name, folder / "sources" / name
        to.parent.mkdir(parents=True, exist_ok=True)
        ignored = shutil.ignore_patterns("*.so", "__pycache__")
        shutil.copytree(of, to, ignore=ignored) if of.is_dir() else shutil.copy(of, to)
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    run(*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", folder, ".", folder=folder / "sources", CC="false")
    [wheel] = folder.glob("cc_pipeline-*.whl")
    # the folder of somebody's project, with a pyproject.toml that is not ours
    project = folder / "project"
    project.mkdir()
    (project / "pyproject.toml").write_text('[project]\nname = "theirs"\nversion = "1"\n', "utf-8")
    venv.create(project / ".venv", with_pip=False, symlinks=True)
    python = project / ".venv" / "bin" / "python"
    run(*pip, "--python", python, "install", "--no-deps", "--no-index", wheel, folder=folder)
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", folder=folder).strip())
    (site / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n", "utf-8")
    return python.parent


def test_the_wheel_has_all_modules_and_not_the_tests(installed: Path, tmp_path: Path) -> None:
    there = run(
        installed / "python",
        "-c",
        "import cc_pipeline, sys; sys.stdout.write(cc_pipeline.__path__[0])",
        folder=tmp_path,
    )
    package = Path(there)
    assert package.is_relative_to(installed.parent)
    of = REPOSITORY / "cc_pipeline"
    for kind in ("*.py", "*.yaml"):
        wanted = {path.relative_to(of) for path in of.rglob(kind)}
        assert wanted
        assert {path.relative_to(package) for path in package.rglob(kind)} == wanted
    assert not list(package.rglob("*.so"))
    assert not (package.parent / "cc_pipeline_tests").exists()


def test_the_demo_runs_from_any_folder(installed: Path, tmp_path: Path) -> None:
    said = run(installed / "cc-pipeline", "demo", "--home", "home", "--pages", 40, folder=tmp_path)
    assert "all of this home: the ledger" in said
    # what it advises next is what one can type there
    assert "cc-pipeline ui --home home" in said
    assert "make dev" not in said
    question = "SELECT count(*) > 0 FROM page_metadata"
    assert "true" in run(installed / "cc-pipeline", "sql", "--home", "home", question, folder=tmp_path)


def test_dagster_finds_the_definitions_of_the_wheel(installed: Path, tmp_path: Path) -> None:
    names = "from cc_pipeline.definitions import defs; print(*(job.name for job in defs().resolve_all_job_defs()))"
    assert "extract_domain" in run(installed / "python", "-c", names, folder=tmp_path)
