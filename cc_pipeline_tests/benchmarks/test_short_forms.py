"""Each benchmark runs: its short form takes every path, the rival's too, and writes its JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cc_pipeline_tests.corpus import CORPUS
from cc_pipeline_tests.lab import why_no_lab

ROOT = Path(__file__).resolve().parents[2]
BENCHES = sorted(path.stem.removeprefix("bench_") for path in (ROOT / "benchmarks").glob("bench_*.py"))


@pytest.mark.process
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.xdist_group(f"bench {name}")) for name in BENCHES]
)
def test_a_short_form_writes_its_figures(name: str, tmp_path: Path) -> None:
    if name == "documents" and not CORPUS.is_dir():
        pytest.skip("the corpus is not here")
    if name == "refused" and why_no_lab():
        pytest.skip(why_no_lab())
    run_short_form(f"benchmarks.bench_{name}", name, tmp_path)


def run_short_form(module: str, name: str, folder: Path) -> None:
    """Runs a program that reports as benchmarks do; its JSON goes to ``folder``."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("CC_PIPELINE_")}
    environment |= {"SHORT": "1", "BENCH_RESULTS": str(folder), "CC_PIPELINE_CORPUS": str(CORPUS)}
    command = [sys.executable, "-m", module]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2_000:]
    [path] = folder.glob("*.json")
    assert path.name == f"{name}-short.json"
    figures = json.loads(path.read_text())["figures"]
    assert figures
    lines = done.stdout.splitlines()
    assert all(any(line.startswith(f"{figure['name']} ours=") for line in lines) for figure in figures)


def test_the_makefile_names_every_benchmark() -> None:
    [line] = [line for line in (ROOT / "Makefile").read_text().splitlines() if line.startswith("bench-%:")]
    assert sorted(line.partition("in one run: ")[2].split(", ")) == BENCHES
