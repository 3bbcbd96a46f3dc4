"""What is refused before a job is started, and what may be wrong with workers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cc_pipeline.engines.spark.readiness import refuse_unready, spark_submit
from cc_pipeline.engines.spark.worker_facts import COMPILED, here, in_words
from cc_pipeline.errors import EnvironmentFault, UserInputError
from cc_pipeline.settings import Settings

GOOD = Settings(
    "https://data.commoncrawl.org", Path("/home"), "s3://bucket/lake", "", engine="spark", spark_master="spark://h:7077",
    spark_workers=2,
)  # fmt: skip


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with Spark and Java, which the environment names."""
    for name, variable in (("spark-submit", "SPARK_HOME"), ("java", "JAVA_HOME")):
        program = tmp_path / name / "bin" / name
        program.parent.mkdir(parents=True)
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
        monkeypatch.setenv(variable, str(tmp_path / name))
    return tmp_path


def test_a_machine_and_settings_that_have_all(machine: Path) -> None:
    refuse_unready(GOOD)
    refuse_unready(replace(GOOD, source="/folder", spark_master="local[2]"))


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"spark_master": ""}, "CC_PIPELINE_SPARK_MASTER"),
        ({"spark_workers": 0}, "CC_PIPELINE_SPARK_WORKERS"),
        ({"lake": "/home/lake"}, "CC_PIPELINE_LAKE"),
        ({"source": "/folder"}, "http"),
        ({"mirrors": ("s3://bucket/crawls", "/folder")}, "/folder"),
        ({"spark_master": "emr-serverless:00abc"}, "CC_PIPELINE_EMR_ROLE"),
    ],
)
def test_settings_with_which_no_job_can_run(machine: Path, change: dict[str, object], names: str) -> None:
    with pytest.raises(UserInputError, match=names):
        refuse_unready(replace(GOOD, **change))


def test_a_machine_without_java_or_spark(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (machine / "java" / "bin" / "java").unlink()
    with pytest.raises(EnvironmentFault, match="Java 17") as refused:
        refuse_unready(GOOD)
    assert "JAVA_HOME" in refused.value.advice
    monkeypatch.setenv("SPARK_HOME", str(machine / "nothing"))
    monkeypatch.setenv("PATH", str(machine))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(EnvironmentFault, match="spark-submit") as refused:
        spark_submit()
    assert "cc-pipeline[spark]" in refused.value.advice
    # a driver in the cloud needs neither
    refuse_unready(replace(GOOD, spark_master="emr-serverless:00abc", emr_role="arn:aws:iam::1:role/jobs"))


def test_what_workers_run_with_is_said() -> None:
    own = here()
    found = in_words([own, own], own)
    assert found["Python of the workers"] == own["python"]
    # the checkout is compiled in place where there is a compiler
    assert (found["compiled parts"] == "all") == (len(own["compiled"]) == len(COMPILED))
    twins = in_words([own, {**own, "compiled": []}], own)["compiled parts"]
    assert "_bounds" in twins
    assert "_signals" in twins


@pytest.mark.parametrize("other", [{"version": "0"}, {"parser": "0"}, {"lacks": "No module", "executable": "/py"}])
def test_workers_with_something_else_are_refused(other: dict[str, str]) -> None:
    own = here()
    with pytest.raises(EnvironmentFault) as refused:
        in_words([own, own | other], own)
    assert "PYSPARK_PYTHON" in refused.value.advice
