"""The watch list: a text file a person edits, one target a line."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from pathlib import Path

from cc_pipeline.commoncrawl.target import Target
from cc_pipeline.commoncrawl.target_text import parse_target_lines
from cc_pipeline.errors import EnvironmentFault, UserInputError

_HEAD = "# The watch list of cc_pipeline: one domain or other target a line. See docs/targets.md.\n"


def read(path: Path) -> tuple[Target, ...]:
    """The targets of the list; none when there is no file. Raises ``UserInputError`` naming every wrong line."""
    return _parsed(path, _text(path))


def add(path: Path, targets: Sequence[Target]) -> tuple[Target, ...]:
    """Appends targets that are not there yet and gives those; comments and order of the file stay.

    A set whose members changed takes the place of the one of that name. Raises as :func:`read` does.
    """
    text = _text(path)
    known = {target.slug: target.version for target in _parsed(path, text)}
    new = [t for t in {t.slug: t for t in targets}.values() if known.get(t.slug) != t.version]
    if new:
        before = _without(text, {target.slug for target in new})[0] or _HEAD
        if not before.endswith("\n"):
            before += "\n"
        _write(path, before + "".join(f"{target.definition}\n" for target in new))
    return tuple(new)


def remove(path: Path, targets: Sequence[Target]) -> tuple[Target, ...]:
    """Takes targets off the list (by slug) and gives those that were on it. Raises as :func:`read` does."""
    text = _text(path)
    _parsed(path, text)
    kept, gone = _without(text, {target.slug for target in targets})
    if gone:
        _write(path, kept)
    return gone


def _without(text: str, slugs: Collection[str]) -> tuple[str, tuple[Target, ...]]:
    kept: list[str] = []
    gone: list[Target] = []
    for line in text.splitlines(keepends=True):
        found = [target for target in parse_target_lines(line) if target.slug in slugs]
        gone.extend(found)
        if not found:
            kept.append(line)
    return "".join(kept), tuple(gone)


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except FileNotFoundError:
        return ""
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise UserInputError(f"{path}, line {line} is not UTF-8 text; save the file as UTF-8") from None
    except OSError as error:
        raise EnvironmentFault(f"{path} cannot be read: {error.strerror}", "Check the file's permissions.") from error


def _parsed(path: Path, text: str) -> tuple[Target, ...]:
    try:
        return parse_target_lines(text)
    except UserInputError as error:
        raise UserInputError(f"{path}, {error}. Correct or delete the wrong lines; nothing was changed") from None


def _write(path: Path, text: str) -> None:
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        temporary.write_text(text, "utf-8")
        temporary.replace(path)
    except OSError as error:
        raise EnvironmentFault(
            f"{path} cannot be written: {error.strerror}", "Check the disk and its permissions. The list is as before."
        ) from error
    finally:
        temporary.unlink(missing_ok=True)
