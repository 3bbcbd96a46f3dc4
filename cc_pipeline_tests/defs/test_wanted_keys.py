"""A step is for the partitions that Dagster planned when it created the run, whoever launched it and how."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import dagster as dg
import pytest
from cc_pipeline.defs.automation.sensors import name_partitions
from cc_pipeline.defs.run_notes import run_partitions

from cc_pipeline.defs import home_namespace
from cc_pipeline.defs.home_namespace import OWN_HOME
from cc_pipeline.defs.partitions import PARTITION_TAG, range_tags
from cc_pipeline.defs.recording import read_planned_keys
from cc_pipeline_tests.defs.graph import failure_of

_PLANNED = dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED
#: Tags of the dimensions of one partition, as Dagster writes them for it, and for each run of a job's backfill.
_FIRST = {"dagster/partition/crawl": "A", "dagster/partition/target": "x"}
_PAIRS: Mapping[str, tuple[Mapping[str, str], list[str]]] = {
    "one partition": ({PARTITION_TAG: "A|x", **_FIRST}, ["A|x"]),
    "one partition, by GraphQL without dimensions": ({PARTITION_TAG: "B|y"}, ["B|y"]),
    "a range of one partition": (range_tags("B|y", "B|y"), ["B|y"]),
    "a range in one crawl": (range_tags("B|x", "B|z"), ["B|x", "B|y", "B|z"]),
    "a range in one domain": (range_tags("A|y", "C|y"), ["A|y", "B|y", "C|y"]),
    "a range in both": (range_tags("A|y", "B|z"), ["A|y", "A|z", "B|y", "B|z"]),
    "the first run of a job's backfill": ({**range_tags("A|x", "A|y"), **_FIRST}, ["A|x", "A|y"]),
    "another run of a job's backfill": ({**range_tags("C|y", "C|z"), **_FIRST}, ["C|y", "C|z"]),
}
_ALONE: Mapping[str, tuple[Mapping[str, str], list[str]]] = {
    "one partition": ({PARTITION_TAG: "B"}, ["B"]),
    "a range": (range_tags("A", "B"), ["A", "B"]),
    "a range of one partition": (range_tags("C", "C"), ["C"]),
}


@pytest.fixture
def instance(instance: dg.DagsterInstance) -> Iterator[dg.DagsterInstance]:
    """Keys in another order than that of the alphabet."""
    for name, keys in (("crawl", ["C", "A", "B"]), ("target", ["x", "y", "z"])):
        instance.add_dynamic_partitions(name, sorted(keys))
    return instance


def run(
    instance: dg.DagsterInstance, definition: dg.PartitionsDefinition, tags: Mapping[str, str]
) -> tuple[list[str], dg.ExecuteInProcessResult]:
    """What an asset takes for its partitions in a run with ``tags``, and the run."""
    wanted: list[str] = []

    @dg.asset(name="captures", partitions_def=definition)
    def asset(context: dg.AssetExecutionContext) -> None:
        wanted.extend(read_planned_keys(context))

    return wanted, dg.materialize([asset], instance=instance, tags=dict(tags), raise_on_error=False)


def planned(instance: dg.DagsterInstance, run_id: str) -> set[str | None]:
    """The partitions that Dagster shows for a run from its beginning."""
    events = (one.dagster_event for one in instance.all_logs(run_id, of_type=_PLANNED))
    return {event.partition for event in events if event is not None}


@pytest.mark.parametrize("way", _PAIRS)
def test_a_step_over_pairs_is_for_what_dagster_planned(instance: dg.DagsterInstance, way: str) -> None:
    tags, keys = _PAIRS[way]
    wanted, result = run(instance, OWN_HOME.pairs, tags)
    assert wanted == keys
    assert planned(instance, result.run_id) == {*keys}
    # and so say all who ask what a run is for
    found = run_partitions(instance, [result.dagster_run])[result.run_id]
    assert ["|".join(pair) for pair in found] == keys
    assert {*name_partitions(result.dagster_run, OWN_HOME)} == {keys[0], keys[-1]}


@pytest.mark.parametrize("way", _ALONE)
def test_a_step_over_crawls_is_for_what_dagster_planned(instance: dg.DagsterInstance, way: str) -> None:
    tags, keys = _ALONE[way]
    wanted, result = run(instance, OWN_HOME.crawl, tags)
    assert wanted == keys
    assert planned(instance, result.run_id) == {*keys}


@pytest.mark.parametrize("definition", [OWN_HOME.pairs, OWN_HOME.crawl])
@pytest.mark.parametrize("tags", [{}, _FIRST])
def test_a_run_for_which_dagster_shows_no_partition_makes_none(
    instance: dg.DagsterInstance, definition: dg.PartitionsDefinition, tags: Mapping[str, str]
) -> None:
    wanted, result = run(instance, definition, tags)
    assert wanted == []
    assert not result.success
    assert "names no partition" in failure_of(result)
    assert planned(instance, result.run_id) == {None}


def test_a_key_that_was_deleted_since_is_named(instance: dg.DagsterInstance) -> None:
    wanted: list[str] = []

    @dg.asset(name="captures", partitions_def=OWN_HOME.pairs)
    def asset(context: dg.AssetExecutionContext) -> None:
        context.instance.delete_dynamic_partition("target", "z")
        wanted.extend(read_planned_keys(context))

    result = dg.materialize(
        [asset], instance=instance, tags=range_tags("A|x", "A|z"), raise_on_error=False, run_config={}
    )
    assert wanted == []
    assert "A|x to A|z no longer exists" in failure_of(result)


def test_every_partitioned_asset_asks_the_same_way() -> None:
    """``context.partition_keys`` believes the tags of one partition beside those of a range."""
    for path in Path(home_namespace.__file__).parent.rglob("*.py"):
        text = path.read_text("utf-8").replace("``context.partition_keys``", "")
        assert "context.partition_key" not in text, path
        assert ".partition_key_range" not in text, path
