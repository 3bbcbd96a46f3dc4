"""Every extension of this project does what every extension does."""

from __future__ import annotations

import pkgutil

import pytest

from cc_pipeline import extensions
from cc_pipeline.extension import Extension
from cc_pipeline.testing.extensions import ExtensionTests

OURS = [f"{extensions.__name__}.{one.name}" for one in pkgutil.iter_modules(extensions.__path__)]


@pytest.mark.parametrize("module", OURS)
class TestOurs(ExtensionTests):
    @pytest.fixture(autouse=True)
    def about(self, module: str) -> None:
        self.module = module

    @pytest.mark.matrix
    def test_all_else_works_without_it(self, extension: Extension) -> None:
        super().test_all_else_works_without_it(extension)
