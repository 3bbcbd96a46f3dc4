"""Each extension deleted from a copy of the checkout, and all of them: what is left is whole.

Without one extension contracts, lists and ``doctor`` hold. Without any of them all modules can also be imported, and
the core materializes its graph on a small bucket and passes :data:`QUICK_TESTS`: some quick tests of extraction, index,
records, lake, maintenance, publish and the command line, and those at places where the core asks extensions for
something. All quick tests of the core would take minutes more."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cc_pipeline_tests.without import copy_without, own_extensions, python_in, run_in
from cc_pipeline_tests.world import ARC, NEW, OLD, Bucket

pytestmark = [pytest.mark.process, pytest.mark.timeout(900)]
LINT = Path(sys.executable).with_name("lint-imports")
PYTEST = ("-m", "pytest", "-q", "-p", "no:cacheprovider")
#: Tests that hold lists against the tree.
STRUCTURE = ("names", "architecture", "links", "settings", "declared_settings")
QUICK_TESTS = (
    "test_extension.py",
    "index/test_locators.py",
    "index/test_locators_choice.py",
    "records/test_check.py",
    "records/test_reading.py",
    "lake/test_replacing.py",
    "extraction/test_extract.py",
    "publish/test_additions.py",
    "publish/test_publish.py::test_an_empty_home_publishes_every_table_empty_and_typed",
    "maintenance/test_extension_tables.py",
    "maintenance/test_stored_files.py",
    "export/test_formats.py",
    "defs/test_engines.py",
    "defs/test_extensions.py",
    "defs/test_lineage.py",
    "cli/test_first_commands.py",
    "cli/test_hints.py",
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


def assert_whole(copy: Path, *more: tuple[object, ...]) -> None:
    """Raises ``AssertionError`` where contracts or tests of the structure do not hold in ``copy``, or one of ``more``
    commands of Python fails there. They run two at a time."""
    tests = [path for name in STRUCTURE if (path := copy / "cc_pipeline_tests" / f"test_{name}.py").exists()]
    with ThreadPoolExecutor(2) as pool:
        structure = pool.submit(python_in, copy, *PYTEST, *tests)
        contracts = pool.submit(run_in, copy, LINT, "--no-cache")
        others = [pool.submit(python_in, copy, *command) for command in more]
    for done in (structure, contracts, *others):
        done.result()


@pytest.mark.parametrize("name", own_extensions())
def test_what_is_left_without_one_is_whole(name: str, home: Path, bucket: Bucket, tmp_path: Path) -> None:
    copy = copy_without([name], tmp_path / "copy")
    # no extension imports another, and the core none: that is a contract
    assert_whole(copy, (*COMMAND, "doctor", "--home", home, "--source", bucket[0]))


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy without any extension of ours."""
    return copy_without(own_extensions(), tmp_path_factory.mktemp("core") / "copy")


def test_the_core_alone_is_whole(core: Path) -> None:
    # every module of the core's tests is imported: none needs an extension
    collected = ("--collect-only", "cc_pipeline_tests", "--ignore", "cc_pipeline_tests/extensions")
    assert_whole(core, (*PYTEST, *collected))
    imported = python_in(core, "-c", "from cc_pipeline_tests.without import import_everything as i; i()")
    assert imported.strip() == str(core), "the code of the copy was not asked"


def test_the_core_alone_materializes_the_graph(core: Path, bucket: Bucket, tmp_path: Path) -> None:
    home = tmp_path / "home"
    materialized = (
        f"from cc_pipeline_tests.without import materialize_graph; materialize_graph({str(bucket[0])!r}, {str(home)!r})"
    )
    told = python_in(core, "-c", materialized)
    assert set(told.splitlines()[-1].removeprefix("assets: ").split()) == ASSETS
    rows = python_in(core, *COMMAND, "sql", "SELECT crawl, count(*) FROM captures GROUP BY 1", "--csv", "--home", home)
    counts = {crawl: str(len(bucket[1].captures_of(crawl, subset="warc"))) for crawl in CRAWLS}
    assert dict(line.split(",") for line in rows.split()[1:]) == counts
    python_in(core, *COMMAND, "doctor", "--home", home, "--source", bucket[0])


def test_quick_tests_of_the_core_alone(core: Path) -> None:
    tests = [f"cc_pipeline_tests/{place}" for place in QUICK_TESTS]
    python_in(core, *PYTEST, "-n", "2", "--dist", "loadgroup", "-m", QUICK, *tests)
