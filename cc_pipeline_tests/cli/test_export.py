"""``export``: what is handed on opens elsewhere, is whole or not there, and says where it came from."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
from io import BytesIO
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest
from warcio.archiveiterator import ArchiveIterator

import cc_pipeline
from cc_pipeline.archive.record import sha1_base32
from cc_pipeline.errors import EnvironmentFault, Incomplete
from cc_pipeline.export import table_files
from cc_pipeline.export.files import README, whole_folder
from cc_pipeline_tests.cli.conftest import ARC, NEW, OLD, Cli, World
from cc_pipeline_tests.cli.written import everything_in

pytestmark = pytest.mark.xdist_group("cli published")


@pytest.fixture(scope="module")
def home(rich: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home of these tests' own, which may take it away; without the source, whatever is handed on is in it."""
    return Path(shutil.copytree(rich, tmp_path_factory.mktemp("export") / "home"))


def shown(home: Path, sql: str) -> list[tuple[object, ...]]:
    with duckdb.connect(str(home / "cc.duckdb"), read_only=True) as connection:
        return connection.execute(sql).fetchall()


OF_DOMAIN = (
    "SEMI JOIN (FROM capture_targets WHERE target = 'example.com') USING (crawl, warc_filename, warc_record_offset)"
)


def test_a_duckdb_file_holds_its_rows_wherever_it_lies(cli: Cli, home: Path, tmp_path: Path) -> None:
    out = tmp_path / "example.duckdb"
    said = cli("export", "example.com", "--out", out, "--home", home)
    assert said.status == 0, said.err
    counts = {name: shown(home, f"SELECT count(*) FROM {name} {OF_DOMAIN}") for name in ("page_text", "page_links")}
    questions = (
        "FROM timeline(site := 'example.com')",
        f"FROM changes_between('{OLD}', '{NEW}', site := 'example.com')",
        "FROM feed_timeline(site := 'example.com')",
    )
    answers = {question: sorted(shown(home, question), key=str) for question in questions}
    moved = out.rename(tmp_path / "elsewhere.duckdb")
    aside = home.rename(home.with_name("aside"))
    try:
        with duckdb.connect(str(moved), read_only=True) as connection:
            for name, count in counts.items():
                assert connection.execute(f"SELECT count(*) FROM {name}").fetchall() == count != [(0,)]
            views = connection.execute("SELECT sql FROM duckdb_views() WHERE NOT internal").fetchall()
            assert not [sql for (sql,) in views if "read_parquet" in sql], "rows, not paths"
            for question, answer in answers.items():
                assert sorted(connection.execute(question).fetchall(), key=str) == answer != []
            about = dict(connection.execute("FROM about").fetchall())
            assert about["software"].startswith("cc_pipeline ") and not [so for so in about.values() if str(home) in so]
            [(comment,)] = connection.execute(
                "SELECT comment FROM duckdb_tables() WHERE table_name = 'page_text'"
            ).fetchall()
            assert comment
    finally:
        aside.rename(home)


def test_several_tables_are_a_folder_with_a_readme(cli: Cli, home: Path, tmp_path: Path) -> None:
    out = tmp_path / "handed"
    assert cli("export", "example.com", "--format", "parquet", "--out", out, "--home", home).status == 0
    readme = (out / "README.md").read_text("utf-8")
    for path in out.glob("*.parquet"):
        assert hashlib.sha256(path.read_bytes()).hexdigest() in readme
        rows = pq.ParquetFile(path).metadata.num_rows
        assert f"| `{path.stem}` | {rows:,} |" in readme
    for told in (NEW, "example.com", "page_text", "versions of the lake's tables", "terms-of-use"):
        assert told in readme
    assert str(home) not in readme


def test_what_fails_leaves_nothing(cli: Cli, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = table_files.write_table

    def broken(*given: object, **_: object) -> object:
        real(*given)
        raise EnvironmentFault("the disk is full", "Free some")

    monkeypatch.setattr(table_files, "write_table", broken)
    out = tmp_path / "out"
    out.mkdir()
    for name in ("pages.parquet", "folder"):
        words = ("export", "-t", "page_text", "--format", "parquet", "--out", out / name, "--home", home)
        assert cli(*words).status == 1
    assert list(out.iterdir()) == []
    (out / "before.parquet").write_bytes(b"before")
    assert cli("export", "-t", "page_text", "--out", out / "before.parquet", "--home", home).status == 1
    assert (out / "before.parquet").read_bytes() == b"before"


def test_a_folder_that_could_not_be_replaced_is_still_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "folder"
    with whole_folder(out) as beside:
        (beside / README).write_text("Exported by cc_pipeline/1\n")
    real, moved = os.replace, []

    def second_fails(source: Path, to: Path) -> None:
        moved.append(to)
        if len(moved) == 2:
            raise OSError(28, "No space left on device")
        real(source, to)

    monkeypatch.setattr(os, "replace", second_fails)
    with pytest.raises(EnvironmentFault), whole_folder(out) as beside:
        (beside / "new").touch()
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]
    assert (out / README).exists()


