"""Purging against an oracle: no byte of what went is in any file of the home, and others say what they said."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fastwarc import warc as fastwarc
from warcio.archiveiterator import ArchiveIterator

from cc_pipeline.archive.gzip_members import inflate_member
from cc_pipeline.checks.doctor import _check_purges
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.errors import UserInputError
from cc_pipeline.extraction import fetch as fetch_stage
from cc_pipeline.extraction.group_state import RunState
from cc_pipeline.extraction.locate import locate_captures
from cc_pipeline.extraction.parse import parse_records
from cc_pipeline.lake.files import write_rows
from cc_pipeline.lake.lake import Lake
from cc_pipeline.lake.slice import Slice
from cc_pipeline.lake.slices import SlicesChanged, draw_generations, read_purged
from cc_pipeline.lake.vacuum import vacuum
from cc_pipeline.maintenance import maintain, record_erasure
from cc_pipeline.maintenance import purge as purging
from cc_pipeline.maintenance.leftovers import find_leftovers
from cc_pipeline.maintenance.maintain import run_maintenance
from cc_pipeline.maintenance.purge import PurgeReport, purge
from cc_pipeline.maintenance.purge_plan import plan_purge
from cc_pipeline.maintenance.stored_files import find_lost_records, verify
from cc_pipeline.records.file_leases import FileLease, LeaseExpired
from cc_pipeline.records.locations import PLACE_NAME
from cc_pipeline.records.storage import JOURNAL_SUFFIX
from cc_pipeline.records.sweep import sweep
from cc_pipeline.workspace.workspace import Workspace
from cc_pipeline_tests.extraction.stored import dangling
from cc_pipeline_tests.oracles.published import list_differences
from cc_pipeline_tests.world import ARC, NEW, Bucket, Killed, extract, harvested, publish, workspace_of

GOES, OVERLAPS, STAYS = "example.com", "host:www.example.com", "example.org"
TABLES = ("captures", "records", "page_metadata", "page_text", "page_links", "feed_items")


@pytest.fixture(scope="module")
def prepared(bucket: Bucket, tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Homes with three targets that share a stored file, in one crawl and in two."""
    one = tmp_path_factory.mktemp("purge") / "one"
    workspace = harvested(bucket[0], one)
    targets_in(workspace, NEW)
    workspace.close()
    two = shutil.copytree(one, one.with_name("two"))
    workspace = workspace_of(bucket[0], two)
    targets_in(workspace, ARC)
    workspace.close()
    return {1: one, 2: two}


def targets_in(workspace: Workspace, crawl: str) -> None:
    extract(workspace, GOES, STAYS, crawl=crawl)
    extract(workspace, OVERLAPS, crawl=crawl)


def used(bucket: Bucket, prepared: Path, home: Path) -> Workspace:
    workspace = workspace_of(bucket[0], shutil.copytree(prepared, home))
    publish(workspace)
    return workspace


@pytest.fixture
def workspace(prepared: dict[int, Path], bucket: Bucket, tmp_path: Path) -> Workspace:
    return used(bucket, prepared[2], tmp_path / "home")


@pytest.fixture
def small(prepared: dict[int, Path], bucket: Bucket, tmp_path: Path) -> Workspace:
    return used(bucket, prepared[1], tmp_path / "home")


def purged(workspace: Workspace, slug: str = GOES, *, now: bool = False) -> PurgeReport:
    return purge(workspace, plan_purge(workspace, slug, slug), now=now)


def needles(workspace: Workspace, slug: str = GOES) -> list[bytes]:
    """Bytes that only records of one target have: of each stored member, and of what is in it."""
    own: list[bytes] = []
    others: list[bytes] = []
    rows = workspace.lake.read("records").to_pylist()
    kept = {(row["stored_file"], row["stored_offset"]) for row in rows if row["target"] != slug}
    for row in rows:
        if row["stored_file"] is None:
            continue
        data = (workspace.settings.home / "lake" / row["stored_file"]).read_bytes()
        member = data[row["stored_offset"] : row["stored_offset"] + row["stored_length"]]
        inside = inflate_member(member, "", 0).content if row["outcome"] == "fetched" else member
        mine = row["target"] == slug and (row["stored_file"], row["stored_offset"]) not in kept
        (own if mine else others).extend([member, inside])
    rest = b"\0".join(others)
    found = [one[-90:-10] for one in own if len(one) > 120]
    return [one for one in found if one not in rest]


