"""What a parser process imports."""

from __future__ import annotations

import subprocess
import sys

HEAVY = ("deltalake", "duckdb", "aiohttp", "botocore", "dagster", "cc_pipeline.workspace", "cc_pipeline.lake")


def test_a_parser_process_imports_the_parsers_and_little_else() -> None:
    code = f"import sys, cc_pipeline.records.reading; print([name for name in {HEAVY!r} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert found.stdout.strip() == "[]"
