"""Which partitions a run is for, and what runs note: what was tried, who executes them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from unittest import mock

import dagster as dg
import pytest
import yaml
from cc_pipeline.defs.notes import read_notes, write_notes
from cc_pipeline.defs.partitions_in_flight import find_in_flight
from cc_pipeline.defs.run_notes import listed_partitions, note_tried, read_tried, run_partitions
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy.exc import OperationalError

from cc_pipeline.defs import partitions_in_flight as flights
from cc_pipeline.defs.instance import DAGSTER_YAML, end_runs_of_dead_processes, open_instance_in
from cc_pipeline.defs.partitions import KIND_TAG, partition_key, range_tags
from cc_pipeline_tests.defs.graph import listed_run
from cc_pipeline_tests.postgres import postgres_server

_SLUGS = st.text("abz.-_~09é", min_size=1, max_size=60)


@pytest.fixture(scope="module")
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as found:
        yield found


@given(st.lists(st.tuples(st.sampled_from(["C1", "C2", "C3"]), _SLUGS), unique=True, max_size=60))
def test_a_list_in_a_configuration_reads_back(instance: dg.DagsterInstance, pairs: list[tuple[str, str]]) -> None:
    keys = [partition_key(*pair) for pair in pairs]
    run = listed_run(keys)
    read = listed_partitions(run)
    assert read is not None
    assert sorted(read) == sorted(keys)
    # grouped by crawl, in the order of crawls that was asked for
    assert list(by_first_seen(read)) == list(by_first_seen(keys))
    assert {*run_partitions(instance, [run])[run.run_id]} == {*pairs}


def by_first_seen(keys: list[str]) -> dict[str, None]:
    return dict.fromkeys(key.split("|")[0] for key in keys)


def of(instance: dg.DagsterInstance, tags: dict[str, str]) -> set[tuple[str, str]]:
    run = dg.DagsterRun("extract_domain", tags=tags)
    return {*run_partitions(instance, [run])[run.run_id]}


def test_other_runs_have_no_list() -> None:
    assert listed_partitions(dg.DagsterRun("extract_domain", tags=range_tags("C1|a", "C1|b"))) is None


@pytest.mark.parametrize("words", [["C1|a"], "C1|a", {"C1": "a"}, None])
def test_a_run_whose_list_cannot_be_read_is_for_nothing(instance: dg.DagsterInstance, words: object) -> None:
    run = dg.DagsterRun("extract_targets", run_config={"ops": {"extract_listed": {"config": {"partitions": words}}}})
    assert run_partitions(instance, [run]) == {run.run_id: []}


def test_ranges_go_by_the_order_of_keys() -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        for name, keys in (("crawl", ["A", "B", "C"]), ("target", ["x", "y", "z"])):
            instance.add_dynamic_partitions(name, keys)
        assert of(instance, range_tags("A|y", "B|z")) == {("A", "y"), ("A", "z"), ("B", "y"), ("B", "z")}
        assert of(instance, {"dagster/partition": "C|x"}) == {("C", "x")}
        assert of(instance, range_tags("A|gone", "A|z")) == set()
        assert of(instance, {}) == set()


def test_what_was_tried_is_of_the_run_that_said_so(instance: dg.DagsterInstance) -> None:
    note_tried(instance, "one", ["A|x", "B|y"])
    note_tried(instance, "two", [])
    note_tried(instance, "one", ["A|x"])
    assert read_tried(instance, ["one", "two", "three"]) == {"one": {("A", "x")}, "two": set()}


def test_many_may_note_the_same_at_once(tmp_path: Path) -> None:
    with open_instance_in(tmp_path) as instance:
        many_note_the_same(instance)


def many_note_the_same(instance: dg.DagsterInstance) -> None:
    for number in range(5):
        texts = [{f"first {number}": f"of {one}", f"second {number}": f"of {one}"} for one in range(6)]
        with ThreadPoolExecutor(len(texts)) as threads:
            assert [*threads.map(lambda some: write_notes(instance, some), texts)] == [None] * len(texts)
        assert read_notes(instance, [*texts[0]]) in texts


def long_names(crawl: str) -> list[str]:
    """As many partitions as a run takes, with names of 60 characters that cannot be compressed."""
    return [f"{crawl}|{hashlib.sha256(bytes([number])).hexdigest()[:56]}.com" for number in range(200)]


@contextmanager
def on_postgresql(home: Path) -> Iterator[dg.DagsterInstance]:
    """The instance of a home whose state is in PostgreSQL."""
    with postgres_server() as server:
        state = yaml.safe_load(DAGSTER_YAML)
        state["storage"] = server.storage
        (home / "dagster").mkdir(parents=True)
        (home / "dagster/dagster.yaml").write_text(yaml.safe_dump(state), "utf-8")
        with open_instance_in(home / "dagster") as instance:
            yield instance


@pytest.mark.process
@pytest.mark.xdist_group("dagster_process")
def test_postgresql_takes_a_run_of_as_many_long_names_as_there_may_be(tmp_path: Path) -> None:
    keys = long_names("CC-MAIN-2024-18")
    with on_postgresql(tmp_path) as instance:
        run = instance.add_run(listed_run(keys))
        note_tried(instance, run.run_id, keys)
        again = instance.get_run_by_id(run.run_id)
        assert again is not None
        assert listed_partitions(again) == keys
        assert len(run_partitions(instance, [again])[run.run_id]) == 200
        assert len(read_tried(instance, [run.run_id])[run.run_id]) == 200
        its_retries_are_counted(instance, run)
        a_run_whose_tags_were_refused_is_nobodys(instance, keys)
        many_note_the_same(instance)


def its_retries_are_counted(instance: dg.DagsterInstance, first: dg.DagsterRun) -> None:
    """As the daemon makes them: it counts those that have the tag of the first."""
    will_retry, run = [], first
    for number in range(3):
        if number:
            of = {"dagster/root_run_id": first.run_id, "dagster/parent_run_id": run.run_id}
            run = dg.DagsterRun(
                first.job_name, tags={**first.tags, **of}, root_run_id=first.run_id, parent_run_id=run.run_id
            )
            instance.add_run(run)
        instance.report_run_failed(run)
        failed = instance.get_run_by_id(run.run_id)
        assert failed is not None
        will_retry.append(failed.tags["dagster/will_retry"])
    assert will_retry == ["true", "true", "false"]


def a_run_whose_tags_were_refused_is_nobodys(instance: dg.DagsterInstance, keys: list[str]) -> None:
    """PostgreSQL keeps a run whose tags it refuses. Dagster counts retries by a tag, so none of these: it would try
    again for ever."""
    refused = dg.DagsterRun("extract_domain", tags={KIND_TAG: " ".join(keys)})
    for _ in range(4):
        with pytest.raises(OperationalError, match="index row"):
            instance.add_run(refused)
        kept = instance.get_run_by_id(refused.run_id)
        assert kept is not None
        assert kept.status is dg.DagsterRunStatus.NOT_STARTED
        instance.report_run_failed(kept)
        again = instance.get_run_by_id(refused.run_id)
        assert again is not None
        assert again.tags["dagster/will_retry"] == "true"
        of = {"root_run_id": refused.root_run_id or refused.run_id, "parent_run_id": refused.run_id}
        refused = dg.DagsterRun("extract_domain", tags=refused.tags, **of)
    # so it is cancelled before it could fail: nothing tries that again
    with pytest.raises(OperationalError):
        instance.add_run(refused)
    with mock.patch.object(flights, "ORPHAN_AGE", timedelta(0)):
        assert not find_in_flight(instance).is_busy
        assert end_runs_of_dead_processes(instance) == [refused.run_id]
    ended = instance.get_run_by_id(refused.run_id)
    assert ended is not None
    assert ended.status is dg.DagsterRunStatus.CANCELED
    assert "dagster/will_retry" not in ended.tags
