"""A setting is declared once, in the core or by an extension; reading, checking, showing and the pages follow."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from cc_pipeline.dagster import build_defs
from cc_pipeline.errors import UserInputError
from cc_pipeline.extension import Extension
from cc_pipeline.settings import load_settings, reading
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


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes an extension with these settings the only one."""
    one = Extension(name="toy", summary="A toy.", settings=lambda: ToySettings)
    monkeypatch.setattr(reading, "extensions", lambda: (one,))


@pytest.mark.usefixtures("toy")
def test_an_extensions_settings_are_read_checked_and_sent_like_those_of_the_core(tmp_path: Path) -> None:
    env = {"CC_PIPELINE_TOY_SIZE": "5", "CC_PIPELINE_TOY_WORDS": "a, b", "CC_PIPELINE_TOY_TOKEN": "s3cret"}
    settings = load_settings({**env, "CC_PIPELINE_TOY_FOLDER": "/x"}, home=str(tmp_path))
    assert settings.settings_of(ToySettings) == ToySettings(5, ("a", "b"), "s3cret", "/x")
    assert "s3cret" not in repr(settings)
    assert load_settings(env, home=str(tmp_path), toy_size=7).settings_of(ToySettings).size == 7
    changed = replace(settings, of_extensions=(replace(settings.settings_of(ToySettings), size=9),))
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


@pytest.mark.usefixtures("toy")
@pytest.mark.parametrize(("name", "value", "told"), [("SIZE", "0", "above 0"), ("SIZE", "many", "not a number")])
def test_a_wrong_value_of_an_extension_is_told_with_its_variable(
    tmp_path: Path, name: str, value: str, told: str
) -> None:
    with pytest.raises(UserInputError, match=f"CC_PIPELINE_TOY_{name}.*{told}"):
        load_settings({f"CC_PIPELINE_TOY_{name}": value}, home=str(tmp_path))


@pytest.mark.usefixtures("toy")
def test_a_code_location_takes_settings_of_extensions(tmp_path: Path) -> None:
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
