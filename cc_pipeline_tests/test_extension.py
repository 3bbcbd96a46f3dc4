"""What extensions hand in at a joint: all of it, or what is wrong costs the extension alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cc_pipeline import extension
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.extension import Extension, collect, find_extensions
from cc_pipeline.settings import load_settings

GOOD = Extension(name="good", summary="Hands in a name.", engines=lambda: {"good": object})  # type: ignore[dict-item]


@pytest.fixture(autouse=True)
def nothing_is_kept() -> Iterator[None]:
    yield
    extension._find.cache_clear()
    extension._BROKEN.clear()


def install(monkeypatch: pytest.MonkeyPatch, *values: Extension) -> None:
    found = [(value.name, "cc_pipeline", lambda value=value: value) for value in values]
    monkeypatch.setattr(extension, "_own", lambda: found)
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
    with pytest.warns(UserWarning, match="the extension looks hands in no checks now: the disk is away"):
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
