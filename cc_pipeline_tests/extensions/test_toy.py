"""The extension of ``docs/extensions.md``, built into a wheel of its own, installed beside the pipeline, and used."""

from __future__ import annotations

import csv
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable

from cc_pipeline_tests.world import NEW, Bucket

pytestmark = pytest.mark.process

PAGE = Path(__file__).parents[2] / "docs" / "extensions.md"
_FILE = re.compile(r"^```(?:python|toml)\n# (\S+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_PROGRAM = Path(sys.executable).with_name("cc-pipeline")
_SITE = "example.com"
_COLUMNS = "url,warc_filename,warc_record_offset,warc_record_length"
#: Variables of this run of the suite: its options may name plugins that are not beside the extension.
_NOT_ITS_OWN = ("CC_PIPELINE_", "PYTHONPATH", "PYTEST_")


def files() -> dict[str, str]:
    """The files of the extension as the page has them."""
    return dict(_FILE.findall(PAGE.read_text("utf-8")))


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for ``PYTHONPATH`` with the wheel of the extension, and its tests."""
    project, target = tmp_path_factory.mktemp("toy"), tmp_path_factory.mktemp("installed")
    for name, text in files().items():
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).write_text(text, "utf-8")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-build-isolation", "--no-deps", "--no-index"]
    subprocess.run([*pip, "--target", str(target), str(project)], check=True)
    (target / "test_site_words.py").write_text(files()["test_site_words.py"], "utf-8")
    return target


def environment(home: Path, source: Path, beside: Path | None) -> dict[str, str]:
    own = {name: text for name, text in os.environ.items() if not name.startswith(_NOT_ITS_OWN)}
    own |= {
        "CC_PIPELINE_HOME": str(home),
        "CC_PIPELINE_SOURCE": str(source),
        "DAGSTER_HOME": str(home / "dagster-of-test"),
    }
    return own if beside is None else own | {"PYTHONPATH": str(beside)}


def said_by(words: list[object], variables: dict[str, str]) -> str:
    done = subprocess.run([*map(str, words)], capture_output=True, text=True, env=variables, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def test_it_is_short() -> None:
    assert sum(len(text.splitlines()) for name, text in files().items() if name.startswith("site_words/")) < 120


def test_it_passes_the_suites(installed: Path, tmp_path: Path) -> None:
    pytest_ = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", installed]
    told = said_by([*pytest_, installed / "test_site_words.py"], environment(tmp_path, tmp_path, installed))
    assert " passed" in told


def test_all_that_it_adds_is_used_and_goes(installed: Path, bucket: Bucket, tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "dagster-of-test").mkdir(parents=True)
    with_it, without = environment(home, bucket[0], installed), environment(home, bucket[0], None)
    listed = said_by([_PROGRAM, "extensions", "--format", "csv"], with_it)
    [row] = [one for one in csv.DictReader(io.StringIO(listed)) if one["extension"] == "site_words"]
    assert (row["state"], row["from"]) == ("in use", "cc-pipeline-site-words")
    said_by([_PROGRAM, "run", _SITE, "-c", NEW], with_it)

    by_parquet = said_by([_PROGRAM, "lookup", _SITE, "-c", NEW, "--format", "csv", "--columns", _COLUMNS], with_it)
    (home / "sheets").mkdir()
    (home / "sheets" / f"{NEW}.csv").write_text(by_parquet, "utf-8")
    by_sheet = said_by([_PROGRAM, "lookup", _SITE, "-c", NEW, "--index", "sheet", "--format", "csv"], with_it)
    found = list(csv.DictReader(io.StringIO(by_sheet)))
    places = [tuple(one[name] for name in _COLUMNS.split(",")) for one in found]
    assert sorted(places) == sorted(tuple(one.values()) for one in csv.DictReader(io.StringIO(by_parquet)))
    assert {one["located_by"] for one in found} == {"sheet"}

    dagster = [sys.executable, "-m", "dagster", "asset", "materialize", "--select", "site_words"]
    said_by([*dagster, "-m", "cc_pipeline.definitions"], with_it)
    [stored] = DeltaTable(str(home / "lake" / "tables" / "site_words")).to_pyarrow_table().to_pylist()
    assert (stored["crawl"], stored["target"], stored["words"] > 0) == (NEW, _SITE, True)
    assert str(stored["words"]) in said_by([_PROGRAM, "words"], with_it)

    # the wheel is gone: its table is known by the home, and purged with the target
    plan = said_by([_PROGRAM, "targets", "remove", _SITE, "--purge", "--dry-run"], without)
    assert "site_words" in plan
    [digest] = re.findall(r"--plan (\w+)", plan)
    said_by([_PROGRAM, "targets", "remove", _SITE, "--purge", "--plan", digest], without)
    assert DeltaTable(str(home / "lake" / "tables" / "site_words")).to_pyarrow_table().num_rows == 0
