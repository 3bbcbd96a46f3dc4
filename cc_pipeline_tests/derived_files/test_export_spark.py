"""Exported partitions read by Apache Spark. Opt-in: Spark needs Java and half a gigabyte of packages."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from cc_pipeline.derived_files.export import ExportOptions, export_slices
from cc_pipeline.documents.document2012.json import metadata_json
from cc_pipeline.workspace.workspace import export_prefix
from cc_pipeline_tests.derived_files.test_sequencefile_spark import SPARK_PYTHON, spark_missing
from cc_pipeline_tests.publish.lake_pages import CRAWL, TARGET, commit_pages, make_workspace, page

pytestmark = pytest.mark.process

DRIVER = """
import json, sys
from pyspark.sql import SparkSession

folder, out = sys.argv[1:]
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").config(
    "spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
for kind in ("textData", "metadata"):
    rows = spark.sparkContext.sequenceFile("file://" + folder + "/" + kind + "-*").collect()
    json.dump(rows, open(out + "/" + kind + ".json", "w"))
# the whole folder: the manifests are passed over
json.dump(spark.sparkContext.sequenceFile("file://" + folder).count(), open(out + "/all.json", "w"))
spark.stop()
"""


def test_spark_reads_what_is_exported(tmp_path: Path) -> None:
    reason = spark_missing()
    if reason:
        pytest.skip(reason)
    workspace = make_workspace(tmp_path)
    pages = sorted(
        (page(number) for number in range(50)),
        key=lambda one: (one.keys["warc_filename"], one.keys["warc_record_offset"]),
    )
    commit_pages(workspace, pages)
    export_slices(workspace, CRAWL, [TARGET], options=ExportOptions(records_per_file=20))
    driver = tmp_path / "driver.py"
    driver.write_text(DRIVER)
    folder = Path(workspace.settings.lake) / export_prefix(CRAWL, TARGET)
    environment = {**os.environ, "PYSPARK_PYTHON": str(SPARK_PYTHON), "SPARK_LOCAL_IP": "127.0.0.1"}
    subprocess.run([str(SPARK_PYTHON), driver, folder, tmp_path], check=True, env=environment, timeout=600)
    texts = [(one.keys["url"], one.text["text"] if one.text is not None else "") for one in pages]
    assert [tuple(row) for row in json.loads((tmp_path / "textData.json").read_text())] == texts
    documents = [(one.keys["url"], json.loads(metadata_json(one.metadata, one.links))) for one in pages]
    found = [(url, json.loads(value)) for url, value in json.loads((tmp_path / "metadata.json").read_text())]
    assert found == documents
    assert json.loads((tmp_path / "all.json").read_text()) == 100
