"""A copy proves itself: whatever was damaged, lost, found later or killed, a place holds each capture once."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow.compute as pc
import pytest

from cc_pipeline.capture_columns import RECORD_KEY_NAMES
from cc_pipeline.errors import DataFault, EnvironmentFault
from cc_pipeline.extensions.delivery import copying
from cc_pipeline.extensions.delivery.copying import add_planned_captures
from cc_pipeline.extensions.delivery.manifest import MANIFEST, parse_manifest, sha256_of
from cc_pipeline.transport.client import Transport
from cc_pipeline_tests.extensions.delivery.delivered import CRAWL, EACH, FILES, Place, Shop, folder_place
from cc_pipeline_tests.world import Killed


def assert_whole(place: Place, shop: Shop) -> None:
    """Each capture once, for our own check and for a reader that is not ours."""
    assert set(place.held().values()) == {1}
    assert len(place.held()) == shop.captures.num_rows
    assert_sound(place)


def assert_sound(place: Place) -> None:
    report = place.verify()
    assert (report.problems, report.unlisted) == ({CRAWL: []}, ())
    assert all(copy.complete for copy in place.manifest.copies)


def lose(shop: Shop, file: str) -> Callable[[], None]:
    path = shop.root / "source" / file
    sound = path.read_bytes()
    path.unlink()
    return lambda: void(path.write_bytes(sound))


def void(_: object) -> None:
    return None


def test_a_copy_says_what_it_is_and_sends_nothing_twice(shop: Shop, place: Place) -> None:
    records = shop.records()
    report = place.copy(shop, records)
    assert_whole(place, shop)
    manifest = place.manifest
    assert manifest.copies == (report.copy,)
    assert report.copy.targets == ("example.com",)
    assert report.copy.counts == {"planned": 27, "delivered": 27, "pending": 0, "lost": 0, "left_out": 0}
    assert len(manifest.files) > 3
    for entry in manifest.entries:
        data = place.read(entry.name)
        assert (len(data), hashlib.sha256(data).hexdigest()) == (entry.size, entry.sha256)
    assert {entry.name for entry in manifest.entries} | {MANIFEST} == set(place.files())
    place.writes.clear()
    again = place.copy(shop, records.take(list(reversed(range(27)))), file_bytes=900)
    assert place.writes == []
    assert (again.bytes, again.files_before, again.files) == (0, len(manifest.files), len(manifest.files))
    assert place.manifest == manifest


def test_an_unchanged_file_is_known_by_its_etag_and_after_a_move_by_its_digest(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = shop.records()
    read: list[str] = []

    def watched(transport: Transport, key: str, size: int) -> str:
        read.append(key)
        return sha256_of(transport, key, size)

    monkeypatch.setattr(copying, "sha256_of", watched)
    with folder_place(tmp_path) as place:
        place.copy(shop, records)
        assert place.copy(shop, records).bytes == 0
        assert read == []
    shutil.copytree(tmp_path / "place", tmp_path / "moved" / "place", copy_function=shutil.copyfile)
    with folder_place(tmp_path / "moved") as moved:
        assert moved.copy(shop, records).bytes == 0
        assert sorted(read) == moved.record_files()
        assert_whole(moved, shop)


def test_damaged_files_and_lists_are_replaced(shop: Shop, place: Place) -> None:
    records = shop.records()
    place.copy(shop, records)
    first, second, third, fourth = place.record_files()[:4]
    one_byte = bytearray(place.read(second))
    one_byte[len(one_byte) // 2] ^= 1
    for key, data in (
        (first, b"1234567"),
        (second, bytes(one_byte)),
        (f"{third}.captures.parquet", b"x" * place.files()[f"{third}.captures.parquet"].size),
    ):
        place.transport.put(key, data)
    place.transport.delete(fourth)
    wrong = {problem.partition(": ")[0]: problem for problem in place.verify().problems[CRAWL]}
    assert wrong.keys() == {first, second, f"{third}.captures.parquet", fourth}
    assert "has 7 bytes" in wrong[first] and "SHA-256" in wrong[second] and "missing" in wrong[fourth]
    report = place.copy(shop, records)
    assert report.files - report.files_before == 4
    assert_whole(place, shop)


def test_what_is_missing_is_named_and_sent_alone_when_it_is_found(shop: Shop, place: Place) -> None:
    heal = lose(shop, FILES[1])
    records = shop.records()
    report = place.copy(shop, records)
    assert report.copy.lost == {"pending": EACH}
    named = {(row["warc_filename"], row["reason"]) for row in place.manifest.copies[0].undelivered}
    assert named == {(FILES[1], "not_found")}
    assert_sound(place)
    before = set(place.record_files())
    heal()
    place.writes.clear()
    healed = place.copy(shop, shop.records(held=records.filter(pc.equal(records["outcome"], "fetched"))))
    assert healed.copy.lost == {}
    assert before < set(place.record_files())
    assert healed.files_before == len(before)
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
    report = folder.copy(shop, records)
    assert report.copy.lost == {"left_out": EACH + 1}
    (rotten,) = [one for one in report.copy.undelivered if one["warc_filename"] != FILES[2]]
    assert (rotten["url"], rotten["outcome"]) == (row["url"], "left_out") and rotten["detail"]
    assert_sound(folder)
    shutil.rmtree(shop.root / "lake" / "records")
    assert folder.copy(shop, shop.records()).copy.lost == {}
    assert_whole(folder, shop)


def test_a_copy_of_other_targets_hides_no_loss_of_an_earlier_one(shop: Shop, folder: Place) -> None:
    heal = lose(shop, FILES[1])
    folder.copy(shop, shop.records(), "example.com", "example.org")
    heal()
    found = shop.records()
    folder.copy(shop, found.slice(0, 1), "prefix:example.com/a/")
    assert [copy.lost for copy in folder.verify().manifest.copies] == [{"pending": EACH}, {}]
    folder.copy(shop, found, "example.org", "example.com")
    assert [copy.lost for copy in folder.verify().manifest.copies] == [{}, {}]


def test_nothing_goes_because_a_plan_or_the_source_lacks_it_today(shop: Shop, place: Place) -> None:
    records = shop.records()
    place.copy(shop, records)
    before = place.record_files()
    assert place.copy(shop, records.slice(0, 20)).copy.counts["delivered"] == 20
    assert place.copy(shop, records.slice(0, 0)).copy.counts["planned"] == 0
    assert place.record_files() == before
    for file in FILES:
        lose(shop, file)
    shutil.rmtree(shop.root / "lake" / "records")
    lost = shop.records()
    assert set(lost["outcome"].to_pylist()) == {"pending"}
    report = place.copy(shop, lost)
    assert (report.copy.lost, report.copy.counts["delivered"]) == ({}, 27)
    assert place.record_files() == before
    assert_whole(place, shop)


def test_a_capture_that_was_never_asked_for_is_planned_too(shop: Shop, folder: Place) -> None:
    records = shop.records(shop.captures.slice(0, 5))
    rows = add_planned_captures(records, shop.captures.select(RECORD_KEY_NAMES))
    report = folder.copy(shop, rows)
    assert report.copy.lost == {"pending": 22}
    assert report.copy.undelivered[0]["detail"] == "not asked for yet"
    assert add_planned_captures(records, shop.captures.select(RECORD_KEY_NAMES).slice(0, 5)) is records


@pytest.mark.process
@pytest.mark.parametrize("way", ["first", "healed", "damaged"])
def test_killed_at_every_write_and_copied_again(shop: Shop, tmp_path: Path, way: str) -> None:
    records = shop.records()
    some = records.filter(pc.not_equal(records["warc_filename"], FILES[1]))
    for number in range(100):
        root = tmp_path / str(number)
        root.mkdir()
        with folder_place(root) as place:
            if way != "first":
                place.copy(shop, some, file_bytes=6_000)
            if way == "damaged":
                place.transport.put(place.record_files()[0], b"1234567")
            place.puts, place.kill_at = 0, number
            try:
                place.copy(shop, records, file_bytes=6_000)
                break
            except Killed:
                place.kill_at = None
            # at any moment after the first write what the manifest names is there
            if number:
                assert not any(place.verify().problems.values())
            place.copy(shop, records, file_bytes=6_000)
            assert_whole(place, shop)
    assert number > 4


def test_a_manifest_that_cannot_be_read_stops_a_copy(shop: Shop, folder: Place) -> None:
    records = shop.records()
    folder.copy(shop, records)
    document = json.loads(folder.read(MANIFEST))
    for damaged in (b"", b"[]", b"\xff", b"[" * 100_000, json.dumps(document | {"version": 99}).encode(),
                    json.dumps(document | {"files": [{"file": {}}]}).encode(),
                    json.dumps(document | {"copies": [1]}).encode(),
                    json.dumps(document).replace(f"{CRAWL}/", "../").encode()):  # fmt: skip
        with pytest.raises(DataFault):
            parse_manifest(damaged)
        folder.transport.put(MANIFEST, damaged)
        for ask in (lambda: folder.copy(shop, records), folder.verify):
            with pytest.raises(EnvironmentFault, match="manifest"):
                ask()
