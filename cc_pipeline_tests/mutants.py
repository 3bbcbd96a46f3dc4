"""Mutants of pure rooms: how many of their small wrong changes do the tests notice?

``python -m cc_pipeline_tests.mutants [ROOM…]`` for rooms of :data:`ROOMS` (all of them if none is named), or
``python -m cc_pipeline_tests.mutants MODULE.py… TEST…``; with ``--count N --seed S`` for a sample of each room.

A mutant is one small change of one module. A forked process imports it in place of the module and runs the tests until
one fails. Files are not changed. Processes that a test starts import the modules as they are. Prints each mutant that
no test notices, and the share that is noticed. Not every survivor wants a test: some changes change no result.
"""

from __future__ import annotations

import argparse
import ast
import copy
import importlib.machinery
import importlib.util
import os
import random
import resource
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).parents[1]


class Room(NamedTuple):
    """Modules below ``cc_pipeline``, and the tests below ``cc_pipeline_tests`` that hold them."""

    modules: tuple[str, ...]
    tests: tuple[str, ...]


ROOMS: dict[str, Room] = {
    "plan": Room(("extraction/plan.py",), ("extraction/test_plan.py",)),
    "faults": Room(
        ("transport/faults.py", "transport/host_state.py"),
        ("transport/test_faults.py", "transport/test_refusals.py", "records/test_fault_docs.py"),
    ),
    "ranges": Room(("records/range_plan.py",), ("records/test_range_plan.py", "records/test_places.py")),
    "keys": Room(
        (
            *("commoncrawl/surt.py", "commoncrawl/key_ranges.py", "commoncrawl/slice_slugs.py"),
            *("commoncrawl/target.py", "commoncrawl/target_text.py", "commoncrawl/matching.py"),
        ),
        (
            *("commoncrawl/test_surt.py", "commoncrawl/test_btree_keys.py", "commoncrawl/test_target_ranges.py"),
            *("commoncrawl/test_targets.py", "commoncrawl/test_matching.py"),
        ),
    ),
    "catalog": Room(("index/catalog/catalog.py", "index/catalog/rows.py"), ("index/catalog",)),
    "charset": Room(
        ("documents/charset.py",),
        ("documents/test_charset.py", "documents/test_encoding_standard.py", "documents/test_body.py"),
    ),
    "links": Room(
        ("documents/html/urls.py", "documents/html/links.py"),
        ("documents/html/test_urls.py", "documents/html/test_links.py", "documents/about/test_relations.py"),
    ),
}

#: Hostile input and other processes cost more than they tell here.
_OPTIONS = (
    *"-x -s -qq -n0 -p no:cacheprovider -p no:timeout --hypothesis-profile=ci".split(),
    *("-m", "not (process or browser or bomb)"),
)
#: A process with a mutant ends after so many seconds, and a quarter of them of a processor.
_LONGEST = 1200
#: By operator, the one that takes its place, and the other way round.
_PAIRS: tuple[tuple[type[ast.AST], type[ast.AST]], ...] = (
    *((ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Eq, ast.NotEq), (ast.In, ast.NotIn), (ast.Is, ast.IsNot)),
    *((ast.Add, ast.Sub), (ast.Mult, ast.FloorDiv), (ast.BitOr, ast.BitAnd), (ast.LShift, ast.RShift)),
)
_OPERATORS: dict[type[ast.AST], type[Any]] = {**dict(_PAIRS), **{second: first for first, second in _PAIRS}}


class Mutant(NamedTuple):
    """A changed module: its file, the change in words, and the compiled module."""

    path: Path
    change: str
    code: CodeType


