"""Reads variables of the environment as typed values."""

from __future__ import annotations

from collections.abc import Mapping

from cc_pipeline.errors import UserInputError

PREFIX = "CC_PIPELINE_"


def text_in(env: Mapping[str, str], name: str) -> str | None:
    value = env.get(PREFIX + name, "").strip()
    return value or None


def words_in(env: Mapping[str, str], name: str) -> tuple[str, ...] | None:
    text = text_in(env, name)
    return None if text is None else tuple(word.strip() for word in text.split(",") if word.strip())


def yes_in(env: Mapping[str, str], name: str) -> bool | None:
    text = text_in(env, name)
    if text is None:
        return None
    if text.lower() not in ("1", "true", "yes", "0", "false", "no"):
        raise UserInputError(f"{PREFIX}{name} is {text.lower()!r}; choose yes or no")
    return text.lower() in ("1", "true", "yes")


def number_in(env: Mapping[str, str], name: str, kind: type[int] | type[float]) -> int | float | None:
    text = text_in(env, name)
    if text is None:
        return None
    try:
        return kind(text.replace("_", ""))
    except ValueError:
        raise UserInputError(f"{PREFIX}{name} is {text!r}, which is not a number") from None
