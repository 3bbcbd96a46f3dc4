"""Nothing is decided by the words of a fault, an exception or a note: they are for people, and may be reworded.

The code is read, not run. What counts as words: the fields that hold them, ``str()`` of an error, and names that were
given either. What counts as a decision: looking for something in them, comparing how they begin or end, cutting them
at something that was written into them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

import cc_pipeline
from cc_pipeline.errors import DataFault, DataKind

ROOT = Path(cc_pipeline.__file__).parent

#: The only functions that may, and why.
ALLOWED = {
    ("errors.py", "disk_is_full"): "the Delta library has neither a number nor a class for it",
    ("archive/gzip_members.py", "damage_cause"): "decides nothing: takes igzip's own number out of its words",
    (
        "defs/run_failures.py",
        "read_message",
    ): "decides nothing: takes the class, which is known, out of Python's own line",
    ("api/facade.py", "translate_for_python"): "decides nothing: names keywords where messages name flags",
    ("export/text_rows.py", "_note_failure"): "Arrow's reader hands on DuckDB's words alone, without their class",
}

_FIELDS = frozenset(
    {"reason", "failure_reason", "detail", "message", "problem", "what", "advice", "why", "note", "notes", "args"}
)
_ERRORS = frozenset({"error", "fault", "exc", "exception", "failure", "failed"})
_LOOKING = frozenset({"startswith", "endswith", "find", "index", "rfind", "count"})
_CUTTING = frozenset({"split", "rsplit", "partition", "rpartition", "removeprefix", "removesuffix", "replace"})
_MATCHING = frozenset({"match", "search", "fullmatch", "findall", "finditer", "fnmatch"})

_Function = ast.FunctionDef | ast.AsyncFunctionDef
#: What can be a decision, or gives a name its meaning.
_LOOKED_AT = (ast.Call, ast.Compare, ast.Assign, ast.NamedExpr, ast.For, ast.comprehension, ast.ExceptHandler)


def decisions(source: str) -> Iterator[tuple[str, int]]:
    """(function, line) of each decision by words in a module; the function is empty outside of any."""
    tree = ast.parse(source)
    functions = [node for node in ast.walk(tree) if isinstance(node, _Function)]
    scopes = [("", _outside(tree)), *((node.name, _of_kinds(ast.walk(node))) for node in functions)]
    parameters = {node.name: [each.arg for each in node.args.args] for node in functions}
    passed = _passed_on([nodes for _, nodes in scopes], parameters)
    for name, nodes in scopes:
        words = _Words(nodes, passed.get(name, set()))
        for node in nodes:
            if words.decided_by(node):
                yield name, getattr(node, "lineno", 0)


def _of_kinds(nodes: Iterable[ast.AST]) -> list[ast.AST]:
    return [node for node in nodes if isinstance(node, _LOOKED_AT)]


def _outside(tree: ast.Module) -> list[ast.AST]:
    """What of a module is in no function."""
    waiting, found = [*tree.body], list[ast.AST]()
    while waiting:
        node = waiting.pop()
        if not isinstance(node, _Function):
            found.append(node)
            waiting += ast.iter_child_nodes(node)
    return _of_kinds(found)


def _passed_on(scopes: Iterable[list[ast.AST]], parameters: dict[str, list[str]]) -> dict[str, set[str]]:
    """Parameters of the module's own functions that are given words by a call in it."""
    found: dict[str, set[str]] = {}
    for nodes in scopes:
        words = _Words(nodes, set())
        for call in nodes:
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in parameters:
                for name, value in zip(parameters[call.func.id], call.args, strict=False):
                    if words.are(value):
                        found.setdefault(call.func.id, set()).add(name)
    return found


