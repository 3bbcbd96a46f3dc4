"""What users install is a part of the one locked set, and nothing that only tests or linters need."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

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
