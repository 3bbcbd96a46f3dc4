"""A commit belongs to what it was made from: what is purged, blocked or defined anew while a run is at work is not
published again, whichever home does it, and neither side says success where anything is left."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import duckdb
import pytest
from cc_pipeline.extraction.run_inputs import MAX_PLANS, InputsChanged, hold_run_lease

from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.extraction import run_inputs
from cc_pipeline.extraction.blocklist import block
from cc_pipeline.extraction.crawl_plan import plan_crawl
from cc_pipeline.extraction.fetch import fetch_captures
from cc_pipeline.extraction.locate import locate_captures
from cc_pipeline.extraction.run import PartitionResult, extract
from cc_pipeline.extraction.slice_state import read_slice_states
from cc_pipeline.lake.lake import Lake
from cc_pipeline.lake.slice import FETCH, PAGE_TABLES, Slice
from cc_pipeline.maintenance import purge as purging
from cc_pipeline.maintenance.maintain import run_maintenance
from cc_pipeline.maintenance.purge import drop_subset, purge, remove_empty_targets
from cc_pipeline.maintenance.purge_plan import plan_purge, purged_tables
from cc_pipeline.maintenance.stored_files import find_lost_records
from cc_pipeline.publish.publish import find_publication_lag
from cc_pipeline.records import file_leases
from cc_pipeline.records.file_leases import PURGES, RUNS, lease_of, leases_of
from cc_pipeline.workspace.workspace import Workspace
from cc_pipeline_tests.world import NEW, OLD, Bucket, harvest, publish, workspace_of

GOES, STAYS = "example.com", "example.org"
BOTH, ONE = "set:some = example.com, example.org", "set:some = example.org"
TABLES = ("captures", "records", *PAGE_TABLES)
#: Tables that a run commits to.
COMMITS = ("captures", "lookups", "fetches", "records", "page_text", "page_metadata")


@pytest.fixture(scope="module")
def prepared(bucket: Bucket, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake and two homes on it, each of which has harvested two crawls."""
    root = tmp_path_factory.mktemp("inputs")
    for name in ("one", "two"):
        with_lake = workspace_of(bucket[0], root / name, lake=str(root / "lake"))
        for crawl in (NEW, OLD):
            harvest(with_lake, crawl)
        run(with_lake, "example-foo.com")
        with_lake.close()
    return root


@pytest.fixture
def homes(bucket: Bucket, prepared: Path, tmp_path: Path) -> tuple[Workspace, Workspace]:
    shutil.copytree(prepared, tmp_path / "all")
    one, two = (
        workspace_of(bucket[0], tmp_path / "all" / name, lake=str(tmp_path / "all" / "lake")) for name in ("one", "two")
    )
    return one, two


def run(workspace: Workspace, *texts: str, crawls: tuple[str, ...] = (NEW,)) -> list[PartitionResult]:
    targets = [parse_target(text) for text in texts]
    workspace.register_targets(targets)
    return list(extract(workspace, [(crawl, one.slug) for crawl in crawls for one in targets], TABLES))


def left_of(workspace: Workspace, slug: str) -> dict[str, int]:
    """The rows that there are of a target."""
    tables = [spec.name for spec in purged_tables(workspace.lake)]
    counts = {table: workspace.lake.read(table, {"target": slug}).num_rows for table in tables}
    return {table: count for table, count in counts.items() if count}


@contextmanager
def before_commit(table: str, does: Callable[[], object], times: int = 1) -> Iterator[None]:
    """Has ``does`` happen when a commit to ``table`` begins, before it looks at anything."""
    real, left = Lake.replace_slices, [times]

    def replace(self: Lake, name: str, *rest: Any) -> None:
        if name == table and left[0]:
            left[0] -= 1
            does()
        real(self, name, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Lake, "replace_slices", replace)
        yield


@contextmanager
def at_the_last_moment(table: str, does: Callable[[], object]) -> Iterator[None]:
    """Has ``does`` happen once a commit to ``table`` has looked at everything, before it is written."""
    real, done = Lake.check, [False]

    def check(self: Lake) -> None:
        real(self)
        at = sys._getframe(1).f_locals
        if not done[0] and at.get("table", getattr(at.get("spec"), "name", "")) == table:
            done[0] = True
            does()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Lake, "check", check)
        yield


@contextmanager
def leases_run_out() -> Iterator[None]:
    """Has everybody take the leases of runs and fetches for those of machines that were stopped for long."""
    real = file_leases._read

    def read(*given: Any) -> Iterator[tuple[file_leases.Holding, bool]]:
        for holding, lives in real(*given):
            yield holding, lives and given[1] == PURGES

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_leases, "_read", read)
        yield