def everything(home: Path) -> Iterator[tuple[Path, bytes]]:
    """Every file of a home, with what its gzip members and the rows of its tables say beside the bytes themselves."""
    for path in home.rglob("*"):
        if not path.is_file():
            continue
        data = path.read_bytes()
        yield path, data
        if path.name.endswith((".warc.gz", ".arc.gz")):
            at = 0
            while at < len(data):
                member = inflate_member(data[at:], str(path), at)
                yield path, member.content
                at += member.consumed
        if path.name.endswith(".parquet") and "tables" in path.parts:
            # a purge that is killed while it writes the rows that stay leaves a file without an end
            with suppress(pa.ArrowInvalid):
                yield path, repr(pq.read_table(path, partitioning=None).to_pydict()).encode()


def traces(home: Path, wanted: list[bytes]) -> list[str]:
    return sorted(
        {f"{path.relative_to(home)}: {one[:40]!r}" for path, data in everything(home) for one in wanted if one in data}
    )


def views(workspace: Workspace, to: Path) -> Path:
    """What other targets have, as a database of its own that can be compared."""
    with duckdb.connect(str(to)) as kept:
        kept.execute(f"ATTACH '{workspace.settings.published_path}' AS published (READ_ONLY)")
        kept.execute("CREATE TABLE capture_targets AS FROM published.capture_targets WHERE target <> 'example.com'")
        kept.execute("CREATE TABLE fetches AS FROM published.fetches WHERE target <> 'example.com'")
        key = "crawl, warc_filename, warc_record_offset"
        for view in ("captures", "records", "page_metadata", "page_text", "page_links", "feed_items", "ledger"):
            kept.execute(f"CREATE TABLE {view} AS FROM published.{view} SEMI JOIN capture_targets USING ({key})")
    return to


