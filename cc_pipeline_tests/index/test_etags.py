"""Other ETags of index files: believed of the same file, never of another, and asked about once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from cc_pipeline.index.etag_aliases import EtagAliases, same_files
from cc_pipeline.index.footers.harvest import HarvestPolicy, harvest_crawl
from cc_pipeline.index.footers.store import FooterStore
from cc_pipeline.transport.faults import FaultKind, RangeFault, matches_etag, range_fault
from cc_pipeline.transport.ranges import ByteRange, RangeBytes
from cc_pipeline_tests.index.footers.footer_files import index_table, parquet_bytes
from cc_pipeline_tests.index.footers.harvest_world import CRAWL, MemoryReader, key_of

KEYS = [key_of(number) for number in range(3)]
LONG = parquet_bytes(index_table(6000), 20)


class Servers(MemoryReader):
    """Several servers of the same objects, each with ETags of its own; each request goes to the next one."""

    def __init__(self, objects: dict[str, bytes], names: Iterable[str] = ("a", "b")) -> None:
        super().__init__(objects)
        self.names = tuple(names)
        self.turns: Counter[str] = Counter()

    def read_many(
        self, requests: Iterable[ByteRange], concurrency: int | None = None
    ) -> Iterator[RangeBytes | RangeFault]:
        for asked in requests:
            self.etags[asked.key] = f'"{self.names[self.turns[asked.key] % len(self.names)]}"'
            self.turns[asked.key] += 1
            [found] = super().read_many([asked], concurrency)
            other = isinstance(found, RangeBytes) and (
                (asked.etag is not None and not matches_etag(found.etag or "", asked.etag))
                or (asked.total is not None and found.total != asked.total)
            )
            told = (asked.key, asked.offset, asked.length, "another", 1)
            yield range_fault(FaultKind.CHANGED_OBJECT, *told, tag=asked.tag) if other else found


def objects() -> dict[str, bytes]:
    return {key: parquet_bytes(index_table(20 + number), 20) for number, key in enumerate(KEYS)}


@pytest.fixture
def reader() -> Servers:
    return Servers(objects(), ["a"])


@pytest.fixture
def store(reader: Servers, tmp_path: Path) -> FooterStore:
    """Footers of all files under the ETag ``"a"``."""
    found = FooterStore(tmp_path / "footers")
    harvest_crawl(CRAWL, KEYS, reader, found)
    reader.asked.clear()
    return found


def ask(reader: Servers, store: FooterStore) -> tuple[dict[str, bytes | FaultKind], int]:
    """What comes of the first bytes of each file, known under ``"a"``, in a run of its own; and the requests."""
    reader.asked.clear()
    sizes = {key: entry.file_size for key, entry in store.read(CRAWL).entries.items()}
    ranges = [ByteRange(key, 4, 10, '"a"', key, total=sizes[key]) for key in KEYS]
    found = {}
    for outcome in same_files(reader, store).read_many(ranges):
        assert outcome.tag == outcome.key
        found[outcome.key] = outcome.data if isinstance(outcome, RangeBytes) else outcome.kind
    return found, len(reader.asked)


def test_files_that_are_what_they_were_cost_nothing(reader: Servers, store: FooterStore) -> None:
    found, requests = ask(reader, store)
    assert found == {key: data[4:14] for key, data in reader.objects.items()}
    assert requests == len(KEYS)
    assert not (store.folder / "etags.jsonl").exists()


@pytest.mark.parametrize(("names", "first"), [(["b"], 3), (["a", "b"], 1), (["b", "a"], 4)])
def test_the_end_of_a_file_says_once_that_it_is_the_same(
    reader: Servers, store: FooterStore, names: list[str], first: int
) -> None:
    reader.names, reader.turns = tuple(names), Counter()
    sound = {key: data[4:14] for key, data in reader.objects.items()}
    assert ask(reader, store) == (sound, first * len(KEYS))
    if first > 1:
        for _ in range(3):
            assert ask(reader, store) == (sound, len(KEYS)), "the home knows both"


def test_etags_that_are_new_each_time_say_nothing_in_the_end(reader: Servers, store: FooterStore) -> None:
    reader.names = tuple(map(str, range(1000)))
    found, requests = ask(reader, store)
    assert found == {key: data[4:14] for key, data in reader.objects.items()}
    assert requests <= 9 * len(KEYS)
    for _ in range(3):
        assert ask(reader, store)[1] == 3 * len(KEYS), "the end is read once a run"


def test_a_file_that_was_restored_often_may_be_another_one_day(reader: Servers, store: FooterStore) -> None:
    sound = {key: data[4:14] for key, data in reader.objects.items()}
    for name in "bcdefg":
        reader.names = (name,)
        assert [ask(reader, store) for _ in range(2)] == [(sound, 3 * len(KEYS)), (sound, len(KEYS))]
    # published anew, with the same length
    key, reader.names = KEYS[0], ("h",)
    reader.objects[key] = reader.objects[key][:-20] + b"x" * 12 + reader.objects[key][-8:]
    found, _ = ask(reader, store)
    assert found == {**sound, key: FaultKind.CHANGED_OBJECT}


def test_another_file_is_another_file(reader: Servers, store: FooterStore) -> None:
    before = dict(reader.objects)
    reader.names = ("b",)
    # of another length; of the same length with another end; gone bad in the middle, which no ETag need tell
    reader.objects[KEYS[0]] = parquet_bytes(index_table(60, "org,other"))
    reader.objects[KEYS[1]] = before[KEYS[1]][:-20] + b"x" * 12 + before[KEYS[1]][-8:]
    found, requests = ask(reader, store)
    changed = FaultKind.CHANGED_OBJECT
    assert found == {KEYS[0]: changed, KEYS[1]: changed, KEYS[2]: before[KEYS[2]][4:14]}
    assert requests == 3 + 3 + 1
    # it is what it was again, and has been harvested again meanwhile
    reader.objects = before
    assert ask(reader, store)[0] == {key: data[4:14] for key, data in before.items()}


def test_a_footer_of_later_proves_nothing_about_places_of_before(reader: Servers, store: FooterStore) -> None:
    """A lookup knows the file as it was; the home has the footer of the one that came after it, of the same length."""
    key = KEYS[0]
    size = len(reader.objects[key])
    reader.objects[key], reader.names = parquet_bytes(index_table(5, "o,z"), 20).rjust(size, b"P"), ("b",)
    assert len(reader.objects[key]) == size
    with store.write(CRAWL) as writer:
        footer = int.from_bytes(reader.objects[key][-8:-4], "little") + 8
        writer.put(key, size, '"b"', reader.objects[key][-footer:])
    found, _ = ask(reader, store)
    assert found[key] is FaultKind.CHANGED_OBJECT


def test_trouble_while_the_end_is_read_is_told_as_such(reader: Servers, store: FooterStore) -> None:
    reader.names = ("b",)
    given = Servers.read_many

    class Failing(Servers):
        def read_many(self, requests, concurrency=None):
            for found in given(self, requests, concurrency):
                end = isinstance(found, RangeBytes) and found.data.endswith(b"PAR1")
                told = range_fault(FaultKind.THROTTLED, found.key, found.offset, 9, "503", 6, tag=found.tag)
                yield told if end else found

    reader.__class__ = Failing
    assert set(ask(reader, store)[0].values()) == {FaultKind.THROTTLED}


def test_without_a_footer_another_etag_is_another_file(reader: Servers, store: FooterStore, tmp_path: Path) -> None:
    reader.names = ("b",)
    [outcome] = same_files(reader, FooterStore(tmp_path / "none")).read_many(
        [ByteRange(KEYS[0], 4, 10, '"a"', total=9)]
    )
    assert isinstance(outcome, RangeFault)
    assert outcome.kind is FaultKind.CHANGED_OBJECT


def test_a_refresh_takes_copies_for_what_they_are(reader: Servers, store: FooterStore) -> None:
    before = store.read(CRAWL).entries
    reader.names = ("b",)
    reader.objects[KEYS[1]] = parquet_bytes(index_table(60, "org,other"))
    report = harvest_crawl(CRAWL, KEYS, reader, store, HarvestPolicy(refresh=True))
    assert (report.fetched, report.reused) == (1, 2)
    assert len(reader.asked) == 3 + 2 + 1, "the length of one, the footers of the others, and the new footer"
    after = store.read(CRAWL).entries
    assert {key for key in KEYS if after[key] != before[key]} == {KEYS[1]}
    reader.asked.clear()
    assert harvest_crawl(CRAWL, KEYS, reader, store, HarvestPolicy(refresh=True)).fetched == 0
    assert len(reader.asked) == 3


def test_a_footer_in_two_pieces_comes_in_one_where_they_are_not_of_one_object(tmp_path: Path) -> None:
    reader = Servers({key_of(0): LONG})
    store = FooterStore(tmp_path / "footers")
    assert harvest_crawl(CRAWL, [key_of(0)], reader, store).fetched == 1
    first, second, third = reader.asked
    assert (first.offset, second.offset is None, third.offset) == (None, False, None)
    assert third.length == first.length + second.length
    assert LONG.endswith(store.read(CRAWL).footer(key_of(0)))


def test_what_is_kept_may_be_torn_or_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "home" / "etags.jsonl"
    assert EtagAliases(path).believe("f", '"a"', '"b"')
    with path.open("ab") as file:
        file.write(b'\n["f", "\\"b\\"", "\\"c')
    known = EtagAliases(path)
    assert known.believe("f", '"b"', '"d"')
    assert not known.believe("f", '"a"', '"d"'), "that follows"
    again = EtagAliases(path)
    assert again.expected("f", '"d"') == '"a" | "b" | "d"'
    assert again.first("f", '"d"') == '"a"'
    assert again.expected("g", '"d"') == '"d"'
    assert again.expected("f", None) is None
    assert again.is_alias("f", '"d"', 'W/"a"')
    monkeypatch.setattr("cc_pipeline.index.etag_aliases._MAX_FILE_BYTES", 10)
    assert EtagAliases(path).expected("f", '"d"') == '"d"'
    assert not path.exists(), "it is begun anew"
    (tmp_path / "file").write_text("no folder")
    assert EtagAliases(tmp_path / "file" / "etags.jsonl").believe("f", '"a"', '"b"'), "a run knows it anyway"
