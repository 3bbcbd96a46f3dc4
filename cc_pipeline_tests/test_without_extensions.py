"""Each extension deleted from a copy of the checkout, and all of them: what is left is whole."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from cc_pipeline_tests.without import copy_without, own_extensions, python_in, run_in
from cc_pipeline_tests.world import ARC, NEW, OLD, Bucket

pytestmark = [pytest.mark.process, pytest.mark.timeout(1800)]
LINT = Path(sys.executable).with_name("lint-imports")
PYTEST = ("-m", "pytest", "-q", "-p", "no:cacheprovider")
#: Tests that hold lists against the tree.
STRUCTURE = ("names", "architecture", "links", "sharing", "settings", "declared_settings")
#: Tests of the core at each place where it asks extensions for something: definitions, tables, views and macros,
#: commands, formats, engines, kinds of index. All quick tests of the core take several times as long, and the other
#: ones ask no extension for anything.
JOINED = (
    "defs/test_conventions.py",
    "defs/test_engines.py",
    "defs/test_extensions.py",
    "defs/test_lineage.py",
    "defs/test_public_interface.py",
    "cli/test_extensions.py",
    "cli/test_manners.py",
    "cli/test_startup.py",
    "export",
    "index/test_locators.py",
    "publish",
    "upkeep/test_extension_tables.py",
)
QUICK = "not (process or browser or bomb or matrix)"
COMMAND = ("-c", "from cc_pipeline.cli import main; main()")
CRAWLS = (NEW, OLD, ARC)
#: What a run of the core materializes, from the index to the published file.
ASSETS = set(
    "crawls index_manifest index_footers row_groups captures records page_metadata page_text page_links feed_items "
    "warehouse".split()
)


@pytest.fixture(scope="module")
def home(bucket: Bucket, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home that all extensions have a part of."""
    folder = tmp_path_factory.mktemp("whole") / "home"
    root = Path(__file__).resolve().parents[1]
    python_in(root, *COMMAND, "run", "example.com", "-c", NEW, "--yes", "--home", folder, "--source", bucket[0])
    return folder


def is_whole(copy: Path) -> None:
    """Raises ``AssertionError`` where contracts, imports or tests of the structure do not hold in ``copy``."""
    run_in(copy, LINT, "--no-cache")
    imported = python_in(copy, "-c", "from cc_pipeline_tests.without import import_everything as all; all()")
    assert imported.strip() == str(copy), "the code of the copy was not asked"
    tests = [path for name in STRUCTURE if (path := copy / "cc_pipeline_tests" / f"test_{name}.py").exists()]
    python_in(copy, *PYTEST, *tests)


@pytest.mark.parametrize("name", own_extensions())
def test_what_is_left_without_one_is_whole(name: str, home: Path, bucket: Bucket, tmp_path: Path) -> None:
    copy = copy_without([name], tmp_path / "copy")
    is_whole(copy)
    python_in(copy, *COMMAND, "doctor", "--home", home, "--source", bucket[0])


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy without any extension of ours."""
    return copy_without(own_extensions(), tmp_path_factory.mktemp("core") / "copy")


def test_the_core_alone_is_whole(core: Path) -> None:
    is_whole(core)
    # every module of the core's tests is imported: none needs an extension
    python_in(core, *PYTEST, "--collect-only", "cc_pipeline_tests", "--ignore", "cc_pipeline_tests/extensions")


def test_the_core_alone_materializes_the_graph(core: Path, bucket: Bucket, tmp_path: Path) -> None:
    home = tmp_path / "home"
    materialized = (
        f"from cc_pipeline_tests.without import materialize_graph; materialize_graph({str(bucket[0])!r}, {str(home)!r})"
    )
    told = python_in(core, "-c", materialized)
    assert set(told.splitlines()[-1].removeprefix("assets: ").split()) == ASSETS
    rows = python_in(core, *COMMAND, "sql", "SELECT crawl, count(*) FROM captures GROUP BY 1", "--csv", "--home", home)
    counts = {crawl: str(len(bucket[1].of(crawl, subset="warc"))) for crawl in CRAWLS}
    assert dict(line.split(",") for line in rows.split()[1:]) == counts
    python_in(core, *COMMAND, "doctor", "--home", home, "--source", bucket[0])


def test_the_core_alone_makes_the_frozen_rows(core: Path) -> None:
    """Those of the larger mini crawl, in every table of the core."""
    told = python_in(core, *PYTEST, "cc_pipeline_tests/oracles/test_frozen.py", "-k", "frozen_ones and large", "-rA")
    assert "PASSED" in told or "the source has other bytes" in told


def test_quick_tests_of_the_core_alone(core: Path) -> None:
    """The quick tests of :data:`JOINED`."""
    python_in(core, *PYTEST, "-m", QUICK, *(f"cc_pipeline_tests/{place}" for place in JOINED))