def test_nothing_is_left_and_others_are_as_before(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, wanted = workspace.settings.home, needles(workspace)
    assert len(wanted) > 20
    before = views(workspace, tmp_path / "before.duckdb")
    plan = plan_purge(workspace, GOES, GOES)
    assert plan.records > 0
    assert plan.kept_records > 0
    assert plan.holders == ("host_www.example.com",)

    def behind_a_checkpoint(lake: Lake, table: str, *rest: object) -> int:
        if (handle := lake.open(lake.specs[table])) is not None:
            handle.create_checkpoint()
        return vacuum(lake, table, None)

    monkeypatch.setattr(purging, "vacuum", behind_a_checkpoint)
    report = purge(workspace, plan, now=True)
    assert (report.fetches, report.deleted_after) == (0, None)
    assert report.leftovers is not None and not report.leftovers.rows
    assert traces(home, wanted) == []
    assert list_differences(before, views(workspace, tmp_path / "after.duckdb")) == []
    for name in (*TABLES, "slices"):
        assert workspace.lake.read(name, {"target": GOES}).num_rows == 0
    assert GOES not in workspace.lake.read("targets").column("slug").to_pylist()
    assert dangling(workspace) == []
    assert find_lost_records(workspace) == []
    done = verify(workspace.lake, workspace.storage, None)
    assert (done.records, done.is_complete) == (0, True)
    # other programs read what is left of the files from begin to end
    overlapping = workspace.lake.read("records", {"target": "host_www.example.com"}).to_pylist()
    for file in {row["stored_file"] for row in overlapping if row["outcome"] == "fetched"}:
        with (home / "lake" / file).open("rb") as stored:
            sizes = [len(record.content_stream().read()) for record in ArchiveIterator(stored)]
        assert 0 in sizes and max(sizes) > 0
        if file.endswith(".warc.gz"):
            with (home / "lake" / file).open("rb") as stored:
                urls = {record.headers.get("WARC-Target-URI") for record in fastwarc.ArchiveIterator(stored)}
            assert urls >= {row["url"] for row in overlapping if row["stored_file"] == file}
    assert [report.requests for report in extract(workspace, OVERLAPS)] == [0, 0, 0]
    # and it can be asked for again
    reports = extract(workspace, GOES)
    assert reports[0].rows > 0
    assert sum(int(one["fetched"]) for one in reports[1].per_target.values()) > 0
    assert workspace.lake.read("records", {"target": GOES}).num_rows > 0
    assert find_leftovers(workspace.lake, GOES).rows == {"targets": 1}


def days_later(monkeypatch: pytest.MonkeyPatch, days: int) -> None:
    now = time.time() + days * 86_400
    monkeypatch.setattr(time, "time", lambda: now)
    monkeypatch.setattr(maintain, "sweep", partial(sweep, clock=lambda: now))


@pytest.mark.process
def test_a_reader_of_before_reads_until_the_retention_has_passed(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, wanted = workspace.settings.home, needles(workspace)
    with duckdb.connect(str(workspace.settings.published_path), read_only=True) as reader:
        count = "SELECT count(*), sum(length(text)) FROM page_text"
        before = reader.execute(count).fetchone()
        report = purged(workspace)
        assert report.deleted_after is not None
        assert reader.execute(count).fetchone() == before
    with duckdb.connect(str(workspace.settings.published_path), read_only=True) as reader:
        assert reader.execute("SELECT count(*) FROM capture_targets WHERE target = 'example.com'").fetchone() == (0,)
        assert reader.execute("SELECT count(*) FROM targets WHERE slug = 'example.com'").fetchone() == (0,)
    assert traces(home, wanted) != []
    # maintenance meanwhile does not begin the week anew
    for days in (3, 3, 2):
        assert traces(home, wanted) != []
        days_later(monkeypatch, days)
        run_maintenance(workspace)
    for needle in wanted:
        assert not any(needle in data for path, data in everything(home) if "records" in path.parts)


#: What is stopped, in the order of the steps, and whether behind its first call or before it.
STEPS: list[tuple[object, str, bool]] = [
    (purging.targets, "delete_definitions", True),
    (purging, "publish_warehouse", False),
    (purging, "note", True),
    (purging, "erase_journal_rows", True),
    (record_erasure, "_write_copy", True),
    (purging, "erase_records", True),
    (purging, "compact", False),
    (purging, "compact", True),
    (purging, "remove_purged", False),
    (purging, "sweep", False),
]


@pytest.mark.parametrize(("room", "step", "behind"), STEPS, ids=[f"{name}-{behind}" for _, name, behind in STEPS])
def test_stopped_at_any_step_nothing_is_visible_and_maintenance_finishes(
    small: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: object, step: str, behind: bool
) -> None:
    workspace, wanted = small, needles(small)
    before = views(workspace, tmp_path / "before.duckdb")
    real: Callable[..., object] = getattr(room, step)

    def killed(*given: object, **named: object) -> object:
        if behind:
            real(*given, **named)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(room, step, killed)
        with pytest.raises(Killed):
            purged(workspace)
    publish(workspace)
    with duckdb.connect(str(workspace.settings.published_path), read_only=True) as reader:
        assert reader.execute("SELECT count(*) FROM capture_targets WHERE target = 'example.com'").fetchone() == (0,)
    told = [*_check_purges(workspace.lake)]
    assert [finding.level for finding in told] == ([] if step in ("remove_purged", "sweep") else ["note"])
    run_maintenance(workspace)
    assert [*_check_purges(workspace.lake)] == []
    assert read_purged(workspace.lake).num_rows == 0
    assert list_differences(before, views(workspace, tmp_path / "after.duckdb")) == []
    assert dangling(workspace) == []
    # a second call deletes at once what waits
    assert purged(workspace, now=True).leftovers.rows == {}
    assert traces(workspace.settings.home, wanted) == []


def append_lost(workspace: Workspace, table: str, crawl: str = NEW) -> None:
    """Rows of a run that was killed, or refused, between its append and its commit."""
    rows = workspace.lake.read(table, {"crawl": NEW, "target": GOES})
    [generation] = draw_generations([Slice(crawl, GOES)]).values()
    written = write_rows(workspace.lake, table, crawl, rows.to_batches(), {GOES: generation})
    workspace.lake.append(table, written.files)


def rows_in_files(workspace: Workspace, *tables: str) -> int:
    files = [path for table in tables for path in workspace.lake.pin(table).files]
    return sum(
        pq.read_table(path, columns=["target"], partitioning=None)["target"].to_pylist().count(GOES) for path in files
    )


def test_rows_that_no_commit_named_go_with_their_bytes(small: Workspace) -> None:
    wanted = needles(small)
    for table in TABLES:
        append_lost(small, table)
    append_lost(small, "captures", ARC)
    plan = plan_purge(small, GOES, GOES)
    assert find_leftovers(small.lake, GOES).rows.keys() >= {"captures", "records", "page_text"}
    report = purge(small, plan, now=True)
    assert rows_in_files(small, *TABLES) == 0
    assert report.leftovers is not None and not report.leftovers.rows
    assert traces(small.settings.home, wanted) == []
    assert dangling(small) == []


def kill_fetch(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """A fetch of two targets that was killed before it committed; the records of the one in its file."""
    slugs = [GOES, STAYS]
    workspace.register_targets([parse_target(text) for text in slugs])
    locate_captures(workspace, NEW, slugs)
    with monkeypatch.context() as patch:
        patch.setattr(fetch_stage, "_commit", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            fetch_stage.fetch_captures(workspace, NEW, slugs)
    assert workspace.lake.read("records").num_rows == 0
    folder = workspace.settings.home / "lake" / "records" / NEW
    [journal] = [path for path in folder.iterdir() if path.name.endswith(".warc.gz" + JOURNAL_SUFFIX)]
    mine = {tuple(row[name] for name in PLACE_NAME) for row in rows_with_places(workspace, GOES)}
    data = journal.with_name(journal.name.removesuffix(JOURNAL_SUFFIX)).read_bytes()
    rows = [json.loads(line) for line in journal.read_bytes().splitlines()]
    wanted = [
        data[row["stored_offset"] : row["stored_offset"] + row["stored_length"]]
        for row in rows
        if tuple(row[name] for name in PLACE_NAME) in mine
    ]
    assert 0 < len(wanted) < len(rows)
    return wanted


@pytest.mark.process
@pytest.mark.parametrize("is_killed", [False, True])
def test_what_a_killed_fetch_left_goes_too(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_killed: bool
) -> None:
    workspace = harvested(bucket[0], tmp_path / "home")
    wanted = kill_fetch(workspace, monkeypatch)
    folder = tmp_path / "home" / "lake" / "records" / NEW

    def kill(*_: object) -> None:
        raise Killed

    if is_killed:
        with monkeypatch.context() as patch, pytest.raises(Killed):
            patch.setattr(purging, "erase_records", kill)
            purged(workspace, now=True)
    else:
        purged(workspace, now=True)
    # what it had of the other target is taken over, not fetched again
    report = fetch_stage.fetch_captures(workspace, NEW, [STAYS])
    assert report.requests == 0
    run_maintenance(workspace)
    assert not any(one in data for _, data in everything(folder) for one in wanted)
    assert dangling(workspace) == []
    assert verify(workspace.lake, workspace.storage, None).records == 0


def test_a_purge_that_slept_while_it_copied_a_file_does_not_put_the_copy_back(
    small: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another purge may have erased more records of that file meanwhile."""
    real = record_erasure._write_copy

    def write_and_sleep(*given: Any) -> None:
        real(*given)
        monkeypatch.setattr(FileLease, "has_expired", lambda _: True)

    folder = small.settings.home / "lake" / "records"
    before = [data for path, data in everything(folder) if path.name.endswith(".gz")]
    monkeypatch.setattr(record_erasure, "_write_copy", write_and_sleep)
    with pytest.raises(LeaseExpired):
        purged(small)
    assert [data for path, data in everything(folder) if path.name.endswith(".gz")] == before


def test_a_fetch_that_adopts_and_commits_while_a_purge_looks_keeps_its_records(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows come into the table, and then its journal goes: a purge that looks the other way round sees neither."""
    workspace = harvested(bucket[0], tmp_path / "home")
    wanted = kill_fetch(workspace, monkeypatch)
    real = record_erasure.stream_crawl

    def stream_then_fetch(*given: Any, **named: Any) -> Iterator[pa.RecordBatch]:
        yield from real(*given, **named)
        assert fetch_stage.fetch_captures(workspace, NEW, [STAYS]).requests == 0

    monkeypatch.setattr(record_erasure, "stream_crawl", stream_then_fetch)
    purged(workspace)
    folder = workspace.settings.home / "lake" / "records" / NEW
    assert not any(one in data for _, data in everything(folder) for one in wanted)
    done = verify(workspace.lake, workspace.storage, None)
    assert (done.read > 0, done.records) == (True, 0)


def rows_with_places(workspace: Workspace, target: str) -> list[dict[str, object]]:
    return workspace.lake.read("captures", {"target": target}, PLACE_NAME).to_pylist()


def fetch_beside(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], object], *slugs: str
) -> None:
    """A fetch during which something happens: when its records are stored, and before they are committed."""
    real = fetch_stage._commit

    def commit(*given: object) -> None:
        monkeypatch.setattr(fetch_stage, "_commit", real)
        meanwhile()
        real(*given)

    monkeypatch.setattr(fetch_stage, "_commit", commit)
    fetch_stage.fetch_captures(workspace, NEW, slugs)


def test_what_a_fetch_stores_after_its_target_was_purged_is_never_seen_and_goes(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = harvested(bucket[0], tmp_path / "home")
    slugs = [GOES, STAYS]
    workspace.register_targets([parse_target(text) for text in slugs])
    locate_captures(workspace, NEW, slugs)
    reports: list[PurgeReport] = []

    def meanwhile() -> None:
        reports.append(purged(workspace))

    with pytest.raises((SlicesChanged, UserInputError)):
        fetch_beside(workspace, monkeypatch, meanwhile, *slugs)
    assert [report.fetches for report in reports] == [1]
    assert GOES not in workspace.lake.read("targets").column("slug").to_pylist()
    assert {*workspace.lake.read("records").column("target").to_pylist()} <= {STAYS}
    folder = tmp_path / "home" / "lake" / "records" / NEW

    def journaled() -> int:
        return sum(path.read_bytes().count(b"\n") for path in folder.glob("*.jsonl"))

    stays = workspace.lake.read("captures", {"target": STAYS}).num_rows
    assert journaled() > stays
    run_maintenance(workspace)
    assert journaled() == stays
    assert read_purged(workspace.lake).num_rows == 0
    # what was stored of the other target is used
    assert fetch_stage.fetch_captures(workspace, NEW, [STAYS]).requests == 0


def test_a_target_that_is_purged_before_its_fetch_is_not_fetched_nor_defined_again(
    bucket: Bucket, tmp_path: Path
) -> None:
    workspace = harvested(bucket[0], tmp_path / "home")
    workspace.register_targets([parse_target(GOES)])
    run = RunState(workspace)
    locate_captures(workspace, NEW, [GOES], run=run)
    purged(workspace)
    before = workspace.transport.stats.requests
    with pytest.raises(SlicesChanged):
        fetch_stage.fetch_captures(workspace, NEW, [GOES], run=run)
    for stage in (locate_captures, fetch_stage.fetch_captures, parse_records):
        with pytest.raises(UserInputError, match="was removed or purged"):
            stage(workspace, NEW, [GOES])
    assert workspace.transport.stats.requests == before
    assert workspace.lake.read("targets").num_rows == 0
    assert extract(workspace, GOES)[1].rows, "a person may name it again"


def test_a_fetch_that_reuses_moved_records_makes_the_purge_wait_for_it(
    small: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = small
    prefix = "prefix:www.example.com/"
    workspace.register_targets([parse_target(prefix)])
    slug = parse_target(prefix).slug
    locate_captures(workspace, NEW, [slug])
    fetch_beside(workspace, monkeypatch, lambda: purged(workspace), slug)
    assert workspace.lake.read("records", {"target": slug}).num_rows
    assert read_purged(workspace.lake).num_rows > 0
    run_maintenance(workspace)
    assert read_purged(workspace.lake).num_rows == 0
    assert dangling(workspace) == []
    assert verify(workspace.lake, workspace.storage, None).records == 0


@pytest.mark.process
def test_parts_of_a_set_go_and_its_members_targets_stay(bucket: Bucket, tmp_path: Path) -> None:
    root, truth = bucket
    workspace = harvested(root, tmp_path / "home")
    members = ", ".join([*truth.domains()[:3], *(f"member-{number}.example" for number in range(80))])
    extract(workspace, f"set:press = {members}")
    extract(workspace, STAYS)
    assert any("~" in slug for slug in workspace.lake.read("targets").column("slug").to_pylist())
    plan = plan_purge(workspace, "set-press", "set:press")
    assert plan.rows["captures"] > 0
    purge(workspace, plan, now=True)
    assert set(workspace.lake.read("records").column("target").to_pylist()) == {STAYS}
    assert workspace.lake.read("targets").column("slug").to_pylist() == [STAYS]
    assert dangling(workspace) == []
    again = plan_purge(workspace, "set-press", "set:press")
    assert again.is_empty


def test_a_target_that_found_nothing_goes_whole(small: Workspace) -> None:
    workspace = small
    extract(workspace, "exmaple.test")
    plan = plan_purge(workspace, "exmaple.test", "exmaple.test")
    assert plan.is_empty
    assert not plan_purge(workspace, GOES, GOES).is_empty
    purging.remove_empty_targets(workspace, {plan.slug})
    assert "exmaple.test" not in workspace.lake.read("targets").column("slug").to_pylist()
    run_maintenance(workspace)
    assert workspace.lake.read("slices", {"target": "exmaple.test"}).num_rows == 0
