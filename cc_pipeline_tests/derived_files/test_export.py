"""SequenceFiles of a partition: the same records in the same order under the same numbers, byte for byte."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cc_pipeline.derived_files import export
from cc_pipeline.derived_files.export import ExportOptions, export_slices, write_files
from cc_pipeline.derived_files.sequencefile import SequencePair, iter_pairs, read_header
from cc_pipeline.documents.document2012.json import metadata_object
from cc_pipeline.errors import EnvironmentFault, UserInputError
from cc_pipeline.workspace.workspace import Workspace, export_prefix
from cc_pipeline_tests.publish.lake_pages import CRAWL, TARGET, commit_pages, make_workspace, page

PAGES = [page(number) for number in range(40)]


def in_order() -> list[Any]:
    return sorted(PAGES, key=lambda one: (one.keys["warc_filename"], one.keys["warc_record_offset"]))


@pytest.fixture(scope="module")
def parsed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("parsed")
    workspace = make_workspace(folder)
    commit_pages(workspace, PAGES)
    commit_pages(workspace, [page(number, "other.com") for number in range(50, 60)], target="other.com")
    return folder


@pytest.fixture
def workspace(parsed: Path, tmp_path: Path) -> Workspace:
    shutil.copytree(parsed / "home", tmp_path / "home")
    return make_workspace(tmp_path, parsed / "bucket")


def folder(workspace: Workspace) -> Path:
    return Path(workspace.settings.lake) / export_prefix(CRAWL, TARGET)


def read(workspace: Workspace, kind: str) -> list[list[tuple[Any, Any]]]:
    files = []
    for path in sorted(folder(workspace).glob(f"{kind}-*")):
        pairs = [pair for pair in iter_pairs(path, path.name) if isinstance(pair, SequencePair)]
        files.append([(pair.key, pair.value) for pair in pairs])
    return files


def hashes(workspace: Workspace) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder(workspace).iterdir()}


def test_text_and_metadata_have_the_same_records_under_the_same_numbers(workspace: Workspace) -> None:
    report = export_slices(workspace, CRAWL, [TARGET], options=ExportOptions(records_per_file=12))
    text, metadata = read(workspace, "textData"), read(workspace, "metadata")
    assert [len(file) for file in text] == [12, 12, 12, 4]
    assert [[url for url, _ in file] for file in text] == [[url for url, _ in file] for file in metadata]
    assert [url for file in text for url, _ in file] == [one.keys["url"] for one in in_order()]
    assert report.rows == report.written == 80
    assert (report.fresh_slices, report.notes) == (2, ())
    assert sorted(path.name for path in folder(workspace).iterdir()) == [
        "_metadata.json",
        "_textData.json",
        *(f"metadata-0000{number}" for number in range(4)),
        *(f"textData-0000{number}" for number in range(4)),
    ]


def test_values_are_the_text_of_pages_and_the_2012_document_of_every_record(workspace: Workspace) -> None:
    export_slices(workspace, CRAWL, [TARGET])
    (text,), (metadata,) = read(workspace, "textData"), read(workspace, "metadata")
    for one, (_, written), (_, document) in zip(in_order(), text, metadata, strict=True):
        assert written == (one.text["text"] if one.text is not None else "")
        assert json.loads(document) == json.loads(json.dumps(metadata_object(one.metadata, one.links)))
    texts = [value for _, value in text]
    assert "" in texts
    assert any(value.startswith("Pagé 0 about 0 Some words of page 0.") for value in texts)
    documents = [json.loads(document) for _, document in metadata]
    assert {document["disposition"] for document in documents} == {"SUCCESS", "FAILURE"}
    assert {document.get("failure_reason") for document in documents} >= {"Missing", "RedirectFailed"}
    assert any(document.get("content", {}).get("type") == "rss-feed" for document in documents)


def test_compat_writes_what_the_2012_writer_wrote(workspace: Workspace) -> None:
    export_slices(workspace, CRAWL, [TARGET], ["metadata"], ExportOptions(compat="2012"))
    ((_, document), *_) = read(workspace, "metadata")[0]
    assert "set-cookie" not in json.loads(document).get("http_headers", {})
    for one, (_, written) in zip(in_order(), read(workspace, "metadata")[0], strict=True):
        wanted = metadata_object(one.metadata, one.links, compat="2012")
        assert json.loads(written) == json.loads(json.dumps(wanted))


def test_files_are_hadoops_of_2012_and_say_where_they_are_from(workspace: Workspace) -> None:
    export_slices(workspace, CRAWL, [TARGET])
    header = read_header(folder(workspace) / "metadata-00000", "metadata-00000")
    assert (header.key_class, header.value_class) == ("org.apache.hadoop.io.Text",) * 2
    assert (header.version, header.compression) == (6, "block")
    assert header.codec == "org.apache.hadoop.io.compress.GzipCodec"
    assert dict(header.metadata) == {"cc_pipeline.crawl": CRAWL, "cc_pipeline.target": TARGET}


@pytest.mark.parametrize(("compression", "codec"), [("none", "gzip"), ("record", "default"), ("block", "default")])
def test_other_compressions_hold_the_same(workspace: Workspace, compression: Any, codec: Any) -> None:
    export_slices(workspace, CRAWL, [TARGET], ["textData"])
    before = read(workspace, "textData")
    export_slices(workspace, CRAWL, [TARGET], ["textData"], ExportOptions(compression, codec))
    assert read(workspace, "textData") == before


def test_the_same_inputs_are_not_written_twice_and_give_the_same_bytes(workspace: Workspace, tmp_path: Path) -> None:
    export_slices(workspace, CRAWL, [TARGET])
    stamps = {path: path.stat().st_mtime_ns for path in folder(workspace).iterdir()}
    again = export_slices(workspace, CRAWL, [TARGET])
    assert (again.written, again.reused_slices) == (0, 2)
    assert {path: path.stat().st_mtime_ns for path in folder(workspace).iterdir()} == stamps
    elsewhere = make_workspace(tmp_path / "elsewhere")
    # rows in another order of the same table: the order of export is its own
    commit_pages(elsewhere, list(reversed(PAGES)))
    export_slices(elsewhere, CRAWL, [TARGET])
    assert hashes(elsewhere) == hashes(workspace)


def test_other_pages_or_options_replace_the_files(workspace: Workspace) -> None:
    export_slices(workspace, CRAWL, [TARGET], options=ExportOptions(records_per_file=3))
    assert len(read(workspace, "textData")) == 14
    commit_pages(workspace, PAGES[:5], digest="2")
    report = export_slices(workspace, CRAWL, [TARGET], options=ExportOptions(records_per_file=3))
    assert report.written == 10
    assert [len(file) for file in read(workspace, "metadata")] == [3, 2]


def test_a_file_that_was_lost_or_cut_is_written_again(workspace: Workspace) -> None:
    export_slices(workspace, CRAWL, [TARGET])
    whole = hashes(workspace)
    path = folder(workspace) / "textData-00000"
    path.write_bytes(path.read_bytes()[:-5])
    (folder(workspace) / "metadata-00000").unlink()
    export_slices(workspace, CRAWL, [TARGET])
    assert hashes(workspace) == whole


def test_an_export_that_breaks_off_leaves_no_manifest_and_is_made_again(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    export_slices(workspace, CRAWL, [TARGET], options=ExportOptions(records_per_file=10))
    whole = hashes(workspace)

    def breaks_off(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(export, "_delete_others", breaks_off)
        with pytest.raises(KeyboardInterrupt):
            export_slices(workspace, CRAWL, [TARGET], ["textData"], ExportOptions(records_per_file=7))
    assert not (folder(workspace) / "_textData.json").exists()
    export_slices(workspace, CRAWL, [TARGET], options=ExportOptions(records_per_file=10))
    assert hashes(workspace) == whole


def test_kinds_cut_differently_are_pointed_out(workspace: Workspace) -> None:
    export_slices(workspace, CRAWL, [TARGET], ["textData"], ExportOptions(records_per_file=10))
    report = export_slices(workspace, CRAWL, [TARGET], ["metadata"], ExportOptions(records_per_file=9))
    assert "exported at different times" in report.notes[0]


def test_an_empty_slice_has_no_files(workspace: Workspace) -> None:
    commit_pages(workspace, [], digest="none")
    assert export_slices(workspace, CRAWL, [TARGET]).rows == 0
    assert [path.name for path in sorted(folder(workspace).iterdir())] == ["_metadata.json", "_textData.json"]


def test_what_is_not_parsed_cannot_be_exported(workspace: Workspace) -> None:
    with pytest.raises(EnvironmentFault, match="has not been parsed"):
        export_slices(workspace, CRAWL, ["nobody.example"])


@pytest.mark.parametrize(
    "given", [{"compression": "zip"}, {"codec": "snappy"}, {"records_per_file": 0}, {"compat": "2013"}]
)
def test_options_nobody_knows_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(UserInputError):
        ExportOptions(**given)


@given(
    records=st.lists(st.tuples(st.text(max_size=20), st.text(max_size=200)), max_size=30),
    per_file=st.integers(1, 12),
    compression=st.sampled_from(["none", "record", "block"]),
    codec=st.sampled_from(["gzip", "default"]),
)
def test_any_records_come_back_from_files_cut_as_asked(
    tmp_path_factory: pytest.TempPathFactory,
    records: list[tuple[str, str]],
    per_file: int,
    compression: Any,
    codec: Any,
) -> None:
    folder = tmp_path_factory.mktemp("files")
    options = ExportOptions(compression, codec, per_file)
    written = list(write_files(records, "textData", folder, options, (("a", "b"),)))
    assert [file.records for file, _ in written] == [
        len(records[at : at + per_file]) for at in range(0, len(records), per_file)
    ]
    back = [
        (pair.key, pair.value)
        for _, path in written
        for pair in iter_pairs(path, "x")
        if isinstance(pair, SequencePair)
    ]
    # Hadoop's Text has no lone surrogates
    assert back == [tuple(text.encode("utf-8", "replace").decode() for text in record) for record in records]
    for file, path in written:
        assert (file.bytes, file.sha256) == (path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest())
