"""Archive files that a person named, at several places at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cc_pipeline.transport.client import Transport
from cc_pipeline.transport.faults import FaultKind, RangeFault
from cc_pipeline.transport.named_files import NamedPlaces, place_of
from cc_pipeline.transport.ranges import ByteRange, RangeBytes
from cc_pipeline_tests.faultserver import FaultServer


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("crawl-data/a.warc.gz", ("", "crawl-data/a.warc.gz")),
        ("file:///data/a%20b.warc", ("/", "data/a b.warc")),
        ("https://example.org:8080/x/a%20b.warc.gz", ("https://example.org:8080", "x/a b.warc.gz")),
        ("s3://bucket/deep/a%20b+c#d.warc.gz", ("s3://bucket", "deep/a%20b+c#d.warc.gz")),
    ],
)
def test_a_name_says_where_it_lies(name: str, place: tuple[str, str]) -> None:
    assert place_of(name) == place


@pytest.fixture
def places(tmp_path: Path) -> Iterator[tuple[NamedPlaces, list[str]]]:
    for folder in ("source", "web", "here"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.warc").write_bytes(folder.encode() * 10)
    with FaultServer(tmp_path / "web") as server, Transport(str(tmp_path / "source")) as source:
        named = NamedPlaces(source, Transport)
        yield named, ["a.warc", f"{server.url}a.warc", (tmp_path / "here" / "a.warc").as_uri()]
        named.close()


def test_ranges_of_all_places_come_under_the_names_they_were_asked_by(places: tuple[NamedPlaces, list[str]]) -> None:
    named, files = places
    asked = [ByteRange(file, at, 3, tag=(file, at)) for file in files for at in (0, 3)]
    found = {}
    for outcome in named.read_many(iter(asked)):
        assert isinstance(outcome, RangeBytes)
        assert outcome.tag == (outcome.key, outcome.offset)
        found[outcome.tag] = outcome.data
    wanted = dict(zip(files, (b"source" * 10, b"web" * 10, b"here" * 10), strict=True))
    assert found == {(file, at): wanted[file][at : at + 3] for file in files for at in (0, 3)}
    assert named.stats.requests == 6 and named.stats.bytes == 18
    assert [named.read(file, 0, 4).data for file in files] == [wanted[file][:4] for file in files]
    assert all(named.head(file) for file in files)
    assert [named.url(file) for file in files[1:]] == files[1:]
    # faults carry the name too
    gone = [file.replace("a.warc", "none.warc") for file in files]
    outcomes = list(named.read_many(iter([ByteRange(file, 0, 3, tag=file) for file in gone])))
    assert [(outcome.key, outcome.tag) for outcome in outcomes] == [(file, file) for file in gone]
    assert all(isinstance(outcome, RangeFault) and outcome.kind is FaultKind.NOT_FOUND for outcome in outcomes)
    assert not any(named.head(file) for file in gone)
    with pytest.raises(RangeFault) as raised:
        named.read(gone[1], 0, 3)
    assert raised.value.key == gone[1]
