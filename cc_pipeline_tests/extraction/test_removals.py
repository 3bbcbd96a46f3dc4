"""An index that lists fewer captures than before is doubted: they stay until a person accepts that they are gone."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cc_pipeline.checks.tables import missing_captures_verdict
from cc_pipeline.commoncrawl.paths import path_list_key
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.errors import UnconfirmedRemovals
from cc_pipeline.extraction import locate
from cc_pipeline.extraction.fetch import fetch_captures
from cc_pipeline.extraction.locate import locate_captures
from cc_pipeline.extraction.loss_policy import FetchIncomplete
from cc_pipeline.extraction.removals import (
    Listing,
    Removal,
    build_removal_error,
    find_unconfirmed_removals,
    read_loss_numbers,
)
from cc_pipeline.extraction.run import extract as extract_all
from cc_pipeline.index.lookup import LookupResult
from cc_pipeline.lake.content_digests import digest_from_int
from cc_pipeline.lake.slice import LOCATE, Slice
from cc_pipeline.workspace.workspace import Workspace
from cc_pipeline_tests.world import (
    NEW,
    Bucket,
    Killed,
    copy_of,
    due,
    extract,
    harvest,
    harvested,
    notes_of,
    replace_file,
    workspace_of,
)

SITE = "example.org"
TABLES = ("captures", "records", "page_metadata")
_NUMBER = re.compile(r"--accept-losses (\w+)")


def number_in(error: Exception) -> str:
    """The number by which a doubted removal or loss is accepted."""
    found = _NUMBER.search(str(error))
    assert found is not None, error
    return found[1]


def test_the_advice_names_the_number_of_every_target_and_the_crawl_to_harvest() -> None:
    listings = {
        Slice(NEW, slug): (100, Listing("parquet", 300, 30, digest_from_int(number)))
        for number, slug in enumerate(("example.com", "example.org"), start=1)
    }
    error = build_removal_error(listings, {"example.com", "example.org"})
    assert error is not None and len(set(_NUMBER.findall(error.advice))) == 2
    assert f"cc-pipeline index harvest --crawl {NEW} --refresh" in error.advice
    assert all(len(_NUMBER.findall(str(each))) == 1 for each in error.errors_by_target.values())
    listed_elsewhere = build_removal_error(
        {Slice(NEW, "example.com"): (100, Listing("zipnum", 300, 30, digest_from_int(1)))}, {"example.com"}
    )
    assert listed_elsewhere is not None and "index harvest" not in listed_elsewhere.advice


def places(workspace: Workspace, table: str = "captures", slug: str = SITE) -> set[tuple[str, int]]:
    rows = workspace.lake.read(table, {"crawl": NEW, "target": slug}, ["warc_filename", "warc_record_offset"])
    found = [(row["warc_filename"], row["warc_record_offset"]) for row in rows.to_pylist()]
    assert len(found) == len(set(found))
    return set(found)


class Index:
    """Answers of an index in which a test changes what is listed: how often, and over how many files."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.hidden: set[int] = set()
        self.repeats = 1
        self.sizes: dict[str, int] = {"warc": 300}
        self.asked = 0
        self._plain = locate.find_captures
        monkeypatch.setattr(locate, "find_captures", self._answer)
        # whatever it lists, it is another one each time
        monkeypatch.setattr(locate, "columnar_versions", lambda *_: {(NEW, "warc"): digest_from_int(self.asked + 7)})

    def _answer(self, *args: object, sink, **options: object) -> LookupResult:
        self.asked += 1

        def listed(slug: str, rows: pa.Table) -> None:
            for _ in range(self.repeats):
                sink(
                    slug,
                    rows.filter(pc.invert(pc.is_in(rows["warc_record_offset"], pa.array(self.hidden, pa.int64())))),
                )

        found = self._plain(*args, sink=listed, **options)
        return LookupResult(**{name: getattr(found, name) for name in found.__slots__} | {"sizes": self.sizes})


@pytest.fixture
def home(bucket: Bucket, tmp_path: Path) -> Workspace:
    return harvested(bucket[0], tmp_path / "home")


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Index:
    return Index(monkeypatch)


