"""What is refused before a job is started, and what may be wrong with workers."""

from __future__ import annotations

import ast
import os
import re
import sys
from dataclasses import replace
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest

from cc_pipeline.defs.engines import LOCAL, find_engine
from cc_pipeline.errors import EnvironmentFault, UserInputError
from cc_pipeline.extensions.spark import code_check as worker_facts
from cc_pipeline.extensions.spark.code_check import ROW_LIBRARIES, check_processes, describe_process
from cc_pipeline.extensions.spark.readiness import check_ready, engine_findings, spark_submit
from cc_pipeline.extensions.spark.settings import SparkSettings
from cc_pipeline.lake import published_file
from cc_pipeline.settings import Settings
from cc_pipeline_tests.weedserver import CREDENTIALS

GOOD = Settings(
    "https://data.commoncrawl.org", Path("/home"), "s3://bucket/lake", "", engine="spark", publish="copy",
    of_extensions=(SparkSettings("spark://h:7077", 2),),
)  # fmt: skip


def changed(**change: Any) -> Settings:
    """Good settings but for some, which may be those of Spark (``spark_master``)."""
    own = {name.removeprefix("spark_"): value for name, value in change.items() if name.startswith("spark_")}
    rest = {name: value for name, value in change.items() if not name.startswith("spark_")}
    return replace(GOOD, **rest, of_extensions=(replace(GOOD.settings_of(SparkSettings), **own),))


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with Spark and Java, and credentials for S3; the environment names all three."""
    for name, variable in (("spark-submit", "SPARK_HOME"), ("java", "JAVA_HOME")):
        program = tmp_path / name / "bin" / name
        program.parent.mkdir(parents=True)
        program.touch(0o755)
        monkeypatch.setenv(variable, str(tmp_path / name))
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, text in CREDENTIALS.items():
        monkeypatch.setenv(name, text)
    return tmp_path


def test_a_machine_and_settings_that_have_all(machine: Path) -> None:
    check_ready(GOOD)
    check_ready(changed(source="/folder", spark_master="local[2]"))


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"spark_master": ""}, "CC_PIPELINE_SPARK_MASTER"),
        ({"spark_workers": 0}, "CC_PIPELINE_SPARK_WORKERS"),
        ({"lake": "/home/lake"}, "CC_PIPELINE_LAKE"),
        ({"source": "/folder"}, "http"),
        ({"spark_master": "emr-serverless:x"}, "k8s://"),
    ],
)
def test_settings_with_which_no_job_can_run(machine: Path, change: dict[str, object], names: str) -> None:
    with pytest.raises(UserInputError, match=names):
        check_ready(changed(**change))


def test_a_machine_without_java_or_spark(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (machine / "java" / "bin" / "java").unlink()
    with pytest.raises(EnvironmentFault, match="Java 17") as refused:
        check_ready(GOOD)
    assert "JAVA_HOME" in refused.value.advice
    monkeypatch.setenv("SPARK_HOME", str(machine / "nothing"))
    monkeypatch.setenv("PATH", str(machine))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(EnvironmentFault, match="spark-submit") as refused:
        spark_submit()
    assert "cc-pipeline[spark]" in refused.value.advice


def test_places_on_s3_without_credentials_are_named_with_all_else(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in CREDENTIALS:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", str(machine))
    with pytest.raises(EnvironmentFault, match=r"s3://bucket/lake needs credentials") as refused:
        check_ready(GOOD)
    assert "AWS_ACCESS_KEY_ID" in refused.value.advice
    # what the credentials are for is said once
    with pytest.raises(UserInputError, match="2 things are missing"):
        check_ready(changed(source="s3://commoncrawl", spark_workers=0))
    # public data of others are asked without a signature; a lake in a folder is refused as such
    with pytest.raises(UserInputError, match="CC_PIPELINE_LAKE to an s3"):
        check_ready(changed(source="s3://commoncrawl", s3_anonymous=True, lake="/home/lake"))
    [found] = [one for one in engine_findings(GOOD) if "needs credentials" in one.text]
    assert found.level == "bad"


def test_each_difference_is_named_with_both_versions() -> None:
    own = describe_process()
    libraries = own["libraries"] | {"lxml": "5.0", "pyarrow": "none"}
    with pytest.raises(EnvironmentFault) as refused:
        check_processes([own | {"libraries": libraries, "python": "3.9.1"}], own)
    for name, there, this in (
        ("lxml", "5.0", own["libraries"]["lxml"]),
        ("pyarrow", "none", own["libraries"]["pyarrow"]),
        ("Python", "3.9.1", own["python"]),
    ):
        assert f"{name} is {there} there and {this} here" in refused.value.problem
    assert "requirements.txt" in refused.value.advice


def test_every_library_that_makes_rows_is_compared() -> None:
    """What the rooms that make rows import of others. What they only reach a place or a database with changes none."""
    changes_nothing = {"duckdb"}
    root = Path(worker_facts.cc_pipeline.__file__).parent
    names: set[str] = set()
    for room in ("archive", "commoncrawl", "documents", "lake", "records"):
        for path in (root / room).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.Import):
                    names |= {one.name.partition(".")[0] for one in node.names}
                elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                    names.add(node.module.partition(".")[0])
    by_module = packages_distributions()
    others = names - set(sys.stdlib_module_names) - {"cc_pipeline"} - changes_nothing
    assert len(others) > 10
    unknown = {one for one in others if not {normal(each) for each in by_module.get(one, [one])} & set(ROW_LIBRARIES)}
    assert unknown == set()
    assert [name for name, found in describe_process()["libraries"].items() if found == "none"] == []


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_what_no_run_could_publish_is_refused_before_anything_is_fetched(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(published_file, "_PACKAGE", "no_such_package")
    # where DuckDB looks for installed extensions
    monkeypatch.setenv("HOME", str(machine))
    with pytest.raises(EnvironmentFault, match="httpfs") as refused:
        check_ready(changed(publish="views"))
    assert "CC_PIPELINE_PUBLISH=copy" in refused.value.advice
    check_ready(GOOD)
    far = changed(engine=LOCAL, publish="views")
    with pytest.raises(EnvironmentFault, match="httpfs"):
        find_engine(LOCAL).check_ready(far)


@pytest.mark.parametrize(
    "other",
    [
        {"version": "0"},
        {"parser": "0"},
        {"modules": "0"},
        {"python": "2.7.18"},
        {"compiled": []},
        {"libraries": {"lxml": "5.0"}},
        {"lacks": "No module", "executable": "/py"},
    ],
)
def test_workers_with_something_else_are_refused(other: dict[str, object]) -> None:
    own = describe_process()
    with pytest.raises(EnvironmentFault) as refused:
        check_processes([own, own | other], own)
    assert "PYSPARK_PYTHON" in refused.value.advice


def test_the_doctor_says_all_that_a_run_would_refuse(machine: Path) -> None:
    broken = changed(spark_master="", spark_workers=0, lake="/home/lake")
    (machine / "java" / "bin" / "java").unlink()
    bad = [finding for finding in engine_findings(broken) if finding.level == "bad"]
    assert len(bad) == 4
    for name, finding in zip(("SPARK_MASTER", "SPARK_WORKERS", "LAKE", "JAVA_HOME"), bad, strict=True):
        assert name in finding.text + finding.advice
    with pytest.raises(UserInputError) as refused:
        check_ready(broken)
    assert "4 things are missing" in str(refused.value)
    for finding in bad:
        assert finding.text in str(refused.value)
        assert finding.advice in str(refused.value)
