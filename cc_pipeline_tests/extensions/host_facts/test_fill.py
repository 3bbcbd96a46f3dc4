"""The table ``host_facts``: filled as asked, written again when a target or a dataset changes, purged with a target."""

from __future__ import annotations

import shutil
from pathlib import Path

import duckdb
import pytest

from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.extensions.host_facts.datasets import parse_dataset, shipped_datasets
from cc_pipeline.extensions.host_facts.fill import fill_facts
from cc_pipeline.extensions.host_facts.host_facts import host_facts
from cc_pipeline.extensions.host_facts.schemas import FACT_COLUMNS, HOST_FACTS_SCHEMA
from cc_pipeline.extensions.host_facts.tables import FACTS
from cc_pipeline.lake.slice import Slice
from cc_pipeline.maintenance.purge import purge
from cc_pipeline.maintenance.purge_plan import plan_purge
from cc_pipeline.workspace.workspace import Workspace
from cc_pipeline_tests.extensions.host_facts.conftest import CRAWL
from cc_pipeline_tests.extensions.host_facts.keyed import KeyedTruth
from cc_pipeline_tests.world import publish, workspace_of

READY = shipped_datasets()
HOSTS = [READY["host-index"], READY["degrees"], READY["gneissweb-hosts"]]
TARGETS = ("example.com", "tld:org", "set:two = example.com, host:www.example.org")


SLUGS = [parse_target(text).slug for text in TARGETS]


@pytest.fixture(scope="module")
def once(keyed: tuple[Path, KeyedTruth], tmp_path_factory: pytest.TempPathFactory) -> Path:
    workspace = workspace_of(keyed[0], tmp_path_factory.mktemp("filled") / "home")
    workspace.register_targets([parse_target(text) for text in TARGETS])
    assert fill_facts(workspace, CRAWL, SLUGS, HOSTS).fresh_slices == len(SLUGS)
    return workspace.settings.home


@pytest.fixture
def filled(keyed: tuple[Path, KeyedTruth], once: Path, tmp_path: Path) -> Workspace:
    """A home with facts of all targets."""
    return workspace_of(keyed[0], shutil.copytree(once, tmp_path / "home"))


def test_the_table_has_the_columns_of_every_ready_made_dataset() -> None:
    for dataset in READY.values():
        if not dataset.by_url:
            assert dataset.columns is not None
            types = {column.name: column.type for column in FACT_COLUMNS}
            said = {name: types.get(name) for name in dataset.columns}
            assert said == dict(dataset.columns), dataset.name


def test_a_slice_is_the_answer_and_stays(filled: Workspace) -> None:
    for text, slug in zip(TARGETS, SLUGS, strict=True):
        answer = host_facts(filled, CRAWL, parse_target(text), HOSTS)
        rows = filled.lake.read("host_facts", Slice(CRAWL, slug).where).sort_by("surt_host_name")
        assert answer.num_rows
        assert rows.select(answer.column_names).to_pylist() == answer.to_pylist()
    version = filled.lake.version("host_facts")
    again = fill_facts(filled, CRAWL, SLUGS, HOSTS)
    assert (again.fresh_slices, again.requests, again.written) == (0, 0, 0)
    assert filled.lake.version("host_facts") == version


def test_only_what_changed_is_written_again(filled: Workspace) -> None:
    filled.register_targets([parse_target("set:two = example.org")])
    report = fill_facts(filled, CRAWL, SLUGS, HOSTS)
    assert (report.fresh_slices, report.reused_slices) == (1, 2)
    hosts = filled.lake.read("host_facts", Slice(CRAWL, SLUGS[2]).where, ["domain"])["domain"].to_pylist()
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


def test_it_is_published_and_purged_with_its_target(filled: Workspace) -> None:
    publish(filled)
    with duckdb.connect(str(filled.settings.published_path), read_only=True) as session:
        shown = dict(session.execute("SELECT target, count(*) FROM host_facts GROUP BY 1").fetchall())
        columns = [name for name, *_ in session.execute("DESCRIBE host_facts").fetchall()]
    assert set(shown) == set(SLUGS)
    assert set(columns) == set(HOST_FACTS_SCHEMA.names)
    plan = plan_purge(filled, SLUGS[0], TARGETS[0])
    assert plan.rows["host_facts"] == shown[SLUGS[0]]
    purge(filled, plan)
    left = filled.lake.read("host_facts", None, ["target"])["target"].to_pylist()
    assert set(left) == set(SLUGS[1:])
    assert FACTS.was_committed(filled.lake, Slice(CRAWL, SLUGS[1]))