def offsets(workspace: Workspace, slug: str = SITE) -> list[int]:
    return sorted(offset for _, offset in places(workspace, slug=slug))


@pytest.mark.process
def test_a_list_that_lost_a_file_takes_nothing_away_until_it_is_accepted(bucket: Bucket, tmp_path: Path) -> None:
    cut, root = copy_of(bucket[0], tmp_path / "bucket"), tmp_path / "home"
    home = harvested(cut, root)
    extract(home, SITE)
    every = places(home)
    path = cut / path_list_key(NEW, "cc-index-table")
    listed = gzip.decompress(path.read_bytes())
    fewer = b"".join(line for line in listed.splitlines(keepends=True) if b"subset=warc/part-00001" not in line)
    assert len(fewer) < len(listed)
    replace_file(path, gzip.compress(fewer))
    home = workspace_of(cut, root)
    harvest(home)
    for _ in range(2):
        # as often as it is asked, and as the run makes it: what is there stays, records and pages too
        (made,) = extract_all(home, [(NEW, SITE)], TABLES)
        assert isinstance(made.error, UnconfirmedRemovals)
        assert "no longer lists" in str(made.error)
        assert [places(home, table) for table in TABLES] == [every] * 3
        assert due(home, locate.LOCATE, SITE) == {SITE}
    verdict = missing_captures_verdict(home.lake)
    assert (verdict.severity, "the index listed" in verdict.message) == ("error", True)
    assert read_loss_numbers(home.lake)[1] == [number_in(made.error)]
    # the file is back: nothing is doubted any more
    replace_file(path, gzip.compress(listed))
    harvest(home)
    (again,) = extract_all(home, [(NEW, SITE)], TABLES)
    assert again.error is None
    assert places(home) == every
    assert not due(home, locate.LOCATE, SITE)
    assert missing_captures_verdict(home.lake).passed
    # gone for good, says a person
    replace_file(path, gzip.compress(fewer))
    harvest(home)
    home.accepted_losses.add(number_in(made.error))
    (gone,) = extract_all(home, [(NEW, SITE)], TABLES)
    assert gone.error is None
    left = places(home)
    assert left < every
    assert [places(home, table) for table in TABLES] == [left] * 3
    assert not due(home, locate.LOCATE, SITE)


@pytest.mark.parametrize("kind", ["zipnum", "btree"])
def test_other_kinds_of_index_are_doubted_too(kind: str) -> None:
    slice_ = Slice(NEW, SITE)
    then, now = Listing(kind, 300), Listing(kind, 299, 1, digest_from_int(5))
    assert find_unconfirmed_removals({slice_: Removal(1_000, 999, then, now)}, {}, 0.05, ()) == {slice_}
    assert find_unconfirmed_removals({slice_: Removal(1_000, 999, then, now)}, {}, 0.05, {digest_from_int(5)}) == set()
    # an index of another kind lists as many files as it has
    assert find_unconfirmed_removals({slice_: Removal(1_000, 999, Listing("parquet", 300), now)}, {}, 0.05, ()) == set()


@pytest.mark.process
def test_few_of_many_go_and_are_said_to_and_more_wait(bucket: Bucket, tmp_path: Path, index: Index) -> None:
    home = harvested(bucket[0], tmp_path / "home", max_lost=0.2)
    extract(home, SITE)
    every = offsets(home)
    assert len(every) > 5
    index.hidden = {every[3]}
    (report, *_) = extract(home, SITE)
    assert offsets(home) == [one for one in every if one != every[3]]
    assert any("1 capture was removed" in note for note in report.notes)
    index.hidden = {*every[:5]}
    with pytest.raises(FetchIncomplete, match="no longer lists 4 of"):
        extract(home, SITE)
    assert len(offsets(home)) == len(every) - 1
    # what is doubted stays so, also where it has become a small share
    index.hidden = {*every[3:5]}
    with pytest.raises(FetchIncomplete, match="no longer lists 1 of") as one_left:
        extract(home, SITE)
    assert set(every) - {every[3]} == set(offsets(home))
    home.accepted_losses.add(number_in(one_left.value))
    extract(home, SITE)
    assert set(every) - {*every[3:5]} == set(offsets(home))


