"""Captures that an index no longer lists stay, are counted and shown, until a person accepts that they are gone."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from cc_pipeline.checks.tables import missing_captures_verdict
from cc_pipeline.extraction import locate
from cc_pipeline.extraction.fetch import fetch_captures
from cc_pipeline.index.lookup import LookupResult
from cc_pipeline.lake.content_digests import digest_from_int
from cc_pipeline.lake.slice import LOCATE
from cc_pipeline.workspace.workspace import Workspace
from cc_pipeline_tests.world import NEW, Bucket, due, extract, harvested, notes_of, workspace_of

SITE = "example.org"
TABLES = ("captures", "records", "page_metadata")


class Index:
    """Answers of an index in which a test changes what is listed, and how often."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.hidden: set[int] = set()
        self.repeats = 1
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

        return self._plain(*args, sink=listed, **options)


@pytest.fixture
def home(bucket: Bucket, tmp_path: Path) -> Workspace:
    return harvested(bucket[0], tmp_path / "home")


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Index:
    return Index(monkeypatch)


def offsets(workspace: Workspace, domain: str = SITE, table: str = "captures") -> list[int]:
    rows = workspace.lake.read(table, {"crawl": NEW}, ["warc_record_offset", "domain"]).to_pylist()
    return sorted(row["warc_record_offset"] for row in rows if row["domain"] == domain)


def accepting(workspace: Workspace) -> Workspace:
    settings = workspace.settings
    return workspace_of(settings.source, settings.home, accept_removals=True)


def unlisted(workspace: Workspace) -> int:
    return sum(note["unlisted"] for note in notes_of(workspace, LOCATE))


def test_what_an_index_lists_no_longer_stays_until_that_is_accepted(home: Workspace, index: Index) -> None:
    extract(home, SITE)
    every = offsets(home)
    index.hidden = {*every[2:]}
    (report, *_) = extract(home, SITE)
    assert any("no longer in the index" in note and "--accept-removals" in note for note in report.notes)
    assert [home.lake.read(table).num_rows for table in TABLES] == [len(every)] * 3
    assert unlisted(home) == report.per_target[SITE]["no longer in the index"] == len(every) - 2
    # it is no failure, and nothing is due for it
    assert missing_captures_verdict(home.lake).severity == "ok"
    index.asked -= 1
    assert not due(home, LOCATE, SITE)
    assert due(accepting(home), LOCATE, SITE) == {SITE}
    (report, *_) = extract(accepting(home), SITE)
    assert any(f"{len(every) - 2} captures were removed" in note for note in report.notes)
    assert [home.lake.read(table).num_rows for table in TABLES] == [2] * 3
    assert (unlisted(home), offsets(home)) == (0, every[:2])


def test_members_go_while_others_are_unlisted_and_no_others(bucket: Bucket, home: Workspace, index: Index) -> None:
    one, two, three = bucket[1].domains()[:3]
    extract(home, f"set:some = {one}, {two}")
    every = offsets(home, one)
    index.hidden = {*every}
    # a member comes, another goes: neither takes away what is unlisted
    extract(home, f"set:some = {one}, {three}")
    assert (offsets(home, one), offsets(home, two)) == (every, [])
    assert offsets(home, three)
    # a person takes the member away
    extract(home, f"set:some = {three}")
    assert offsets(home, one) == []


def test_an_index_that_repeats_itself_gives_each_capture_once(bucket: Bucket, tmp_path: Path, index: Index) -> None:
    index.repeats = 2
    home = harvested(bucket[0], tmp_path / "home")
    extract(home, SITE)
    count = len(bucket[1].captures_of(NEW, subset="warc", domain=SITE))
    assert [home.lake.read(table, {"target": SITE}).num_rows for table in TABLES] == [count] * 3
    assert fetch_captures(home, NEW, [SITE]).fresh_slices == 0
