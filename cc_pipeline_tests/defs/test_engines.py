"""The engine of the core, those of extensions, and what is said about a name that is neither."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cc_pipeline.defs.partition_runs import _extract

from cc_pipeline.checks.finding import Finding
from cc_pipeline.defs import engines
from cc_pipeline.defs.engines import LOCAL, LocalRunEngine, describe_engines, find_engine
from cc_pipeline.errors import UserInputError
from cc_pipeline.extension import Extension
from cc_pipeline.extraction.run import PartitionResult
from cc_pipeline.settings import Settings
from cc_pipeline.workspace.workspace import Workspace

SETTINGS = Settings("/bucket", Path("/home"), "/home/lake", "")


class Elsewhere:
    """Begins all partitions and makes none of them."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    def check_ready(self, settings: Settings) -> None:
        raise UserInputError("the machine elsewhere is off")

    def examine(self, settings: Settings) -> Iterator[Finding]:
        yield Finding("bad", "engine", "the machine elsewhere is off")

    def describe(self, settings: Settings) -> str:
        return "elsewhere, 1 machine"

    def extract(
        self, context: Any, workspace: Workspace, partitions: Sequence[tuple[str, str]], tables: Any, begun: Any
    ) -> Iterator[PartitionResult]:
        begun(partitions)
        self.asked += partitions
        return iter(())


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Elsewhere:
    engine = Elsewhere()
    one = Extension(name="elsewhere", summary="far away", engines=lambda: {"elsewhere": lambda: engine})
    monkeypatch.setattr(engines, "extensions", lambda: (one,))
    return engine


def test_the_core_has_an_engine_that_lacks_nothing() -> None:
    engine = find_engine(LOCAL)
    engine.check_ready(SETTINGS)
    assert [one.level for one in engine.examine(SETTINGS)] == ["ok"]


def test_an_engine_of_an_extension_is_found_by_its_name_and_described_by_its_extension(elsewhere: Elsewhere) -> None:
    assert find_engine("elsewhere") is elsewhere
    assert isinstance(find_engine(LOCAL), LocalRunEngine)
    assert describe_engines() == "local (the processes of this machine), elsewhere (far away)"


@pytest.mark.usefixtures("elsewhere")
def test_an_unknown_engine_is_refused_with_those_there_are() -> None:
    with pytest.raises(UserInputError, match=r"no engine nowhere.* there are local, elsewhere"):
        find_engine("nowhere")


def test_partitions_of_a_run_go_to_the_engine_that_its_settings_name(
    elsewhere: Elsewhere,
) -> None:
    begun: list[str] = []
    run: Any = SimpleNamespace(remaining_keys=["CC-MAIN-2024-22|example.com"], mark_started=begun.extend)
    there: Any = SimpleNamespace(settings=replace(SETTINGS, engine="elsewhere"))
    assert list(_extract(None, there, run, ["captures"])) == []  # type: ignore[arg-type]
    assert elsewhere.asked == [("CC-MAIN-2024-22", "example.com")]
    assert begun == run.remaining_keys
