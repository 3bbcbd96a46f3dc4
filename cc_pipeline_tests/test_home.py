"""Notes of homes: lost or damaged ones, so that no other source ever writes into the tables; and other layouts."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from deltalake import DeltaTable, Field

from cc_pipeline.checks.doctor import examine
from cc_pipeline.errors import EnvironmentFault, UserInputError
from cc_pipeline.home import LAKE_NOTE, LAYOUT, NOTE, HomeNote, NoteUnreadable, UnknownLayout, read_note
from cc_pipeline.settings import load_settings
from cc_pipeline.workspace.claim import claim_home
from cc_pipeline_tests.world import Bucket, copy_of, workspace_of

#: What becomes of a note: it is gone, was cut, or is something else.
LOST = [None, "", "{", "[]", '{"layout": 3}', '{"source": "s3://b", "layout": "x"}']


def lose(note: Path, left: str | None) -> None:
    note.unlink() if left is None else note.write_text(left)


@pytest.fixture
def home(bucket: Bucket, tmp_path: Path) -> Path:
    """A home with a table of a few rows."""
    workspace = workspace_of(bucket[0], tmp_path / "home", markdown=True)
    workspace.lake.prepare("targets")
    workspace.choose()
    return tmp_path / "home"


@pytest.mark.parametrize("left", LOST)
def test_a_lost_note_is_written_again_from_the_lake(bucket: Bucket, home: Path, left: str | None) -> None:
    before = (home / NOTE).read_text()
    lose(home / NOTE, left)
    settings = load_settings({}, home=str(home))
    assert (settings.source, settings.markdown) == (str(bucket[0]), True)
    claim_home(settings)
    assert (home / NOTE).read_text() == before


@pytest.mark.parametrize("left", LOST)
def test_another_source_is_refused_whatever_became_of_the_note(
    bucket: Bucket, home: Path, tmp_path: Path, left: str | None
) -> None:
    other = copy_of(bucket[0], tmp_path / "other")
    lose(home / NOTE, left)
    with pytest.raises(UserInputError, match="holds tables of"):
        workspace_of(other, home).lake.read("targets")
    (home / NOTE).write_text(json.dumps({"source": str(other), "layout": LAYOUT}))
    with pytest.raises(UserInputError, match=f"are the same source, delete .*{LAKE_NOTE}"):
        workspace_of(other, home).lake.read("targets")
    (home / "lake" / LAKE_NOTE).unlink()
    assert workspace_of(other, home).lake.read("targets").num_rows == 0


@pytest.mark.parametrize("left", LOST)
def test_tables_of_which_nothing_says_whose_they_are_are_refused(bucket: Bucket, home: Path, left: str | None) -> None:
    (home / "lake" / LAKE_NOTE).unlink()
    lose(home / NOTE, left)
    for arguments in ({}, {"source": str(bucket[0])}):
        with pytest.raises(EnvironmentFault, match="write the source of the tables into it"):
            load_settings({}, home=str(home), **arguments)
    # what the message says to do
    (home / NOTE).write_text(json.dumps({"source": str(bucket[0])}))
    assert workspace_of(bucket[0], home).lake.read("targets").num_rows == 0
    assert read_note(home) is not None


def test_a_lake_in_another_folder_of_the_home_is_guarded_too(bucket: Bucket, tmp_path: Path) -> None:
    home, lake = tmp_path / "home", tmp_path / "home" / "here"
    workspace_of(bucket[0], home, lake=str(lake)).lake.prepare("targets")
    (home / NOTE).unlink()
    with pytest.raises(UserInputError, match="holds tables of"):
        workspace_of(copy_of(bucket[0], tmp_path / "other"), home, lake=str(lake)).lake.read("targets")
    (lake / LAKE_NOTE).unlink()
    with pytest.raises(EnvironmentFault, match="write the source of the tables into it"):
        workspace_of(bucket[0], home, lake=str(lake)).lake.read("targets")


def test_a_source_within_a_home_is_known_to_both(tmp_path: Path) -> None:
    home = tmp_path / "home"
    workspace_of(home / "minicrawl", home).claim()
    home.rename(tmp_path / "moved")
    moved = tmp_path / "moved"
    (moved / NOTE).unlink()
    assert load_settings({}, home=str(moved)).source == str(moved / "minicrawl")
    lent = workspace_of(moved / "minicrawl", tmp_path / "second", lake=str(moved / "lake"))
    assert lent.lake.read("targets").num_rows == 0


def test_a_new_home_needs_no_ceremony(bucket: Bucket, tmp_path: Path) -> None:
    for place in (tmp_path / "new", tmp_path):
        assert read_note(place) is None
        claim_home(load_settings({}, home=str(place), source=str(bucket[0])))
        assert read_note(place) is not None


def test_a_private_note_of_somebody_else_keeps_nobody_from_what_is_published(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = Path.read_bytes

    def refused(path: Path) -> bytes:
        if path.name == NOTE:
            raise PermissionError(13, os.strerror(13))
        return plain(path)

    monkeypatch.setattr(Path, "read_bytes", refused)
    settings = load_settings({}, home=str(home))
    with pytest.raises(NoteUnreadable):
        claim_home(settings)


@pytest.mark.parametrize("layout", [1, LAYOUT - 1, LAYOUT + 1])
@pytest.mark.parametrize("name", [NOTE, f"lake/{LAKE_NOTE}"])
def test_a_home_of_another_layout_is_refused_and_left_alone(bucket: Bucket, home: Path, name: str, layout: int) -> None:
    note = home / name
    note.write_text(json.dumps(json.loads(note.read_text()) | {"layout": layout}))
    before = {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}
    with pytest.raises(
        UnknownLayout, match=f"has layout {layout}, and this version .* uses layout {LAYOUT}"
    ) as refused:
        workspace_of(bucket[0], home).lake.read("targets")
    assert "make a new home" in refused.value.advice
    assert {path: path.read_bytes() for path in home.rglob("*") if path.is_file()} == before


def test_doctor_names_a_table_with_other_columns(home: Path) -> None:
    DeltaTable(home / "lake" / "tables" / "targets").alter.add_columns([Field("extra", "string")])
    findings = [finding for finding in examine(load_settings({}, home=str(home))) if finding.topic == "tables"]
    assert [finding.level for finding in findings] == ["bad", "ok"]
    assert "the table targets has other columns than this version of cc_pipeline writes: extra" in findings[0].text


def test_a_note_without_a_layout_has_that_of_this_version(tmp_path: Path) -> None:
    (tmp_path / NOTE).write_text(json.dumps({"source": "s3://b"}))
    assert read_note(tmp_path) == HomeNote("s3://b")
