"""The watch list: a text file that a person edits, with one target per line."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from cc_pipeline.atomic import write_whole
from cc_pipeline.commoncrawl.target import Target
from cc_pipeline.commoncrawl.target_text import parse_target_lines, right_and_wrong_lines, set_slug_in
from cc_pipeline.errors import EnvironmentFault, UserInputError

_HEAD = "# The watch list of cc_pipeline: one domain or other target a line. See docs/targets.md.\n"

#: The most wrong lines that a note names.
_MAX_NAMED_LINES = 5


def read(path: Path) -> tuple[Target, ...]:
    """Returns the targets of the list; none if there is no file. Files of sets lie beside the list. Raises
    ``UserInputError`` with every wrong line of the list and of the sets' files."""
    return _parse_targets(path, _read_text(path))


@dataclass(frozen=True, slots=True)
class WatchedTargets:
    """The ``targets`` of the valid lines. ``note`` has the wrong lines."""

    targets: tuple[Target, ...]
    note: str | None = None


def read_valid_targets(path: Path) -> WatchedTargets:
    """Reads the valid lines, for sensors and schedules: one wrong line must not stop the other targets. Raises
    ``UserInputError`` or ``EnvironmentFault`` for a list that cannot be read: which targets are watched is not known
    then."""
    targets, wrong = _parse_valid_lines(_read_text(path), path.parent)
    if not wrong:
        return WatchedTargets(targets)
    wrong_lines = "; ".join(wrong[:_MAX_NAMED_LINES]) + (
        f"; and {len(wrong) - _MAX_NAMED_LINES} more" if len(wrong) > _MAX_NAMED_LINES else ""
    )
    return WatchedTargets(
        targets,
        f"{path}, {wrong_lines}. Correct or delete the wrong lines; the other {len(targets)} targets are watched",
    )


def _parse_valid_lines(text: str, folder: Path) -> tuple[tuple[Target, ...], tuple[str, ...]]:
    # files of sets are not cached, as in _parsed
    return right_and_wrong_lines(text, folder) if "@" in text else _parse_valid_text(text)


@lru_cache(maxsize=2)
def _parse_valid_text(text: str) -> tuple[tuple[Target, ...], tuple[str, ...]]:
    return right_and_wrong_lines(text)


def add(path: Path, targets: Sequence[Target]) -> tuple[Target, ...]:
    """Appends targets that are not on the list yet and returns them. Comments and the order of the file stay.

    A set whose members or file changed replaces the set of that name. Raises as :func:`read` does.
    """
    text = _read_text(path)
    listed_targets = {target.slug: target for target in _parse_targets(path, text)}
    new = [
        new_target
        for new_target in {new_target.slug: new_target for new_target in targets}.values()
        if not _is_unchanged(new_target, listed_targets.get(new_target.slug))
    ]
    if new:
        remaining_text = _remove_lines(text, {target.slug for target in new})[0] or _HEAD
        if not remaining_text.endswith("\n"):
            remaining_text += "\n"
        _write(path, remaining_text + "".join(f"{target.definition}\n" for target in new))
    return tuple(new)


def remove(path: Path, slugs: Collection[str]) -> tuple[str, ...]:
    """Removes targets (by slug) from the list and returns the definitions of those that were on it. The file of a set
    stays. Raises as :func:`read` does."""
    text = _read_text(path)
    listed_targets = {target.slug: target for target in _parse_targets(path, text)}
    remaining_text, removed_slugs = _remove_lines(text, slugs)
    if removed_slugs:
        _write(path, remaining_text)
    return tuple(listed_targets[slug].definition for slug in removed_slugs)


def _is_unchanged(target: Target, listed_target: Target | None) -> bool:
    return listed_target is not None and (listed_target.version, listed_target.file) == (target.version, target.file)


def _remove_lines(text: str, slugs: Collection[str]) -> tuple[str, tuple[str, ...]]:
    """Returns the text without the lines of ``slugs``, and the slugs that had a line."""
    kept_lines: list[str] = []
    removed_slugs: list[str] = []
    for line in text.splitlines(keepends=True):
        set_slug = set_slug_in(line)
        line_slugs = [slug for slug in ([set_slug] if set_slug else _parse_slugs(line)) if slug in slugs]
        removed_slugs.extend(line_slugs)
        if not line_slugs:
            kept_lines.append(line)
    return "".join(kept_lines), tuple(dict.fromkeys(removed_slugs))


def _parse_slugs(line: str) -> list[str]:
    return [target.slug for target in parse_target_lines(line)]


def _read_text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except FileNotFoundError:
        return ""
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise UserInputError(f"{path}, line {line} is not UTF-8 text; save the file as UTF-8") from None
    except OSError as error:
        raise EnvironmentFault(f"{path} cannot be read: {error.strerror}", "Check the file's permissions.") from error


def _parse_targets(path: Path, text: str) -> tuple[Target, ...]:
    try:
        # files of sets may change while the list stays, so only lists without them are cached
        return parse_target_lines(text, path.parent) if "@" in text else _parse_text(text)
    except UserInputError as error:
        raise UserInputError(f"{path}, {error}. Correct or delete the wrong lines; nothing was changed") from None


@lru_cache(maxsize=2)
def _parse_text(text: str) -> tuple[Target, ...]:
    """Parses the text once for each content: a sensor reads the list every minute."""
    return parse_target_lines(text)


def _write(path: Path, text: str) -> None:
    try:
        write_whole(path, text, durable=True)
    except OSError as error:
        raise EnvironmentFault(
            f"{path} cannot be written: {error.strerror}", "Check the disk and its permissions. The list is as before."
        ) from error