def test_crawls_of_a_home_are_named_as_those_of_a_source(cli: Cli, home: Path, tmp_path: Path) -> None:
    out = tmp_path / "texts.jsonl"
    words = ("export", "example.com", "-t", "page_text", "--out", out, "--home", home)
    for text, crawls in (("newest", {NEW}), ("2024", {NEW}), ("2018..", {NEW, OLD}), (OLD, {OLD})):
        assert cli(*words, "-c", text).status == 0
        assert {json.loads(line)["crawl"] for line in out.read_text().splitlines()} == crawls


def test_no_file_is_replaced_by_an_empty_one(cli: Cli, home: Path, tmp_path: Path) -> None:
    out = tmp_path / "keep.jsonl"
    out.write_text("rows\n")
    nothing = "SELECT url FROM page_text WHERE false"
    for words in (
        ("export", "example.com", "-t", "page_text", "-c", "2O24"),
        ("export", "example.com", "-t", "page_text", "-c", "2019"),
        ("export", "--query", nothing),
        ("sql", nothing),
        ("lookup", "exmaple.com", "-c", NEW),
        ("export", "-t", "page_txt"),
        ("export", "-t", "crawls", "example.com"),
        ("export", "--query", "DROP TABLE x"),
    ):
        said = cli(*words, "--out", out, "--home", home)
        assert said.status == 1 and out.read_text() == "rows\n", words
    said = cli("export", "example.com", "-t", "page_text", "-c", "CC-MAIN-2019-04", "--out", out, "--home", home)
    assert f"this home has no crawl CC-MAIN-2019-04; it has {NEW}" in said.told
    said = cli("export", "exmaple.com", "--out", tmp_path / "there.duckdb", "--home", home)
    assert said.status == 1
    assert "do not have exmaple.com (did you mean example.com?): it was not run in this home, or no crawl" in said.told
    assert cli("export", "-t", "captures", "--format", "csv", "--out", "-", "--home", home).status == 1
    assert list(tmp_path.iterdir()) == [out]


@pytest.fixture
def wacz(cli: Cli, rich: Path, tmp_path: Path) -> Path:
    """Records of a domain in two eras, one of which was damaged when it was fetched."""
    out = tmp_path / "example.wacz"
    words = ("export", "example.com", "-c", "2024", "-c", ARC, "--out", out, "--home", rich, "--allow-missing")
    said = cli(*words)
    assert said.status == 0, said.err
    return out


def test_a_wacz_proves_itself_and_every_line_of_its_index_leads_to_its_record(world: World, wacz: Path) -> None:
    with zipfile.ZipFile(wacz) as archive:
        assert archive.testzip() is None
        package = json.loads(archive.read("datapackage.json"))
        digest = json.loads(archive.read("datapackage-digest.json"))
        assert digest["hash"] == f"sha256:{hashlib.sha256(archive.read('datapackage.json')).hexdigest()}"
        for resource in package["resources"]:
            data = archive.read(resource["path"])
            assert resource["hash"] == f"sha256:{hashlib.sha256(data).hexdigest()}"
            assert resource["bytes"] == len(data)
        for name in archive.namelist():
            if name.endswith(".gz"):
                assert archive.getinfo(name).compress_type == zipfile.ZIP_STORED
        # ReplayWeb.page takes a member without extra fields in the directory for one without any before its bytes
        data = wacz.read_bytes()
        for info in archive.infolist():
            assert data[info.header_offset + 28 :][:2] == len(info.extra).to_bytes(2, "little")
        index = archive.read("indexes/index.cdx.gz")
        lines = gzip.decompress(index).splitlines()
        assert lines == sorted(lines)
        planned = [
            c for crawl in (NEW, ARC) for c in world.truth.captures_of(crawl, subset="warc", domain="example.com")
        ]
        assert len(lines) == len(planned) - 1, "one was damaged when it was fetched"
        for line in lines:
            said = json.loads(line.split(b" ", 2)[2])
            warc = archive.read(f"archive/{said['filename']}")
            member = warc[int(said["offset"]) :][: int(said["length"])]
            [record] = [
                (r.rec_headers.get_header("WARC-Target-URI"), r.rec_type, r.content_stream().read())
                for r in ArchiveIterator(BytesIO(member))
            ]
            assert record[:2] == (said["url"], "response")
            assert said["digest"] == f"sha1:{sha1_base32(record[2])}"
        blocks = archive.read("indexes/index.idx").decode().splitlines()
        assert blocks[0].startswith("!meta 0 ")
        place = json.loads(blocks[1].split(" ", 2)[2])
        assert gzip.decompress(index[place["offset"] :][: place["length"]]).splitlines()[0] == lines[0]
        pages = [json.loads(line) for line in archive.read("pages/pages.jsonl").decode().splitlines()]
        urls = {json.loads(line.split(b" ", 2)[2])["url"] for line in lines}
        assert pages[0]["format"] == "json-pages-1.0"
        assert {page["url"] for page in pages[1:]} <= urls and len(pages) > 10
        assert package["mainPageUrl"] in urls
    readme = wacz.with_name("example.wacz.README.md").read_text("utf-8")
    assert f"{len(planned):,} captures were planned, {len(lines):,} fetched; 1 lost" in readme