def test_a_target_that_would_have_none_waits_whatever_the_settings_allow(
    bucket: Bucket, tmp_path: Path, index: Index
) -> None:
    home = harvested(bucket[0], tmp_path / "home", max_lost=1.0)
    extract(home, SITE)
    every = offsets(home)
    index.hidden = {*every}
    with pytest.raises(FetchIncomplete):
        extract(home, SITE)
    assert offsets(home) == every


def test_a_shorter_list_is_doubted_after_a_run_that_was_killed(
    home: Workspace, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    extract(home, SITE)
    every = offsets(home)
    index.hidden, index.sizes = {every[0]}, {"warc": 299}

    def killed(*_: object) -> None:
        raise Killed

    monkeypatch.setattr(home.lake, "append", killed)
    with pytest.raises(Killed):
        locate_captures(home, NEW, [SITE])
    monkeypatch.undo()
    again = Index(monkeypatch)
    again.hidden, again.sizes, again.asked = index.hidden, index.sizes, index.asked
    with pytest.raises(FetchIncomplete):
        extract(home, SITE)
    assert offsets(home) == every


@pytest.mark.process
def test_what_is_new_beside_a_doubt_is_fetched_and_parsed(home: Workspace, index: Index) -> None:
    extract(home, SITE)
    every = offsets(home)
    index.hidden = {*every[: len(every) // 2]}
    with pytest.raises(FetchIncomplete) as refusal:
        extract(home, SITE)
    home.accepted_losses.add(number_in(refusal.value))
    extract(home, SITE)
    assert offsets(home) == every[len(every) // 2 :]
    index.hidden = {*every[len(every) // 2 :]}
    home.accepted_losses.clear()
    (made,) = extract_all(home, [(NEW, SITE)], TABLES)
    assert isinstance(made.error, UnconfirmedRemovals)
    assert [len(places(home, table)) for table in TABLES] == [len(every)] * 3


@pytest.mark.process
def test_two_targets_that_are_doubted_are_named_with_their_own_numbers(
    home: Workspace, bucket: Bucket, index: Index
) -> None:
    sites = bucket[1].domains()[:2]
    extract(home, *sites)
    before = {site: offsets(home, site) for site in sites}
    index.hidden = {one for own in before.values() for one in own[:3]}
    made = [*extract_all(home, [(NEW, site) for site in sites], TABLES)]
    numbers = {one.slug: number_in(one.error) for one in made}
    assert len(set(numbers.values())) == 2
    assert set(numbers.values()) == set(read_loss_numbers(home.lake)[1])
    home.accepted_losses.add(numbers[sites[0]])
    first, second = extract_all(home, [(NEW, site) for site in sites], TABLES)
    assert (first.error is None, isinstance(second.error, UnconfirmedRemovals)) == (
        first.slug == sites[0],
        first.slug == sites[0],
    )
    assert len(offsets(home, sites[0])) < len(before[sites[0]])
    assert offsets(home, sites[1]) == before[sites[1]]


def test_members_go_while_an_index_is_doubted_and_no_others(bucket: Bucket, home: Workspace, index: Index) -> None:
    one, two, three = bucket[1].domains()[:3]
    slug = extract(home, f"set:some = {one}, {two}")[0].per_target.keys()
    (slug,) = slug
    every = {domain: _of_domain(home, slug, domain) for domain in (one, two)}
    index.hidden = {*(offset for _, offset in every[one])}
    with pytest.raises(FetchIncomplete):
        extract(home, f"set:some = {one}, {two}")
    assert _of_domain(home, slug, one) == every[one]
    # a member comes, another goes: neither takes away what is in doubt
    with pytest.raises(FetchIncomplete):
        extract(home, f"set:some = {one}, {three}")
    assert _of_domain(home, slug, one) == every[one]
    assert not _of_domain(home, slug, two)
    assert _of_domain(home, slug, three)
    # a person takes the member away
    extract(home, f"set:some = {three}")
    assert not _of_domain(home, slug, one)


@pytest.mark.matrix
@pytest.mark.parametrize("grows", [True, False])
def test_a_set_that_is_divided_anew_takes_what_is_doubted_along(
    bucket: Bucket, home: Workspace, index: Index, grows: bool
) -> None:
    one, two = bucket[1].domains()[:2]
    many = ", ".join(f"absent-{number}.example" for number in range(300))
    small, large = f"set:some = {one}, {two}", f"set:some = {one}, {two}, {many}"
    first, second = (small, large) if grows else (large, small)
    extract(home, first)
    every = _of_set(home)
    index.hidden, index.sizes = {min(offset for _, offset in every)}, {"warc": 299}
    for definition in (second, first, second):
        with pytest.raises(FetchIncomplete, match="no longer lists") as refusal:
            extract(home, definition)
        assert _of_set(home) == every
    home.accepted_losses.add(number_in(refusal.value))
    extract(home, second)
    assert len(_of_set(home)) < len(every)
    assert _of_set(home) == {place for place in every if place[1] not in index.hidden}


def _of_set(workspace: Workspace) -> set[tuple[str, int]]:
    rows = workspace.lake.read("captures", {"crawl": NEW}, ["warc_filename", "warc_record_offset"]).to_pylist()
    return {(row["warc_filename"], row["warc_record_offset"]) for row in rows}


def _of_domain(workspace: Workspace, slug: str, domain: str) -> set[tuple[str, int]]:
    columns = ["warc_filename", "warc_record_offset", "domain"]
    rows = workspace.lake.read("captures", {"crawl": NEW, "target": slug}, columns).to_pylist()
    return {(row["warc_filename"], row["warc_record_offset"]) for row in rows if row["domain"] == domain}


def test_an_index_that_repeats_itself_gives_each_capture_once_and_the_report_says_so(
    bucket: Bucket, tmp_path: Path, index: Index
) -> None:
    index.repeats = 2
    home = harvested(bucket[0], tmp_path / "home")
    report, *_ = extract(home, SITE)
    count = len(bucket[1].captures_of(NEW, subset="warc", domain=SITE))
    assert [home.lake.read(table, {"target": SITE}).num_rows for table in TABLES] == [count] * 3
    assert any(f"captures of {SITE} more than once: {count:,} extra rows" in note for note in report.notes)
    assert [row["repeated"] for row in notes_of(home, LOCATE)] == [count]
    assert parse_target(SITE).slug == SITE
    assert fetch_captures(home, NEW, [SITE]).fresh_slices == 0


_NUMBERS = st.integers(0, 12)


@settings(max_examples=200)
@given(
    st.lists(st.tuples(_NUMBERS, _NUMBERS, st.booleans()), min_size=1, max_size=4),
    st.sampled_from([0.0, 0.05, 0.5, 1.0]),
    st.booleans(),
)
def test_what_is_believed_is_what_the_rules_say(
    slices: list[tuple[int, int, bool]], allowed: float, has_others: bool
) -> None:
    """Of one target: captures that stay and that are unlisted of each slice, and whether its list became shorter."""
    removals, before, unlisted = {}, 0, 0
    for number, (stays, gone, shorter) in enumerate(slices):
        now = Listing("parquet", 9 if shorter else 10, gone, digest_from_int(number + 1 if gone else 0))
        removals[Slice(NEW, f"{SITE}~s{number}" if number else SITE)] = Removal(
            stays + gone, stays, Listing("parquet", 10), now
        )
        before, unlisted = before + stays + gone, unlisted + gone
    others = {Slice(NEW, f"{SITE}~beside"): (5, Listing())} if has_others else {}
    total = before + 5 * has_others
    shrank = {slice_ for slice_, one in removals.items() if one.new_listing.unlisted_captures}
    is_shorter = any(shorter and gone for _, gone, shorter in slices)
    expected = shrank if unlisted and (is_shorter or unlisted == total or unlisted > allowed * total) else set()
    assert find_unconfirmed_removals(removals, others, allowed, ()) == expected
