"""Wrong input: one clear error (or an empty result where that is the truth) that says what to do, and no harm done."""

from __future__ import annotations

import re
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import dagster as dg
import pytest
from cc_pipeline.defs.partitions_in_flight import UNFINISHED, find_unresolved_failures, read_recorded_partitions
from cc_pipeline.defs.run_failures import FailedPartition
from sqlalchemy import Connection, Engine, event
from sqlalchemy.exc import OperationalError

from cc_pipeline import processes
from cc_pipeline.api.target_runs import materialize
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.defs.instance import open_instance
from cc_pipeline.defs.recording import summarize_failures as said_of_failed
from cc_pipeline.settings import load_settings
from cc_pipeline_tests.defs.graph import cc_pipeline, state_of
from cc_pipeline_tests.defs.published import query
from cc_pipeline_tests.world import ANNOUNCED, NEW, Bucket, announce, closed_port, copy_of, fill, small_disk

pytestmark = pytest.mark.xdist_group("wrong_input")

SITE = "example.com"


@pytest.fixture(scope="module")
def source(bucket: Bucket, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bucket whose newest crawl is announced and not there."""
    root = copy_of(bucket[0], tmp_path_factory.mktemp("announced") / "bucket")
    announce(root)
    return root


@pytest.fixture(scope="module")
def home(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with results in it, that nothing in this module may change."""
    where = tmp_path_factory.mktemp("results") / "home"
    materialize(load_settings({}, source=str(source), home=str(where)), [NEW], [parse_target(SITE)])
    return where


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], home: Path):
    """Runs the command line on the home with results and checks that those stay."""
    before = state_of(home)

    def command(*arguments: str, at: Path = home, errors: int | None = None) -> tuple[int, str, str]:
        status, out, err = cc_pipeline(monkeypatch, capsys, *arguments, "--home", str(at))
        assert "Traceback" not in out + err
        assert err.count("error:") == (min(status, 1) if errors is None else errors), err
        return status, out, err

    yield command
    assert state_of(home) == before


def test_what_cannot_be_had_is_one_error_that_says_what_to_do(run, bucket: Bucket, home: Path, tmp_path: Path) -> None:
    port, fresh = closed_port(), tmp_path / "home"
    for at, options, said in (
        (home, ["-c", "CC-MAIN-1999-01"], rf"1999-01' is not a crawl of .*{ANNOUNCED}, {NEW}.*cc-pipeline crawls"),
        (home, ["-c", ANNOUNCED], rf"{ANNOUNCED} is announced.*not at .* yet.*--crawl newest"),
        (home, ["-c", NEW, "--subset", "everything"], "CC_PIPELINE_SUBSETS .*choose"),
        (home, ["-c", NEW, "--source", str(bucket[0])], f"{home} holds tables of .*CC_PIPELINE_HOME to another folder"),
        (fresh, ["-c", NEW, "--source", port], f"{port}.*Check CC_PIPELINE_SOURCE"),
        (
            fresh,
            ["-c", NEW, "--source", "nowhere"],
            r"nowhere/collinfo\.json could not be read.*Check CC_PIPELINE_SOURCE",
        ),
    ):
        status, _, err = run("run", SITE, *options, at=at)
        assert status == 1
        assert re.search(said, err), err


def test_a_domain_without_captures_is_an_empty_result_and_ends_with_status_1(run, home: Path) -> None:
    status, out, err = run("run", "-c", "newest", "no-such-site.org")
    assert (status, "error: found in none of the crawls: no-such-site.org" in err) == (1, True)
    assert "so this home does not keep them: no-such-site.org" in out
    assert ANNOUNCED not in out, "the newest that can be run is meant"
    assert query(home, "SELECT count(*) FROM capture_targets WHERE target = 'no-such-site.org'") == [(0,)]


@pytest.mark.process
def test_a_full_disk_under_the_whole_home(run, home: Path, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 60_000) as disk:
        at = disk / "home"
        shutil.copytree(home, at)
        before = state_of(at)
        filler = fill(disk)
        status, _, err = run("run", "-c", NEW, "example.org", at=at)
        assert status == 1
        assert re.search(r"disk is full|No space left", err)
        assert "Free some space" in err
        filler.unlink()
        assert state_of(at) == before
        assert run("run", "-c", NEW, "example.org", at=at)[0] == 0
        assert query(at, "SELECT count(*) FROM captures")[0][0] > before[0]["captures"].total()


