"""Leases from PostgreSQL do what every rate source does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cc_pipeline.extensions.several_machines.rate_leases import open_leases
from cc_pipeline.testing.rate_sources import RateSourceTests
from cc_pipeline.transport.rate_source import RateSource
from cc_pipeline.transport.rates import SourceLimits
from cc_pipeline_tests.postgres import postgres_server


@pytest.mark.process
class TestLeases(RateSourceTests):
    """With a PostgreSQL of its own."""

    @pytest.fixture(scope="class", autouse=True)
    def named(self) -> Iterator[None]:
        with postgres_server() as server, pytest.MonkeyPatch.context() as patch:
            for name, value in server.environment.items():
                patch.setenv(name, value)
            yield

    def open_source(self, host: str, limits: SourceLimits) -> RateSource:
        return open_leases(host, limits)
