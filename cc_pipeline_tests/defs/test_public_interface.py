"""What of Dagster's objects is used that Dagster does not mark public, and that nothing of a library is replaced."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from enum import Enum
from pathlib import Path

import dagster as dg
from dagster._annotations import is_public

import cc_pipeline

PACKAGE = Path(cc_pipeline.__file__).parent
#: What a name or an attribute stands for wherever it occurs in ``defs/``.
_CALLED = {
    "instance": dg.DagsterInstance,
    "_instance": dg.DagsterInstance,
    "run": dg.DagsterRun,
    "_context": dg.AssetExecutionContext,
    "_definitions": dg.Definitions,
}
#: Members that are used and not marked: an upgrade may take any of them. Fields of Dagster's data classes are not
#: marked at all, and are left out.
UNMARKED = {
    "AssetExecutionContext.run",
    "DagsterInstance.all_instigator_state",
    "DagsterInstance.all_logs",
    "DagsterInstance.compute_log_manager",
    "DagsterInstance.dispose",
    "DagsterInstance.from_config",
    "DagsterInstance.get_materialized_partitions",
    "DagsterInstance.get_runs",
    "DagsterInstance.get_ticks",
    "DagsterInstance.root_directory",
    "Definitions.get_repository_def",
    "FreshnessPolicy.time_window",
    "SensorEvaluationContext.log",
}


def used_members(tree: ast.AST) -> Iterator[tuple[type, str]]:
    """The members of Dagster's classes that a module uses, as far as annotations and names tell the class."""
    for function in [tree, *(node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))]:
        arguments = function.args if isinstance(function, ast.FunctionDef) else None
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs] if arguments is not None else []
        typed = {one.arg: found for one in every if (found := _class_in(one.annotation)) is not None}
        for node in ast.walk(function):
            if isinstance(node, ast.Attribute) and (owner := _owner(node.value, typed)) is not None:
                yield owner, node.attr


def _owner(value: ast.expr, typed: dict[str, type]) -> type | None:
    if isinstance(value, ast.Name):
        return typed.get(value.id) or _CALLED.get(value.id)
    if isinstance(value, ast.Attribute):
        return _CALLED.get(value.attr) or _class_in(value)
    return None


def _class_in(annotation: ast.expr | None) -> type | None:
    """The class of Dagster that an annotation names, also beside ``None``."""
    if isinstance(annotation, ast.BinOp):
        return _class_in(annotation.left)
    if isinstance(annotation, ast.Attribute) and isinstance(annotation.value, ast.Name) and annotation.value.id == "dg":
        found = getattr(dg, annotation.attr, None)
        return found if isinstance(found, type) else None
    return None


def _is_marked(owner: type, name: str) -> bool:
    for base in owner.__mro__:
        if name in vars(base):
            member = vars(base)[name]
            return is_public(member.__func__ if isinstance(member, staticmethod | classmethod) else member)
    return False


def test_members_that_are_not_marked_public_are_listed() -> None:
    found: set[str] = set()
    for path in sorted((PACKAGE / "defs").rglob("*.py")):
        for owner, name in used_members(ast.parse(path.read_text("utf-8"))):
            if owner not in _FIELDS and not issubclass(owner, Enum) and hasattr(owner, name):
                found |= set() if _is_marked(owner, name) else {f"{owner.__name__}.{name}"}
    assert found == UNMARKED, "members that an upgrade may take: use marked ones, or list them"


#: Data, of which a class marks no field.
_FIELDS = (dg.DagsterRun, dg.RunsFilter, dg.AssetKey, dg.AssetCheckKey, dg.MultiPartitionKey, dg.EventLogRecord)


def test_no_private_module_or_tag_of_dagster_is_named() -> None:
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text("utf-8")
        assert "dagster._" not in text and '"dagster/_' not in text and ".dagster/" not in text, path
