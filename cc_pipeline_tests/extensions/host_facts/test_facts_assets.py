"""Facts as assets: filled on request, with their lineage, and an asset for each annotation of a home."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.defs.declared.build import everything
from cc_pipeline.defs.home_namespace import WORKSPACE
from cc_pipeline.defs.partitions import config_of
from cc_pipeline.extensions.host_facts.dataset_check import annotation_verdict
from cc_pipeline.extensions.host_facts.registered_datasets import add_dataset
from cc_pipeline_tests.defs.graph import asset
from cc_pipeline_tests.extensions.host_facts.keyed import KeyedSpec, KeyedTruth, write_keyed
from cc_pipeline_tests.world import NEW, OLD, Bucket, copy_of, harvest, workspace_of


@pytest.fixture(scope="module")
def told(bucket: Bucket, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, KeyedTruth]:
    root = copy_of(bucket[0], tmp_path_factory.mktemp("told") / "bucket")
    return root, write_keyed(root, KeyedSpec((NEW,)), bucket[1].captures)


@pytest.fixture
def added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with an annotation, whose assets are loaded."""
    home = tmp_path / "home"
    (tmp_path / "list.csv").write_text("host,score\nexample.org,1\n")
    file = tmp_path / "join_scores.yaml"
    file.write_text("table: {source: {url: list.csv}}\nright_columns: [score]\n"
                    "join_columns: {left: url_host_name, right: host}\n")  # fmt: skip
    add_dataset(workspace_of(tmp_path, home).settings, file)
    monkeypatch.setenv("CC_PIPELINE_HOME", str(home))
    return home


def test_facts_are_filled_and_each_annotation_is_an_asset(
    instance: dg.DagsterInstance, told: tuple[Path, KeyedTruth], added: Path
) -> None:
    workspace = workspace_of(told[0], added)
    annotation, definitions = asset("annotation_scores", everything()), everything()
    target = parse_target("example.org")
    workspace.register_targets([target])
    instance.add_dynamic_partitions("crawl", [NEW])
    instance.add_dynamic_partitions("target", [target.slug])
    resources = {WORKSPACE: workspace}
    made = dg.materialize([annotation], instance=instance, resources=resources)
    assert made.success
    filled = definitions.resolve_job_def("fill_facts_of_targets").execute_in_process(
        instance=instance, resources=resources, run_config=config_of("fill_facts_listed", [f"{NEW}|{target.slug}"])
    )
    [record] = filled.get_asset_materialization_events()
    assert (record.asset_key, record.partition) == (dg.AssetKey("host_facts"), f"{NEW}|{target.slug}")
    rows = {row["surt_host_name"]: row for row in workspace.lake.read("host_facts").to_pylist()}
    truth = {row["surt_host_name"]: row for row in told[1].rows["host-index", NEW]}
    assert rows["org,example"]["fetch_200"] == truth["org,example"]["fetch_200"]
    assert dict(rows["org,example"]["other_facts"]) == {"score": "1"}
    facts = definitions.resolve_asset_graph().get(dg.AssetKey("host_facts"))
    assert dg.AssetKey("annotation_scores") in facts.parent_keys and not facts.is_materializable
    verdict = annotation_verdict(workspace, "scores")
    assert (verdict.severity, verdict.metrics["files"]) == ("ok", 1)
    assert annotation_verdict(workspace, "nobody").severity == "warn"


def test_an_annotation_split_by_crawl_is_looked_at_in_one_crawl_or_in_those_named(
    told: tuple[Path, KeyedTruth], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, rows = tmp_path / "home", {NEW: ["org,example"], OLD: ["org,example"], "CC-MAIN-2099-01": ["com,example"]}
    for crawl, keys in rows.items():
        (folder := tmp_path / f"crawl={crawl}").mkdir()
        pq.write_table(pa.table({"k": keys}), folder / "part.parquet")
    (tmp_path / f"crawl={OLD}" / "bad.parquet").write_bytes(b"no Parquet")
    file = tmp_path / "own.yaml"
    listed = [*(f"crawl={crawl}/part.parquet" for crawl in rows), f"crawl={OLD}/bad.parquet"]
    file.write_text(f"name: own\nwhere: {{root: {tmp_path}, files: [{', '.join(listed)}]}}\n"
                    "key: {column: k, form: surt_host}\n")  # fmt: skip
    workspace = workspace_of(told[0], home)
    add_dataset(workspace.settings, file)
    monkeypatch.setenv("CC_PIPELINE_HOME", str(home))
    annotation = asset("annotation_own", everything())

    def looked_at(*crawls: str) -> tuple[object, object, object]:
        config = {"ops": {annotation.key.to_python_identifier(): {"config": {"crawls": list(crawls)}}}}
        made = dg.materialize([annotation], resources={WORKSPACE: workspace}, run_config=config)
        [found] = made.asset_materializations_for_node(annotation.key.to_python_identifier())
        return found.metadata["files"].value, found.metadata["crawls read"].value, found.tags["dagster/data_version"]

    assert annotation_verdict(workspace, "own").message.endswith("was not used yet")
    newest = looked_at()
    assert newest[:2] == (1, "CC-MAIN-2099-01")
    harvest(workspace)
    here = looked_at()
    assert here[:2] == (1, NEW), "the newest that this home has, not the newest of the list"
    assert annotation_verdict(workspace, "own").metrics == {"files": 2, "unread": 0}
    assert looked_at(OLD)[:2] == (2, OLD)
    verdict = annotation_verdict(workspace, "own")
    assert (verdict.severity, verdict.metrics) == ("warn", {"files": 4, "unread": 1})
    assert looked_at() == here and here[2] != newest[2]
