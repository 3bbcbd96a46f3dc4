"""The fault matrix: every kind, once or for good, over a partition; the ledger balances and names them."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from cc_pipeline.archive.record import sha1_base32
from cc_pipeline.records.orders import RecordOptions
from cc_pipeline.records.range_plan import Coalescing, PlannedRange, plan_ranges
from cc_pipeline.records.retry_policy import FetchRetryPolicy
from cc_pipeline.records.segments import retire_journals
from cc_pipeline.stores.answer import Timeouts
from cc_pipeline.transport.client import Transport
from cc_pipeline.transport.ranges import RetryPolicy
from cc_pipeline.transport.source_client import SourceOptions
from cc_pipeline_tests.faultserver import FAULT_KINDS, FaultServer, Rule, Scene
from cc_pipeline_tests.records.fetching import Fetched, fetch_table
from cc_pipeline_tests.records.planned import captures_table, html_record, shelf_at
from cc_pipeline_tests.records.reasons import REASONS

CRAWL = "CC-MAIN-2024-22"
RECORDS = 2_000
FILES = 20
#: Columns that may differ between two runs over the same captures (a record's stored length counts its source's URI).
VARYING = ("fetched_at", "attempts", "stored_file", "stored_offset", "stored_length")

#: What a fault that never goes away becomes. Throttling and lost connections stop the whole run when nothing
#: else comes through; over a tenth of the ranges they become rows.
PERSISTENT = {
    # where nothing else is asked for, a refused range may stand for a source that refuses
    "403": {"forbidden", "refused"},
    "404": {"not_found"},
    "416": {"range_not_satisfiable"},
    "429": {"throttled", "refused"},
    "500": {"server_error"},
    "503": {"throttled", "refused"},
    "reset": {"connection_reset", "short_body"},
    "cut": {"short_body"},
    "stall": {"timeout"},
    "drip": {"timeout"},
    "short": {"short_body"},
    "long": {"long_body"},
    "empty": {"empty_body"},
    "whole_object": {"whole_object"},
    "xml_200": {"error_document", "refused"},
    "wrong_range": {"wrong_range"},
    "no_range": {"wrong_range"},
    "changed_etag": {"changed_object"},
    "garbage": {"not_gzip"},
    "bit_flip": {"gzip_corrupt", "not_a_record", "gzip_truncated"},
    "truncated_gzip": {"gzip_truncated", "gzip_corrupt"},
    "wrong_target": {"wrong_target"},
}
#: About eight records a range, so that a bad one has company.
TOGETHER = Coalescing(gap=1 << 20, span=8_000)
QUARANTINED = {"garbage", "bit_flip", "truncated_gzip", "wrong_target"}
#: One kind of each outcome and of each way to it: refused, gone, cut, damaged, odd.
IN_FIRST_GEAR = {"404", "503", "cut", "truncated_gzip", "changed_etag"}


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, pa.Table]:
    """2,000 records in 20 files, with gaps between them that no range bridges."""
    folder = tmp_path_factory.mktemp("bucket")
    draw = random.Random(5)
    rows = []
    contents = [bytearray() for _ in range(FILES)]
    for number in range(RECORDS):
        url = f"https://example.com/page/{number}"
        body = b"<html>" + draw.randbytes(draw.randint(200, 900)) + b"</html>"
        member = html_record(url, body)
        file = contents[number % FILES]
        rows.append(
            {
                "url": url,
                "content_digest": sha1_base32(body),
                "warc_filename": f"f{number % FILES:02d}.warc.gz",
                "warc_record_offset": len(file),
                "warc_record_length": len(member),
            }
        )
        file += member + bytes(40)
    for number, file in enumerate(contents):
        (folder / f"f{number:02d}.warc.gz").write_bytes(file)
    return folder, captures_table(rows, CRAWL)


#: What shows only after a timeout. Others are given time: on a busy machine a good answer takes a while too.
SILENT = {"stall", "drip"}


def fetch(
    url: str,
    captures: pa.Table,
    lake: Path,
    commit: str,
    held: pa.Table | None = None,
    *,
    silent: bool = False,
    **options: object,
) -> Fetched:
    retry = RetryPolicy(attempts=3, base=0.001, longest=0.002)
    brief = Timeouts(connect=20, silence=1, window=2, slowest=1_000_000)
    timeouts = brief if silent else Timeouts(connect=20, silence=20, window=30, slowest=1_000_000)
    chosen: dict[str, object] = {"coalescing": Coalescing(gap=0), "give_up_after": 200} | options
    with Transport(url, SourceOptions(retry=retry, timeouts=timeouts)) as transport, shelf_at(lake) as storage:
        result = fetch_table(
            captures, transport, storage, crawl=CRAWL, commit=commit, held=held, options=RecordOptions(**chosen)
        )
        retire_journals(storage, result.settled)
        return result


def same(one: pa.Table, other: pa.Table) -> bool:
    return bool(one.drop_columns(VARYING) == other.drop_columns(VARYING))


def balanced(result: Fetched, captures: pa.Table) -> bool:
    names = ("warc_filename", "warc_record_offset")
    keys = list(zip(*(result.table.column(name).to_pylist() for name in names), strict=True))
    asked = list(zip(*(captures.column(name).to_pylist() for name in names), strict=True))
    return keys == asked and sum(result.outcomes.values()) == captures.num_rows


@pytest.fixture(scope="module")
def faultless(bucket: tuple[Path, pa.Table], tmp_path_factory: pytest.TempPathFactory) -> pa.Table:
    folder, captures = bucket
    result = fetch(str(folder), captures, tmp_path_factory.mktemp("lake"), "c0")
    assert result.outcomes == {"fetched": RECORDS}
    assert pc.unique(result.table.column("digest_check")).to_pylist() == ["match"]
    return result.table


def test_the_matrix_knows_every_kind() -> None:
    assert set(PERSISTENT) == set(FAULT_KINDS)
    assert set().union(*PERSISTENT.values()) <= REASONS


def test_all_transient_faults_at_once_change_nothing(
    bucket: tuple[Path, pa.Table], faultless: pa.Table, tmp_path: Path
) -> None:
    folder, captures = bucket
    captures, faultless = (table.slice(0, 1_000) for table in (captures, faultless))
    rules = [Rule(kind, share=0.01, retry_after=0, bytes_per_second=50) for kind in FAULT_KINDS]
    with FaultServer(folder, rules=rules) as server:
        result = fetch(server.url, captures, tmp_path, "c1", silent=True)
        assert {hit.fault for hit in server.hits} == {*FAULT_KINDS, None}
        assert balanced(result, captures)
        for commit in ("c2", "c3", "c4"):  # a range may have met several faults that only a later look cures
            result = fetch(server.url, captures, tmp_path, commit, held=result.table, silent=True)
    assert result.outcomes == {"fetched": 1_000}
    assert same(result.table, faultless)


@pytest.mark.matrix
@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.smoke if kind in IN_FIRST_GEAR else ()) for kind in FAULT_KINDS]
)
def test_persistent_faults_are_named_and_take_nothing_with_them(
    bucket: tuple[Path, pa.Table], faultless: pa.Table, tmp_path: Path, kind: str
) -> None:
    folder, captures = bucket
    captures, faultless = (table.slice(0, 500) for table in (captures, faultless))
    share = 0.01 if kind in ("stall", "drip", "403", "429", "503", "xml_200") else 0.04
    rule = Rule(kind, times=None, share=share, retry_after=0, bytes_per_second=50)
    with FaultServer(folder, rules=[rule]) as server:
        first = fetch(server.url, captures, tmp_path, "c1", silent=kind in SILENT)
        assert balanced(first, captures)
        # whether a host answers again may be asked without a range
        hit = {(hit.key, hit.range) for hit in server.hits if hit.fault and hit.range}
        assert hit
        asked = Counter((hit.key, hit.range) for hit in server.hits)
        # it gave the others just now
        result = fetch(
            server.url, captures, tmp_path, "c2", first.table, silent=kind in SILENT, source_gave_good_record=True
        )
        fetched_twice = Counter((h.key, h.range) for h in server.hits)
    outcome = "quarantined" if kind in QUARANTINED else "missing"
    bad = [row for row in result.table.to_pylist() if row["outcome"] != "fetched"]
    assert {row["outcome"] for row in bad} <= {outcome}
    assert {row["reason"] for row in bad} <= PERSISTENT[kind]
    spans = {
        (
            row["warc_filename"],
            f"bytes={row['warc_record_offset']}-{row['warc_record_offset'] + row['warc_record_length'] - 1}",
        )
        for row in bad
    }
    # the second run sees little more of a file than answers with ETags of their own, which then say nothing
    if kind != "changed_etag":
        assert spans == hit
        assert {row["unsuccessful_runs"] for row in bad if row["is_final"] is False} <= {1, 2}
    assert all(row["detail"] for row in bad)
    good = [row["outcome"] == "fetched" for row in result.table.to_pylist()]
    assert same(result.table.filter(pa.array(good)), faultless.filter(pa.array(good)))
    # nothing good was fetched a second time
    for name, times in fetched_twice.items():
        if name not in hit:
            assert times == asked[name], name


def test_quarantined_bytes_are_kept_as_they_came(bucket: tuple[Path, pa.Table], tmp_path: Path) -> None:
    folder, captures = bucket[0], bucket[1].slice(0, 500)
    with FaultServer(folder, rules=[Rule("garbage", times=None, share=0.05)]) as server:
        result = fetch(server.url, captures, tmp_path, "c1")
        rows = [row for row in result.table.to_pylist() if row["outcome"] == "quarantined"]
        assert rows
        with shelf_at(tmp_path) as storage:
            for row in rows:
                raw = storage.transport.read(row["stored_file"], row["stored_offset"], row["stored_length"]).data
                assert len(raw) == row["warc_record_length"]
        server.set_rules([])
        untouched = fetch(server.url, captures, tmp_path, "c2", held=result.table)
        assert untouched.outcomes == result.outcomes
        replayed = fetch(server.url, captures, tmp_path, "c3", held=result.table, retry_settled=True)
    assert replayed.outcomes == {"fetched": 500}
    assert replayed.requests == len(rows)


@pytest.mark.parametrize("named", ["f0", "f1"])
def test_files_in_trouble_cost_little_and_keep_none_of_the_others_away(
    bucket: tuple[Path, pa.Table], tmp_path: Path, named: str
) -> None:
    """Ten files fail one after the other, asked for before or after all that are whole."""
    folder, captures = bucket
    planned = RECORDS // FILES
    with FaultServer(folder, rules=[Rule("500", key=f"{named}*", times=None)]) as server:
        first = fetch(server.url, captures, tmp_path, "c1", give_up_after=20)
        assert first.outcomes == {"fetched": RECORDS // 2, "missing": RECORDS // 2}
        lost = [row for row in first.table.to_pylist() if row["outcome"] == "missing"]
        assert {(row["reason"], row["is_final"], row["unsuccessful_runs"]) for row in lost} == {
            ("server_error", False, 1)
        }
        asked = Counter(hit.key for hit in server.hits)
        assert max(asked[f"{named}{n}.warc.gz"] for n in range(10)) <= 1.2 * planned + 3
        done = len(server.hits)
        server.set_rules([])
        result = fetch(server.url, captures, tmp_path, "c2", held=first.table)
    assert result.outcomes == {"fetched": RECORDS}
    assert result.reused == RECORDS // 2
    assert len(server.hits) - done == RECORDS // 2


def test_what_failed_for_a_moment_is_asked_for_again_though_other_files_fail(
    bucket: tuple[Path, pa.Table], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first requests fail, then all go well but for ten files at the end, which have the source look dead."""
    folder, captures = bucket
    asked: list[str] = []
    scripted = Scene.fault_for

    def fault_for(scene: Scene, key: str, span: str) -> Rule | None:
        asked.append(key)
        return Rule("503") if len(asked) <= 128 else scripted(scene, key, span)

    monkeypatch.setattr(Scene, "fault_for", fault_for)
    with FaultServer(folder, rules=[Rule("500", key="f1*", times=None)]) as server:
        first = fetch(server.url, captures, tmp_path, "c1", give_up_after=20)
    assert first.outcomes == {"fetched": RECORDS // 2, "missing": RECORDS // 2}


@pytest.mark.matrix
@pytest.mark.parametrize("kind", FAULT_KINDS)
def test_ranges_that_fail_among_others_cost_what_the_docs_say(
    bucket: tuple[Path, pa.Table], tmp_path: Path, kind: str
) -> None:
    folder, captures = bucket
    some = captures.filter(pc.less(pa.array(range(RECORDS)), 400))
    ranges = plan_ranges(some, TOGETHER)
    spans = {f"bytes={one.offset}-{one.offset + one.length - 1}" for one in ranges[:: len(ranges) // 3]}
    rule = Rule(kind, times=None, retry_after=0, bytes_per_second=50, ranges=tuple(sorted(spans)))
    with FaultServer(folder, rules=[rule]) as server:
        first = fetch(server.url, some, tmp_path, "c1", coalescing=TOGETHER, silent=kind in SILENT)
        hit = {(hit.key, hit.range) for hit in server.hits if hit.fault}
        failed = [one for one in ranges if (one.key, f"bytes={one.offset}-{one.offset + one.length - 1}") in hit]
        assert failed
        records = sum(len(one.rows) for one in failed)
        assert len(server.hits) <= len(ranges) + 5 * len(failed) + 2 * records
        assert balanced(first, some)
        server.set_rules([])
        result = fetch(server.url, some, tmp_path, "c2", held=first.table, coalescing=TOGETHER, retry_settled=True)
    assert result.outcomes == {"fetched": 400}


@pytest.mark.parametrize(
    ("gone", "proven", "settled"),
    [
        (["f03.warc.gz"], False, True),
        ([f"f{n:02d}.warc.gz" for n in range(FILES)], False, False),
        ([f"f{n:02d}.warc.gz" for n in range(FILES)], True, True),
    ],
    ids=["one of many", "all", "all, at a source that gave good records"],
)
def test_a_file_that_is_gone_is_settled_only_where_the_source_answers(
    bucket: tuple[Path, pa.Table], tmp_path: Path, gone: list[str], proven: bool, settled: bool
) -> None:
    folder, captures = bucket
    root = tmp_path / "bucket"
    root.mkdir()
    for path in folder.iterdir():
        if path.name not in gone:
            (root / path.name).write_bytes(path.read_bytes())
    for place, lake in ((str(root), "folder"), (None, "served")):
        with FaultServer(root) as server:
            result = fetch(place or server.url, captures, tmp_path / lake, "c1", source_gave_good_record=proven)
            lost = [row for row in result.table.to_pylist() if row["outcome"] == "missing"]
            assert {(row["reason"], row["is_final"]) for row in lost} == {("not_found", settled)}
            assert {row["warc_filename"] for row in lost} == set(gone)
            asked = Counter(hit.key for hit in server.hits)
            assert all(asked[key] <= 128 + 2 for key in gone)
            assert result.answered is settled or len(gone) == 1


@pytest.mark.parametrize("key", ["../f01.warc.gz", "/etc/passwd", "a/../../f01.warc.gz", "f\0.warc.gz", None])
def test_a_row_that_names_no_key_of_the_source_takes_nothing_with_it(
    bucket: tuple[Path, pa.Table], tmp_path: Path, key: str | None
) -> None:
    folder, captures = bucket
    rows = captures.slice(0, 10).to_pylist()
    rows[3]["warc_filename"] = key
    odd = pa.Table.from_pylist(rows, schema=captures.schema)
    first = fetch(str(folder), odd.slice(0, 6), tmp_path, "c1")
    result = fetch(str(folder), odd, tmp_path, "c2", held=first.table)
    assert result.outcomes == {"fetched": 9, "missing": 1}
    assert result.table["reason"].to_pylist()[3] == "bad_plan"
    assert not any(result.table[name].null_count for name in ("warc_filename", "warc_record_offset"))


def test_what_came_once_is_not_lost_to_a_later_question(
    bucket: tuple[Path, pa.Table], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One record of a range that fails is asked for alone, to find out whether its file answers."""
    folder, captures = bucket
    mine = captures.filter(pc.equal(captures["warc_filename"], "f00.warc.gz")).slice(0, 6)
    offsets, lengths = (mine[name].to_pylist() for name in ("warc_record_offset", "warc_record_length"))
    last = offsets[-1] + lengths[-1] - 1
    asked: list[str] = []

    def fault_for(_: Scene, key: str, span: str) -> Rule | None:
        asked.append(span)
        alone = f"bytes={offsets[0]}-{offsets[0] + lengths[0] - 1}"
        good = asked.count(alone) == 1 if span == alone else span != f"bytes=0-{last}"
        return None if good else Rule("wrong_range")

    monkeypatch.setattr(Scene, "fault_for", fault_for)
    with FaultServer(folder) as server:
        result = fetch(server.url, mine, tmp_path, "c1", coalescing=Coalescing(gap=1 << 20))
    assert result.outcomes == {"fetched": 6}
    assert result.fetched == 6


def test_files_with_two_etags_come_whole(bucket: tuple[Path, pa.Table], faultless: pa.Table, tmp_path: Path) -> None:
    folder, captures = bucket
    with FaultServer(folder, rules=[Rule("two_etags", times=None)]) as server:
        result = fetch(server.url, captures, tmp_path, "c1", coalescing=TOGETHER)
    assert same(result.table, faultless)
    ranges = plan_ranges(captures, TOGETHER)
    most = max(len(one.rows) for one in ranges)
    # of each file one range, and its records then, before both ETags have come twice
    assert len(server.hits) <= len(ranges) + FILES * (1 + most)


def test_a_second_etag_is_no_excuse_for_bad_records() -> None:
    patience = FetchRetryPolicy(25)
    patience.add_ranges([PlannedRange("f", 0, 9, (0,))])
    assert [patience.is_same_object("f", etag) for etag in ("a", "a", "b", "b", "a")] == [True, True, False, True, True]
    patience.bad("f")
    assert [patience.is_same_object("f", etag) for etag in ("b", "a")] == [False, True]


def test_etags_that_are_new_each_time_are_not_all_remembered() -> None:
    patience = FetchRetryPolicy(25)
    patience.add_ranges([PlannedRange("f", 0, 9, (0,))])
    told = [patience.is_same_object("f", f'"{number}"') for number in range(1_000)]
    # as long as one is as likely as the other, they say nothing
    assert all(told[4:])
    assert len(patience.files["f"].etags) <= 100
    assert patience.is_same_object("f", '"7"')
    assert not patience.is_same_object("f", '"another"')


def test_what_two_requests_gave_damaged_alike_says_so(bucket: tuple[Path, pa.Table], tmp_path: Path) -> None:
    folder, captures = bucket
    with FaultServer(folder, rules=[Rule("truncated_gzip", share=0.1, times=None)]) as server:
        rows = fetch(server.url, captures.slice(0, 100), tmp_path, "c").table.to_pylist()
    lost = [row for row in rows if row["is_final"]]
    assert lost
    # as doctor asks
    assert {(row["outcome"], row["unsuccessful_runs"]) for row in lost} == {("quarantined", 1)}
