"""A project as ``dg`` scaffolds one, with two homes, an asset and an executor of its own: checked and materialized by
Dagster's own commands. And the history of a home that was used before it came into one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest

import cc_pipeline
from cc_pipeline.dagster import names
from cc_pipeline_tests.world import NEW, Bucket, harvest, workspace_of

pytestmark = [pytest.mark.process, pytest.mark.xdist_group("dagster_process"), pytest.mark.timeout(600)]
BIN = Path(sys.executable).parent
SITE = "example.com"
#: What ``dg scaffold project shop`` writes, as far as it counts here, and what a person adds.
PROJECT = {
    "pyproject.toml": """
[project]
name = "shop"
version = "0.1.0"

[tool.dg]
directory_type = "project"

[tool.dg.project]
root_module = "shop"
""",
    "src/shop/__init__.py": "",
    "src/shop/definitions.py": """
from pathlib import Path

from dagster import definitions, load_from_defs_folder


@definitions
def defs():
    return load_from_defs_folder(path_within_project=Path(__file__).parent)
""",
    "src/shop/defs/__init__.py": "",
    "src/shop/defs/own.py": """
import dagster as dg

import cc_pipeline as cc
from cc_pipeline.dagster import names

books = names("books")


@dg.asset(deps=[books.key("page_text")], partitions_def=books.pairs)
def words(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
    key = context.partition_key.keys_by_dimension
    with cc.open("books_home", quiet=True) as opened:
        pages = opened.table("page_text", key["target"], key["crawl"]).to_arrow()
    return dg.MaterializeResult(metadata={"pages": pages.num_rows})


defs = dg.Definitions(assets=[words], executor=dg.multiprocess_executor.configured({"max_concurrent": 1}))
""",
}


def told(folder: Path, *command: str) -> str:
    """What one of Dagster's commands said in the project."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("CC_PIPELINE_", "DAGSTER_"))}
    paths = {"PYTHONPATH": str(folder / "src"), "DAGSTER_HOME": str(folder / "instance")}
    done = subprocess.run(
        [str(BIN / command[0]), *command[1:]], cwd=folder, env=kept | paths, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout + done.stderr


@pytest.fixture
def project(bucket: Bucket, tmp_path: Path) -> Path:
    """The project; the first home is harvested, and its partitions are there."""
    for name, text in PROJECT.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.lstrip(), "utf-8")
    (tmp_path / "instance").mkdir()
    (tmp_path / "instance" / "dagster.yaml").write_text("telemetry: {enabled: false}\n", "utf-8")
    told(
        tmp_path, "dg", "scaffold", "defs", "cc_pipeline.dagster.CommonCrawlHome", "books",
        "--home", "books_home", "--prefix", "books", "--source", str(bucket[0]),
    )  # fmt: skip
    harvest(workspace_of(bucket[0], tmp_path / "books_home"))
    # a second home, as a person copies the first one
    scaffolded, copied = (tmp_path / "src/shop/defs" / name for name in ("books", "news"))
    shutil.copytree(scaffolded, copied)
    (copied / "defs.yaml").write_text((copied / "defs.yaml").read_text("utf-8").replace("books", "news"), "utf-8")
    with dg.DagsterInstance.from_config(str(tmp_path / "instance")) as instance:
        books = names("books")
        instance.add_dynamic_partitions(books.qualify("crawl"), [NEW])
        instance.add_dynamic_partitions(books.qualify("target"), [SITE])
    return tmp_path


def test_a_project_with_two_homes_is_checked_and_materialized_by_its_own_executor(
    bucket: Bucket, project: Path
) -> None:
    told(project, "dg", "check", "defs")
    config = project / "asked.yaml"
    config.write_text(json.dumps({"ops": {"books_extract_listed": {"config": {"partitions": {NEW: [SITE]}}}}}), "utf-8")
    said = told(
        project, "dagster", "job", "execute", "-m", "shop.definitions", "-j", "books_extract_targets",
        "-c", str(config),
    )  # fmt: skip
    assert "multiprocess executor" in said.lower()
    told(
        project, "dagster", "asset", "materialize", "-m", "shop.definitions", "--select", "words",
        "--partition", f"{NEW}|{SITE}",
    )  # fmt: skip
    rows = cc_pipeline.open(project / "books_home", quiet=True).table("page_text", SITE, NEW).to_arrow().num_rows
    with dg.DagsterInstance.from_config(str(project / "instance")) as instance:
        [made] = instance.fetch_materializations(dg.AssetKey("words"), limit=5).records
        assert made.asset_materialization is not None
        assert made.asset_materialization.metadata["pages"].value == rows > 0
        assert instance.get_materialized_partitions(dg.AssetKey(["books", "page_text"])) == {f"{NEW}|{SITE}"}
        assert not [key for key in instance.all_asset_keys() if key.path[0] == "news"]
