"""Lost stored files are noticed and fetched again, whoever lost them; maintenance takes none that is in use."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import cc_pipeline.extraction.fetch as fetching
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.extraction.crawl_plan import plan_crawl
from cc_pipeline.extraction.fetch import fetch_captures
from cc_pipeline.extraction.locate import locate_captures
from cc_pipeline.extraction.parse import parse_records
from cc_pipeline.extraction.plan import ReasonKind
from cc_pipeline.lake.lake import Lake
from cc_pipeline.lake.slice import FETCH, LOCATE
from cc_pipeline.maintenance.maintain import run_maintenance
from cc_pipeline.maintenance.stored_files import find_lost_records
from cc_pipeline.records.file_leases import FileLease, LeaseExpired
from cc_pipeline.transport.faults import FaultKind, range_fault
from cc_pipeline.workspace.workspace import Workspace
from cc_pipeline_tests.extraction.stored import dangling, stored_files, without_varying
from cc_pipeline_tests.world import (
    NEW,
    Bucket,
    Killed,
    extract,
    harvested,
    publish,
    rewrite_slice,
    slice_row,
    workspace_of,
)

WHOLE, PART = "example.com", "host:www.example.com"


@pytest.fixture(scope="module")
def fetched(bucket: Bucket, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home in which a target is fetched and parsed."""
    home = tmp_path_factory.mktemp("fetched")
    workspace = harvested(bucket[0], home)
    extract(workspace, WHOLE)
    return home


@pytest.fixture
def workspace(bucket: Bucket, fetched: Path, tmp_path: Path) -> Workspace:
    return workspace_of(bucket[0], Path(shutil.copytree(fetched, tmp_path / "home")))


def located(workspace: Workspace, text: str) -> str:
    """Registers and locates a target; its slug."""
    target = parse_target(text)
    workspace.register_targets([target])
    locate_captures(workspace, NEW, [target.slug])
    return target.slug


def failures(workspace: Workspace, slug: str) -> int:
    pages = workspace.lake.read("page_metadata", {"crawl": NEW, "target": slug}, ["disposition", "failure_reason"])
    return sum(row["disposition"] == "FAILURE" and row["failure_reason"] == "Missing" for row in pages.to_pylist())


@contextmanager
def in_the_middle(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], None]) -> Iterator[None]:
    """Calls ``happens`` when a fetch has all it needs and is about to commit."""
    balanced = fetching._check_balance

    def wrapped(*given: object) -> None:
        monkeypatch.setattr(fetching, "_check_balance", balanced)
        happens()
        balanced(*given)

    monkeypatch.setattr(fetching, "_check_balance", wrapped)
    yield


def replace_rows(workspace: Workspace, slug: str) -> None:
    """The target has no captures any more, as after another definition; the fetch of that is committed."""
    captures = workspace.lake.read("captures", {"crawl": NEW, "target": slug})
    rewrite_slice(workspace, LOCATE, slug, captures.slice(0, 0))
    fetch_captures(workspace, NEW, [slug])


