"""``copy`` as a person sees it: status 0 means that everything planned is there, and ``delivery verify`` proves it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from warcio.archiveiterator import ArchiveIterator

from cc_pipeline.defs.recording import PartitionsFailed
from cc_pipeline.defs.stage_runner import StageRunner
from cc_pipeline.errors import Incomplete
from cc_pipeline.extensions.delivery.manifest import MANIFEST
from cc_pipeline_tests.cli.conftest import NEW, Cli, World
from cc_pipeline_tests.world import copy_of

pytestmark = pytest.mark.xdist_group("cli homes")


def responses(place: Path) -> Counter[str]:
    found: Counter[str] = Counter()
    for file in place.rglob("*.warc.gz"):
        with file.open("rb") as stream:
            found.update(r.rec_headers["WARC-Record-ID"] for r in ArchiveIterator(stream) if r.rec_type == "response")
    return found


def counts(place: Path) -> dict[str, int]:
    [copy] = json.loads((place / MANIFEST).read_bytes())["copies"]
    found: dict[str, int] = copy["counts"]
    return found


@pytest.mark.process
def test_the_fifth_case(cli: Cli, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of 7 bytes passed; with a file of the source gone a copy ended 0; healed, a place held captures twice."""
    monkeypatch.setenv("CC_PIPELINE_MAX_PENDING", "1")
    bucket, place, home = copy_of(world.bucket, tmp_path / "bucket"), tmp_path / "mine", tmp_path / "home"
    truth = world.truth.captures_of(NEW, subset="warc", domain="example.com")
    victim, lost = Counter(capture.warc_filename for capture in truth).most_common()[-1]
    aside = tmp_path / "aside"
    (bucket / victim).rename(aside)
    words = ("delivery", "copy", "example.com", "-c", NEW, "--to", place, "--file-mb", "1", "--home", home)
    said = cli(*words, "--source", bucket)
    assert said.status == 3, said
    assert f"not delivered: {lost} of {len(truth)} captures of {NEW} ({lost} pending)" in said.err
    assert "not_found" in said.err
    assert "--refetch" in said.told
    assert counts(place) == {
        "planned": len(truth), "delivered": len(truth) - lost, "pending": lost, "lost": 0, "left_out": 0,
    }  # fmt: skip
    assert cli("delivery", "verify", place).status == 3
    assert cli("delivery", "verify", place, "--allow-missing").status == 0
    part = next(iter(sorted(place.rglob("*.warc.gz"))))
    part.write_bytes(b"1234567")
    said = cli("delivery", "verify", place)
    assert said.status == 1
    assert part.name in said.err
    assert cli(*words, "--allow-missing").status == 0
    assert sum(responses(place).values()) == len(truth) - lost
    aside.rename(bucket / victim)
    assert cli("run", "--refetch", "-c", NEW, "example.com", "--home", home).status == 0
    said = cli(*words, "--format", "json")
    assert (said.status, json.loads(said.out)["not copied"]) == (0, 0), said.err
    found = responses(place)
    assert len(found) == len(truth)
    assert set(found.values()) == {1}
    said = cli("delivery", "verify", place, "--format", "json")
    assert said.status == 0
    assert "all files match the manifest" in said.err
    row = json.loads(said.out)
    assert [row[name] for name in ("crawl", "targets", "records", "not copied")] == [NEW, "example.com", len(truth), 0]


def test_a_place_without_a_delivery_is_refused(cli: Cli, tmp_path: Path) -> None:
    said = cli("delivery", "verify", tmp_path)
    assert said.status == 1
    assert "no delivery" in said.err
    assert cli("delivery", "verify", "https://example.com/x").status == 1


def test_what_is_there_is_delivered_before_trouble_of_the_source_is_told(
    cli: Cli, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fetch(*_: object) -> None:
        raise PartitionsFailed({"a": Incomplete("the source gave 3 of 30 captures", "Try again")}, 1)

    words = ("delivery", "copy", "example.com", "-c", NEW, "--home", world.home, "--allow-missing", "--to")
    assert cli(*words, tmp_path / "before").status == 0
    monkeypatch.setattr(StageRunner, "fetch", fetch)
    said = cli(*words, tmp_path / "mine")
    assert said.status == 3
    assert "the source gave 3 of 30 captures" in said.err
    assert responses(tmp_path / "mine") == responses(tmp_path / "before") != {}
