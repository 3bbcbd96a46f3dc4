"""Common Crawl's official mirror beside its front: off by default, for records of 2026 on alone, shared by what each
gives."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from cc_pipeline.settings import all_settings, load_settings
from cc_pipeline.settings.source_addresses import may_be_mirrored
from cc_pipeline.stores.answer import Answer
from cc_pipeline.testing.mini_crawl.truth import MiniCrawlTruth
from cc_pipeline.transport.faults import FaultKind, Finding, Verified
from cc_pipeline.transport.mirror import Place
from cc_pipeline.transport.mirror_set import MirrorSet
from cc_pipeline.transport.ranges import ByteRange, RetryPolicy, TransportStats
from cc_pipeline_tests.faultserver import FaultServer, Rule
from cc_pipeline_tests.recordmirror import FRESH, ensure_recent, front_and_mirror
from cc_pipeline_tests.world import OLD, extract, harvested, workspace_of

SITE = "example.com"


@pytest.fixture(scope="module")
def recent(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, MiniCrawlTruth]:
    root = tmp_path_factory.mktemp("recent") / "bucket"
    return root, ensure_recent(root)


@pytest.fixture
def both(recent: tuple[Path, MiniCrawlTruth], monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[FaultServer, ...]]:
    """The front and the mirror."""
    with front_and_mirror(recent[0], monkeypatch) as servers:
        yield servers


def list_of(front: FaultServer) -> str:
    return f"{front.url}collinfo.json"


def archive_keys(server: FaultServer) -> set[str]:
    return {hit.key for hit in server.hits if hit.key.endswith(".warc.gz")}


@pytest.mark.parametrize(
    ("crawl", "at_mirror"),
    [
        ("CC-MAIN-2025-51", False),
        ("CC-MAIN-2026-04", True),
        ("CC-MAIN-2031-10", True),
        ("CC-MAIN-2012", False),
        ("CC-NEWS-2026-05", False),
        ("CC-SUPPLEMENTAL-2026-22", False),
        ("LOCAL-press", False),
    ],
)
def test_which_crawls_the_mirror_has(crawl: str, at_mirror: bool) -> None:
    assert may_be_mirrored(crawl) is at_mirror


def test_it_is_asked_by_a_setting_alone_and_for_common_crawls_own_host(tmp_path: Path) -> None:
    def mirror(source: str, **env: str) -> str | None:
        variables = {f"CC_PIPELINE_{name}": text for name, text in env.items()}
        return load_settings(variables, source=source, home=str(tmp_path)).record_mirror_for(FRESH)

    front = "https://data.commoncrawl.org"
    assert mirror(front) is None
    assert mirror(front, RECORD_MIRROR="no") is None
    assert mirror(front, RECORD_MIRROR="yes") == all_settings.OFFICIAL_MIRROR
    assert mirror("s3://commoncrawl", RECORD_MIRROR="yes") is None
    assert mirror("https://mirror.example.org/cc", RECORD_MIRROR="yes") is None
    assert mirror(f"{front}, {all_settings.OFFICIAL_MIRROR}", RECORD_MIRROR="yes") is None, "it is a place of its own"


def test_records_alone_are_shared_and_the_home_does_not_change(
    recent: tuple[Path, MiniCrawlTruth], both: tuple[FaultServer, ...], tmp_path: Path
) -> None:
    front, mirror = both
    plain = harvested(front.url, tmp_path / "plain", crawl=FRESH, collinfo=list_of(front))
    extract(plain, SITE, crawl=FRESH)
    assert not mirror.hits, "off by default"
    alone = archive_keys(front)
    front.hits.clear()
    shared = harvested(front.url, tmp_path / "shared", crawl=FRESH, record_mirror=True, collinfo=list_of(front))
    [_, fetched, _] = extract(shared, SITE, crawl=FRESH)
    assert fetched.per_target[SITE]["fetched"] == len(recent[1].captures_of(FRESH, domain=SITE, subset="warc"))
    assert archive_keys(front) and archive_keys(mirror)
    assert archive_keys(front) | archive_keys(mirror) == alone
    assert {hit.key for hit in mirror.hits} == archive_keys(mirror), "no list, footer or index is asked for there"
    assert [note for note in fetched.notes if "answers came from the mirror" in note]
    served = Counter(shared.lake.read("records")["served_by"].to_pylist())
    assert set(served) == {front.url.rstrip("/"), mirror.url.rstrip("/")}
    notes = [(tmp_path / home / "home.json").read_text() for home in ("plain", "shared")]
    assert notes[0] == notes[1]
    mirror.hits.clear()
    harvested(front.url, tmp_path / "old", crawl=OLD, record_mirror=True, collinfo=list_of(front))
    extract(workspace_of(front.url, tmp_path / "old", record_mirror=True, collinfo=list_of(front)), SITE, crawl=OLD)
    assert not mirror.hits, "a crawl that is not at the mirror"


@pytest.mark.matrix
@pytest.mark.parametrize("kind", ["404", "403", "500", "garbage", "no_archives"])
@pytest.mark.parametrize("at", [0, 1], ids=["front", "mirror"])
def test_all_records_come_where_one_of_them_is_sound(
    recent: tuple[Path, MiniCrawlTruth], both: tuple[FaultServer, ...], tmp_path: Path, at: int, kind: str
) -> None:
    front = both[0]
    both[at].set_rules([Rule(kind, "*.warc.gz", times=None)])
    workspace = harvested(front.url, tmp_path, crawl=FRESH, record_mirror=True, collinfo=list_of(front))
    [_, fetched, _] = extract(workspace, SITE, crawl=FRESH)
    assert fetched.per_target[SITE]["fetched"] == len(recent[1].captures_of(FRESH, domain=SITE, subset="warc"))


class _FakePlace:
    """Gives each range after so many seconds, so many at the same time; or ``found`` in its place."""

    def __init__(
        self, source: str, concurrency: int, seconds: float, *, found: Verified | Finding | None = None
    ) -> None:
        self.source = self.host = source
        self.limits = SimpleNamespace(concurrency=concurrency)
        self._slots = asyncio.Semaphore(concurrency)
        self._seconds = seconds
        self._found = found or Verified(0, 1, None)
        self.asked = 0

    async def range(self, asked: ByteRange, tries: int | None) -> tuple[Verified | Finding, Answer, int]:
        self.asked += 1
        async with self._slots:
            await asyncio.sleep(self._seconds)
        return self._found, Answer(206, {}, b"x"), 1


@contextmanager
def _sharing(*fakes: _FakePlace, shares: bool = True) -> Iterator[MirrorSet]:
    yield MirrorSet(cast("list[Place]", list(fakes)), RetryPolicy(), TransportStats(), shares=shares)


async def _ask(mirrored: MirrorSet, count: int, abreast: int) -> None:
    keys = iter(range(count))

    async def some() -> None:
        for key in keys:
            await mirrored.range(ByteRange(f"crawl-data/{FRESH}/{key}", 0, 1))

    await asyncio.gather(*(some() for _ in range(abreast)))


@pytest.mark.parametrize(
    ("front", "mirror", "least", "most"),
    [((4, 0.01), (4, 0.01), 0.4, 0.6), ((4, 0.01), (8, 0.01), 0.55, 0.75), ((4, 0.004), (4, 0.04), 0.02, 0.25)],
    ids=["alike", "twice as many at a time", "ten times slower"],
)
def test_each_gets_what_it_gives(
    front: tuple[int, float], mirror: tuple[int, float], least: float, most: float
) -> None:
    async def share() -> float:
        places = [_FakePlace("front", *front), _FakePlace("mirror", *mirror)]
        with _sharing(*places) as mirrored:
            await _ask(mirrored, 400, front[0] + mirror[0])
        assert sum(place.asked for place in places) == 400
        return places[1].asked / 400

    assert least <= asyncio.run(share()) <= most


def test_without_sharing_the_order_of_preference_holds() -> None:
    async def asked() -> list[int]:
        places = [_FakePlace("front", 4, 0.001), _FakePlace("mirror", 4, 0.001)]
        with _sharing(*places, shares=False) as mirrored:
            await _ask(mirrored, 40, 8)
        return [place.asked for place in places]

    assert asyncio.run(asked()) == [40, 0]


def test_what_the_mirror_lacks_is_asked_of_the_front_and_soon_of_the_front_alone() -> None:
    async def asked() -> list[int]:
        lacking = Finding(FaultKind.NOT_FOUND, "404")
        places = [_FakePlace("front", 4, 0.001), _FakePlace("mirror", 4, 0.001, found=lacking)]
        with _sharing(*places) as mirrored:
            await _ask(mirrored, 100, 8)
        return [place.asked for place in places]

    front, mirror = asyncio.run(asked())
    assert front == 100
    assert mirror <= 12, "a crawl of which three files are lacking is asked of the front first"


def test_nothing_of_the_settings_is_sent_to_the_mirror(both: tuple[FaultServer, ...], tmp_path: Path) -> None:
    front, mirror = both
    source = front.url.replace("//", "//somebody:secret@")
    workspace = harvested(source, tmp_path, crawl=FRESH, record_mirror=True, collinfo=list_of(front))
    extract(workspace, SITE, crawl=FRESH)
    assert mirror.hits
    assert not [hit for hit in mirror.hits if hit.authorization]