def test_maintenance_leaves_what_a_fetch_in_flight_counts_on(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = located(workspace, PART)
    fetch_captures(workspace, NEW, [located(workspace, "example-foo.com")])  # the crawl has rows all the time
    stored = stored_files(workspace)
    for path in stored:
        os.utime(path, (1, 1))  # far older than the retention

    def meanwhile() -> None:
        replace_rows(workspace_of(workspace.settings.source, workspace.settings.home), WHOLE)
        run_maintenance(workspace_of(workspace.settings.source, workspace.settings.home))

    with in_the_middle(monkeypatch, meanwhile):
        report = fetch_captures(workspace, NEW, [part])
    assert report.requests == 0
    assert int(report.per_target[part]["fetched"]) > 0
    assert dangling(workspace) == []
    parse_records(workspace, NEW, [part])
    assert failures(workspace, part) == 0


def test_the_fetch_gives_up_its_lease_whatever_happens(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    part = located(workspace, PART)
    leases = workspace.settings.home / "lake" / "records" / NEW / "leases"
    seen: list[int] = []

    def fails() -> None:
        seen.append(len(list(leases.iterdir())))
        raise EnvironmentFault("the network is gone", "Wait.")

    with in_the_middle(monkeypatch, fails), pytest.raises(EnvironmentFault, match="network"):
        fetch_captures(workspace, NEW, [part])
    assert seen == [1]
    assert list(leases.iterdir()) == []
    assert fetch_captures(workspace, NEW, [part]).requests == 0


@pytest.mark.matrix
@pytest.mark.parametrize("cut", [False, True])
def test_lost_bytes_are_noticed_and_only_they_are_fetched_again(workspace: Workspace, cut: bool) -> None:
    publish(workspace)
    before = without_varying(workspace.lake.read("records"))
    pages = without_varying(workspace.lake.read("page_metadata"))
    [path] = stored_files(workspace)
    rows = workspace.lake.read("records").sort_by("stored_offset").to_pylist()
    if cut:
        middle = rows[len(rows) // 2]
        os.truncate(path, middle["stored_offset"] + 1)
    else:
        path.unlink()
    lost = len(rows) - len(rows) // 2 if cut else len(rows)
    [found] = find_lost_records(workspace)
    assert (found.records, found.targets) == (lost, {WHOLE: lost})
    _, again, parsed = extract(workspace, WHOLE)
    assert 0 < again.requests <= lost
    assert again.per_target[WHOLE]["fetched"] == len(rows)
    assert [note for note in again.notes if f"{lost:,} stored records were missing" in note]
    assert dangling(workspace) == []
    assert parsed.fresh_slices == 0, "pages that were parsed while the bytes were there stay"
    assert without_varying(workspace.lake.read("records")) == before
    assert without_varying(workspace.lake.read("page_metadata")) == pages
    assert fetch_captures(workspace, NEW, [WHOLE]).requests == 0


def test_lost_rows_are_not_reused_by_another_target(workspace: Workspace) -> None:
    for path in stored_files(workspace):
        path.unlink()
    part = located(workspace, PART)
    report = fetch_captures(workspace, NEW, [part])
    assert report.requests > 0
    mine = workspace.lake.read("records", {"target": part})
    assert dangling(workspace, mine) == []
    # and what it fetched serves the first target too
    [lost] = find_lost_records(workspace)
    assert set(lost.targets) == {WHOLE}
    again = fetch_captures(workspace, NEW, [WHOLE])
    assert [note for note in again.notes if f"{mine.num_rows:,} captures were stored already" in note]
    assert dangling(workspace) == []


def test_pages_are_not_made_of_records_that_are_gone(workspace: Workspace) -> None:
    part = located(workspace, PART)
    fetch_captures(workspace, NEW, [part])
    before = workspace.lake.pin("page_metadata").version
    for path in stored_files(workspace):
        path.unlink()
    count = workspace.lake.read("records", {"target": part}).num_rows
    with pytest.raises(EnvironmentFault, match=f"{count:,} stored records of {part} in {NEW} are missing") as refused:
        parse_records(workspace, NEW, [part])
    assert "cc-pipeline doctor --repair" in str(refused.value.advice)
    assert workspace.lake.pin("page_metadata").version == before
    fetch_captures(workspace, NEW, [part])
    assert parse_records(workspace, NEW, [part]).rows == count
    assert failures(workspace, part) == 0


def test_a_place_that_does_not_answer_is_not_taken_for_one_that_lost_its_files(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(key: str) -> None:
        raise range_fault(FaultKind.FORBIDDEN, key, None, None, "status 403", 3)

    monkeypatch.setattr(workspace.place, "head", refuses)
    version = workspace.lake.pin("records").version
    with pytest.raises(EnvironmentFault, match="forbidden"):
        fetch_captures(workspace, NEW, [WHOLE])
    assert workspace.lake.pin("records").version == version


def expire(lease: FileLease) -> None:
    raise LeaseExpired("it expired", "")


@pytest.mark.parametrize(
    "slept",
    [
        {"has_expired": lambda lease: lease._expires is not None, "_has_files": lambda _: False},
        # after the last record
        {"confirm": expire},
    ],
    ids=["before", "at the commit"],
)
def test_a_lease_that_ran_out_stops_the_commit_if_a_file_is_gone(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, slept: dict[str, Callable[[FileLease], object]]
) -> None:
    part = located(workspace, PART)
    with monkeypatch.context() as patch:
        for name, changed in slept.items():
            patch.setattr(FileLease, name, changed)
        with pytest.raises(EnvironmentFault, match="expired"):
            fetch_captures(workspace, NEW, [part])
    assert slice_row(workspace, FETCH, part) is None
    fetch_captures(workspace, NEW, [part])


def test_a_kill_behind_the_note_of_healed_bytes_hides_no_loss(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in stored_files(workspace):
        path.unlink()

    def killed(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Lake, "append", killed)
        with pytest.raises(Killed):
            fetch_captures(workspace, NEW, [WHOLE])
    again = workspace_of(workspace.settings.source, workspace.settings.home)
    (why,) = plan_crawl(again, NEW, [WHOLE]).plan.reasons_for(FETCH).values()
    assert (why.kind, why.n) == (ReasonKind.LOST_BYTES, again.lake.read("records").num_rows)
    fetch_captures(again, NEW, [WHOLE])
    assert plan_crawl(again, NEW, [WHOLE]).plan.reasons_for(FETCH) == {}
