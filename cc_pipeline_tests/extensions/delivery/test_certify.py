"""``certificate``: complete; a hole in one index; a record that is gone; tampered with: each is named."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from cc_pipeline.export.files import sha256_of
from cc_pipeline.harvesting.catalog import columnar_versions
from cc_pipeline_tests.cli.conftest import NEW, Cli, World
from cc_pipeline_tests.harvesting.test_crawl_index import index_files
from cc_pipeline_tests.world import copy_of, extract, harvested, replace_file, workspace_of

pytestmark = pytest.mark.xdist_group("cli homes")
SITE = "example.com"


@pytest.fixture(scope="module")
def certified(bucket: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A bucket of these tests' own and a home with all of a site."""
    root = tmp_path_factory.mktemp("certified")
    copied = copy_of(bucket[0], root / "bucket")
    extract(harvested(copied, root / "home"), SITE)
    return copied, root / "home"


def of(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return found


def test_what_is_complete_is_certified_and_borne_out_by_a_delivery(
    cli: Cli, world: World, certified: tuple[Path, Path], tmp_path: Path
) -> None:
    bucket, home = certified
    out, place = tmp_path / "site.json", tmp_path / "place"
    said = cli("delivery", "certify", SITE, "-c", NEW, "--out", out, "--home", home, "--source", bucket)
    assert said.status == 0, said
    truth = world.truth.captures_of(NEW, subset="warc", domain=SITE)
    document = of(out)
    [crawl] = document["crawls"]
    assert document["complete"] and not crawl["findings"]
    assert crawl["outcomes"] == {"fetched": len(truth)}
    assert [crawl["indexes"][kind]["captures"] for kind in ("parquet", "zipnum")] == [len(truth)] * 2
    versions = {kind: crawl["indexes"][kind]["version"] for kind in ("parquet", "zipnum")}
    assert all(versions.values()), "an index that was asked says which it is"
    assert versions["parquet"] == columnar_versions(workspace_of(bucket, home).lake, [NEW])[NEW, "warc"]
    listed = pq.read_table(tmp_path / "site.captures.parquet")
    assert {(row["warc_filename"], row["warc_record_offset"]) for row in listed.to_pylist()} == {
        (one.warc_filename, one.warc_record_offset) for one in truth
    }
    assert "Complete" in (tmp_path / "site.html").read_text("utf-8")
    assert cli("delivery", "copy", SITE, "-c", NEW, "--to", place, "--home", home, "--source", bucket).status == 0
    verify = ("delivery", "verify", place, "--certificate", out)
    assert cli(*verify).status == 0
    # one flipped byte of a record
    [part] = place.rglob("*.warc.gz")
    sound = part.read_bytes()
    part.write_bytes(sound[:-40] + bytes([sound[-40] ^ 1]) + sound[-39:])
    said = cli(*verify)
    assert said.status == 1 and part.name in said.err
    part.write_bytes(sound)
    # a record that the delivery never had: its manifest is of a copy that left it out
    first = listed.slice(0, 1)
    place_of = first.schema.get_field_index("warc_record_offset")
    other = first.set_column(place_of, "warc_record_offset", pc.add(first["warc_record_offset"], 1))
    forged = tmp_path / "forged.json"
    pq.write_table(pa.concat_tables([listed, other]), tmp_path / "forged.captures.parquet")
    changed = of(out)
    changed["captures"]["sha256"] = sha256_of(tmp_path / "forged.captures.parquet")
    forged.write_text(json.dumps(changed), "utf-8")
    said = cli("delivery", "verify", place, "--certificate", forged)
    assert said.status == 1
    for named in ("changed after it was written", "lists", "not in the delivery"):
        assert named in said.told
    # and the file of captures alone
    (tmp_path / "site.captures.parquet").write_bytes((tmp_path / "forged.captures.parquet").read_bytes())
    assert "SHA-256 differs from the certificate" in cli(*verify).told


@pytest.mark.process
def test_a_hole_in_one_index_and_captures_of_the_other_alone_are_named(
    cli: Cli, certified: tuple[Path, Path], tmp_path: Path
) -> None:
    root = copy_of(certified[0], tmp_path / "bucket")
    site_file = next(
        file for file in index_files(root) if SITE in pq.read_table(file)["url_host_registered_domain"].to_pylist()
    )
    replace_file(site_file, site_file.read_bytes()[:-3] + b"XXX")
    home = tmp_path / "home"
    words = ("--home", home, "--source", root)
    cli("index", "harvest", "-c", NEW, *words)
    said = cli("delivery", "certify", SITE, "-c", NEW, "--out", tmp_path / "holes.json", *words)
    assert said.status == 3, said
    [crawl] = of(tmp_path / "holes.json")["crawls"]
    assert any("parquet has gaps: 1 of 2 index files" in one for one in crawl["findings"])
    assert crawl["only"]["zipnum"] > 0 == crawl["only"]["parquet"]
    assert crawl["outcomes"] == {"not requested": crawl["indexes"]["zipnum"]["captures"]}
    (root / f"cc-index/collections/{NEW}/indexes/cluster.idx").unlink()
    said = cli("delivery", "certify", SITE, "-c", NEW, "--out", tmp_path / "one.json", *words)
    assert said.status == 3
    [crawl] = of(tmp_path / "one.json")["crawls"]
    assert any(one.startswith("zipnum was not searched") for one in crawl["findings"])
    # nobody knows what it would have said
    assert (crawl["indexes"]["zipnum"]["captures"], crawl["indexes"]["zipnum"]["version"]) == (None, None)
    bucket, made = certified
    place = tmp_path / "place"
    assert cli("delivery", "copy", SITE, "-c", NEW, "--to", place, "--home", made, "--source", bucket).status == 0
    said = cli("delivery", "verify", place, "--certificate", tmp_path / "one.json")
    assert said.status == 0, said


def test_a_record_that_is_gone_is_named(cli: Cli, certified: tuple[Path, Path], tmp_path: Path) -> None:
    bucket, made = certified
    home = Path(shutil.copytree(made, tmp_path / "home"))
    workspace = workspace_of(bucket, home)
    rows = workspace.lake.read("records", {"crawl": NEW})
    gone = rows.slice(0, 1).to_pylist()[0]
    workspace.lake.commit("records", rows.slice(1), [{"crawl": NEW, "target": gone["target"]}], {"test": "1"})
    out = tmp_path / "gone.json"
    said = cli("delivery", "certify", SITE, "-c", NEW, "--out", out, "--home", home, "--source", bucket)
    assert said.status == 3
    [crawl] = of(out)["crawls"]
    assert crawl["findings"] == ["1 capture is not requested"]
    assert str(gone["warc_record_offset"]) in (tmp_path / "gone.html").read_text("utf-8")


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"format": "cc_pipeline certificate", "version": 1}'])
def test_a_file_that_is_no_certificate_is_refused(text: str, cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(text, "utf-8")
    said = cli("delivery", "verify", tmp_path, "--certificate", tmp_path / "x.json")
    assert said.status == 1
    assert "Traceback" not in said.err
