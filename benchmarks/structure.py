"""How large the core and each extension are, which rooms import which, and how much a small run loads.

    python -m benchmarks.structure                  this checkout
    python -m benchmarks.structure ../older         another one beside it: run with the libraries of this environment

A room is a folder or module right below ``cc_pipeline``, or an extension. An arrow is a pair of rooms of which one
imports the other anywhere but for types alone; a mutual pair has both arrows.
"""

from __future__ import annotations

import argparse
import ast
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from cc_pipeline.testing.mini_crawl.generate import ensure
from cc_pipeline.testing.mini_crawl.spec import TEST

_CRAWL = "CC-MAIN-2024-22"
_CAPTURES = 4
_ENDS = {".py", ".c", ".h"}
_RUN = """
import atexit, sys
atexit.register(lambda: print(len(sys.modules), sum(name.split(".")[0] == "cc_pipeline" for name in sys.modules), file=sys.__stderr__))
from cc_pipeline.cli import main
main()
"""  # noqa: E501


def room_of(module: str) -> str:
    """The room of ``cc_pipeline.…``; the package itself is one too."""
    parts = module.split(".")
    return ".".join(parts[1:3]) if parts[1:2] == ["extensions"] else ".".join(parts[1:2]) or "cc_pipeline"


def lines_by_room(package: Path) -> Counter[str]:
    """Lines of Python and C of each room."""
    found: Counter[str] = Counter()
    for path in package.rglob("*"):
        if path.suffix in _ENDS:
            found[room_of(_module(package, path))] += len(path.read_text("utf-8").splitlines())
    return found


def arrows(package: Path) -> set[tuple[str, str]]:
    """Each room that imports another, with that one."""
    found = set()
    for path in package.rglob("*.py"):
        module = _module(package, path)
        for name in _imported(ast.parse(path.read_text("utf-8")), module):
            if name.split(".")[0] == package.name:
                found.add((room_of(module), room_of(name)))
    return {(of, to) for of, to in found if of != to}


def _module(package: Path, path: Path) -> str:
    return ".".join(path.relative_to(package.parent).with_suffix("").parts).removesuffix(".__init__")


def _imported(node: ast.AST, module: str) -> Iterator[str]:
    """The modules that code imports, wherever it does, but for types alone."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        if isinstance(child, ast.Import):
            yield from (one.name for one in child.names)
        elif isinstance(child, ast.ImportFrom) and not child.level and child.module:
            # `from cc_pipeline import progress` names a room too
            yield from (
                [f"{child.module}.{one.name}" for one in child.names]
                if child.module == "cc_pipeline"
                else [child.module]
            )
        yield from _imported(child, module)


def modules_of_a_run(checkout: Path) -> tuple[int, int, int]:
    """How many captures a small target has, how many modules a run of it loads, and how many of those are ours."""
    with tempfile.TemporaryDirectory(prefix="structure-") as folder:
        truth = ensure(Path(folder) / "bucket", TEST)
        sizes = {name: len(truth.captures_of(_CRAWL, domain=name, subset="warc")) for name in truth.domains()}
        target = min((name for name in sizes if sizes[name]), key=lambda name: (abs(sizes[name] - _CAPTURES), name))
        places = ("--home", f"{folder}/home", "--source", f"{folder}/bucket")
        command = [sys.executable, "-c", _RUN, "run", target, "-c", _CRAWL, "--yes", *places]
        environment = os.environ | {"PYTHONPATH": str(checkout)}
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
        loaded, own = done.stderr.split()[-2:]
        return sizes[target], int(loaded), int(own)


def main() -> None:
    """Prints a line a figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", nargs="?", type=Path, default=Path(__file__).resolve().parents[1])
    checkout = parser.parse_args().checkout.resolve()
    package = checkout / "cc_pipeline"
    lines, found = lines_by_room(package), arrows(package)
    extensions = {room: count for room, count in lines.items() if room.startswith("extensions.")}
    print(
        f"lines of the core: {lines.total() - sum(extensions.values()):,}; of extensions: {sum(extensions.values()):,}"
    )
    for room, count in lines.most_common():
        print(f"  {room:<28}{count:>8,}")
    mutual = sorted({tuple(sorted(pair)) for pair in found if pair[::-1] in found})
    inside = {pair for pair in found if not pair[0].startswith("extensions")}
    print(f"rooms: {len(lines)}; arrows: {len(found)}, {len(inside)} of them of the core; mutual pairs: {len(mutual)}")
    for one, other in mutual:
        print(f"  {one} and {other}")
    captures, loaded, own = modules_of_a_run(checkout)
    print(f"modules that a run of {captures} captures loads: {loaded:,}, of which {own:,} are ours")


if __name__ == "__main__":
    main()
