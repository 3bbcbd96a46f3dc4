"""Which index is asked, what an answer says about itself, and what a catalog does not know."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from cc_pipeline.commoncrawl.index_schema import CAPTURE_SCHEMA
from cc_pipeline.commoncrawl.target import Target
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.errors import EnvironmentFault, UserInputError
from cc_pipeline.index.btree.locator import CRAWL_2012
from cc_pipeline.index.footers.store import FooterStore
from cc_pipeline.index.locator import Locator, LookupEstimate, LookupResult, choose
from cc_pipeline.index.lookup import IndexSources, look_up, price_lookup
from cc_pipeline.index.parquet.finder import CatalogFinder
from cc_pipeline.index.parquet.locator import ParquetLocator
from cc_pipeline.testing.mini_crawl.generate import VALID_SEGMENTS_KEY, generate
from cc_pipeline.testing.mini_crawl.spec import TEST
from cc_pipeline.transport.client import Transport
from cc_pipeline_tests.index.lookup_world import ALL_SUBSETS, World, harvest_world, places

NEW, OLD = "CC-MAIN-2024-22", "CC-MAIN-2018-05"


class Priced:
    """A locator of a fixed price that finds nothing."""

    def __init__(self, name: str, requests: int, size: int, likely: int | None = None) -> None:
        self.name = name
        self._price = LookupEstimate(1, 1, requests, size, likely_bytes=likely)

    def price(self, crawl: str, subsets: Sequence[str], targets: Sequence[Target]) -> LookupEstimate:
        return self._price

    def locate(self, crawl: str, subsets: Sequence[str], targets: Sequence[Target]) -> LookupResult:
        return LookupResult({target.slug: CAPTURE_SCHEMA.empty_table() for target in targets}, 0, 0, 0.0)


def _available(*locators: Priced) -> dict[str, Callable[[], Locator]]:
    return {locator.name: (lambda found=locator: found) for locator in locators}


PARQUET, DEAR = Priced("parquet", 35, 2 << 30, 8 << 20), Priced("parquet", 40, 2 << 30)
ZIPNUM, BTREE = Priced("zipnum", 15, 1 << 20), Priced("btree", 3, 1 << 18)


@pytest.mark.parametrize(
    ("locators", "via", "chosen"),
    [
        ((PARQUET, ZIPNUM), "auto", "parquet"),
        ((DEAR, ZIPNUM), "auto", "zipnum"),
        ((DEAR, Priced("zipnum", 15, 8 << 30)), "auto", "parquet"),
        ((DEAR,), "auto", "parquet"),
        ((BTREE,), "auto", "btree"),
        ((ZIPNUM, BTREE), "btree", "btree"),
        ((PARQUET, ZIPNUM), "zipnum", "zipnum"),
    ],
)
def test_the_index_that_says_most_unless_it_is_dear(locators: tuple[Priced, ...], via: str, chosen: str) -> None:
    locator, why = choose(_available(*locators), NEW, ["warc"], [parse_target("example.com")], via)
    assert locator.name == chosen
    assert chosen in why


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    home = tmp_path_factory.mktemp("choice")
    truth = generate(home / "bucket", TEST)
    return harvest_world(home / "bucket", home, truth, (NEW,))


@pytest.fixture(scope="module")
def sources(world: World) -> Iterator[IndexSources]:
    with Transport(str(world.root)) as transport:
        yield IndexSources(transport, world.catalog, footers=world.home / "footers")


def test_each_way_gives_the_same_and_says_which_it_was(world: World, sources: IndexSources) -> None:
    targets = [parse_target(domain) for domain in world.truth.domains(NEW)]
    answers = [look_up(NEW, ALL_SUBSETS, targets, sources, via=via) for via in ("auto", "parquet", "zipnum")]
    assert [answer.index for answer in answers] == ["parquet", "parquet", "zipnum"]
    assert [answer.notes[0] for answer in answers] == [f"index: {answer.reason}" for answer in answers]
    assert places(answers[0])
    assert all(places(answers[0]) == places(answer) for answer in answers)
    for via in ("auto", "parquet", "zipnum"):
        said = price_lookup(NEW, ALL_SUBSETS, targets, sources, via=via)
        assert said.index == ("zipnum" if via == "zipnum" else "parquet")
        assert said.reason
        assert said.bytes > 0
    with pytest.raises(UserInputError, match="no btree index of"):
        look_up(NEW, ALL_SUBSETS, targets, sources, via="btree")


def test_a_crawl_that_was_not_harvested_has_its_other_indexes(world: World, sources: IndexSources) -> None:
    target = parse_target(world.truth.domains(OLD)[0])
    answer = look_up(OLD, ALL_SUBSETS, [target], sources)
    assert (answer.index, answer.reason) == ("zipnum", "zipnum, the only index")
    assert answer.notes[0] == "index: zipnum, the only index"
    assert len(places(answer)) == len(world.truth.captures_of(OLD, domain=target.value))


def test_segments_that_were_never_completed_are_left_out(world: World, sources: IndexSources) -> None:
    target = parse_target(world.truth.domains(CRAWL_2012)[0])
    whole = look_up(CRAWL_2012, ["warc"], [target], sources)
    assert whole.captures[target.slug].num_rows == len(world.truth.captures_of(CRAWL_2012, domain=target.value))
    listed = world.root / VALID_SEGMENTS_KEY
    before = listed.read_bytes()
    try:
        listed.write_bytes(b"1\n")
        none = look_up(CRAWL_2012, ["warc"], [target], sources)
        assert none.captures[target.slug].num_rows == 0
        assert f"{whole.captures[target.slug].num_rows} captures are left out" in none.notes[-1]
        listed.unlink()
        assert "captures of all segments are used" in look_up(CRAWL_2012, ["warc"], [target], sources).notes[-1]
    finally:
        listed.write_bytes(before)


def test_a_condition_is_answered_as_far_as_the_index_knows(world: World, sources: IndexSources) -> None:
    for crawl, unknown in ((NEW, False), (CRAWL_2012, True)):
        domain = world.truth.domains(crawl)[0]
        target = parse_target(f"{domain} where status=200 and time>=2012")
        answer = look_up(crawl, ALL_SUBSETS, [target], sources)
        assert any("the index cannot decide whether" in note for note in answer.notes) == unknown
        kept = [c for c in world.truth.captures_of(crawl, domain=domain) if unknown or c.fetch_status == 200]
        assert answer.captures[target.slug].num_rows == len(kept) > 0
        said = set(answer.captures[target.slug]["condition_match"].to_pylist())
        assert said == {"unknown: status=200 and time>=2012" if unknown else "yes"}


def test_what_the_catalog_has_not_is_said_or_refused(world: World, tmp_path: Path) -> None:
    target = parse_target(world.truth.domains(NEW)[0])
    with Transport(str(world.root)) as transport, world.catalog() as catalog:
        finder = CatalogFinder(catalog, transport)
        with pytest.raises(EnvironmentFault, match="index of CC-MAIN-2018-05 has not been harvested for warc"):
            finder.find(OLD, ["warc"], target.ranges, None)
        assert finder.gaps(NEW, ALL_SUBSETS) == ()
        locator = ParquetLocator(transport, finder)
        before = locator.locate(NEW, ALL_SUBSETS, [target])
        assert finder.cost.requests > 0, "columns the catalog does not keep come from footers"
    with Transport(str(world.root)) as transport, world.catalog() as catalog:
        stored = CatalogFinder(catalog, transport, FooterStore(world.home / "footers"))
        again = ParquetLocator(transport, stored).locate(NEW, ALL_SUBSETS, [target])
        assert stored.cost.requests == 0
        assert again.captures[target.slug].equals(before.captures[target.slug])
        few = ParquetLocator(transport, CatalogFinder(catalog, transport), columns=["url", "warc_filename"])
        narrow = few.locate(NEW, ALL_SUBSETS, [target]).captures[target.slug]
        assert narrow["url"].null_count == 0
        assert narrow["content_charset"].null_count == narrow.num_rows
        assert narrow["domain"].equals(before.captures[target.slug]["domain"])
