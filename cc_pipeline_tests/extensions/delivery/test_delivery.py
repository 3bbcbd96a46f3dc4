"""A delivery proves itself: whatever was damaged, lost, found later or killed, a place holds each capture once."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from cc_pipeline.capture_columns import RECORD_KEY_NAMES
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.extensions.delivery import writer as delivery_module
from cc_pipeline.extensions.delivery.manifest import Manifest, from_json, manifest_name, parse_delivery, to_json
from cc_pipeline.extensions.delivery.writer import add_planned_captures
from cc_pipeline.processes import this_process
from cc_pipeline.records.schema import RECORD_SCHEMA
from cc_pipeline_tests.extensions.delivery.delivered import (
    CRAWL,
    EACH,
    FILES,
    Place,
    Shop,
    folder_place,
    manifest_of,
    manifests,
)
from cc_pipeline_tests.world import Killed


def assert_whole(place: Place, shop: Shop) -> None:
    """Each capture once, for our own check and for a reader that is not ours."""
    assert set(place.held().values()) == {1}
    assert len(place.held()) == shop.captures.num_rows
    assert_sound(place)


def assert_sound(place: Place) -> None:
    report = place.verify()
    assert (report.all_problems, report.notes, report.unfinished) == ([], (), [])


def lose(shop: Shop, file: str) -> Callable[[], None]:
    path = shop.root / "source" / file
    sound = path.read_bytes()
    path.unlink()
    return lambda: void(path.write_bytes(sound))


def void(_: object) -> None:
    return None


def test_a_delivery_says_what_it_is_and_sends_nothing_twice(shop: Shop, place: Place) -> None:
    records = shop.records()
    report = place.deliver(shop, records)
    assert_whole(place, shop)
    manifest = manifest_of(place)
    assert manifest == report.manifest
    assert manifest.complete
    assert (manifest.crawl, manifest.targets, manifest.indexes) == (CRAWL, ("example.com",), ("parquet",))
    assert manifest.counts == {"planned": 27, "delivered": 27, "missing": 0, "quarantined": 0, "left_out": 0}
    assert {name: counts["delivered"] for name, counts in manifest.subsets.items()} == {"robotstxt": 9, "warc": 18}
    assert len(manifest.parts) > 3
    for entry in manifest.files:
        data = place.read(f"{CRAWL}/{entry.name}")
        assert (len(data), hashlib.sha256(data).hexdigest()) == (entry.size, entry.sha256)
    for part in manifest.parts:
        assert part.file.sha256[:16] in part.file.name
    assert {f"{CRAWL}/{entry.name}" for entry in manifest.files} | {f"{CRAWL}/{manifest_name(manifest.delivery)}"} == (
        set(place.files())
    )
    place.writes.clear()
    read = place.transport.stats.bytes
    again = place.deliver(shop, records.take(list(reversed(range(27)))), part_bytes=900)
    assert place.writes == []
    assert (again.bytes, again.parts_before, again.parts) == (0, len(manifest.parts), len(manifest.parts))
    if place.transport.source.startswith("s3"):  # ETags stand for the parts
        sizes = sum(part.file.size for part in manifest.parts)
        assert place.transport.stats.bytes - read < sum(one.size for one in place.files().values()) - sizes + 1


def test_the_bytes_of_a_part_follow_from_its_records(shop: Shop, tmp_path: Path) -> None:
    records, names = shop.records(), []
    for name in ("one", "two"):
        with folder_place(tmp_path / name) as place:
            (tmp_path / name).mkdir()
            place.deliver(shop, records, parallel=3)
            names.append({key: place.read(key) for key in place.files() if "/manifest-" not in key})
    assert names[0] == names[1]


def test_damaged_parts_lists_and_manifests_are_replaced(shop: Shop, place: Place) -> None:
    records = shop.records()
    place.deliver(shop, records)
    first, second, third = place.parts()[:3]
    one_byte = bytearray(place.read(second))
    one_byte[len(one_byte) // 2] ^= 1
    for key, data in (
        (first, b"1234567"),
        (second, bytes(one_byte)),
        (f"{third}.captures.parquet", b"x" * place.files()[f"{third}.captures.parquet"].size),
    ):
        place.transport.put(key, data)
    place.transport.delete(place.parts()[3])
    found = place.verify()
    for key in (first, second, f"{third}.captures.parquet"):
        assert any(reason.startswith(f"{key}") for reason in found.all_problems), key
    assert any("the file is missing" in reason for reason in found.all_problems)
    report = place.deliver(shop, records)
    assert any(first.rpartition("/")[2] in note for note in report.notes)
    assert_whole(place, shop)
    (manifest,) = [key for key in place.files() if "/manifest-" in key]
    place.transport.put(manifest, b"{}")
    assert place.verify().all_problems
    report = place.deliver(shop, records)
    assert report.bytes == 0
    assert_whole(place, shop)


@pytest.mark.matrix
def test_what_is_missing_is_named_and_sent_alone_when_it_is_found(shop: Shop, place: Place) -> None:
    heal = lose(shop, FILES[1])
    records = shop.records()
    report = place.deliver(shop, records)
    assert report.lost == {"missing": EACH}
    assert report.manifest.subsets["robotstxt"] == {
        "planned": 9, "delivered": 0, "missing": 9, "quarantined": 0, "left_out": 0,
    }  # fmt: skip
    named = {(row["warc_filename"], row["reason"]) for row in report.manifest.not_there}
    assert named == {(FILES[1], "not_found")}
    assert_sound(place)
    assert place.verify().undelivered_captures == EACH
    ledger = pq.read_table(pa.BufferReader(place.read(f"{CRAWL}/{report.manifest.ledger.name}")))
    assert ledger["delivered"].to_pylist().count(False) == EACH
    before = set(place.parts())
    heal()
    place.writes.clear()
    healed = place.deliver(shop, shop.records(held=records.filter(pc.equal(records["outcome"], "fetched"))))
    assert healed.lost == {}
    assert before < set(place.parts())
    assert healed.parts_before == len(before)
    assert not before & set(place.writes)
    assert_whole(place, shop)


def test_a_record_whose_stored_bytes_are_gone_or_rotten_is_left_out_by_name(shop: Shop, folder: Place) -> None:
    records = shop.records()
    row = records.to_pylist()[0]
    stored = shop.root / "lake" / row["stored_file"]
    data = bytearray(stored.read_bytes())
    data[row["stored_offset"] + row["stored_length"] // 2] ^= 1
    stored.write_bytes(data)
    gone = next(other for other in records.to_pylist() if other["archive_format"] == "arc")["stored_file"]
    (shop.root / "lake" / gone).unlink()
    report = folder.deliver(shop, records)
    assert report.lost == {"left_out": EACH + 1}
    (rotten,) = [one for one in report.manifest.not_there if one["warc_filename"] != FILES[2]]
    assert rotten["url"] == row["url"]
    assert rotten["left_out"]
    assert_sound(folder)
    shutil.rmtree(shop.root / "lake" / "records")
    assert folder.deliver(shop, shop.records()).lost == {}
    assert_whole(folder, shop)


@pytest.mark.matrix
def test_another_form_supersedes_the_files_of_before(shop: Shop, place: Place) -> None:
    records = shop.records()
    place.deliver(shop, records)
    kept = {key for key in place.parts() if key.endswith(".warc.gz")}
    place.deliver(shop, records, convert=True)
    assert not [key for key in place.files() if ".arc.gz" in key]
    assert kept < set(place.parts())
    assert_whole(place, shop)
    place.deliver(shop, records)
    assert len(kept) < len(place.parts())
    assert set(place.parts()) > kept
    assert_whole(place, shop)


@pytest.mark.matrix
def test_deliveries_share_a_place_and_no_capture_is_there_twice(shop: Shop, place: Place) -> None:
    records = shop.records()
    some = records.filter(pc.starts_with(records["url"], "https://example.com/a/"))
    place.deliver(shop, some, "prefix:example.com/a/")
    whole = place.deliver(shop, records)
    assert whole.manifest.borrowed
    assert whole.manifest.counts["delivered"] == 27
    assert_whole(place, shop)
    assert len(place.verify().deliveries) == 2
    # the other delivery wants less now: what is counted on stays
    place.deliver(shop, some.slice(0, 2), "prefix:example.com/a/")
    assert_whole(place, shop)
    # a part that somebody else counts on is damaged: whoever copies first has it again
    place.transport.put(f"{CRAWL}/{whole.manifest.borrowed[0]}", b"1234567")
    assert place.verify().all_problems
    place.deliver(shop, records)
    place.deliver(shop, some, "prefix:example.com/a/")
    assert_whole(place, shop)
    # other subsets of the same targets are another delivery
    place.deliver(shop, records.filter(pc.equal(records["subset"], "robotstxt")), subsets=("robotstxt",))
    assert len(place.verify().deliveries) == 3
    assert_whole(place, shop)


def test_a_capture_that_is_held_twice_is_found_and_mended(shop: Shop, folder: Place) -> None:
    records = shop.records()
    folder.deliver(shop, records)
    (shop.root / "place" / CRAWL).rename(shop.root / "aside")
    folder.deliver(shop, records, "host:example.com")
    for file in (shop.root / "aside").iterdir():
        file.rename(shop.root / "place" / CRAWL / file.name)
    assert any("27 captures" in reason for reason in folder.verify().all_problems)
    folder.deliver(shop, records)
    assert_whole(folder, shop)


@pytest.mark.matrix
def test_nothing_goes_because_a_plan_or_the_source_lacks_it_today(shop: Shop, place: Place) -> None:
    records = shop.records()
    place.deliver(shop, records)
    before = place.parts()
    assert place.deliver(shop, records.slice(0, 20)).manifest.counts["delivered"] == 20
    assert place.deliver(shop, records.slice(0, 0)).manifest.counts["planned"] == 0
    assert place.parts() == before
    for file in FILES:
        lose(shop, file)
    shutil.rmtree(shop.root / "lake" / "records")
    lost = shop.records()
    assert set(lost["outcome"].to_pylist()) == {"missing"}
    # the place still has what the source lacks now, even where another form is asked for
    report = place.deliver(shop, lost, convert=True)
    assert report.lost == {}
    assert report.manifest.counts["delivered"] == 27
    assert place.parts() == before
    assert_whole(place, shop)


def test_a_damaged_part_stays_beside_the_delivery_while_nothing_replaces_it(shop: Shop, folder: Place) -> None:
    records = shop.records()
    folder.deliver(shop, records)
    part = folder.parts()[0]
    data = folder.read(part)
    folder.transport.put(part, data[:-1])
    for file in FILES:
        lose(shop, file)
    shutil.rmtree(shop.root / "lake" / "records")
    for _ in range(2):
        report = folder.deliver(shop, records)  # what the table says, and what is stored no more
        assert report.lost["left_out"] > 0
        assert folder.read(part) == data[:-1]
        assert any(f"{Path(part).name} is kept" in note for note in report.notes)
        assert folder.verify().all_problems == []
    # a form that cannot be given takes nothing away either
    arc = next(key for key in folder.parts() if key.endswith(".arc.gz"))
    report = folder.deliver(shop, records, convert=True)
    assert folder.read(arc)
    folder.transport.put(part, data)
    assert folder.deliver(shop, records).lost == {}
    assert_whole(folder, shop)


def test_a_capture_that_was_never_asked_for_is_planned_too(shop: Shop, folder: Place) -> None:
    records = shop.records(shop.captures.slice(0, 5))
    rows = add_planned_captures(records, shop.captures.select(RECORD_KEY_NAMES))
    report = folder.deliver(shop, rows)
    assert report.lost == {"missing": 22}
    assert report.manifest.not_there[0]["detail"] == "not asked for yet"
    assert add_planned_captures(records, shop.captures.select(RECORD_KEY_NAMES).slice(0, 5)) is records


def test_an_index_row_without_a_place_is_planned_once(shop: Shop, folder: Place) -> None:
    captures = shop.captures.select(RECORD_KEY_NAMES).slice(0, 3)
    nowhere = captures.to_pylist()
    nowhere[0] |= {"warc_filename": None, "warc_record_offset": None, "warc_record_length": None}
    nullable = pa.schema([field.with_nullable(True) for field in captures.schema])
    planned = pa.Table.from_pylist(nowhere, schema=nullable)
    once = add_planned_captures(RECORD_SCHEMA.empty_table(), planned)
    assert once.num_rows == 3
    assert add_planned_captures(once, planned).num_rows == 3


def test_a_manifest_says_over_which_holes_its_captures_were_looked_up(shop: Shop, folder: Place) -> None:
    manifest = Manifest("0123456789ab", "CC-MAIN-2024-22", ("example.com",), ("warc",), unread_index_files=2)
    written = to_json(manifest)
    assert from_json(written, "m") == manifest
    before = json.loads(written)
    del before["unread_index_files"]
    assert from_json(json.dumps(before).encode(), "m").unread_index_files == 0


def test_only_files_of_ours_are_ever_deleted(shop: Shop, folder: Place) -> None:
    records = shop.records()
    report = folder.deliver(shop, records)
    home = shop.root / "place" / CRAWL
    strange = ["notes.txt", "CC-MAIN-20240518-00001.warc.gz", "CC-MAIN-2024-22-ffffffffffff-0123456789abcdef.warc.gz"]
    for name in strange:
        (home / name).write_bytes(b"mine")
    path = home / manifest_name(report.manifest.delivery)
    path.write_bytes(to_json(replace(report.manifest, superseded=(*strange, "../../source/a.warc.gz"))))
    half = home / f".{report.manifest.parts[0].file.name}.0123abcd.{this_process()}.part"
    half.write_bytes(b"of a process that was killed")
    folder.deliver(shop, records, convert=True)
    assert not list(home.glob("*.arc.gz*"))
    assert not half.exists()
    assert all((home / name).read_bytes() == b"mine" for name in strange)
    assert (shop.root / "source" / "a.warc.gz").exists()
    assert [note for note in folder.verify().notes if "ffffffffffff" in note]
    assert parse_delivery("../x.warc.gz") is None


@pytest.mark.process
@pytest.mark.parametrize("checkpoint", [60.0, -1.0])
@pytest.mark.parametrize("way", ["first", "healed", "converted"])
def test_killed_at_every_write_and_copied_again(
    shop: Shop, tmp_path: Path, way: str, checkpoint: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery_module, "_CHECKPOINT", checkpoint)
    records = shop.records()
    some = records.filter(pc.not_equal(records["warc_filename"], FILES[1]))
    convert = way == "converted"
    for number in range(100):
        root = tmp_path / str(number)
        root.mkdir()
        with folder_place(root) as place:
            if way != "first":
                place.deliver(shop, some, part_bytes=6_000)
            before = set(place.held())
            place.writes.clear()
            place.kill_at = number
            try:
                place.deliver(shop, records, convert=convert, part_bytes=6_000)
                break
            except Killed:
                place.kill_at = None
            # at any moment what a manifest names is there
            if manifests(place):
                wrong = [reason for one in place.verify().deliveries for reason in one.problems]
                assert [reason for reason in wrong if "superseded" not in reason] == []
            assert set(place.held()) >= before
            assert set(place.held().values()) <= ({1, 2} if convert else {1})
            place.deliver(shop, records, convert=convert, part_bytes=6_000)
            assert_whole(place, shop)
    assert number > 4


def test_a_stopped_copy_goes_on_where_it_was(shop: Shop, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    records = shop.records()
    real, sent = delivery_module.write_part, []

    def refuse(*given: object) -> object:
        if len(sent) == 3:
            raise EnvironmentFault("the place is full", "Make room")
        sent.append(given)
        return real(*given)

    monkeypatch.setattr(delivery_module, "write_part", refuse)
    with pytest.raises(EnvironmentFault):
        place.deliver(shop, records, parallel=1)
    # what was sent is written down, so it need not be read again
    report = place.verify()
    assert report.unfinished == manifests(place)
    assert report.all_problems == []
    monkeypatch.undo()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "someone")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "something")
    before = set(place.parts())
    place.writes.clear()
    assert place.deliver(shop, records).parts_before == 3
    assert not before & set(place.writes)
    assert_whole(place, shop)
