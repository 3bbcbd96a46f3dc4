"""The other ways to read footers, each in the setting it is used in."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
PYTHON = HERE / "rival" / ".venv" / "bin" / "python"
READY = PYTHON.parents[1] / "ready"
NEEDS = ("aiohttp", "fastparquet", "sqlitedict")


@dataclass(frozen=True, slots=True)
class RivalRates:
    """Files a second of the user's method, all of it and its fetching alone."""

    rate: float
    fetch_rate: float


def make_environment() -> Path:
    """The rivals' own environment (their pandas need not suit ours), made with venv and pip when it is missing.

    Raises ``RuntimeError`` where that fails: a comparison without its rival says nothing.
    """
    if not READY.exists():
        shutil.rmtree(PYTHON.parents[1], ignore_errors=True)
        for command in (
            [sys.executable, "-m", "venv", str(PYTHON.parents[1])],
            [str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *NEEDS],
        ):
            try:
                subprocess.run(command, check=True)
            except (OSError, subprocess.CalledProcessError) as error:
                raise RuntimeError(f"the rival ({', '.join(NEEDS)}) cannot be installed: {error}") from error
        READY.touch()
    return PYTHON


def user_method(urls: Sequence[str], concurrency: int) -> RivalRates:
    """HEAD, last 8 bytes, footer with asyncio; fastparquet; sqlitedict, as in the user's document."""
    command = [str(make_environment()), str(HERE / "catalog_rival.py"), str(concurrency)]
    done = subprocess.run(command, input="\n".join(urls), stdout=subprocess.PIPE, text=True, check=True)
    found = json.loads(done.stdout)
    if found["failed"]:
        raise RuntimeError(f"the rival lost {found['failed']} files")
    return RivalRates(found["files"] / found["seconds"], found["files"] / found["fetch_seconds"])


def pyarrow_rate(url: str, keys: Sequence[str], concurrency: int) -> float:
    """Files a second of ``pyarrow.dataset`` reading the key's statistics over HTTP."""
    import fsspec  # only here, and only for rivals
    import pyarrow.dataset as ds

    started = time.perf_counter()
    dataset = ds.dataset([url + key for key in keys], filesystem=fsspec.filesystem("http"), format="parquet")
    with ThreadPoolExecutor(concurrency) as pool:
        found = pool.map(lambda fragment: fragment.row_groups, dataset.get_fragments())
        rows = [group.statistics["url_surtkey"] for groups in found for group in groups]
    seconds = time.perf_counter() - started
    if not rows or rows[0]["min"] is None:
        raise RuntimeError("pyarrow.dataset found no statistics")
    return len(keys) / seconds


def duckdb_rate(url: str, root: Path, keys: Sequence[str]) -> tuple[float, str]:
    """Files a second of DuckDB's ``parquet_metadata``, over HTTP where its extension is there, else on local files."""
    import duckdb

    con = duckdb.connect()
    query = """SELECT file_name, row_group_id, stats_min_value, stats_max_value FROM parquet_metadata({})
        WHERE path_in_schema = 'url_surtkey'"""
    try:
        con.execute("LOAD httpfs")
        files, note = [url + key for key in keys], f"{len(keys)} files, over httpfs"
    except duckdb.Error:
        files, note = [str(root / key) for key in keys], f"{len(keys)} local files: its httpfs extension is not here"
    started = time.perf_counter()
    rows = con.execute(query.format([*files])).fetchall()
    seconds = time.perf_counter() - started
    if not rows or rows[0][2] is None:
        raise RuntimeError("DuckDB found no statistics")
    return len(keys) / seconds, note