def purged(workspace: Workspace, slug: str = GOES) -> None:
    purge(workspace, plan_purge(workspace, slug, slug), now=True)


def purged_although(workspace: Workspace, said: list[str], slug: str = GOES) -> None:
    """A purge that may be refused."""
    try:
        purged(workspace, slug)
    except EnvironmentFault as fault:
        said.append(str(fault))


@pytest.mark.process
@pytest.mark.parametrize("table", COMMITS)
def test_a_purge_waits_for_the_end_of_a_run_of_another_home_and_names_it(
    homes: tuple[Workspace, Workspace], table: str
) -> None:
    one, two = homes
    refused: list[str] = []
    with before_commit(table, partial(purged_although, two, refused)):
        [made] = run(one, GOES)
    assert made.error is None
    assert f"{GOES} is being fetched in {NEW} by process {os.getpid()} of" in refused[0]
    assert left_of(one, GOES).keys() >= {"captures", "records", "page_metadata"}
    purged(two)
    assert left_of(one, GOES) == {}
    assert leases_of(one.storage, RUNS) == leases_of(one.storage, PURGES) == ([], [])


@pytest.mark.matrix
@pytest.mark.parametrize("table", COMMITS)
@pytest.mark.parametrize("moment", [before_commit, at_the_last_moment])
def test_a_run_that_was_stopped_until_its_lease_ran_out_commits_nothing_more(
    homes: tuple[Workspace, Workspace],
    moment: Callable[[str, Callable[[], object]], contextmanager[None]],  # type: ignore[type-arg]
    table: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At no commit, not even where it was stopped behind its last look."""
    one, two = homes

    def sleeps() -> None:
        with leases_run_out():
            purged(two)
        [running] = one.command_value(run_inputs._RunningRuns).runs
        monkeypatch.setattr(running._lease, "_clock", lambda: time.time() + file_leases.LIFE)

    with moment(table, sleeps), pytest.raises(EnvironmentFault, match=r"its lease .* expired"):  # type: ignore[operator]
        run(one, GOES, crawls=(NEW, OLD))
    assert left_of(two, GOES) == {}
    assert GOES not in two.lake.read("targets").column("slug").to_pylist()
    assert find_lost_records(two) == []


def test_a_run_whose_lease_ran_out_goes_on_if_no_purge_began(
    homes: tuple[Workspace, Workspace], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_leases.FileLease, "has_expired", lambda lease: lease._expires is not None)
    [made] = run(homes[0], GOES)
    assert made.error is None
    assert left_of(homes[0], GOES).keys() >= {"captures", "records", "page_metadata"}


@pytest.mark.matrix
@pytest.mark.parametrize("table", COMMITS)
def test_what_is_blocked_while_a_run_is_at_it_is_not_kept(homes: tuple[Workspace, Workspace], table: str) -> None:
    one, two = homes
    with before_commit(table, lambda: block(two, [parse_target(GOES)])):
        [made] = run(one, BOTH)
    assert made.error is None
    for name in TABLES:
        if "url" in one.lake.specs[name].schema.names:
            assert not [url for url in one.lake.read(name).column("url").to_pylist() if GOES in url], name
    assert plan_crawl(one, NEW, ["set-some"]).plan.slice_plans == ()


@pytest.mark.matrix
@pytest.mark.parametrize("table", COMMITS)
def test_what_is_defined_anew_while_a_run_is_at_it_is_located_again(
    homes: tuple[Workspace, Workspace], table: str
) -> None:
    one, two = homes
    with before_commit(table, lambda: two.register_targets([parse_target(ONE)])):
        [made] = run(one, BOTH)
    assert made.error is None
    assert not [url for url in one.lake.read("captures").column("url").to_pylist() if GOES in url]
    assert plan_crawl(one, NEW, ["set-some"]).plan.slice_plans == ()
    assert left_of(one, "set-some")["records"] == left_of(one, "set-some")["captures"]


def test_a_group_reads_definitions_and_the_blocklist_once(
    homes: tuple[Workspace, Workspace], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, _ = homes
    asked: list[str] = []
    for name in ("read_stored_versions", "list_digest", "was_purged", "read_blocklist"):
        real = getattr(run_inputs, name)
        monkeypatch.setattr(run_inputs, name, partial(_note_and_call, asked, name, real))
    run(one, GOES, STAYS)
    assert sorted(asked) == ["list_digest", "read_blocklist", "read_stored_versions", "was_purged"]


def _note_and_call(asked: list[str], name: str, real: Callable[..., object], *given: object) -> object:
    asked.append(name)
    return real(*given)


def test_definitions_that_change_at_each_plan_end_with_a_message(homes: tuple[Workspace, Workspace]) -> None:
    one, two = homes
    texts = cycle([ONE, BOTH])
    with before_commit("captures", lambda: two.register_targets([parse_target(next(texts))]), times=MAX_PLANS):
        [made] = run(one, BOTH)
    assert isinstance(made.error, InputsChanged)
    assert "set-some was redefined during this run" in str(made.error)
    assert "captures" not in left_of(one, "set-some")


@pytest.mark.parametrize(("table", "again"), [("records", locate_captures), ("page_text", fetch_captures)])
def test_a_stage_whose_input_changed_is_planned_again(
    homes: tuple[Workspace, Workspace], table: str, again: Callable[..., object]
) -> None:
    """Another home takes a member out of the set, and has located and fetched it by then."""
    one, two = homes
    run(one, ONE)
    target = parse_target(BOTH)
    one.register_targets([target])
    locate_captures(one, NEW, [target.slug])
    if table == "page_text":
        fetch_captures(one, NEW, [target.slug])
    from cc_pipeline.extraction.parse import parse_records  # noqa: PLC0415

    def shrink() -> None:
        two.register_targets([parse_target(ONE)])
        locate_captures(two, NEW, [target.slug])
        if again is fetch_captures:
            fetch_captures(two, NEW, [target.slug])

    stage = fetch_captures if table == "records" else parse_records
    with before_commit(table, shrink), pytest.raises(InputsChanged, match="redefined"):
        stage(one, NEW, [target.slug])
    stage(one, NEW, [target.slug])
    rows = one.lake.read("records" if table == "records" else "page_metadata")
    assert rows.num_rows
    assert not [url for url in rows.column("url").to_pylist() if GOES in url]


def test_rows_that_say_something_else_are_not_replaced_although_they_are_made_from_the_same(
    homes: tuple[Workspace, Workspace],
) -> None:
    workspace, _ = homes
    run(workspace, GOES)
    slice_ = Slice(NEW, GOES)
    stands = read_slice_states(workspace, [slice_])[slice_]
    assert stands.fetched is not None
    other = replace(stands, fetched=replace(stands.fetched, content_digests={"records": "of another run"}))
    with hold_run_lease(workspace, {NEW: [GOES]}) as inputs:
        with inputs.replacing(FETCH, {slice_: stands}):
            inputs.check()
        with pytest.raises(InputsChanged, match="written by another run"), inputs.replacing(FETCH, {slice_: other}):
            raise AssertionError("it was compared too late")


def test_a_publication_shows_what_was_committed_since_its_lake_was_looked_at(
    homes: tuple[Workspace, Workspace],
) -> None:
    one, two = homes
    with one.lake.hold_versions():
        find_publication_lag(one)
        run(two, GOES)
        publish(one)
    with duckdb.connect(str(one.settings.published_path), read_only=True) as connection:
        [(shown,)] = connection.execute("SELECT count(*) FROM capture_targets WHERE target = ?", [GOES]).fetchall()
    assert shown == left_of(two, GOES)["captures"] > 0


def test_while_a_target_is_purged_no_run_of_it_begins_and_others_do(homes: tuple[Workspace, Workspace]) -> None:
    one, two = homes
    with purging._hold_purge_lease(two, [GOES]):
        stopped, other = run(one, GOES, STAYS)
        with pytest.raises(EnvironmentFault, match=rf"{GOES} is being purged by process {os.getpid()}"):
            purged(one)
    assert f"{GOES} is being purged by process {os.getpid()}" in str(stopped.error)
    assert other.error is None
    assert left_of(one, GOES) == {}
    assert left_of(one, STAYS)


@pytest.mark.matrix
@pytest.mark.parametrize("removes", ["subset", "whole"])
def test_less_than_a_purge_waits_too(homes: tuple[Workspace, Workspace], removes: str) -> None:
    one, two = homes
    run(one, GOES)
    before = left_of(one, GOES)
    with hold_run_lease(one, {NEW: [GOES]}), pytest.raises(EnvironmentFault, match="is being fetched"):
        if removes == "subset":
            drop_subset(two, GOES, "warc")
        else:
            remove_empty_targets(two, [GOES], plan_purge(two, GOES, GOES).slices)
    assert left_of(one, GOES) == before


def test_a_publication_holds_back_what_is_being_purged(homes: tuple[Workspace, Workspace]) -> None:
    one, two = homes
    run(one, GOES, STAYS)
    with lease_of(two.storage, PURGES, [GOES]):
        publish(one)
    with duckdb.connect(str(one.settings.published_path), read_only=True) as published:
        shown = published.execute("SELECT DISTINCT domain FROM page_text").fetchall()
    assert sorted(shown) == [("example-foo.com",), (STAYS,)]


def test_a_purge_that_does_not_say_its_targets_lets_nothing_be_published(homes: tuple[Workspace, Workspace]) -> None:
    one, two = homes
    run(one, STAYS)
    publish(one)
    before = one.settings.published_path.read_bytes()
    with lease_of(two.storage, PURGES, [GOES]):
        [purge_lease] = leases_of(one.storage, PURGES)[0]
        one.place.put(purge_lease.key, b"{")
        with pytest.raises(EnvironmentFault, match="cannot be read"):
            publish(one)
    assert one.settings.published_path.read_bytes() == before


_RUN = """
from cc_pipeline.settings import load_settings
from cc_pipeline.workspace.workspace import open_workspace
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.extraction.run import extract
from cc_pipeline.lake.lake import Lake
real, left = Lake.replace_slices, [{stop}]
def replace(self, table, *rest):
    real(self, table, *rest)
    if table == "records" and left[0]:
        left[0] = 0
        print("now", flush=True)
        input()
Lake.replace_slices = replace
with open_workspace(load_settings({{}}, source={source!r}, home={home!r}, lake={lake!r})) as one:
    one.register_targets([parse_target("example.com")])
    for made in extract(one, [("CC-MAIN-2024-22", "example.com")], {tables!r}):
        print(made.error)
"""


@pytest.mark.process
def test_a_process_that_is_killed_stands_in_no_purges_way_and_one_that_is_stopped_does(
    homes: tuple[Workspace, Workspace],
) -> None:
    one, two = homes
    settings = one.settings
    script = _RUN.format(
        stop=1, source=settings.source, home=str(settings.home), lake=str(settings.lake), tables=TABLES
    )
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"now\n"
        os.kill(child.pid, signal.SIGSTOP)
        with pytest.raises(EnvironmentFault, match=f"is being fetched in {NEW} by process {child.pid} of"):
            purged(two)
        os.kill(child.pid, signal.SIGKILL)
    purged(two)
    assert left_of(two, GOES) == {}
    assert [run_.is_process_dead for run_ in leases_of(two.storage, RUNS)[1]] == [True]
    run_maintenance(two)
    assert leases_of(two.storage, RUNS) == ([], [])


_STOPS_BEFORE_A_COMMIT = """
from cc_pipeline.settings import load_settings
from cc_pipeline.workspace.workspace import open_workspace
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.extraction.run import extract
from cc_pipeline.lake.lake import Lake
real, left = Lake.replace_slices, [True]
def replace(self, table, *rest):
    if table == {table!r} and left[0]:
        left[0] = False
        print("now", flush=True)
        input()
    real(self, table, *rest)
Lake.replace_slices = replace
with open_workspace(load_settings({{}}, source={source!r}, home={home!r}, lake={lake!r})) as one:
    target = parse_target({text!r})
    one.register_targets([target])
    for made in extract(one, [("CC-MAIN-2024-22", target.slug)], {tables!r}):
        print(made.error, flush=True)
"""


def run_in_a_process(workspace: Workspace, text: str, table: str, meanwhile: Callable[[], object]) -> str:
    """Has another process run a target; ``meanwhile`` happens while it is about to commit to ``table``. Gives what the
    process says of the target's errors."""
    settings = workspace.settings
    script = _STOPS_BEFORE_A_COMMIT.format(
        table=table, text=text, source=settings.source, home=str(settings.home), lake=str(settings.lake), tables=TABLES
    )
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "now\n"
        meanwhile()
        said, _ = child.communicate("go on\n", timeout=120)
    assert child.returncode == 0
    return said.strip()


@pytest.mark.process
@pytest.mark.parametrize("table", ["captures", "records", "page_text"])
def test_what_another_process_commits_of_the_same_slice_is_not_written_over(
    homes: tuple[Workspace, Workspace], table: str
) -> None:
    one, two = homes
    there: dict[str, str] = {}

    def commits_all() -> None:
        [made] = run(two, GOES)
        assert made.error is None
        there.update({name: two.lake.commit_id(name) for name in TABLES})

    assert run_in_a_process(one, GOES, table, commits_all) == "None"
    assert {name: two.lake.commit_id(name) for name in TABLES} == there
    assert plan_crawl(two, NEW, [GOES]).plan.slice_plans == ()
    assert find_lost_records(two) == []
