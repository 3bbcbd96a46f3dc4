"""Purging against an oracle: no byte of what went is in any file of the home, and others say what they said."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cc_pipeline.archive.gzip_members import inflate_member
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.extraction import fetch as fetch_stage
from cc_pipeline.extraction.locate import locate_captures
from cc_pipeline.lake.lake import Lake
from cc_pipeline.lake.vacuum import vacuum
from cc_pipeline.maintenance import maintain, record_moves
from cc_pipeline.maintenance import purge as purging
from cc_pipeline.maintenance import record_moves as moving
from cc_pipeline.maintenance.leftovers import find_leftovers
from cc_pipeline.maintenance.maintain import run_maintenance
from cc_pipeline.maintenance.purge import PurgeReport, purge
from cc_pipeline.maintenance.purge_plan import list_unfinished_purges, plan_purge, purged_tables
from cc_pipeline.maintenance.stored_files import find_lost_records, verify
from cc_pipeline.records.file_leases import RUNS, lease
from cc_pipeline.records.storage import JOURNAL_SUFFIX
from cc_pipeline.records.sweep import sweep
from cc_pipeline.workspace.workspace import Workspace
from cc_pipeline_tests.extraction.stored import dangling, stored_files
from cc_pipeline_tests.oracles.published import list_differences
from cc_pipeline_tests.world import ARC, NEW, Bucket, extract, harvest, harvested, publish, workspace_of

GOES, OVERLAPS, STAYS = "example.com", "host:www.example.com", "example.org"


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
    assert plan.count_files(shared=True) >= 2, "WARC and ARC files that others need"
    assert plan.kept_records > 0
    assert plan.holders == ("host_www.example.com",)

    def behind_a_checkpoint(lake: Lake, table: str, *rest: object) -> int:
        if (handle := lake.open(lake.specs[table])) is not None:
            handle.create_checkpoint()
        return vacuum(lake, table, None)

    monkeypatch.setattr(purging, "vacuum", behind_a_checkpoint)
    parts = (home / "lake" / "tables" / "page_text").rglob("*.parquet")
    part = next(path for path in parts if GOES in pq.read_table(path, columns=["target"])["target"].to_pylist())
    data = part.read_bytes()
    report = purge(workspace, plan, now=True)
    assert (report.waiting, report.deleted_after) == (0, None)
    assert report.leftovers is not None and report.leftovers.is_clean
    assert traces(home, wanted) == []
    assert list_differences(before, views(workspace, tmp_path / "after.duckdb")) == []
    for spec in purged_tables(workspace.lake):
        assert workspace.lake.read(spec.name, {"target": GOES}).num_rows == 0
    assert GOES not in workspace.lake.read("targets").column("slug").to_pylist()
    assert dangling(workspace) == []
    assert find_lost_records(workspace) == []
    done = verify(workspace.lake, workspace.storage, None)
    assert (done.records, done.is_complete) == (0, True)
    assert list_unfinished_purges(workspace.place) == []
    part.write_bytes(data)
    assert find_leftovers(workspace, GOES, [NEW, ARC]).sentences == (
        "LEFT: 1 superseded file of tables with its rows; a reader may have them open",
    )
    part.unlink()
    # and it can be asked for again
    reports = extract(workspace, GOES)
    assert reports[0].rows > 0
    assert sum(int(one["fetched"]) for one in reports[1].per_target.values()) > 0
    assert find_leftovers(workspace, GOES, [NEW]).rows["records"] > 0


def days_later(monkeypatch: pytest.MonkeyPatch, days: int) -> None:
    now = time.time() + days * 86_400
    monkeypatch.setattr(time, "time", lambda: now)
    monkeypatch.setattr(maintain, "sweep", partial(sweep, clock=lambda: now))


@pytest.mark.process
def test_a_reader_of_before_reads_until_the_retention_has_passed(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, wanted = workspace.settings.home, needles(workspace)
    old = stored_files(workspace)
    with duckdb.connect(str(workspace.settings.published_path), read_only=True) as reader:
        count = "SELECT count(*), sum(length(text)) FROM page_text"
        before = reader.execute(count).fetchone()
        report = purged(workspace)
        assert report.waiting >= 2
        assert report.deleted_after is not None
        assert reader.execute(count).fetchone() == before
    assert old <= stored_files(workspace), "and the bytes are there"
    with duckdb.connect(str(workspace.settings.published_path), read_only=True) as reader:
        assert reader.execute("SELECT count(*) FROM capture_targets WHERE target = 'example.com'").fetchone() == (0,)
        assert reader.execute("SELECT count(*) FROM targets WHERE slug = 'example.com'").fetchone() == (0,)
    assert traces(home, wanted) != []
    # maintenance meanwhile does not begin the week anew
    [note] = list_unfinished_purges(workspace.place)
    for days in (3, 3, 2):
        assert list_unfinished_purges(workspace.place) == [note]
        days_later(monkeypatch, days)
        run_maintenance(workspace)
    assert not {home / "lake" / file for files in note.old.values() for file in files} & set(home.rglob("*"))
    assert list_unfinished_purges(workspace.place) == []


#: What is stopped, in the order of the steps, and whether behind its first call or before it.
STEPS: list[tuple[object, str, bool]] = [
    (purging, "write_note", True),
    (purging, "empty_notes", True),
    (purging.Stage, "empty", True),
    (purging.targets, "delete_definitions", False),
    (purging, "publish_warehouse", False),
    (record_moves, "rewrite_file", True),
    (record_moves, "_relocate_rows", True),
    (purging, "vacuum", False),
    (purging, "end_note", False),
]


@pytest.mark.matrix
@pytest.mark.parametrize(("room", "step", "behind"), STEPS, ids=[name for _, name, _ in STEPS])
def test_stopped_at_any_step_it_finishes_the_next_time(
    small: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: object, step: str, behind: bool
) -> None:
    workspace, wanted, plan = small, needles(small), plan_purge(small, GOES, GOES)
    before = views(workspace, tmp_path / "before.duckdb")
    real: Callable[..., object] = getattr(room, step)

    def killed(*given: object, **named: object) -> object:
        if behind:
            real(*given, **named)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(room, step, killed)
        with pytest.raises(KeyboardInterrupt):
            purged(workspace, now=True)
    assert purged(workspace, now=True).waiting == 0
    assert traces(workspace.settings.home, wanted) == []
    assert list_differences(before, views(workspace, tmp_path / "after.duckdb")) == []
    assert dangling(workspace) == []
    assert list_unfinished_purges(workspace.place) == []
    assert find_leftovers(workspace, GOES, plan.files).is_clean


@pytest.mark.process
def test_what_a_killed_fetch_left_goes_too(bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = harvested(bucket[0], tmp_path / "home")
    targets = [parse_target(text) for text in (GOES, STAYS)]
    workspace.register_targets(targets)
    slugs = [target.slug for target in targets]
    locate_captures(workspace, NEW, slugs)
    with monkeypatch.context() as patch:
        patch.setattr(fetch_stage, "_commit", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            fetch_stage.fetch_captures(workspace, NEW, slugs)
    assert workspace.lake.read("records").num_rows == 0
    folder = tmp_path / "home" / "lake" / "records" / NEW
    [journal] = [path for path in folder.iterdir() if path.name.endswith(".warc.gz" + JOURNAL_SUFFIX)]
    purged(workspace, now=True)
    assert not journal.exists()
    assert not journal.with_name(journal.name.removesuffix(JOURNAL_SUFFIX)).exists()
    assert not any(b"example.com" in path.read_bytes() for path in folder.rglob("*") if path.is_file())
    # what it had of the other target is taken over, not fetched again
    report = fetch_stage.fetch_captures(workspace, NEW, [STAYS])
    assert report.requests == 0
    assert dangling(workspace) == []


def test_a_running_fetch_of_the_target_is_refused_and_others_are_not(small: Workspace) -> None:
    workspace, plan = small, plan_purge(small, GOES, GOES)
    with (
        lease(workspace.storage, NEW, "f" * 32, [GOES]),
        pytest.raises(EnvironmentFault, match=r"is being fetched in CC-MAIN-2024-22"),
    ):
        purge(workspace, plan)
    unreadable = f"{RUNS}/{'d' * 32}.json"
    workspace.place.put(unreadable, b"cut off")
    with pytest.raises(EnvironmentFault, match=f"{GOES} is being fetched by an unknown process, since {unreadable}"):
        purge(workspace, plan)
    workspace.place.delete(unreadable)
    assert workspace.lake.read("records", {"target": GOES}).num_rows
    with lease(workspace.storage, NEW, "e" * 32, [STAYS]):
        purge(workspace, plan)
    assert workspace.lake.read("records", {"target": GOES}).num_rows == 0


@pytest.mark.process
def test_records_that_a_fetch_takes_over_meanwhile_stay(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another target's rows name records of the file that is being written again: they move along."""
    real = purging.move_records
    rows = workspace.lake.read("records", {"crawl": NEW, "target": GOES})

    def meanwhile(*given: object) -> int:
        monkeypatch.setattr(purging, "move_records", real)
        late = rows.set_column(rows.schema.get_field_index("target"), "target", [["late"] * rows.num_rows])
        follow = moving._relocate_rows

        def taken_over(*passed: object) -> None:
            monkeypatch.setattr(moving, "_relocate_rows", follow)
            workspace.lake.commit("records", late.select(rows.schema.names), [{"crawl": NEW, "target": "late"}], {})
            follow(*passed)

        monkeypatch.setattr(moving, "_relocate_rows", taken_over)
        return real(*given)

    monkeypatch.setattr(purging, "move_records", meanwhile)
    purged(workspace, now=True)
    assert workspace.lake.read("records", {"target": "late"}).num_rows == rows.num_rows
    assert dangling(workspace) == []
    assert verify(workspace.lake, workspace.storage, None).records == 0


