"""SequenceFiles of 2012, read whole into the page tables."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from cc_pipeline.extraction.whole_files import read_sources
from cc_pipeline.workspace.source_files import MAX_FAULT_ROWS, SourceFile, identify, read_source_files, register
from cc_pipeline.workspace.workspace import Workspace
from cc_pipeline_tests.extraction.written_whole import DOCUMENT, sequencefile
from cc_pipeline_tests.publish.lake_pages import make_workspace


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return make_workspace(tmp_path)


def read(workspace: Workspace, named: Path | str, crawl: str | None = None) -> SourceFile:
    file = identify(workspace.transport, str(named), crawl)
    register(workspace, [file])
    read_sources(workspace, [file.slug])
    return file


def rows(workspace: Workspace, table: str, file: SourceFile) -> list[dict[str, Any]]:
    return workspace.lake.read(table, {"crawl": file.crawl, "target": file.slug}).to_pylist()


def test_metadata_of_2012_becomes_metadata_and_links(workspace: Workspace, tmp_path: Path) -> None:
    path = sequencefile(tmp_path / "metadata-00003", [("http://www.example.com/a", json.dumps(DOCUMENT))])
    file = read(workspace, path)
    (row,) = rows(workspace, "page_metadata", file)
    assert file.crawl == row["crawl"] == "CC-MAIN-2012"
    assert (row["source_kind"], row["source_file"], row["parser"]) == ("sequencefile", str(path), "commoncrawl-2012")
    assert (row["url_surtkey"], row["domain"]) == ("com,example)/a", "example.com")
    assert row["warc_filename"] == "parse-output/segment/1341690147253/1341708194671_0.arc.gz"
    assert (row["warc_record_offset"], row["warc_record_length"], row["fetch_status"]) == (156, 9775, 200)
    assert row["content"]["title"] == "Título"
    (link,) = rows(workspace, "page_links", file)
    assert (link["type"], link["link_url"], link["rel"]) == ("a", "http://www.example.com/next", "next")
    assert rows(workspace, "page_text", file) == []


def test_texts_of_2012_become_texts_and_empty_ones_nothing(workspace: Workspace, tmp_path: Path) -> None:
    spanish = "Este es un texto bastante largo en español para que se reconozca el idioma sin ninguna duda."
    pairs = [("http://www.example.com/a", spanish), ("http://www.example.com/b", "")]
    file = read(workspace, sequencefile(tmp_path / "textData-00003", pairs))
    (row,) = rows(workspace, "page_text", file)
    assert (row["url"], row["text"], row["content_languages"]) == ("http://www.example.com/a", spanish, "spa")
    assert rows(workspace, "page_metadata", file) == []


def test_what_cannot_be_read_is_told_and_keeps_nothing_else_out(workspace: Workspace, tmp_path: Path) -> None:
    good = json.dumps(DOCUMENT)
    huge = json.dumps(DOCUMENT | {"content_len": 10**30})
    pairs = [("http://a.com/", good), ("http://b.com/", "{"), ("http://c.com/", huge), ("http://d.com/", good)]
    path = sequencefile(tmp_path / "metadata-00000", pairs)
    file = identify(workspace.transport, str(path))
    register(workspace, [file])
    report = read_sources(workspace, [file.slug])
    assert [row["url"] for row in rows(workspace, "page_metadata", file)] == ["http://a.com/", "http://d.com/"]
    faults = rows(workspace, "source_faults", file)
    assert len(faults) == 2
    assert {fault["source_file"] for fault in faults} == {str(path)}
    assert any("http://c.com/" in fault["reason"] for fault in faults)
    assert "2 byte ranges could not be read" in report.notes[0]
    assert report.per_target[file.slug]["rows:source_faults"] == 2


def test_a_file_of_nothing_but_damage_is_bounded(workspace: Workspace, tmp_path: Path) -> None:
    pairs = [(f"http://a.com/{number}", "{broken") for number in range(MAX_FAULT_ROWS + 500)]
    file = identify(workspace.transport, str(sequencefile(tmp_path / "metadata-00000", pairs)))
    register(workspace, [file])
    report = read_sources(workspace, [file.slug])
    assert len(rows(workspace, "source_faults", file)) == MAX_FAULT_ROWS
    assert f"{MAX_FAULT_ROWS + 500:,} byte ranges could not be read" in report.notes[0]
    (tmp_path / "noise").write_bytes(b"noise" * 100)
    noise = read(workspace, tmp_path / "noise")
    assert len(rows(workspace, "source_faults", noise)) >= 1


@pytest.mark.parametrize("at_source", [False, True])
def test_the_same_bytes_are_the_same_file(workspace: Workspace, tmp_path: Path, at_source: bool) -> None:
    folder = Path(workspace.settings.source) if at_source else tmp_path
    pairs = [(f"http://a.com/{number}", json.dumps(DOCUMENT)) for number in range(200)]
    path = sequencefile(folder / "metadata-00000", pairs)
    file = read(workspace, path.name if at_source else path)
    data = path.read_bytes()

    def again(content: bytes, at: int) -> int:
        path.unlink()
        path.write_bytes(content)
        os.utime(path, (at, at))
        return read_sources(workspace, [file.slug]).fresh_slices

    assert again(data, 1) == 0
    middle = len(data) // 2
    assert again(data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :], 2) == 1
    assert rows(workspace, "source_faults", file)
    assert again(data, 3) == 1
    assert not rows(workspace, "source_faults", file)


def test_keys_are_slugs_and_the_same_file_has_one(workspace: Workspace, tmp_path: Path) -> None:
    odd = sequencefile(tmp_path / "Métadata 00|00..x", [])
    file = identify(workspace.transport, str(odd))
    assert set(file.slug) <= set("abcdefghijklmnopqrstuvwxyz0123456789._-")
    assert ".." not in file.slug
    assert register(workspace, [file, file]) == [file]
    assert register(workspace, [file]) == []
    assert read_source_files(workspace) == {file.slug: file}
    other = identify(workspace.transport, str(odd), "CC-MAIN-2009-2010")
    assert other.slug != file.slug
