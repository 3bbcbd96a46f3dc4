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
STRUCTURE = ("names", "architecture", "no_words", "links", "sharing", "settings", "declared_settings")
COMMAND = ("-c", "from cc_pipeline.cli import main; main()")
CRAWLS = (NEW, OLD, ARC)


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


def test_the_core_alone_is_whole_and_makes_every_page(bucket: Bucket, tmp_path: Path) -> None:
    copy = copy_without(own_extensions(), tmp_path / "copy")
    is_whole(copy)
    # every module of the core's tests is imported: none needs an extension
    python_in(copy, *PYTEST, "--collect-only", "cc_pipeline_tests", "--ignore", "cc_pipeline_tests/extensions")
    home, source = ("--home", tmp_path / "home"), ("--source", bucket[0])
    domains = ("example.com", "example.org")
    python_in(copy, *COMMAND, "run", *domains, *(f"-c{crawl}" for crawl in CRAWLS), "--yes", *home, *source)
    told = python_in(copy, *COMMAND, "sql", "SELECT crawl, count(*) FROM captures GROUP BY 1", "--csv", *home)
    counts = {
        crawl: sum(len(bucket[1].of(crawl, domain=domain, subset="warc")) for domain in domains) for crawl in CRAWLS
    }
    assert min(counts.values()) > 0
    assert dict(line.split(",") for line in told.split()[1:]) == {crawl: str(many) for crawl, many in counts.items()}
    python_in(copy, *COMMAND, "doctor", *home, *source)
