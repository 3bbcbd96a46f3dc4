"""What of Dagster's objects is used that Dagster does not mark public, and that nothing of a library is replaced."""

from __future__ import annotations

from pathlib import Path

import cc_pipeline

PACKAGE = Path(cc_pipeline.__file__).parent


def test_no_private_module_or_tag_of_dagster_is_named() -> None:
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text("utf-8")
        assert "dagster._" not in text and '"dagster/_' not in text and ".dagster/" not in text, path