@pytest.mark.process
def test_another_home_on_the_lake_keeps_what_it_shows_and_is_named(bucket: Bucket, tmp_path: Path) -> None:
    lake = str(tmp_path / "lake")
    mine, other = (workspace_of(bucket[0], tmp_path / name, lake=lake) for name in ("mine", "other"))
    harvest(mine)
    extract(mine, GOES, STAYS)
    for workspace in (mine, other):
        publish(workspace)
    plan = plan_purge(mine, GOES, GOES)
    assert any("1 other home on this lake" in text for text in plan.out_of_reach)
    purge(mine, plan, now=True)
    count = "SELECT count(*), count(text) FROM page_text WHERE domain = 'example.com'"
    for workspace, shows in ((mine, False), (other, True)):
        with duckdb.connect(str(workspace.settings.published_path), read_only=True) as reader:
            [rows, texts] = reader.execute(count).fetchone() or (0, 0)
            assert bool(rows and texts) is shows
    seen = find_leftovers(other, GOES, [NEW])
    assert (seen.published > 0, seen.superseded > 0, seen.rows, seen.is_clean) == (True, True, {}, False)
    publish(other)
    assert purged(other, now=True).waiting == 0, "begun by one home, ended by another"
    for workspace in (mine, other):
        assert find_leftovers(workspace, GOES, [NEW]).is_clean
    left = list((tmp_path / "lake" / "tables" / "page_text").rglob("*.parquet"))
    assert {target for path in left for target in pq.read_table(path)["target"].to_pylist()} == {STAYS}


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
    purging.remove_empty_targets(workspace, {plan.slug}, plan.slices)
    assert "exmaple.test" not in workspace.lake.read("targets").column("slug").to_pylist()
    assert workspace.lake.read("lookups", {"target": "exmaple.test"}).num_rows == 0
    assert workspace.lake.read("fetches", {"target": "exmaple.test"}).num_rows == 0