@contextmanager
def full(name: str, word: str, times: int = 1_000_000) -> Iterator[list[str]]:
    """Dagster's SQLite files whose names match ``name`` take no row, as SQLite says it on a full disk, from the first
    row with ``word`` in it on, and for so many rows. Gives the files whose rows were refused one."""
    met: list[str] = []

    def refuse(connection: Connection, _: sqlite3.Cursor, statement: str, values: object, *__: object) -> None:
        file = connection.engine.url.database or ""
        writes = statement.startswith(("INSERT", "UPDATE", "CREATE"))
        if writes and re.search(name, file) and (met or word in f"{statement} {values}"):
            met.append(file)
            if len(met) <= times:
                no_room = sqlite3.OperationalError("database or disk is full")
                no_room.sqlite_errorcode = sqlite3.SQLITE_FULL
                raise OperationalError(statement, values, no_room)

    event.listen(Engine, "before_cursor_execute", refuse)
    try:
        yield met
    finally:
        event.remove(Engine, "before_cursor_execute", refuse)


#: A run's own log of events; what all runs share; the list of runs.
_OF_A_RUN, _INDEX, _RUNS = r"runs/[0-9a-f]{8}-[0-9a-f-]+\.db$", r"index\.db$", r"history/runs\.db$"
_RECORD = "ASSET_MATERIALIZATION'"


@pytest.mark.process
@pytest.mark.parametrize(
    ("name", "word", "times"),
    [
        # before a run begins
        (_RUNS, "", 1_000_000),
        (_INDEX, "", 1_000_000),
        # when a partition is made: nothing can be recorded any more, or this one record cannot
        (_OF_A_RUN, _RECORD, 1_000_000),
        (_OF_A_RUN, _RECORD, 1),
    ],
)
def test_a_full_disk_under_dagsters_own_files(
    run, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, word: str, times: int
) -> None:
    at = tmp_path / "home"
    shutil.copytree(home, at)
    with full(name, word, times) as met:
        status, out, err = run("run", "-c", NEW, "example.org", at=at)
    assert met
    assert status == 1
    assert "Free some space" in err
    assert "example.org new" not in out, "nothing is told as done"
    # the process of the command has ended
    monkeypatch.setattr(processes, "has_ended", lambda _: True)
    # with room again everything is done, and recorded
    assert run("run", "-c", NEW, "example.org", at=at)[0] == 0
    assert query(at, "SELECT count(*) FROM captures WHERE domain = 'example.org'")[0][0]
    settings = load_settings({}, home=str(at))
    with open_instance(settings) as instance:
        assert (NEW, "example.org") in read_recorded_partitions(instance, "page_metadata")
        assert not find_unresolved_failures(instance)
        assert instance.get_runs_count(dg.RunsFilter(statuses=list(UNFINISHED))) == 0


@pytest.mark.process
def test_a_full_disk_under_another_command(run, home: Path, tmp_path: Path) -> None:
    at = tmp_path / "home"
    shutil.copytree(home, at)
    with full(_RUNS, "") as met:
        status, _, err = run("index", "harvest", "-c", NEW, at=at)
    assert met
    assert status == 1
    assert "what to do: Free some space" in err


def test_doctor_says_what_is_wrong_with_source_and_home(run, bucket: Bucket, tmp_path: Path) -> None:
    status, out, _ = run("doctor", "--source", str(bucket[0]), errors=0)
    assert status == 1
    assert re.search(r"bad .*holds tables of .*what to do: Name another folder .CC_PIPELINE_HOME", out)
    status, out, _ = run("doctor", "--source", closed_port(), at=tmp_path / "home", errors=0)
    assert status == 1
    assert re.search(r"bad source .*could not be read.*what to do: Check CC_PIPELINE_SOURCE", out)
    assert out.count("Check CC_PIPELINE_SOURCE") == 1, "what is so, and then what to do"


def test_what_to_do_is_said_for_each_partition_that_needs_something_else() -> None:
    one, two = (FailedPartition(f"C|{name}", "Doubted", f"it lost much\nadd --accept-losses {name}") for name in "ab")
    assert said_of_failed([one, two], 2).endswith("C|a: add --accept-losses a\nC|b: add --accept-losses b")
    assert said_of_failed([one, replace(two, reason=one.reason)], 2).endswith("it lost much\nadd --accept-losses a")
