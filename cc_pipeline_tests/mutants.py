"""Mutants of pure rooms: how many of their small wrong changes do the tests notice?

``python -m cc_pipeline_tests.mutants [ROOM…]`` for rooms of :data:`ROOMS` (all of them if none is named), or
``python -m cc_pipeline_tests.mutants MODULE.py… TEST…``; with ``--count N --seed S`` for a sample of each room.

A mutant is one small change of one module. The tests run once in a traced process, which says the lines that each one
reaches. Then each mutant gets a forked process, in which the tests that reach its line run until one fails. A change
inside a function replaces the code of the function; any other one, and one that no test reaches, is imported with all
modules of this project anew. Files are not changed. Processes that a test starts import the modules as they are.

Prints each mutant that no test notices, and the share that is noticed. Not every survivor wants a test: some changes
change no result.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import gc
import importlib.abc
import importlib.machinery
import importlib.util
import os
import pickle
import random
import resource
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

import pytest
from hypothesis import settings

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Room:
    """Modules below ``cc_pipeline``, and the tests below ``cc_pipeline_tests`` that hold them."""

    modules: tuple[str, ...]
    tests: tuple[str, ...]


ROOMS: dict[str, Room] = {
    "plan": Room(("extraction/plan.py",), ("extraction/test_plan.py",)),
    "faults": Room(
        ("transport/faults.py", "transport/host_state.py"),
        ("transport/test_faults.py", "transport/test_refusals.py"),
    ),
    "ranges": Room(("records/range_plan.py",), ("records/test_range_plan.py",)),
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
        ("documents/html/test_urls.py", "documents/html/test_links.py"),
    ),
}

#: Hostile input and other processes cost more than they tell here.
_OPTIONS = (
    *"-s -qq -n0 --no-header --no-summary -p no:cacheprovider -p no:timeout".split(),
    *("-m", "not (process or browser or bomb)"),
)
#: A process with a mutant ends after so many seconds of a processor for each one of the unchanged tests, plus ten; or
#: after so many seconds if it waits for ever; or if it takes so many bytes more.
_SLOWER, _LONGEST, _MEMORY = 10, 3600, 4 << 30
#: A text with so many spaces is for people.
_WORDS = 2
_PAIRS: tuple[tuple[type[ast.AST], type[ast.AST]], ...] = (
    *((ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Eq, ast.NotEq), (ast.In, ast.NotIn), (ast.Is, ast.IsNot)),
    *((ast.Add, ast.Sub), (ast.Mult, ast.FloorDiv), (ast.BitOr, ast.BitAnd), (ast.LShift, ast.RShift)),
)
#: By operator, the one that takes its place.
_OPERATORS: dict[type[ast.AST], type[Any]] = {
    **dict(_PAIRS),
    **{second: first for first, second in _PAIRS},
    ast.Mod: ast.Add,
}


@dataclass(frozen=True, slots=True)
class Mutant:
    """A changed module: its file, the lines of the changed statement, the change in words, and the compiled module."""

    path: str
    lines: range
    change: str
    is_in_function: bool
    code: CodeType


@dataclass(frozen=True, slots=True)
class _Place:
    """A node of a module's tree, and where it is: in a field of another one, in a statement."""

    parent: ast.AST
    field: str
    index: int | None
    node: ast.expr | ast.stmt
    lines: range
    is_in_function: bool

    def put(self, node: ast.AST) -> None:
        """Puts another node at this place."""
        if self.index is None:
            setattr(self.parent, self.field, node)
        else:
            getattr(self.parent, self.field)[self.index] = node


