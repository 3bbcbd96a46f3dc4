"""Copies of this checkout without some of its extensions. What is left has to be whole."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from cc_pipeline.extension import collect, find_extensions

ROOT = Path(__file__).resolve().parents[1]
#: Compiled modules are copied too: to compile all of them anew takes longer than what is asked of a copy.
_LEFT_OUT = shutil.ignore_patterns(".*cache*", ".git", ".venv*", "*.egg-info", "build", "data", "dist", "results")
_BLOCK = re.compile(r"(?:^#.*\n)*^\[\[tool\.setuptools\.ext-modules\]\]\n(?:.+\n)*", re.MULTILINE)


def own_extensions() -> list[str]:
    """The names of this project's extensions, those that cannot be loaded among them."""
    return sorted(found.name for found in find_extensions() if found.origin == "cc_pipeline")


def copy_without(names: Iterable[str], to: Path) -> Path:
    """Copies the checkout to ``to``, which is not there yet. The extensions ``names`` are left out: their folders,
    tests, pages, compiled parts, extras, entry points, and lines of the first page that run their commands."""
    gone = set(names)
    commands = [f"cc-pipeline {command} " for name in gone for command in collect("commands").get(name, ())]
    shutil.copytree(ROOT, to, ignore=_LEFT_OUT)
    for name in gone:
        shutil.rmtree(to / "cc_pipeline" / "extensions" / name)
        shutil.rmtree(to / "cc_pipeline_tests" / "extensions" / name, ignore_errors=True)
        (to / "docs" / "extensions" / f"{name}.md").unlink(missing_ok=True)
    _rewrite(to / "docs" / "extensions.md", lambda text: _without_lines(text, (f"(extensions/{n}.md" for n in gone)))
    _rewrite(to / "README.md", lambda text: _without_lines(text, commands))
    _rewrite(to / "pyproject.toml", lambda text: _without_builds(text, gone))
    return to


def _rewrite(path: Path, change: Callable[[str], str]) -> None:
    path.write_text(change(path.read_text("utf-8")), "utf-8")


def _without_lines(text: str, words: Iterable[str]) -> str:
    some = [*words]
    return "".join(line for line in text.splitlines(keepends=True) if not any(word in line for word in some))


def _without_builds(text: str, gone: set[str]) -> str:
    """``pyproject.toml`` without compiled parts and entry points of ``gone``, and without extras of theirs alone."""
    modules = [f"cc_pipeline.extensions.{name}{end}" for name in gone for end in (".", ":", '"')]
    text = _BLOCK.sub(lambda block: "" if any(module in block[0] for module in modules) else block[0], text)
    needs = {found.name: set(found.value.needs.values()) for found in find_extensions() if found.value is not None}
    kept = {extra for name, extras in needs.items() if name not in gone for extra in extras}
    for extra in {extra for name in gone for extra in needs.get(name, ())} - kept:
        text = re.sub(rf"(?:^#.*\n)*^{re.escape(extra)} = \[.*\]\n", "", text, flags=re.MULTILINE)
    return _without_lines(text, modules)


def run_in(copy: Path, *command: object, **environment: str) -> str:
    """What a command printed that finds the code of ``copy`` and settings of nobody. Raises ``AssertionError`` with
    its output where it fails."""
    # a run of pytest in the copy is none of the workers of this one
    others = ("CC_PIPELINE_", "DAGSTER_", "PYTEST_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(others)}
    done = subprocess.run(
        [str(part) for part in command], cwd=copy, env=kept | {"PYTHONPATH": str(copy), "COLUMNS": "200"} | environment,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout[-6000:]}\n{done.stderr[-3000:]}"
    return done.stdout


def python_in(copy: Path, *arguments: object, **environment: str) -> str:
    """What Python printed, as :func:`run_in` gives it."""
    return run_in(copy, sys.executable, *arguments, **environment)


def import_everything() -> None:
    """Imports every module of the package. A module may lack what its extension says that it needs."""
    import pkgutil  # noqa: PLC0415 -- this is called in a process of its own
    from importlib import import_module  # noqa: PLC0415

    import cc_pipeline  # noqa: PLC0415

    missing = {found.name: found.value.missing for found in find_extensions() if found.value is not None}
    for module in pkgutil.walk_packages(cc_pipeline.__path__, "cc_pipeline."):
        if module.name.endswith(".__main__"):
            continue
        _, _, below = module.name.partition("cc_pipeline.extensions.")
        try:
            import_module(module.name)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] not in missing.get(below.partition(".")[0], {}):
                raise
    print(Path(cc_pipeline.__file__).parents[1])


def materialize_graph(source: str, home: str) -> None:
    """Materializes the graph of all domains in all crawls of a mini crawl, as the demo does; prints the assets that
    Dagster's records then have, one a line."""
    from cc_pipeline.api.target_runs import materialize  # noqa: PLC0415
    from cc_pipeline.commoncrawl.target_text import parse_target  # noqa: PLC0415
    from cc_pipeline.defs.instance import open_instance  # noqa: PLC0415
    from cc_pipeline.settings import load_settings  # noqa: PLC0415
    from cc_pipeline.testing.mini_crawl.generate import ensure  # noqa: PLC0415
    from cc_pipeline.testing.mini_crawl.spec import TEST  # noqa: PLC0415

    truth = ensure(Path(source), TEST)
    settings = load_settings({}, source=source, home=home)
    crawls = [crawl for crawl in truth.crawls if truth.captures_of(crawl)]
    trouble = materialize(settings, crawls, [parse_target(domain) for domain in truth.domains()])
    if trouble is not None:
        raise trouble
    with open_instance(settings) as instance:
        keys = [key for key in instance.get_asset_keys() if instance.get_latest_materialization_event(key) is not None]
    print("assets:", *sorted(key.to_user_string() for key in keys))
