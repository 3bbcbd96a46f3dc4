"""The engine of the core does what every engine does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cc_pipeline.extraction.engine import LOCAL, Engine
from cc_pipeline_tests.extraction.engine_tests import EngineTests


class TestLocal(EngineTests):
    @contextmanager
    def open_engine(self) -> Iterator[Engine]:
        yield LOCAL
