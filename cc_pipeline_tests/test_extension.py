"""What extensions hand in at a joint: all of it, or what is wrong costs the extension alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from cc_pipeline import extension
from cc_pipeline.checks.extensions import list_extensions
from cc_pipeline.cli.app import find_commands
from cc_pipeline.defs.engines import LOCAL, LocalRunEngine, find_engine
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.export.format import RowFormat
from cc_pipeline.export.formats import find_formats
from cc_pipeline.extension import Extension, collect, find_extensions
from cc_pipeline.index.locators import IndexKind, index_kinds
from cc_pipeline.settings import load_settings

GOOD = Extension(name="good", summary="Hands in a name.", engines=lambda: {"good": object})  # type: ignore[dict-item]


@pytest.fixture(autouse=True)
def nothing_is_kept() -> Iterator[None]:
    yield
    extension._find.cache_clear()
    extension._BROKEN.clear()


def install(monkeypatch: pytest.MonkeyPatch, *values: Extension) -> None:
    found = [(value.name, "cc_pipeline", lambda value=value: value) for value in values]
    monkeypatch.setattr(extension, "_find_own", lambda: found)
    extension._find.cache_clear()
    extension._BROKEN.clear()


def problems() -> dict[str, str]:
    return {one.name: one.problem for one in find_extensions() if one.problem}


def test_what_is_wrong_with_a_home_costs_an_extension_nothing_later(monkeypatch: pytest.MonkeyPatch) -> None:
    homes = iter([False, True])

    def look(_: object) -> list[object]:
        if not next(homes):
            raise EnvironmentFault("the disk is away", "Put it back.")
        return ["a check"]

    install(monkeypatch, Extension(name="looks", summary="Looks.", checks=look))  # type: ignore[arg-type]
    with pytest.warns(UserWarning, match="checks of the extension looks are missing in this run: the disk is away"):
        assert collect("checks", load_settings({})) == {}
    assert problems() == {}
    assert collect("checks", load_settings({})) == {"looks": ("a check",)}


@pytest.mark.parametrize("handed_in", [None, 5, (1 / number for number in (1, 0))])
def test_what_is_no_mapping_or_sequence_costs_the_extension(handed_in: object, monkeypatch: pytest.MonkeyPatch) -> None:
    odd = Extension(name="odd", summary="Odd.", engines=lambda: handed_in, tables=lambda: handed_in)  # type: ignore[arg-type, return-value]
    for joint in ("engines", "tables"):
        install(monkeypatch, odd, GOOD)
        assert [*collect(joint)] == ["good"]
        assert problems()["odd"].startswith(f"{joint}: ")


def shout() -> None:
    """A command."""


ROWS = RowFormat(summary="rows", write=lambda request: None, suffixes=())  # type: ignore[arg-type, return-value]
#: What two extensions hand in under the name ``twice``, by the joint, and how the core asks for it.
SAME_NAME: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
    "engines": (lambda: {"twice": LocalRunEngine}, lambda: find_engine(LOCAL)),
    "export_formats": (lambda: {"twice": ROWS}, find_formats),
    "commands": (lambda: {"twice": shout}, find_commands),
    "locators": (lambda: [IndexKind(name="twice", summary="", find=lambda sought: None)], index_kinds),
}


@pytest.mark.parametrize("joint", SAME_NAME)
def test_the_second_extension_with_a_name_is_refused_and_the_first_is_used(
    joint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand_in, ask = SAME_NAME[joint]
    values = [Extension(name=name, summary=name, **{joint: hand_in}) for name in ("first", "second")]  # type: ignore[arg-type]
    install(monkeypatch, *values, GOOD)
    ask()
    assert [*problems()] == ["second"]
    assert problems()["second"].startswith(f"{joint}: ") and "the name twice is already used" in problems()["second"]
    assert [one.name for one in extension.extensions()] == ["first", "good"]
    # whoever only lists them sees it too
    install(monkeypatch, *values)
    states = {one.name: one.state for one in list_extensions(load_settings({}))}
    assert states == {"first": "in use", "second": "broken"}


@pytest.mark.parametrize(("joint", "name"), [("engines", LOCAL), ("export_formats", "csv"), ("commands", "run")])
def test_no_extension_takes_a_name_of_the_core(joint: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    handed_in = {"engines": object, "export_formats": ROWS, "commands": shout}[joint]
    install(monkeypatch, Extension(name="greedy", summary="Greedy.", **{joint: lambda: {name: handed_in}}), GOOD)  # type: ignore[arg-type]
    assert isinstance(find_engine(LOCAL), LocalRunEngine)
    assert find_formats()["csv"] is not ROWS and find_commands()["run"].call is not shout
    assert problems()["greedy"].startswith(f"{joint}: ") and f"the name {name} is already used" in problems()["greedy"]
