"""SequenceFiles against Apache Spark, both ways. Opt-in: Spark needs Java and half a gigabyte of packages."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import get_args

import pytest

from cc_pipeline.archive.sequencefile import Compression, SequencePair, iter_pairs
from cc_pipeline_tests.archive.sequencefile_writer import SequenceFileWriter

pytestmark = pytest.mark.process

SPARK_PYTHON = os.environ.get("CC_PIPELINE_SPARK_PYTHON")

ROWS = [(f"http://example.com/{number}", "tëxt 文字 \U0001f600\n" * (number % 37)) for number in range(3000)]

DRIVER = """
import json, sys
from pyspark.sql import SparkSession

folder = sys.argv[1]
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").config(
    "spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
context = spark.sparkContext
plan = json.load(open(folder + "/plan.json"))
for name in plan["ours"]:
    rows = context.sequenceFile("file://" + folder + "/ours-" + name).collect()
    json.dump(rows, open(folder + "/read-" + name + ".json", "w"))
rows = context.parallelize([tuple(row) for row in plan["rows"]], 1)
io = "org.apache.hadoop.io."
for name, (compression, codec) in plan["theirs"].items():
    conf = {"mapreduce.output.fileoutputformat.compress": str(compression != "NONE").lower(),
            "mapreduce.output.fileoutputformat.compress.type": compression}
    if codec:
        conf["mapreduce.output.fileoutputformat.compress.codec"] = io + "compress." + codec
    try:
        rows.saveAsNewAPIHadoopFile(
            "file://" + folder + "/theirs-" + name, "org.apache.hadoop.mapreduce.lib.output.SequenceFileOutputFormat",
            io + "Text", io + "Text", conf=conf)
    except Exception as error:
        open(folder + "/refused-" + name, "w").write(str(error)[:100000])
spark.stop()
"""


def spark_missing() -> str | None:
    if not SPARK_PYTHON:
        return "set CC_PIPELINE_SPARK_PYTHON to a python that can import pyspark"
    probe = subprocess.run([SPARK_PYTHON, "-c", "import pyspark"], capture_output=True, check=False)
    return None if probe.returncode == 0 else f"{SPARK_PYTHON} cannot import pyspark"


@pytest.fixture(scope="module")
def exchange(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Everything both sides wrote and read, in one Spark session."""
    reason = spark_missing()
    if reason:
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("spark")
    for name, compression, codec in ours():
        with (folder / f"ours-{name}").open("wb") as file, SequenceFileWriter(file, compression, codec) as writer:
            for key, value in ROWS:
                writer.append(key, value)
    plan = {"ours": [name for name, _, _ in ours()], "rows": ROWS, "theirs": theirs()}
    (folder / "plan.json").write_text(json.dumps(plan))
    (folder / "driver.py").write_text(DRIVER)
    environment = {**os.environ, "PYSPARK_PYTHON": str(SPARK_PYTHON), "SPARK_LOCAL_IP": "127.0.0.1"}
    subprocess.run([str(SPARK_PYTHON), folder / "driver.py", folder], check=True, env=environment, timeout=600)
    return folder


def ours() -> list[tuple[str, Compression, str]]:
    return [(f"{how}-{codec}", how, codec) for how in get_args(Compression) for codec in ("default", "gzip")]


def theirs() -> dict[str, tuple[str, str | None]]:
    codecs = ("DefaultCodec", "GzipCodec", "BZip2Codec", "SnappyCodec", "Lz4Codec", "ZStandardCodec")
    plan = {f"{how}-{codec}": (how, codec) for how in ("RECORD", "BLOCK") for codec in codecs}
    return {"NONE": ("NONE", None), **plan}


@pytest.mark.parametrize("name", [name for name, _, _ in ours()])
def test_spark_reads_what_we_write(exchange: Path, name: str) -> None:
    assert [tuple(row) for row in json.loads((exchange / f"read-{name}.json").read_text())] == ROWS


@pytest.mark.parametrize("name", list(theirs()))
def test_we_read_what_spark_writes(exchange: Path, name: str) -> None:
    refused = exchange / f"refused-{name}"
    if refused.exists() and ("native" in refused.read_text()):
        pytest.skip("this Hadoop writes the codec only with its native library")
    (part,) = (exchange / f"theirs-{name}").glob("part-*")
    pairs = list(iter_pairs(part, name))
    assert [(pair.key, pair.value) for pair in pairs if isinstance(pair, SequencePair)] == ROWS
    assert len(pairs) == len(ROWS)
