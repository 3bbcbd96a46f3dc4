"""Reads ``dagster.yaml`` of a home, which must name no code but Dagster's and ours: the home may be somebody else's."""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from cc_pipeline.errors import EnvironmentFault

_OUR_MODULE: Final = re.compile(r"dagster([._].*)?|cc_pipeline(\..*)?")
#: The key of handlers and formatters of logs, whose classes may be any.
_LOG_HANDLERS: Final = "dagster_handler_config"


def read_config(folder: Path) -> dict[str, Any]:
    """Returns the content of ``dagster.yaml`` in ``folder``, the folder of Dagster in a home; empty without a file.

    Raises ``EnvironmentFault`` if the file names other code than Dagster's and ours, if Dagster would take variables
    from it or from a ``.env`` in the folder, and if everybody may write to the home; ``yaml.YAMLError`` for a damaged
    file.
    """
    path = folder / "dagster.yaml"
    for place in (folder.parent, folder, path):
        if place.exists() and place.stat().st_mode & stat.S_IWOTH:
            raise EnvironmentFault(
                f"everybody may write to {place}, and so may make this home execute their code",
                f"Check who wrote to it, then: chmod o-w {place}",
            )
    if (folder / ".env").exists():
        raise _refuse(folder / ".env", "Dagster would set the variables of this file")
    text = path.read_text("utf-8") if path.is_file() else ""
    for key, value in _read_entries(yaml.compose(text, yaml.SafeLoader)):
        names_module = key.value == "module" and not _OUR_MODULE.fullmatch(str(value.value))
        if names_module or key.value == _LOG_HANDLERS:
            raise _refuse(path, f"line {key.start_mark.line + 1} names code that is neither Dagster's nor ours")
    config = yaml.safe_load(text) or {}
    if "secrets" in config:
        raise _refuse(path, "Dagster would set the variables that secrets names, such as PYTHONPATH")
    return config


def _read_entries(root: yaml.Node | None) -> Iterator[tuple[yaml.Node, yaml.Node]]:
    """Yields key and value of all mappings of a document, at any depth."""
    nodes, seen = [root], set()
    while nodes:
        node = nodes.pop()
        # an alias is the same node again
        if not isinstance(node, yaml.CollectionNode) or id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            yield from node.value
            nodes += [part for entry in node.value for part in entry]
        else:
            nodes += node.value


def _refuse(path: Path, reason: str) -> EnvironmentFault:
    return EnvironmentFault(
        f"{path}: {reason}",
        "Nothing was executed. Remove it if you do not know who wrote it: a home is code (docs/SECURITY.md).",
    )
