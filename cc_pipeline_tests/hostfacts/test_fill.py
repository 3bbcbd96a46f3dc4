"""The table ``host_facts``: filled as asked, written again when a target or a dataset changes, purged with a target."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.hostfacts.datasets import parse_dataset, ready_made
from cc_pipeline.hostfacts.fill import fill_facts
from cc_pipeline.hostfacts.host_facts import host_facts
from cc_pipeline.lake.slice import FACTS, Slice
from cc_pipeline.upkeep.purge import purge
from cc_pipeline.upkeep.purge_plan import plan_purge
from cc_pipeline.workspace.tables import FACT_COLUMNS, HOST_FACTS_SCHEMA
from cc_pipeline.workspace.workspace import Workspace
from cc_pipeline_tests.minicrawl.keyed import KeyedSpec, KeyedTruth, write_keyed
from cc_pipeline_tests.world import publish, workspace_of

CRAWL = "CC-MAIN-2025-18"
READY = ready_made()
HOSTS = [READY["host-index"], READY["degrees"], READY["gneissweb-hosts"]]
TARGETS = ("example.com", "tld:org", "set:two = example.com, host:www.example.org")


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, KeyedTruth]:
    root = tmp_path_factory.mktemp("keyed") / "bucket"
    return root, write_keyed(root, KeyedSpec((CRAWL,), domains=40))


def filled(workspace: Workspace) -> list[str]:
    targets = [parse_target(text) for text in TARGETS]
    workspace.register_targets(targets)
    slugs = [target.slug for target in targets]
    report = fill_facts(workspace, CRAWL, slugs, HOSTS)
    assert report.fresh_slices == len(slugs)
    return slugs


def test_the_table_has_the_columns_of_every_ready_made_dataset() -> None:
    for dataset in READY.values():
        if not dataset.by_url:
            assert dataset.columns is not None
            said = {name: FACT_COLUMNS.get(name) for name in dataset.columns}
            assert said == dict(dataset.columns), dataset.name


def test_a_slice_is_the_answer_and_stays(keyed: tuple[Path, KeyedTruth], tmp_path: Path) -> None:
    workspace = workspace_of(keyed[0], tmp_path)
    slugs = filled(workspace)
    for text, slug in zip(TARGETS, slugs, strict=True):
        answer = host_facts(workspace, CRAWL, parse_target(text), HOSTS)
        rows = workspace.lake.read("host_facts", Slice(CRAWL, slug).where).sort_by("surt_host_name")
        assert answer.num_rows
        assert rows.select(answer.column_names).to_pylist() == answer.to_pylist()
    version = workspace.lake.version("host_facts")
    again = fill_facts(workspace, CRAWL, slugs, HOSTS)
    assert (again.fresh_slices, again.requests, again.written) == (0, 0, 0)
    assert workspace.lake.version("host_facts") == version


def test_only_what_changed_is_written_again(keyed: tuple[Path, KeyedTruth], tmp_path: Path) -> None:
    workspace = workspace_of(keyed[0], tmp_path)
    slugs = filled(workspace)
    workspace.register_targets([parse_target("set:two = example.org")])
    report = fill_facts(workspace, CRAWL, slugs, HOSTS)
    assert (report.fresh_slices, report.reused_slices) == (1, 2)
    hosts = workspace.lake.read("host_facts", Slice(CRAWL, slugs[2]).where, ["domain"])["domain"].to_pylist()
    assert set(hosts) == {"example.org"}


def test_columns_that_the_table_lacks_are_text(keyed: tuple[Path, KeyedTruth], tmp_path: Path) -> None:
    path = keyed[1].files["degrees", CRAWL][0]
    mine = parse_dataset(
        f"name: mine\nwhere: {{files: [{path}], crawl: none}}\nprefix: my_\n"
        "key: {column: surt_host_name, form: surt_host}\ncolumns: [webgraph_indegree, host_rev]",
        "mine.yaml",
    )
    workspace = workspace_of(keyed[0], tmp_path)
    target = parse_target("tld:com")
    workspace.register_targets([target])
    fill_facts(workspace, CRAWL, [target.slug], [HOSTS[0], mine])
    rows = workspace.lake.read("host_facts", None, ["surt_host_name", "other_facts", "facts_from"]).to_pylist()
    truth = {row["surt_host_name"]: row for row in keyed[1].rows["degrees", CRAWL]}
    said = {row["surt_host_name"]: dict(row["other_facts"] or ()) for row in rows if row["other_facts"]}
    assert said
    for key, facts in said.items():
        assert facts == {
            "my_webgraph_indegree": str(truth[key]["webgraph_indegree"]),
            "my_host_rev": truth[key]["host_rev"],
        }
    assert {tuple(row["facts_from"]) for row in rows} == {("host-index", "mine")}


def test_it_is_published_and_purged_with_its_target(keyed: tuple[Path, KeyedTruth], tmp_path: Path) -> None:
    workspace = workspace_of(keyed[0], tmp_path)
    slugs = filled(workspace)
    publish(workspace)
    with duckdb.connect(str(workspace.settings.published_path), read_only=True) as session:
        shown = dict(session.execute("SELECT target, count(*) FROM host_facts GROUP BY 1").fetchall())
        columns = [name for name, *_ in session.execute("DESCRIBE host_facts").fetchall()]
    assert set(shown) == set(slugs)
    assert set(columns) == set(HOST_FACTS_SCHEMA.names)
    plan = plan_purge(workspace, slugs[0], TARGETS[0])
    assert plan.rows["host_facts"] == shown[slugs[0]]
    purge(workspace, plan)
    left = workspace.lake.read("host_facts", None, ["target"])["target"].to_pylist()
    assert set(left) == set(slugs[1:])
    assert FACTS.is_made(workspace.lake, Slice(CRAWL, slugs[1]))
