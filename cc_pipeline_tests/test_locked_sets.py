"""What users install is a part of the one locked set, and nothing that only tests or linters need."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

REPOSITORY = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"]


def locked(file: str) -> dict[str, set[str]]:
    """Versions with their hashes, by name."""
    blocks = re.split(r"\n(?=\S)", (REPOSITORY / ".ci" / file).read_text("utf-8").strip())
    found: dict[str, set[str]] = {}
    for block in blocks:
        lines = [line.strip(" \\") for line in block.splitlines()]
        # what is for some versions of Python only stands there once for each
        version = lines[0].partition(" ;")[0]
        found.setdefault(canonicalize_name(version.partition("==")[0]), set()).update([version, *lines[1:]])
    return found


def names(requirements: list[str]) -> set[str]:
    return {canonicalize_name(Requirement(text).name) for text in requirements}


def test_what_a_run_needs_is_a_part_of_the_one_solve() -> None:
    everything, needed = locked("constraints.txt"), locked("runtime.txt")
    assert len(needed) < len(everything)
    for name, versions in needed.items():
        assert versions <= everything[name], name
    assert names(PROJECT["dependencies"]) <= {*needed}


def test_users_install_no_tools() -> None:
    tools = names(PROJECT["optional-dependencies"]["dev"])
    # libraries that some library of a run needs itself
    shared = {"boto3", "fastwarc", "markdown-it-py", "requests"}
    assert tools & {*locked("runtime.txt")} == shared


def test_no_lock_names_an_address() -> None:
    for file in ("constraints.txt", "runtime.txt", "httpfs.txt", "spark.txt"):
        assert "://" not in (REPOSITORY / ".ci" / file).read_text("utf-8")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What ``make lock`` reads and writes."""
    shutil.copytree(REPOSITORY / ".ci", tmp_path / ".ci")
    shutil.copy(REPOSITORY / "pyproject.toml", tmp_path)
    return tmp_path


def lock(checkout: Path) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": "/usr/bin:/bin"}
    command = [checkout / ".ci" / "lock"]
    return subprocess.run(
        command, stdin=subprocess.DEVNULL, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("fails", ["spark.txt", "nothing"])
def test_a_solve_that_fails_leaves_the_locked_sets_as_they_were(checkout: Path, fails: str) -> None:
    uv = checkout / ".venv" / "bin" / "uv"
    uv.parent.mkdir(parents=True)
    script = f"""#!/bin/sh
    cat > /dev/null
    while [ "$1" != -o ]; do shift; done
    echo solved > "$2"
    case "$2" in */{fails}) exit 1;; esac
    """
    uv.write_text(script, "utf-8")
    uv.chmod(0o755)
    files = [checkout / ".ci" / f"{name}.txt" for name in ("constraints", "runtime", "httpfs", "spark")]
    before = [path.read_bytes() for path in files]
    assert (lock(checkout).returncode == 0) == (fails == "nothing")
    assert [path.read_bytes() for path in files] == (before if fails != "nothing" else [b"solved\n"] * 4)
