"""Checks that workers run the same code as the driver before any task: the same modules of this package, the same
versions of the libraries that affect rows, the same compiled parts.

The driver commits digests that contain the parser's version. Rows of another parser, or of another version of a library
that decodes or parses, would be stored under these digests unnoticed.
"""

from __future__ import annotations

import hashlib
import platform
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import cc_pipeline
from cc_pipeline import COMPILED, __version__
from cc_pipeline.documents.schemas import PARSER_VERSION
from cc_pipeline.errors import EnvironmentFault

if TYPE_CHECKING:
    from pyspark import SparkContext

#: Distributions whose versions affect rows: libraries that read archives, decode, parse, detect and write tables, and
#: the dependencies that they do this with.
ROW_LIBRARIES: Final = (
    "can-ada", "cramjam", "deltalake", "endec", "idna", "isal", "lxml", "numpy", "publicsuffixlist", "pyarrow",
    "pycld2", "pypdfium2", "python-dateutil", "resiliparse", "selectolax", "warcio",
)  # fmt: skip
#: The version of a library that is not installed.
_NOT_INSTALLED: Final = "none"


def describe_process() -> dict[str, Any]:
    """The code of this process: versions, a digest of the package's modules (empty if they are not files), their
    folder, the compiled parts, the versions of ``ROW_LIBRARIES``.
    """
    return {
        "version": __version__,
        "parser": PARSER_VERSION,
        "modules": _digest(),
        "python": platform.python_version(),
        "folder": str(Path(cc_pipeline.__file__).parent),
        "compiled": [name for name in COMPILED if find_spec(f"cc_pipeline.{name}") is not None],
        "libraries": _libraries(),
    }


@cache
def _libraries() -> dict[str, str]:
    """Reads some 16 installed metadata files, in 4 ms, once a process."""
    return {name: _version(name) for name in ROW_LIBRARIES}


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return _NOT_INSTALLED


@cache
def _digest() -> str:
    """A digest of names and bytes of all modules and their data files: some 500 files, 30 ms, once a process."""
    root = Path(cc_pipeline.__file__).parent
    digest = hashlib.sha256()
    modules = sorted([*root.rglob("*.py"), *root.rglob("*.trees")])
    for path in modules:
        data = path.read_bytes()
        digest.update(f"{path.relative_to(root).as_posix()} {len(data)}\n".encode() + data)
    return digest.hexdigest()[:16] if modules else ""


def check_worker_processes(context: SparkContext, workers: int) -> None:
    """Asks ``workers`` tasks for their code.

    Raises ``EnvironmentFault`` for a worker that :func:`check_processes` refuses. The first tasks of a context start
    its executors, so this costs no extra time. Executors that start later are checked by each task."""

    # A nested function is pickled as a whole, so a worker without the package can report that.
    def describe_worker(rows: Iterable[int]) -> Iterator[dict[str, Any]]:
        del rows
        try:
            from cc_pipeline.extensions.spark.code_check import describe_process as there  # noqa: PLC0415
        except ImportError as error:
            yield {"lacks": str(error), "executable": sys.executable}
        else:
            yield there()

    answers = context.parallelize(range(workers), workers).mapPartitions(describe_worker).collect()
    check_processes(answers, describe_process())


def check_processes(answers: list[dict[str, Any]], driver: Mapping[str, Any]) -> None:
    """Raises ``EnvironmentFault`` for a worker that would make other rows than the ``driver``, or the same rows many
    times slower. The message has all differences, with both versions.
    """
    advice = (
        "Make one wheel (make wheel), and install dist/requirements.txt and the wheel for driver and workers. "
        "PYSPARK_PYTHON names the workers' Python; docs/extensions/spark.md says how."
    )
    for worker in answers:
        if "lacks" in worker:
            raise EnvironmentFault(
                f"a Spark worker ({worker['executable']}) cannot run the job: {worker['lacks']}", advice
            )
        if differences := list(_differences(worker, driver)):
            raise EnvironmentFault(
                f"a Spark worker does not match the driver, so its rows would differ or take many times as long: "
                f"{'; '.join(differences)}",
                advice,
            )


def _differences(worker: Mapping[str, Any], driver: Mapping[str, Any]) -> Iterator[str]:
    def differ(name: str, worker_text: str, driver_text: str) -> str:
        return f"{name} is {worker_text} there and {driver_text} here"

    if (worker["version"], worker["parser"]) != (driver["version"], driver["parser"]):
        texts = [f"{process['version']} with parser {process['parser']}" for process in (worker, driver)]
        yield differ("cc_pipeline", *texts)
    # A build that is not in plain files has no digest to compare.
    elif worker["modules"] and driver["modules"] and worker["modules"] != driver["modules"]:
        yield f"another build of cc_pipeline {driver['version']}, {worker['folder']} there and {driver['folder']} here"
    if _minor(worker["python"]) != _minor(driver["python"]):
        yield differ("Python", worker["python"], driver["python"])
    for name, driver_version in driver["libraries"].items():
        if (worker_version := worker["libraries"].get(name, _NOT_INSTALLED)) != driver_version:
            yield differ(name, worker_version, driver_version)
    if missing := [name.rpartition(".")[2] for name in driver["compiled"] if name not in worker["compiled"]]:
        yield f"compiled parts are missing there, so pages would take many times as long: {', '.join(missing)}"


def _minor(python: str) -> list[str]:
    return python.split(".")[:2]
