"""Several homes on one lake: of one source, in one layout, and none deletes what another one shows."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import pytest
from deltalake import DeltaTable

from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.errors import EnvironmentFault, UserInputError
from cc_pipeline.extraction.locate import find_captures
from cc_pipeline.harvesting.catalog import open_catalog
from cc_pipeline.harvesting.crawl_index import is_harvested
from cc_pipeline.home import LAKE_NOTE as NOTE
from cc_pipeline.home import LAYOUT, UnknownLayout, read_note
from cc_pipeline.lake import snapshot as pins
from cc_pipeline.lake.lake import Lake
from cc_pipeline.lake.slice import HARVEST, Slice
from cc_pipeline.lake.slices import invalidate_slices
from cc_pipeline.lake.snapshot import read_pinned_versions
from cc_pipeline.maintenance import maintain
from cc_pipeline.maintenance.maintain import run_maintenance
from cc_pipeline.maintenance.purge import purge
from cc_pipeline.maintenance.purge_plan import plan_purge
from cc_pipeline.publish.publish import find_publication_lag
from cc_pipeline.workspace.workspace import Workspace
from cc_pipeline_tests.world import NEW, OLD, Bucket, extract, harvest, publish, workspace_of

SITE, OTHER = "example.com", "example-foo.com"


def shared(source: Path | str, folder: Path, name: str, **more: object) -> Workspace:
    return workspace_of(source, folder / name, lake=str(folder / "lake"), **more)


def noted(folder: Path) -> dict[str, object]:
    return json.loads((folder / "lake" / NOTE).read_bytes())


def captures(workspace: Workspace) -> Counter[str]:
    with duckdb.connect(str(workspace.settings.published_path), read_only=True) as connection:
        return Counter(map(str, connection.execute("FROM captures").fetchall()))


def test_the_first_home_notes_the_source_and_another_source_is_refused(tmp_path: Path) -> None:
    first = shared("https://u:secret@one.example/x?t=secret", tmp_path, "first")
    assert first.lake.specs
    assert noted(tmp_path) == {"source": "https://one.example/x", "layout": LAYOUT}
    assert shared("https://other@one.example/x", tmp_path, "second").lake.specs
    stranger = shared("https://two.example", tmp_path, "third")
    with pytest.raises(UserInputError, match=r"holds tables of https://one\.example/x, not of https://two\.example"):
        stranger.lake  # noqa: B018  # claims the lake
    assert noted(tmp_path)["source"] == "https://one.example/x"


@pytest.mark.parametrize("layout", [LAYOUT - 1, LAYOUT + 1])
def test_a_lake_of_another_layout_is_refused_and_left_alone(tmp_path: Path, layout: int) -> None:
    note = {"source": "https://one.example", "layout": layout}
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake" / NOTE).write_text(json.dumps(note))
    with pytest.raises(UnknownLayout, match=f"lake has layout {layout}, and this version .* layout {LAYOUT}"):
        shared("https://one.example", tmp_path, "home").lake  # noqa: B018  # claims the lake
    assert noted(tmp_path) == note


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"source": "x"}', "PAR1"])
def test_a_note_that_says_nothing_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake" / NOTE).write_text(text)
    with pytest.raises(EnvironmentFault, match="cannot be read: it should say which source"):
        shared("https://one.example", tmp_path, "home").lake  # noqa: B018  # claims the lake
    assert (tmp_path / "lake" / NOTE).read_text() == text


def test_what_one_home_harvested_another_one_looks_up_at_once(bucket: Bucket, tmp_path: Path) -> None:
    one, two = (shared(bucket[0], tmp_path, name) for name in ("one", "two"))
    for crawl in (OLD, NEW):
        harvest(one, crawl)
    asked = two.transport.stats.requests
    with open_catalog(two.lake) as catalog:
        assert catalog.crawls() == (OLD, NEW)
    assert two.transport.stats.requests == asked
    # the same captures, from the same index
    found = [find_captures(home, NEW, [parse_target(SITE)]) for home in (one, two)]
    assert found[0].index == found[1].index == "parquet"
    assert found[0].captures[SITE].equals(found[1].captures[SITE])
    # nothing is harvested again here, until the list of the crawl changes
    assert is_harvested(two, NEW)
    assert not (two.settings.footers_path / NEW).exists()
    # the other home has written the rows anew, in other files
    invalidate_slices(one.lake, HARVEST, [Slice(OLD)])
    harvest(one, OLD)
    [report] = extract(two, SITE, crawl=OLD)[:1]
    assert report.rows == len(bucket[1].captures_of(OLD, subset="warc", domain=SITE))


@pytest.mark.process
@pytest.mark.parametrize("lake", ["lake", "two/lake"])
def test_maintenance_of_one_home_keeps_the_files_that_another_one_shows(
    lake: str, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = (workspace_of(bucket[0], tmp_path / name, lake=str(tmp_path / lake)) for name in ("one", "two"))
    harvest(one)
    extract(one, SITE)
    publish(one)
    before = captures(one)
    extract(two, OTHER)
    # the files that the first home shows are merged into others, and superseded for longer than the retention
    monkeypatch.setattr(maintain, "vacuum", _without_patience(maintain.vacuum))
    kept: dict[str, set[int]] = {}
    monkeypatch.setattr(maintain, "clean_log", lambda _, table, keep=(): len(kept.setdefault(table, {*keep})))
    swept = run_maintenance(two, max_files=1, retention_hours=0)
    assert swept.merged["captures"] > 1
    assert kept["captures"], "entries of logs stay too"
    assert captures(one) == before
    assert captures(two) > before
    assert any("1 other home on this lake" in text for text in plan_purge(two, SITE, SITE).out_of_reach)
    # once it has published again, they may go
    publish(one)
    assert captures(one) == captures(two)
    assert run_maintenance(two, max_files=1, retention_hours=0).deleted["captures"] > 0
    shown = captures(two)
    assert captures(one) == shown
    purge(two, plan_purge(two, SITE, SITE), now=True)
    assert captures(one) == shown != captures(two)


@pytest.mark.parametrize("content", [b"", b'{"published_at": "20'])
def test_a_note_of_a_publication_that_does_not_say_what_it_pins_lets_nothing_go(tmp_path: Path, content: bytes) -> None:
    place = shared("https://one.example", tmp_path, "one").place
    place.put("published/0123456789abcdef.json", content)
    note = tmp_path / "lake" / "published" / "0123456789abcdef.json"
    assert read_pinned_versions(place) is None
    for written in (time.time() - pins.PIN_LIFETIME.total_seconds() - 1, 4_070_908_800.0):
        place.put("published/0123456789abcdef.json", content)
        os.utime(note, (written, written))
        assert read_pinned_versions(place) == {}
        assert not note.exists()


def test_a_copy_pins_nothing_and_a_home_that_is_gone_pins_for_a_while(bucket: Bucket, tmp_path: Path) -> None:
    one = shared(bucket[0], tmp_path, "one")
    harvest(one)
    publish(one)
    pinned = read_pinned_versions(one.place)
    assert pinned is not None
    assert pinned["row_groups"] == {one.lake.pin("row_groups").version}
    [note] = (tmp_path / "lake" / "published").iterdir()
    old = json.loads(note.read_bytes())
    old["published_at"] = (datetime.now(UTC) - pins.PIN_LIFETIME - timedelta(hours=1)).isoformat()
    note.write_text(json.dumps(old))
    assert read_pinned_versions(one.place) == {}
    assert not note.exists()
    publish(one)
    publish(shared(bucket[0], tmp_path, "one", publish="copy"))
    assert read_pinned_versions(one.place) == {}


def _without_patience(vacuum):
    """``vacuum``, but neither Delta's own least retention of a week nor ours is asked for."""

    def at_once(lake: Lake, table: str, retention_hours: int = 0, keep=()) -> int:
        with pytest.MonkeyPatch.context() as patch:
            real = DeltaTable.vacuum
            patch.setattr("cc_pipeline.lake.vacuum.RETENTION_FLOOR_HOURS", 0)
            patch.setattr(DeltaTable, "vacuum", lambda *a, **k: real(*a, **k | {"enforce_retention_duration": False}))
            return vacuum(lake, table, retention_hours, keep)

    return at_once