def make_mutants(path: Path) -> Iterator[Mutant]:
    """All mutants of the module in a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for place in _find_places(tree, range(0), is_in_function=False):
        node = place.node
        for changed in _change_expression(node) if isinstance(node, ast.expr) else _change_statement(node):
            place.put(ast.fix_missing_locations(ast.copy_location(changed, node)))
            code = compile(tree, str(path), "exec")
            place.put(node)
            words = f"{node.lineno}: {ast.unparse(node)[:70]!r} -> {ast.unparse(changed)[:70]!r}"
            yield Mutant(str(path), place.lines, words, place.is_in_function, code)


def _find_places(parent: ast.AST, lines: range, is_in_function: bool) -> Iterator[_Place]:
    """The expressions and statements below a node that may be changed: no types, documentation, imports, assertions
    and texts of errors."""
    for field, value in ast.iter_fields(parent):
        if field in ("annotation", "returns", "decorator_list", "type_params") or isinstance(parent, ast.JoinedStr):
            continue
        within = is_in_function or (field == "body" and isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef))
        for index, node in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if not isinstance(node, ast.AST) or _is_left_alone(node):
                continue
            if isinstance(node, ast.stmt):
                lines = _lines_of(node)
            if isinstance(node, ast.expr | ast.stmt):
                yield _Place(parent, field, index, node, lines, within)
            if not isinstance(node, ast.Raise):
                yield from _find_places(node, lines, within)


def _is_left_alone(node: ast.AST) -> bool:
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    return isinstance(node, ast.Import | ast.ImportFrom | ast.Assert) or (
        isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
    )


def _lines_of(node: ast.stmt) -> range:
    """The lines of a statement, without those of the statements in it."""
    body = getattr(node, "body", None)
    end = body[0].lineno if isinstance(body, list) and body else (node.end_lineno or node.lineno) + 1
    return range(node.lineno, max(end, node.lineno + 1))


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
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node.operand
    elif isinstance(node, ast.IfExp):
        yield ast.IfExp(node.test, node.orelse, node.body)
    elif isinstance(node, ast.Constant):
        if isinstance(node.value, bool):
            yield ast.Constant(not node.value)
        elif isinstance(node.value, int | float):
            yield ast.Constant(node.value + 1)
        elif isinstance(node.value, str) and node.value and node.value.count(" ") < _WORDS:
            yield ast.Constant(node.value + "~")
        elif isinstance(node.value, bytes) and node.value:
            yield ast.Constant(node.value + b"~")


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


class _Lines:
    """The lines of some files with the numbers of the tests that run them, and each test's seconds of a processor."""

    def __init__(self, paths: Sequence[str]) -> None:
        self.tests: dict[tuple[str, int], set[int]] = {}
        self.seconds: list[float] = []
        self._paths = frozenset(paths)
        self._caches = [cached for cached in gc.get_objects() if isinstance(cached, type(cache(min)))]

    def trace(self, test: Callable[[], object]) -> None:
        """Runs the next test."""
        begin = time.process_time()
        for cached in self._caches:
            cached.cache_clear()
        threading.settrace(self._enter)
        sys.settrace(self._enter)
        try:
            test()
        finally:
            sys.settrace(None)
            self.seconds.append(time.process_time() - begin)

    def _enter(self, frame: FrameType, event: str, argument: object) -> Callable[..., Any] | None:
        return self._line if frame.f_code.co_filename in self._paths else None

    def _line(self, frame: FrameType, event: str, argument: object) -> Callable[..., Any]:
        self.tests.setdefault((frame.f_code.co_filename, frame.f_lineno), set()).add(len(self.seconds))
        return self._line


class _FewExamples:
    """A plugin of pytest: a mutant that survives costs all examples, and one that dies mostly dies early."""

    def pytest_configure(self) -> None:
        """Takes fifteen examples, the same ones for each mutant."""
        settings.register_profile("mutants", settings.get_profile("ci"), max_examples=15)
        settings.load_profile("mutants")


class _Mutation(_FewExamples):
    """A plugin of pytest: in place of running the tests, runs them on mutants."""

    def __init__(self, mutants: Sequence[Mutant], arguments: Sequence[str]) -> None:
        self.survivors: list[Mutant] = []
        self._mutants = mutants
        self.arguments = arguments
        self._failed = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Notes that a test failed."""
        self._failed = self._failed or report.failed

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Runs the tests as they are, then on each mutant."""
        reached, seconds = self._trace(session)
        longest = 10 + int(_SLOWER * sum(seconds))
        path = Path(self._mutants[0].path)
        unchanged = Mutant(str(path), range(0), "", False, compile(path.read_bytes(), path, "exec"))
        if not _run_forked(partial(self._passes_on, unchanged, ()), longest):
            sys.exit("the tests fail when all modules are imported anew")
        for mutant in self._mutants:
            tests: set[int] = set()
            if mutant.is_in_function:
                tests = tests.union(*(reached.get((mutant.path, line), ()) for line in mutant.lines))
            items = [session.items[number] for number in sorted(tests, key=seconds.__getitem__)]
            if _run_forked(partial(self._passes_on, mutant, items), longest):
                self.survivors.append(mutant)
                print(f"survived{'' if items else ' unreached'} {mutant.path}:{mutant.change}", flush=True)
        return True

    def _trace(self, session: pytest.Session) -> tuple[dict[tuple[str, int], set[int]], list[float]]:
        """The tests by line, and the seconds of a processor that each one takes, traced."""
        paths = sorted({mutant.path for mutant in self._mutants})
        with tempfile.NamedTemporaryFile() as file:

            def trace() -> bool:
                lines = _Lines(paths)
                for number, item in enumerate(session.items):
                    lines.trace(partial(self._run, item, session.items[number + 1 : number + 2]))
                Path(file.name).write_bytes(pickle.dumps((lines.tests, lines.seconds)))
                return not self._failed

            if not (session.items and _run_forked(trace, _LONGEST)):
                sys.exit("no tests, or tests that fail with the modules as they are")
            return pickle.loads(Path(file.name).read_bytes())

    def _passes_on(self, mutant: Mutant, items: Sequence[pytest.Item]) -> bool:
        if items:
            _replace_functions(mutant)
            return not any(self._run(item, items[number + 1 : number + 2]) for number, item in enumerate(items))
        for name in [name for name in sys.modules if name.startswith("cc_pipeline")]:
            del sys.modules[name]
        sys.meta_path.insert(0, _MutantFinder(mutant))
        return pytest.main(["-x", *self.arguments], plugins=[_FewExamples()]) == pytest.ExitCode.OK

    def _run(self, item: pytest.Item, following: Sequence[pytest.Item]) -> bool:
        """Runs a test, before those that follow; whether one has failed by now."""
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following[0] if following else None)
        return self._failed


