"""What workers run with, asked before anything is done: the same modules of this package as the driver, or nothing.

The driver commits digests that name the parser's version; rows of another one would lie under them unnoticed. Two
builds of one version may differ too, so that what is in the modules is compared.
"""

from __future__ import annotations

import hashlib
import platform
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cc_pipeline
from cc_pipeline import COMPILED, __version__
from cc_pipeline.documents.schemas import PARSER_VERSION
from cc_pipeline.errors import EnvironmentFault

if TYPE_CHECKING:
    from pyspark import SparkContext


def here() -> dict[str, Any]:
    """What this process runs with: versions, a digest of the package's modules (empty where they are no files), where
    they lie, which parts are compiled."""
    return {
        "version": __version__,
        "parser": PARSER_VERSION,
        "modules": _digest(),
        "python": platform.python_version(),
        "folder": str(Path(cc_pipeline.__file__).parent),
        "compiled": [name for name in COMPILED if find_spec(f"cc_pipeline.{name}") is not None],
    }


@cache
def _digest() -> str:
    """Of names and bytes of all modules and what they go by: some 500 files, 30 ms, once a process."""
    root = Path(cc_pipeline.__file__).parent
    digest = hashlib.sha256()
    modules = sorted([*root.rglob("*.py"), *root.rglob("*.trees")])
    for path in modules:
        data = path.read_bytes()
        digest.update(f"{path.relative_to(root).as_posix()} {len(data)}\n".encode() + data)
    return digest.hexdigest()[:16] if modules else ""


def ask_workers(context: SparkContext, workers: int) -> dict[str, str]:
    """Asks ``workers`` tasks what they run with, and gives it in words.

    Raises ``EnvironmentFault`` where a worker has no cc_pipeline, or another version or build of it. The first
    tasks of a context have its executors started, so this costs what the job would pay anyway. Those that come later
    are asked by each task.
    """

    # nested, so that it travels whole: a worker that lacks the package can say so
    def look(rows: Iterable[int]) -> Iterator[dict[str, Any]]:
        del rows
        try:
            from cc_pipeline.extensions.spark.same_code import here as there  # noqa: PLC0415
        except ImportError as error:
            yield {"lacks": str(error), "executable": sys.executable}
        else:
            yield there()

    answers = context.parallelize(range(workers), workers).mapPartitions(look).collect()
    return in_words(answers, here())


def refuse_others(answers: list[dict[str, Any]], own: Mapping[str, Any]) -> None:
    """Raises ``EnvironmentFault`` for a worker that has no cc_pipeline, or another version or build of it than the
    driver, which has ``own``."""
    advice = (
        "Install the wheel (make wheel) in what the workers run with, and name its Python for them in PYSPARK_PYTHON; "
        "docs/scale.md says how."
    )
    for one in answers:
        if "lacks" in one:
            raise EnvironmentFault(f"a Spark worker ({one['executable']}) cannot run this: {one['lacks']}", advice)
        if (one["version"], one["parser"]) != (own["version"], own["parser"]):
            raise EnvironmentFault(
                f"a Spark worker has cc_pipeline {one['version']} with parser {one['parser']}, the driver "
                f"{own['version']} with parser {own['parser']}",
                advice,
            )
        # of a build that is not in plain files nothing is known
        if one["modules"] and own["modules"] and one["modules"] != own["modules"]:
            raise EnvironmentFault(
                f"a Spark worker has another build of cc_pipeline {own['version']} than the driver: modules in "
                f"{one['folder']} there and {own['folder']} here differ",
                f"Make one wheel of what the driver runs, and install it anew for both. {advice}",
            )


def in_words(answers: list[dict[str, Any]], own: Mapping[str, Any]) -> dict[str, str]:
    """The facts of workers that can work with a driver that has ``own``; raises as :func:`refuse_others` does."""
    refuse_others(answers, own)
    twins = sorted({name.rpartition(".")[2] for one in answers for name in COMPILED if name not in one["compiled"]})
    return {
        "cc_pipeline of the workers": own["version"],
        "Python of the workers": ", ".join(sorted({one["python"] for one in answers})),
        "compiled parts": "all" if not twins else f"Python twins in place of {', '.join(twins)}",
        "package of the workers": ", ".join(sorted({one["folder"] for one in answers})),
    }