def test_a_wacz_that_lacks_a_capture_says_so_with_its_status(cli: Cli, rich: Path, tmp_path: Path) -> None:
    out = tmp_path / "example.wacz"
    said = cli("export", "example.com", "-c", NEW, "--out", out, "--home", rich)
    assert said.status == 3
    assert "1 lost" in said.err
    assert zipfile.is_zipfile(out), "what is complete was handed on"
    with pytest.raises(Incomplete, match="1 lost") as lacking:
        cc_pipeline.open(rich, quiet=True).export(out, "example.com", NEW)
    assert lacking.value.report.path == out and out in lacking.value.report.files


def read(folder: Path, cache: Path) -> dict[str, Any]:
    """As :func:`cc_pipeline_tests.cli.other_readers.read`, with no hub to ask."""
    command = [sys.executable, "-m", "cc_pipeline_tests.cli.other_readers", str(folder), str(cache)]
    # a command that ran in this process isolates its children, which then would not find the tests
    environment = {**os.environ, "PYTHONSAFEPATH": "", "HF_HUB_OFFLINE": "1", "HF_HOME": str(cache)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout[done.stdout.index("{") :])
    return found


@pytest.mark.process
def test_each_table_of_an_export_is_a_configuration_and_a_record_set(cli: Cli, rich: Path, tmp_path: Path) -> None:
    out = tmp_path / "handed"
    assert cli("export", "example.com", "--format", "parquet", "--out", out, "--home", rich).status == 0
    found = read(out, tmp_path / "cache")
    assert {"page_text", "records", "feed_items"} <= {*found["configurations"]}
    rows = {path.stem: pq.ParquetFile(path).metadata.num_rows for path in out.glob("*.parquet")}
    assert found["configurations"].items() <= rows.items()
    assert {name: len(read) for name, read in found["sets"].items()} == rows
    assert found["errors"] == []


@pytest.mark.process
def test_nothing_that_is_handed_on_names_a_path_of_the_home(cli: Cli, rich: Path, world: World, tmp_path: Path) -> None:
    site, out = "example.com", tmp_path / "handed"
    out.mkdir()
    wide = ("--home", rich, "--creator", "A lab")
    said = [
        cli("export", site, "-t", "page_text", "--format", "parquet", "--out", out / "corpus", *wide),
        cli("export", site, "--format", "parquet", "--out", out / "tables", *wide),
        cli("export", site, "--out", out / "all.duckdb", *wide),
        cli("export", site, "-t", "captures", "--out", out / "captures.csv", *wide),
        cli("export", "-q", "SELECT url, outcome, stored_file FROM records", "--out", out / "records.jsonl", *wide),
        cli("export", site, "-c", ARC, "--out", out / "records.wacz", *wide),
    ]
    assert [one.status for one in said] == [0] * 6, said
    papers = {path.name for path in out.rglob("*")}
    for made in ("all.duckdb", "captures.csv", "records.jsonl", "records.wacz"):
        assert {f"{made}.targets.csv", f"{made}.provenance.json"} <= papers
    assert all((out / made / "targets.csv").exists() for made in ("corpus", "tables"))
    seen = 0
    for path, data in everything_in(out):
        seen += 1
        # a record that became WARC says by an address from where (WARC-Source-URI)
        for place in (rich, tmp_path, *(() if path.suffix == ".wacz" else (world.bucket,))):
            assert str(place).encode() not in data, path
    assert seen > 30
