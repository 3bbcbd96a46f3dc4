"""``export`` to WACZ: the file proves itself, its index leads to records, and what lacks is said."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import shutil
import subprocess
import zipfile
from io import BytesIO
from pathlib import Path

import pytest
from warcio.archiveiterator import ArchiveIterator

import cc_pipeline
from cc_pipeline.archive.record import sha1_base32
from cc_pipeline.errors import Incomplete
from cc_pipeline_tests.cli.conftest import ARC, NEW, Cli, World

pytestmark = pytest.mark.xdist_group("cli published")
#: A Python that has the package ``wacz``; ``cli`` takes the variable away.
VALIDATOR = os.environ.get("CC_PIPELINE_WACZ_PYTHON")


@pytest.fixture(scope="module")
def home(rich: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home of these tests' own."""
    return Path(shutil.copytree(rich, tmp_path_factory.mktemp("wacz") / "home"))


@pytest.fixture
def wacz(cli: Cli, rich: Path, tmp_path: Path) -> Path:
    """Records of a domain in two eras, one of which was damaged when it was fetched."""
    out = tmp_path / "example.wacz"
    words = ("export", "example.com", "-c", NEW, "-c", ARC, "--out", out, "--home", rich, "--allow-missing")
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


def test_a_wacz_that_lacks_a_capture_says_so_with_its_status(cli: Cli, home: Path, tmp_path: Path) -> None:
    out = tmp_path / "example.wacz"
    said = cli("export", "example.com", "-c", NEW, "--out", out, "--home", home)
    assert said.status == 3
    assert "1 lost" in said.err
    assert zipfile.is_zipfile(out), "what is complete was handed on"
    with pytest.raises(Incomplete, match="1 lost") as lacking:
        cc_pipeline.open(home, quiet=True).export(out, "example.com", NEW)
    assert lacking.value.report.path == out and out in lacking.value.report.files


@pytest.mark.skipif(not VALIDATOR, reason="CC_PIPELINE_WACZ_PYTHON names no Python that has the package wacz")
def test_the_fields_own_validator_finds_a_wacz_valid(wacz: Path) -> None:
    done = subprocess.run(
        [VALIDATOR, "-m", "wacz.main", "validate", "-f", str(wacz)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "is valid" in done.stdout


def test_a_target_without_captures_is_no_empty_file(cli: Cli, home: Path, tmp_path: Path) -> None:
    said = cli("export", "example.net", "--out", tmp_path / "n.wacz", "--home", home)
    assert said.status == 1 and "has captures of it" in said.told
    unknown = cli("export", "example.com", "-c", "1999", "--out", tmp_path / "n.wacz", "--home", home)
    assert unknown.status == 1 and NEW in unknown.told
    assert not (tmp_path / "n.wacz").exists()
