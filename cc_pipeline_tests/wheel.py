"""The wheel, built and installed into an environment of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
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


def install_wheel(folder: Path, **environment: str) -> Path:
    """The programs of a fresh environment below ``folder`` with the wheel; what the wheel needs is borrowed from ours.

    ``environment`` is for the build: ``CC="false"`` is a machine without a compiler.
    """
    for name in _SOURCES:
        of, to = REPOSITORY / name, folder / "sources" / name
        to.parent.mkdir(parents=True, exist_ok=True)
        ignored = shutil.ignore_patterns("*.so", "__pycache__")
        shutil.copytree(of, to, ignore=ignored) if of.is_dir() else shutil.copy(of, to)
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    run(*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", folder, ".", folder=folder / "sources", **environment)
    [wheel] = folder.glob("cc_pipeline-*.whl")
    # the folder of somebody's project, with a pyproject.toml that is not ours
    project = folder / "project"
    project.mkdir()
    (project / "pyproject.toml").write_text('[project]\nname = "theirs"\nversion = "1"\n', "utf-8")
    venv.create(project / ".venv", with_pip=False, symlinks=True)
    python = project / ".venv" / "bin" / "python"
    run(*pip, "--python", python, "install", "--no-deps", "--no-index", wheel, folder=folder)
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", folder=folder).strip())
    borrowed = [path for path in sys.path if path.endswith("site-packages")]
    (site / "borrowed.pth").write_text("".join(f"{path}\n" for path in borrowed), "utf-8")
    return python.parent
