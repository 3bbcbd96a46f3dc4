"""What is refused before a job is started, and what may be wrong with workers."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cc_pipeline.defs.engines import LOCAL, find_engine
from cc_pipeline.errors import EnvironmentFault, UserInputError
from cc_pipeline.extensions.spark.code_check import check_processes, describe_process
from cc_pipeline.extensions.spark.readiness import check_ready, engine_findings
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
