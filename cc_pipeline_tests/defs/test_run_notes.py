"""What runs note in the instance: lists of partitions of any length, what was tried, who executes them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from cc_pipeline.defs.internals import instance_in, note
from cc_pipeline.defs.partitions import KEYS_TAG, partition_key, range_tags
from cc_pipeline.defs.run_notes import keys_in, keys_tags, note_tried, run_partitions, tried_in
from cc_pipeline_tests.postgres import postgres_server

_SLUGS = st.text("abz.-_~09é", min_size=1, max_size=60)
#: PostgreSQL refuses a tag above some 2,700 bytes.
_MOST = 2_000


@pytest.fixture(scope="module")
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as found:
        yield found


@given(st.lists(st.tuples(st.sampled_from(["C1", "C2", "C3"]), _SLUGS), unique=True, max_size=60))
def test_a_tag_of_keys_reads_back(instance: dg.DagsterInstance, pairs: list[tuple[str, str]]) -> None:
    keys = [partition_key(*pair) for pair in pairs]
    tags = keys_tags(instance, keys)
    read = keys_in(instance, tags)
    assert read is not None
    assert sorted(read) == sorted(keys)
    # grouped by crawl, in the order of crawls that was asked for
    assert list(by_first_seen(read)) == list(by_first_seen(keys))
    assert of(instance, tags) == {*pairs}
    assert len(tags[KEYS_TAG].encode()) < _MOST


def by_first_seen(keys: list[str]) -> dict[str, None]:
    return dict.fromkeys(key.split("|")[0] for key in keys)


def of(instance: dg.DagsterInstance, tags: dict[str, str]) -> set[tuple[str, str]]:
    run = dg.DagsterRun("extract_domain", tags=tags)
    return {*run_partitions(instance, [run])[run.run_id]}


def test_a_short_list_is_read_in_the_tag_itself(instance: dg.DagsterInstance) -> None:
    assert keys_tags(instance, ["A|x", "A|y", "B|x"]) == {KEYS_TAG: '{"A":["x","y"],"B":["x"]}'}


def test_a_list_whose_short_name_another_one_has_gets_a_longer_one(instance: dg.DagsterInstance) -> None:
    keys = [partition_key("A", f"site-{number}.example") for number in range(200)]
    tags = keys_tags(instance, keys)
    assert re.fullmatch("200 partitions, [0-9a-f]{8}", tags[KEYS_TAG])
    assert keys_tags(instance, keys) == tags
    note(instance, {f"{KEYS_TAG}/{tags[KEYS_TAG][-8:]}": '{"B":["another list"]}'})
    longer = keys_tags(instance, keys)
    assert longer != tags
    assert keys_in(instance, longer) == keys
    assert keys_in(instance, tags) == ["B|another list"]


def test_other_runs_have_no_tag_of_keys(instance: dg.DagsterInstance) -> None:
    assert keys_in(instance, range_tags("C1|a", "C1|b")) is None


@pytest.mark.parametrize("words", ['["C1|a"]', "C1|a", '{"C1": "a"}', f"200 partitions, {'0' * 40}"])
def test_a_run_whose_list_cannot_be_read_is_for_nothing(instance: dg.DagsterInstance, words: str) -> None:
    with pytest.raises(ValueError):
        keys_in(instance, {KEYS_TAG: words})
    assert of(instance, {KEYS_TAG: words}) == set()


def test_ranges_go_by_the_order_of_keys() -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        for name, keys in (("crawl", ["A", "B", "C"]), ("domain", ["x", "y", "z"])):
            instance.add_dynamic_partitions(name, keys)
        assert of(instance, range_tags("A|y", "B|z")) == {("A", "y"), ("A", "z"), ("B", "y"), ("B", "z")}
        assert of(instance, {"dagster/partition": "C|x"}) == {("C", "x")}
        assert of(instance, range_tags("A|gone", "A|z")) == set()
        assert of(instance, {}) == set()


def test_what_was_tried_is_of_the_run_that_said_so(instance: dg.DagsterInstance) -> None:
    note_tried(instance, "one", ["A|x", "B|y"])
    note_tried(instance, "two", [])
    note_tried(instance, "one", ["A|x"])
    assert tried_in(instance, ["one", "two", "three"]) == {"one": {("A", "x")}, "two": set()}


@pytest.mark.process
@pytest.mark.smoke
@pytest.mark.xdist_group("dagster_process")
def test_postgresql_takes_a_run_of_as_many_long_names_as_there_may_be(tmp_path: Path) -> None:
    keys = [f"CC-MAIN-2024-{week}|{'x' * 47}{number:09}.com" for week in (18, 22) for number in range(100)]
    with postgres_server() as server:
        named = {
            "scheme": "postgresql+psycopg2", "hostname": server.host, "port": server.port,
            "db_name": server.database, "username": server.user, "password": server.password,
        }  # fmt: skip
        state = {"telemetry": {"enabled": False}, "storage": {"postgres": {"postgres_db": named}}}
        (tmp_path / "dagster.yaml").write_text(yaml.safe_dump(state), "utf-8")
        with instance_in(tmp_path) as instance:
            run = instance.add_run(dg.DagsterRun("extract_domain", tags=keys_tags(instance, keys)))
            note_tried(instance, run.run_id, keys)
            again = instance.get_run_by_id(run.run_id)
            assert again is not None
            assert keys_in(instance, again.tags) == keys
            assert len(run_partitions(instance, [again])[run.run_id]) == 200
            assert len(tried_in(instance, [run.run_id])[run.run_id]) == 200
