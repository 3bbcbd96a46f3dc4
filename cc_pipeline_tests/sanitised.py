"""Compiled modules under the address and undefined-behaviour sanitisers, in a process of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

_FLAGS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g", "-O1", "-fPIC", "-shared")


def run_sanitised(source: Path, program: str, folder: Path, *flags: str, given: str = "") -> None:
    """Builds a module of ``source`` in ``folder`` and runs a program of Python with its path as only argument and
    ``given`` as standard input. Fails where a sanitiser or the program finds something, skips without a compiler."""
    if shutil.which("gcc") is None:
        pytest.skip("no gcc to build a sanitised module with")
    library = folder / f"{source.stem}.so"
    command = ["gcc", *_FLAGS, *flags, f"-I{sysconfig.get_path('include')}", str(source), "-o", str(library)]
    built = subprocess.run(command, check=False, timeout=600)
    runtime = subprocess.run(["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
    if built.returncode or not Path(runtime.stdout.strip()).is_absolute():
        pytest.skip("gcc has no sanitisers here")
    settings = {
        "LD_PRELOAD": runtime.stdout.strip(),
        "ASAN_OPTIONS": "detect_leaks=0",
        "PYTHONMALLOC": "malloc",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    done = subprocess.run(
        [sys.executable, "-c", program, str(library)],
        input=given,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        env={**os.environ, **settings},
    )
    assert done.returncode == 0, done.stderr[-4000:]
