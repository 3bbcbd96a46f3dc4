"""Where the shared test corpus lies, and the marker for tests that need it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

#: Real data that is never committed; beside the checkout, or where ``CC_PIPELINE_CORPUS`` says.
CORPUS = Path(os.environ.get("CC_PIPELINE_CORPUS") or Path(__file__).resolve().parents[2] / "shared" / "corpus")

needs_corpus = pytest.mark.skipif(
    not CORPUS.is_dir(), reason="the shared corpus is not beside this checkout (set CC_PIPELINE_CORPUS to its folder)"
)
