"""What Common Crawl has announced or published once, generated: lookups, records and pages equal the truth."""

from __future__ import annotations

import uuid
import zlib
from pathlib import Path

import pytest

from cc_pipeline.errors import EnvironmentFault, UserInputError
from cc_pipeline.harvesting.archives import read_user_list, store_user_list
from cc_pipeline.testing.mini_crawl import Capture, CrawlSpec, MiniCrawlSpec, MiniCrawlTruth, generate
from cc_pipeline.workspace.workspace import Workspace
from cc_pipeline_tests.world import extract, harvest, workspace_of

SUPPLEMENTAL = "CC-SUPPLEMENTAL-2026-22-focus"
SHAPE = {"segments": 1, "parts": 2, "row_group_rows": 20, "page_rows": 8, "zipnum_lines": 15}
FORMATS = {
    "pages of version 2": CrawlSpec("CC-MAIN-2026-34", page_version="2.0", **SHAPE),
    "all of them": CrawlSpec(
        "CC-MAIN-2026-39", compression="zstd", page_version="2.0", long_places=True, record_ids=True, addresses=True,
        **SHAPE,
    ),
    "supplemental": CrawlSpec(
        SUPPLEMENTAL, compression="zstd", page_version="2.0", long_places=True, record_ids=True, addresses=True,
        **SHAPE,
    ),
}  # fmt: skip
SUBSETS = ("warc", "crawldiagnostics", "robotstxt")


def index_files(bucket: Path) -> list[str]:
    return sorted(str(path.relative_to(bucket)) for path in bucket.rglob("subset=*/*.parquet"))


def made(root: Path, name: str) -> tuple[Workspace, MiniCrawlTruth, CrawlSpec]:
    """A workspace on a bucket with one crawl of the format, harvested."""
    crawl = FORMATS[name]
    truth = generate(root / "bucket", MiniCrawlSpec(pages=60, sites=4, crawls=(crawl,)))
    workspace = workspace_of(root / "bucket", root / "home", subsets=SUBSETS)
    if crawl.is_supplemental:
        keys = "".join(f"{key}\n" for key in index_files(root / "bucket"))
        store_user_list(workspace.settings, crawl.id, keys.encode(), "files.txt", 100)
    harvest(workspace, crawl.id)
    return workspace, truth, crawl


def place(row: dict[str, object] | Capture) -> tuple[object, ...]:
    names = ("subset", "url", "fetch_time", "fetch_status", "content_digest", "warc_filename", "warc_record_offset",
             "warc_record_length", "warc_segment")  # fmt: skip
    return tuple(row[name] if isinstance(row, dict) else getattr(row, name) for name in names)


@pytest.mark.matrix
@pytest.mark.parametrize("name", FORMATS)
def test_captures_records_and_pages_equal_the_truth(tmp_path: Path, name: str) -> None:
    workspace, truth, crawl = made(tmp_path, name)
    domains = truth.domains()
    extract(workspace, *domains, crawl=crawl.id)
    captures = workspace.lake.read("captures").to_pylist()
    assert {place(row) for row in captures} == {place(capture) for capture in truth.captures}
    records = workspace.lake.read("records").to_pylist()
    assert {row["outcome"] for row in records} == {"fetched"}
    assert len(records) == len(captures) == len(truth.captures)
    titles = {row["url"]: row["title"] for row in workspace.lake.read("page_text").to_pylist()}
    told = [capture for capture in truth.captures if capture.title is not None and capture.subset == "warc"]
    assert told
    assert all(titles[capture.url] == capture.title for capture in told)
    _extra_columns_say_what_the_records_say(tmp_path / "bucket", crawl, captures, truth)


def _extra_columns_say_what_the_records_say(
    bucket: Path, crawl: CrawlSpec, captures: list[dict[str, object]], truth: MiniCrawlTruth
) -> None:
    ids = {(c.warc_filename, c.warc_record_offset): c.warc_record_id for c in truth.captures}
    for row in captures:
        where = (row["warc_filename"], row["warc_record_offset"])
        identifier = row["warc_record_id"]
        assert (identifier is not None) is crawl.record_ids
        if isinstance(identifier, bytes):
            assert str(uuid.UUID(bytes=identifier)) == ids[where]
        extra = dict(row["extra_columns"] or ())
        assert set(extra) == ({"warc_ip_address"} if crawl.addresses else set())
        if crawl.addresses:
            with (bucket / str(where[0])).open("rb") as file:
                file.seek(row["warc_record_offset"])
                member = file.read(row["warc_record_length"])
            header = f"WARC-IP-Address: {extra['warc_ip_address']}\r\n".encode()
            assert header in zlib.decompress(member, wbits=31)


def test_a_list_of_ones_own_names_index_files_of_one_crawl(tmp_path: Path) -> None:
    workspace = workspace_of(tmp_path, tmp_path / "home")
    table = f"projects/p/{SUPPLEMENTAL}/index/table/cc-supplemental/warc"
    good = f"{table}/crawl={SUPPLEMENTAL}/subset=warc/part-00000.parquet"
    assert store_user_list(workspace.settings, SUPPLEMENTAL, good.encode(), "files.txt", 10) == 1
    stored = workspace.settings.home / "path_lists" / f"{SUPPLEMENTAL}.cc-index-table.paths.gz"
    kept = stored.read_bytes()
    stored.unlink()
    stored.mkdir()  # as a file without permission: it is there, and the source's own list must not count instead
    with pytest.raises(EnvironmentFault, match="cannot be read"):
        read_user_list(workspace.settings, SUPPLEMENTAL)
    stored.rmdir()
    stored.write_bytes(kept)
    for wrong in (
        "",
        "a.parquet",
        good.replace(f"crawl={SUPPLEMENTAL}", "crawl=CC-MAIN-2024-22"),
        "../x",
        good + "\n" + good.replace("000", "001") * 12,
    ):
        with pytest.raises(UserInputError, match=r"files\.txt"):
            store_user_list(workspace.settings, SUPPLEMENTAL, wrong.encode(), "files.txt", 10)
