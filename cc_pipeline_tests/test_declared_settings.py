"""A setting is declared once, in the core or by an extension; reading, checking, showing and the pages follow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from cc_pipeline import extension
from cc_pipeline.dagster import build_defs
from cc_pipeline.errors import EnvironmentFault, UserInputError
from cc_pipeline.extension import Extension, InstalledExtension, find_extensions
from cc_pipeline.settings import load_settings
from cc_pipeline.settings.declaration import is_above_zero, setting
from cc_pipeline.settings.reading import as_texts, values_by_declaration
from cc_pipeline_tests import settings_page


@dataclass(frozen=True)
class ToySettings:
    """What the toy can be told."""

    size: int = setting(3, help="how many", check=is_above_zero)
    words: tuple[str, ...] = setting((), help="some words")
    token: str = setting("", help="a password", is_secret=True)
    folder: str | None = setting(None, help="a folder of this machine", is_of_this_machine=True)


@dataclass(frozen=True)
class Clashing:
    """Would be ``CC_PIPELINE_MAX_BYTES``."""

    bytes: int = setting(3, help="how many")


@dataclass(frozen=True)
class Undeclared:
    """Has a field that is no setting."""

    size: int = 3


Installed = Callable[..., None]


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Installed]:
    """Makes an extension with a dataclass of settings the only one of its name."""
    there = list(find_extensions())

    def install(name: str, kind: Any) -> None:
        there.append(InstalledExtension(name, "toy", Extension(name=name, summary="A toy.", settings=lambda: kind)))

    monkeypatch.setattr(extension, "_find", lambda without: tuple(there))
    monkeypatch.setattr(extension, "_BROKEN", {})
    yield install


def problem_of(name: str) -> str:
    return next(found.problem for found in find_extensions() if found.name == name)


def test_an_extensions_settings_are_read_checked_and_sent_like_those_of_the_core(
    tmp_path: Path, installed: Installed
) -> None:
    installed("toy", ToySettings)
    env = {"CC_PIPELINE_TOY_SIZE": "5", "CC_PIPELINE_TOY_WORDS": "a, b", "CC_PIPELINE_TOY_TOKEN": "s3cret"}
    settings = load_settings({**env, "CC_PIPELINE_TOY_FOLDER": "/x"}, home=str(tmp_path))
    assert settings.settings_of(ToySettings) == ToySettings(5, ("a", "b"), "s3cret", "/x")
    assert "s3cret" not in repr(settings)
    assert load_settings(env, home=str(tmp_path), toy_size=7).settings_of(ToySettings).size == 7
    changed = settings.with_values(replace(settings.settings_of(ToySettings), size=9))
    assert (changed.settings_of(ToySettings).size, changed.source) == (9, settings.source)
    # another process reads the same, but no secret and nothing of this machine
    sent = as_texts(changed)
    assert {name: text for name, text in sent.items() if name.startswith("TOY_")} == {
        "TOY_SIZE": "9",
        "TOY_WORDS": "a,b",
    }
    there = load_settings({f"CC_PIPELINE_{name}": text for name, text in sent.items()}, home=str(tmp_path))
    assert there.settings_of(ToySettings) == ToySettings(9, ("a", "b"))
    shown = {one.name: value for one, value in values_by_declaration(settings)}
    assert (shown["toy_size"], shown["rate"]) == (5, None)


def test_settings_of_an_extension_that_is_refused_later_are_sent_under_no_other_name(
    tmp_path: Path, installed: Installed
) -> None:
    @dataclass(frozen=True)
    class Fast:
        rate: float = setting(50.0, help="of its own")

    installed("fast", Fast)
    settings = load_settings({"CC_PIPELINE_RATE": "2"}, home=str(tmp_path))
    assert as_texts(settings)["FAST_RATE"] == "50.0"
    extension.refuse("fast", "its definitions do not fit")
    assert as_texts(settings)["RATE"] == "2.0"
    assert "FAST_RATE" not in as_texts(settings)


@pytest.mark.parametrize(("name", "value", "told"), [("SIZE", "0", "above 0"), ("SIZE", "many", "not a number")])
def test_a_wrong_value_of_an_extension_is_told_with_its_variable(
    tmp_path: Path, installed: Installed, name: str, value: str, told: str
) -> None:
    installed("toy", ToySettings)
    with pytest.raises(UserInputError, match=f"CC_PIPELINE_TOY_{name}.*{told}"):
        load_settings({f"CC_PIPELINE_TOY_{name}": value}, home=str(tmp_path))


def test_settings_that_cannot_be_used_cost_their_extension_alone(tmp_path: Path, installed: Installed) -> None:
    installed("max", Clashing)
    installed("toy", ToySettings)
    installed("odd", Undeclared)
    installed("none", int)
    settings = load_settings({"CC_PIPELINE_MAX_BYTES": "17"}, home=str(tmp_path))
    assert (settings.max_bytes, settings.settings_of(ToySettings)) == (17, ToySettings())
    assert "CC_PIPELINE_MAX_BYTES is a setting of the core" in problem_of("max")
    assert "size" in problem_of("odd")
    assert "no frozen dataclass" in problem_of("none")
    assert problem_of("toy") == ""
    with pytest.raises(EnvironmentFault, match="Clashing is not in use"):
        settings.settings_of(Clashing)


def test_two_extensions_with_one_variable_keep_the_first(tmp_path: Path, installed: Installed) -> None:
    @dataclass(frozen=True)
    class Other:
        of_it_size: int = setting(1, help="clashes with the other's")

    @dataclass(frozen=True)
    class First:
        size: int = setting(2, help="how many")

    installed("toy_of_it", First)
    installed("toy", Other)
    settings = load_settings({"CC_PIPELINE_TOY_OF_IT_SIZE": "4"}, home=str(tmp_path))
    assert settings.of_extensions == (*settings.of_extensions[:-1], First(4))
    assert "a setting of the extension toy_of_it" in problem_of("toy")


def test_a_code_location_takes_settings_of_extensions(tmp_path: Path, installed: Installed) -> None:
    installed("toy", ToySettings)
    build_defs(home=tmp_path, source="/a/bucket", key_prefix="one", settings={"toy_size": 4})
    with pytest.raises(UserInputError, match="CC_PIPELINE_TOY_SIZE"):
        build_defs(home=tmp_path, source="/a/bucket", key_prefix="one", settings={"toy_size": 0})
    with pytest.raises(UserInputError, match="did you mean toy_size"):
        build_defs(home=tmp_path, source="/a/bucket", key_prefix="one", settings={"toy_sise": 4})
    with pytest.raises(UserInputError, match="INDEX is 'tree'; choose one of auto, parquet"):
        build_defs(home=tmp_path, source="/a/bucket", key_prefix="one", settings={"index": "tree"})


def test_the_tables_of_settings_are_those_that_are_declared() -> None:
    pages = settings_page.pages()
    assert settings_page.DOCS / "settings.md" in pages
    for page in pages:
        text = page.read_text("utf-8")
        assert settings_page.page_of(text) == text, f"{page.name}: make docs writes it"
