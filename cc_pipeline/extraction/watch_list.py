"""The watch list: a text file a person edits, one target a line."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from cc_pipeline.commoncrawl.targets import Target, parse_target_lines

_HEAD = "# The watch list of cc_pipeline: one domain or other target a line. See docs/targets.md.\n"


def read(path: Path) -> tuple[Target, ...]:
    """The targets of the list; none when there is no file. Raises ``UserInputError`` naming a line that is wrong."""
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        return ()
    return parse_target_lines(text)


def add(path: Path, targets: Sequence[Target]) -> tuple[Target, ...]:
    """Appends targets that are not there yet and gives those; comments and order of the file stay."""
    known = {target.slug: target.version for target in read(path)}
    new = [t for t in {t.slug: t for t in targets}.values() if known.get(t.slug) != t.version]
    replaced = {target.slug for target in new if target.slug in known}
    if replaced:
        remove(path, [target for target in new if target.slug in replaced])
    if new:
        before = path.read_text("utf-8") if path.exists() else _HEAD
        if not before.endswith("\n"):
            before += "\n"
        _write(path, before + "".join(f"{target.definition}\n" for target in new))
    return tuple(new)


def remove(path: Path, targets: Sequence[Target]) -> tuple[Target, ...]:
    """Takes targets off the list (by slug) and gives those that were on it."""
    slugs = {target.slug for target in targets}
    kept: list[str] = []
    gone: list[Target] = []
    text = path.read_text("utf-8") if path.exists() else ""
    for line in text.splitlines(keepends=True):
        found = [target for target in parse_target_lines(line) if target.slug in slugs]
        gone.extend(found)
        if not found:
            kept.append(line)
    if gone:
        _write(path, "".join(kept))
    return tuple(gone)


def _write(path: Path, text: str) -> None:
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    temporary.write_text(text, "utf-8")
    temporary.replace(path)