class _Words:
    """What holds words within one function, or in a module outside of any."""

    def __init__(self, nodes: list[ast.AST], given: set[str]) -> None:
        self._names = {*_FIELDS, *given}
        self._errors = {*_ERRORS}
        self._errors |= {node.name for node in nodes if isinstance(node, ast.ExceptHandler) and node.name}
        for _ in range(2):  # a name of a name
            for node in nodes:
                self._learn(node)

    def _learn(self, node: ast.AST) -> None:
        if isinstance(node, ast.Assign) and self.are(node.value):
            self._names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        if isinstance(node, ast.NamedExpr) and self.are(node.value):
            self._names.add(node.target.id)
        if isinstance(node, ast.For | ast.comprehension) and isinstance(node.target, ast.Name) and self.are(node.iter):
            self._names.add(node.target.id)

    def are(self, node: ast.AST) -> bool:
        """Whether an expression is words."""
        if isinstance(node, ast.Name):
            return node.id in self._names
        if isinstance(node, ast.Attribute):
            return node.attr in _FIELDS
        if isinstance(node, ast.Subscript):
            return self.are(node.value) or (isinstance(node.slice, ast.Constant) and node.slice.value in _FIELDS)
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name) and node.func.id in ("str", "repr") and node.args:
                return self._is_error(node.args[0]) or self.are(node.args[0])
            # what str methods make of words are words
            return isinstance(node.func, ast.Attribute) and self.are(node.func.value)
        if isinstance(node, ast.JoinedStr):
            parts = [part.value for part in node.values if isinstance(part, ast.FormattedValue)]
            return any(self._is_error(part) or self.are(part) for part in parts)
        return isinstance(node, ast.IfExp) and (self.are(node.body) or self.are(node.orelse))

    def _is_error(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Name) and node.id in self._errors

    def decided_by(self, node: ast.AST) -> bool:
        """Whether ``node`` is a decision by words."""
        if isinstance(node, ast.Compare):
            sides = zip(node.ops, node.comparators, strict=True)
            return any(isinstance(op, ast.In | ast.NotIn) and self.are(side) for op, side in sides)
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            return False
        if node.func.attr in _MATCHING:
            return any(self.are(argument) for argument in node.args)
        if not self.are(node.func.value):
            return False
        return node.func.attr in _LOOKING or (node.func.attr in _CUTTING and _written(node.args))


def _written(arguments: list[ast.expr]) -> bool:
    """Whether text is cut at something a person wrote; a line break is none."""
    texts = [each.value for node in arguments for each in ast.walk(node) if isinstance(each, ast.Constant)]
    return any(isinstance(text, str) and text.strip() for text in texts)


def test_nothing_is_decided_by_words() -> None:
    wrong = [
        f"{path}:{line} in {function}"
        for path in sorted(ROOT.rglob("*.py"))
        for function, line in decisions(path.read_text("utf-8"))
        if (path.relative_to(ROOT).as_posix(), function) not in ALLOWED
    ]
    assert not wrong, "decide by a kind, a number or a field instead: " + ", ".join(wrong)


@pytest.mark.parametrize(
    "line",
    [
        "return 'declares' in fault.reason",
        "return 'locked' not in str(error)",
        "return error.args[0].startswith('disk')",
        "return [note for note in notes if 'repair' in note]",
        "why = found.notes[0].removeprefix('index: ')",
        "text = str(error)\n    return 'No space' in text or other",
        "return any(text in str(error) for text in ('a', 'b'))",
        "return message.split(': ', 1)[-1]",
        "return any(reason.split(':', 1)[0] in kinds for reason in reasons)",
        "return row['reason'].lower().startswith('x')",
        "return re.search('cut off', fault.reason)",
        "return 'cut' in f'{error}'",
        "return helper(fault.reason)\ndef helper(text):\n    return 'cut' in text",
        "try:\n        pass\n    except OSError as odd:\n        return 'full' in str(odd)",
    ],
)
def test_decisions_by_words_are_found(line: str) -> None:
    assert list(decisions(f"def function(x):\n    {line}\n"))


@pytest.mark.parametrize(
    "line",
    [
        "return fault.kind is DataKind.TRUNCATED",
        "return row['reason'] in KINDS",
        "return verdict.reason == 'not_gzip'",
        "return f'{key}: {fault.reason}'",
        "return str(error).partition('\\n')[0]",
        "return key.startswith('crawl-data/')",
        "notes.append(f'{fault}')",
    ],
)
def test_other_uses_are_not(line: str) -> None:
    assert not list(decisions(f"def function(x):\n    {line}\n"))


def test_every_place_that_finds_damage_names_its_kind() -> None:
    """A literal kind is one of ``DataKind``; other first arguments are kinds passed on, which mypy sees to."""
    named = set()
    for text in (path.read_text("utf-8") for path in ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(text)) if "DataKind." in text else ():
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "DataKind":
                named.add(node.attr)
    assert named == set(DataKind.__members__), "a kind that nobody names is not needed"
    with pytest.raises(TypeError):
        DataFault("a source", None, "without a kind")