def _run_forked(function: Callable[[], bool], seconds: int) -> bool:
    """What ``function`` returns in a forked process; false if it fails there, or takes too long or too much."""
    child = os.fork()
    if child == 0:
        passed = False
        try:
            os.setpgid(0, 0)
            null = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):
                os.dup2(null, stream)
            resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
            pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
            bound = pages * resource.getpagesize() + _MEMORY
            resource.setrlimit(resource.RLIMIT_AS, (bound, bound))
            signal.alarm(_LONGEST)
            passed = function()
        finally:
            os._exit(0 if passed else 1)
    _, status = os.waitpid(child, 0)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    return status == 0


def _replace_functions(mutant: Mutant) -> None:
    """Gives all functions of the module the code that they have in the mutant."""
    codes = {(code.co_qualname, code.co_firstlineno): code for code in _nested_codes(mutant.code)}
    for function in gc.get_objects():
        if isinstance(function, FunctionType) and function.__code__.co_filename == mutant.path:
            code = codes.get((function.__code__.co_qualname, function.__code__.co_firstlineno))
            if code is not None and code.co_freevars == function.__code__.co_freevars:
                function.__code__ = code


def _nested_codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _nested_codes(constant)


class _MutantFinder(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Imports a mutant in place of its module."""

    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant
        self._name = ".".join(Path(mutant.path).relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The mutant for its module's name."""
        if fullname != self._name:
            return None
        return importlib.util.spec_from_file_location(fullname, self._mutant.path, loader=self)

    def get_code(self, fullname: str) -> CodeType:
        """The compiled mutant."""
        return self._mutant.code

    def get_source(self, fullname: str) -> str:
        """The source of the module as it is."""
        return Path(self._mutant.path).read_text(encoding="utf-8")


def measure(room: Room, count: int | None, seed: int) -> None:
    """Runs the tests of a room on its mutants, or on ``count`` of them, and prints those that survive, and the share of
    the others."""
    mutants = [mutant for module in room.modules for mutant in make_mutants(ROOT / "cc_pipeline" / module)]
    if count is not None and count < len(mutants):
        mutants = [mutants[place] for place in sorted(random.Random(seed).sample(range(len(mutants)), count))]
    mutation = _Mutation(mutants, [*_OPTIONS, *(str(ROOT / "cc_pipeline_tests" / test) for test in room.tests)])
    pytest.main(mutation.arguments, plugins=[mutation])
    noticed = len(mutants) - len(mutation.survivors)
    print(f"{noticed} of {len(mutants)} mutants noticed ({noticed / len(mutants):.1%})", flush=True)


def main() -> None:
    """Measures the rooms, or the modules and tests, that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="ROOM | MODULE | TEST", help="rooms: " + ", ".join(ROOMS))
    parser.add_argument("--count", type=int, help="mutants of a sample")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    below = [name.partition("/") for name in options.names]
    modules = tuple(path for folder, _, path in below if folder == "cc_pipeline")
    tests = tuple(path for folder, _, path in below if folder == "cc_pipeline_tests")
    rooms = {"": Room(modules, tests)} if modules else {name: ROOMS[name] for name in options.names or ROOMS}
    for name, room in rooms.items():
        print(f"{name}: {' '.join(room.modules)}", flush=True)
        measure(room, options.count, options.seed)


if __name__ == "__main__":
    main()
