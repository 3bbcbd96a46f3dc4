"""A stored file goes only a week after it was superseded, and never while a journal, a fetch or a row wants it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.locks import MAX_CLOCK_SKEW
from cc_pipeline.records.file_leases import LIFE, FileLease, list_active_leases, list_expired_leases
from cc_pipeline.records.segments import retire_journals
from cc_pipeline.records.storage import JOURNAL_SUFFIX, RecordStorage
from cc_pipeline.records.sweep import RETENTION_SECONDS, NamedFiles, crawls_with_files, note, sweep
from cc_pipeline_tests.records.lake_of_files import CRAWL, DAY, Place, file

Sweep = Callable[..., int]


@pytest.fixture
def place() -> Place:
    return Place()


@pytest.fixture
def storage(place: Place, tmp_path: Path) -> RecordStorage:
    return place.storage(tmp_path)


@pytest.fixture
def swept(place: Place, storage: RecordStorage) -> Sweep:
    def run(*named: str, retention: float = RETENTION_SECONDS) -> int:
        return sweep(storage, CRAWL, lambda: NamedFiles(set(named), named), retention, place.clock)

    return run


def test_nothing_goes_within_a_week_of_being_superseded_however_old_it_is(
    place: Place, storage: RecordStorage, swept: Sweep
) -> None:
    place.put(file("old"), b"12345")
    place.now += 400 * DAY
    assert swept(file("old")) == 0
    note(storage, CRAWL, [file("old")], place.now)
    for days in (0.0, 3.0, 3.9):
        place.now += days * DAY
        assert swept() == 0
    place.now += 0.2 * DAY
    assert swept() == 1
    assert place.objects == {}, "the note has done its duty"


def test_a_file_without_a_note_is_noted_first(place: Place, swept: Sweep) -> None:
    # as in every home of before
    place.put(file("orphan"), b"12345")
    place.now += 400 * DAY
    assert swept() == 0
    place.now += 6.9 * DAY
    assert swept() == 0
    place.now += 0.2 * DAY
    assert swept() == 1


def test_a_writer_whose_clock_is_behind_deletes_nothing_early(
    place: Place, storage: RecordStorage, swept: Sweep
) -> None:
    place.put(file("a"), b"1")
    place.now += 20 * DAY
    note(storage, CRAWL, [file("a")], place.now - 30 * DAY)
    assert swept() == 0


@pytest.mark.parametrize("where", ["", "open/"])
def test_a_journal_keeps_its_file(place: Place, swept: Sweep, where: str) -> None:
    place.put(file("a"), b"1")
    place.put(file("a").replace(f"{CRAWL}/", f"{CRAWL}/{where}", 1) + JOURNAL_SUFFIX, b"")
    place.now += 30 * DAY
    assert swept(retention=0) == 0


def test_a_journal_of_committed_rows_keeps_no_file_and_goes_itself_after_a_week(
    place: Place, storage: RecordStorage, swept: Sweep
) -> None:
    place.put(file("a"), b"1")
    place.put(file("a") + JOURNAL_SUFFIX, b"")
    retire_journals(storage, [file("a")])
    place.now += 6 * DAY
    assert swept() == 0
    assert [key for key in place.objects if "/committed/" in key]
    place.now += 8 * DAY
    assert swept() == 1
    assert place.objects == {}


def test_only_files_of_records_in_the_crawls_own_folder_are_looked_at(place: Place, swept: Sweep) -> None:
    others = [f"records/{CRAWL}/note.txt", f"records/{CRAWL}/open/x.warc.gz", f"records/{CRAWL}5/x.warc.gz"]
    for key in (*others, file("a"), file("b").replace("warc.gz", "quarantine"), file("c").replace("warc", "arc")):
        place.put(key, b"1")
    assert swept(retention=0) == 3
    assert {key for key in place.objects if "/superseded/" not in key} == set(others)


def test_plans_of_a_killed_driver_go_a_week_later_and_those_of_a_running_one_stay(place: Place, swept: Sweep) -> None:
    left, mine = (f"records/{CRAWL}/plans/{job}/000000.arrow" for job in ("left", "mine"))
    place.put(left, b"1")
    place.now += 8 * DAY
    place.put(mine, b"1")
    # not earlier because somebody wants superseded files to go at once
    swept(retention=0)
    assert set(place.objects) == {mine}


def test_a_lease_holds_first_everything_then_what_it_says_and_what_it_writes(
    place: Place, storage: RecordStorage, swept: Sweep
) -> None:
    for name in ("held", "free", "mine"):
        place.put(file(name), b"1")
    lease = FileLease(storage, CRAWL, "mine", place.clock)
    lease.renew()
    assert swept(retention=0) == 0
    lease.hold([file("held")])
    assert swept(retention=0) == 1
    assert place.files() == {file(name).rpartition("/")[2] for name in ("held", "mine")}
    lease.end()
    assert swept(retention=0) == 2


def test_a_lease_ends_by_itself_and_renewing_keeps_it(place: Place, storage: RecordStorage) -> None:
    lease = FileLease(storage, CRAWL, "c1", place.clock)
    lease.renew()
    place.now += LIFE * 0.9
    lease.renew()
    lease.confirm()
    place.now += LIFE + MAX_CLOCK_SKEW * 0.9
    assert [held.commit for held in list_active_leases(storage, CRAWL, place.clock)] == ["c1"]
    place.now += MAX_CLOCK_SKEW * 0.2
    assert list_active_leases(storage, CRAWL, place.clock) == []
    assert list_expired_leases(storage, CRAWL, place.clock) == [lease.key]
    # it names no files, so any of the crawl may be gone
    with pytest.raises(EnvironmentFault, match=r"its lease .* expired"):
        lease.confirm()


@pytest.mark.parametrize("gone", ["nothing", "a file that it names", "the lease"])
def test_a_lease_that_ran_out_is_taken_again_if_nobody_acted_on_that(
    place: Place, storage: RecordStorage, gone: str
) -> None:
    place.put(file("held"), b"1")
    lease = FileLease(storage, CRAWL, "c1", place.clock)
    lease.renew()
    lease.hold([file("held")])
    place.now += 5 * LIFE
    if gone == "nothing":
        lease.confirm()
        assert [held.commit for held in list_active_leases(storage, CRAWL, place.clock)] == ["c1"]
        return
    del place.objects[lease.key if gone == "the lease" else file("held")]
    for _ in range(2):
        with pytest.raises(EnvironmentFault, match=r"its lease .* expired"):
            lease.confirm()


def test_a_lease_of_another_machine_holds_until_it_ends_and_one_of_a_dead_process_does_not(
    place: Place, storage: RecordStorage
) -> None:
    lease = FileLease(storage, CRAWL, "c1", place.clock)
    lease.renew()
    content = json.loads(place.objects[lease.key][0])
    number, started, space, boot = content["process"].split("-")
    for process, holds in (
        (f"{number}-{started}-{space}-00000000", True),
        (f"{number}-{started}-{int(space) + 1}-{boot}", True),
        (f"{number}-{int(started) + 1}-{space}-{boot}", False),
        ("", True),
    ):
        place.put(lease.key, json.dumps(content | {"process": process}).encode())
        assert bool(list_active_leases(storage, CRAWL, place.clock)) is holds, process


@pytest.mark.parametrize(
    "content",
    # the last is of a clock that was set back
    [b"", b"[]", b'{"process": "x", "expires": "soon", "files": 3}', b'{"process": "", "expires": 9, "files": null}'],
)
def test_a_lease_that_cannot_be_understood_holds_everything_for_its_time(
    place: Place, storage: RecordStorage, swept: Sweep, content: bytes
) -> None:
    place.put(file("a"), b"1")
    place.put(f"records/{CRAWL}/leases/c1.json", content)
    assert swept(retention=0) == 0
    place.now += LIFE + MAX_CLOCK_SKEW + 1
    assert swept(retention=0) == 1


def test_crawls_without_rows_are_found_by_their_files(place: Place, storage: RecordStorage) -> None:
    place.put(file("a"), b"1")
    place.put("records/CC-MAIN-2018-05/superseded/x.json", b"1")
    place.put("records/.odd name/x.warc.gz", b"1")
    assert crawls_with_files(storage) == ["CC-MAIN-2018-05", CRAWL]


FUTURE = 4_070_908_800.0


def test_a_fetch_lease_of_a_time_to_come_ends_like_any(place: Place, storage: RecordStorage) -> None:
    key = f"records/{CRAWL}/leases/c1.json"
    content = json.dumps({"process": "", "expires": FUTURE, "files": None}).encode()
    place.put(key, content)
    assert len(list_active_leases(storage, CRAWL, place.clock)) == 1
    place.now += LIFE + MAX_CLOCK_SKEW + 1
    assert list_active_leases(storage, CRAWL, place.clock) == []
    place.objects[key] = (content, FUTURE)
    assert list_active_leases(storage, CRAWL, place.clock) == []