def test_a_home_that_publishes_nothing_leaves_it_to_another(bucket: Bucket, tmp_path: Path) -> None:
    one, two = shared(bucket[0], tmp_path, "one"), shared(bucket[0], tmp_path, "two", publish="none")
    harvest(one)
    extract(two, SITE)
    assert find_publication_lag(two) is None
    with pytest.raises(UserInputError, match="this home writes no"):
        publish(two)
    run_maintenance(two)
    assert not two.settings.published_path.exists()
    assert find_publication_lag(one) is not None
    publish(one)
    assert captures(one)


def test_homes_on_a_lake_make_its_rows_with_the_same_settings(bucket: Bucket, tmp_path: Path) -> None:
    one = shared(bucket[0], tmp_path, "one")
    harvest(one)
    one.choose()
    assert noted(tmp_path)["settings"] == {"markdown": False, "digest_policy": "record"}
    other = shared(bucket[0], tmp_path, "two", markdown=True)
    with pytest.raises(UserInputError, match="settings markdown=no"):
        extract(other, OTHER)
    note = read_note(other.settings.home)
    assert note is not None
    assert not note.choices
    # the way out: one of them changes, and the others are told
    other.choose(overwrite=True)
    other.choose()
    with pytest.raises(UserInputError, match="settings markdown=yes"):
        one.choose()
    shared(bucket[0], tmp_path, "three", markdown=True).choose()
