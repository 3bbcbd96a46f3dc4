"""Commands of ``cc-pipeline`` that make the frozen homes, run as a person runs them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def run_command(folder: Path, *arguments: str, source: Path | None = None) -> None:
    """Runs a command in ``FOLDER/home``. Raises ``RuntimeError`` with its output where it fails."""
    place = [] if source is None else ["--source", str(source)]
    command = [str(Path(sys.executable).with_name("cc-pipeline")), *arguments, *place, "--home", str(folder / "home")]
    environment = {name: text for name, text in os.environ.items() if not name.startswith("CC_PIPELINE_")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