def make_mutants(path: Path) -> Iterator[Mutant]:
    """All mutants of the module in a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for put, node in _find_places(tree):
        for changed in _change_expression(node) if isinstance(node, ast.expr) else _change_statement(node):
            put(ast.fix_missing_locations(ast.copy_location(changed, node)))
            code = compile(tree, str(path), "exec")
            put(node)
            words = f"{node.lineno}: {ast.unparse(node)[:70]!r} -> {ast.unparse(changed)[:70]!r}"
            yield Mutant(path, words, code)


def _find_places(parent: ast.AST) -> Iterator[tuple[Callable[[ast.AST], None], ast.expr | ast.stmt]]:
    """The expressions and statements below a node that may be changed, each with a function that puts another one in
    its place: no types, documentation, imports, assertions (``strict=True`` of ``zip`` too) and texts of errors."""
    if isinstance(parent, ast.JoinedStr) or (isinstance(parent, ast.Expr) and isinstance(parent.value, ast.Constant)):
        return
    if isinstance(parent, ast.If | ast.keyword) and ast.unparse(parent).startswith(("if TYPE_CHECKING:", "strict=")):
        return
    for field, value in ast.iter_fields(parent):
        if field in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        is_list = isinstance(value, list)
        for index, node in enumerate(value if is_list else [value]):
            put = partial(value.__setitem__, index) if is_list else partial(setattr, parent, field)
            if not isinstance(node, ast.AST) or isinstance(node, ast.Import | ast.ImportFrom | ast.Assert):
                continue
            if isinstance(node, ast.expr | ast.stmt):
                yield put, node
            if not isinstance(node, ast.Raise):
                yield from _find_places(node)


def _change_expression(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.Compare):
        for place, operator in enumerate(node.ops):
            changed = copy.copy(node)
            changed.ops = [*node.ops[:place], _OPERATORS[type(operator)](), *node.ops[place + 1 :]]
            yield changed
    elif isinstance(node, ast.BoolOp):
        yield ast.BoolOp(ast.And() if isinstance(node.op, ast.Or) else ast.Or(), node.values)
    elif isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        yield ast.BinOp(node.left, _OPERATORS[type(node.op)](), node.right)
    elif isinstance(node, ast.Constant):
        if isinstance(node.value, bool):
            yield ast.Constant(not node.value)
        elif isinstance(node.value, int | float):
            yield ast.Constant(node.value + 1)
        elif isinstance(node.value, str) and node.value and node.value.count(" ") <= 1:
            yield ast.Constant(node.value + "~x")


def _change_statement(node: ast.stmt) -> Iterator[ast.stmt]:
    if isinstance(node, ast.If | ast.While) and isinstance(node.test, ast.Name | ast.Call | ast.Attribute):
        changed = copy.copy(node)
        changed.test = ast.UnaryOp(ast.Not(), node.test)
        yield changed
    elif isinstance(node, ast.Return) and ast.unparse(node) not in ("return", "return None"):
        yield ast.Return(ast.Constant(None))
    elif isinstance(node, ast.Raise | ast.AugAssign | ast.Continue | ast.Break) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    ):
        yield ast.Pass()


class _MutantImporter(importlib.machinery.SourceFileLoader):
    """Finds and imports a mutant in place of its module."""

    def __init__(self, mutant: Mutant) -> None:
        super().__init__(".".join(mutant.path.relative_to(ROOT).with_suffix("").parts), str(mutant.path))
        self._code = mutant.code

    def find_spec(self, fullname: str, path: object, target: object = None) -> importlib.machinery.ModuleSpec | None:
        return importlib.util.spec_from_loader(fullname, self) if fullname == self.name else None

    def get_code(self, fullname: str) -> CodeType:
        return self._code


def passes(mutant: Mutant, tests: Sequence[str]) -> bool:
    """Whether the tests pass on a mutant, in a forked process; false if they take too long."""
    if (child := os.fork()) == 0:
        passed = False
        try:
            for stream in (0, 1, 2):
                os.dup2(os.open(os.devnull, os.O_RDWR), stream)
            resource.setrlimit(resource.RLIMIT_CPU, (_LONGEST // 4, _LONGEST // 4))
            signal.alarm(_LONGEST)
            sys.meta_path.insert(0, _MutantImporter(mutant))
            passed = pytest.main([*_OPTIONS, *tests]) == pytest.ExitCode.OK
        finally:
            os._exit(0 if passed else 1)
    _, status = os.waitpid(child, 0)
    return status == 0


def measure(room: Room, count: int | None, seed: int) -> None:
    """Runs a room's tests on its mutants, or on ``count`` of them; prints survivors, and the share of the others."""
    paths = [ROOT / "cc_pipeline" / module for module in room.modules]
    tests = [str(ROOT / "cc_pipeline_tests" / test) for test in room.tests]
    if not passes(Mutant(paths[0], "", compile(paths[0].read_bytes(), paths[0], "exec")), tests):
        sys.exit("no tests, or tests that fail with the modules as they are")
    mutants = [mutant for path in paths for mutant in make_mutants(path)]
    mutants = random.Random(seed).sample(mutants, min(count or len(mutants), len(mutants)))
    noticed = len(mutants)
    for mutant in mutants:
        if passes(mutant, tests):
            noticed -= 1
            print(f"survived {mutant.path.relative_to(ROOT)}:{mutant.change}", flush=True)
    print(f"{noticed} of {len(mutants)} mutants of {' '.join(room.modules)} noticed ({noticed / len(mutants):.1%})")


def main() -> None:
    """Measures the rooms, or the modules and tests, that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="ROOM | MODULE | TEST", help="rooms: " + ", ".join(ROOMS))
    parser.add_argument("--count", type=int, help="mutants of a sample")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    # what each process would import anew
    for library in ("hypothesis", "numpy", "pyarrow.compute", "pyarrow.parquet", "duckdb"):
        importlib.import_module(library)
    names = options.names
    modules = tuple(name.removeprefix("cc_pipeline/") for name in names if name.startswith("cc_pipeline/"))
    tests = tuple(name.removeprefix("cc_pipeline_tests/") for name in names if name.startswith("cc_pipeline_tests/"))
    for room in [Room(modules, tests)] if modules else [ROOMS[name] for name in names or ROOMS]:
        measure(room, options.count, options.seed)


if __name__ == "__main__":
    main()
