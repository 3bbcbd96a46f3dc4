"""A question without a site: what the whole index says, killed and gone on with, and on to its captures."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cc_pipeline.api.add_captures import add_captures
from cc_pipeline.api.lookups import LookupRequest, open_lookup
from cc_pipeline.api.scanning import condition_of_all, delete_parts, scan
from cc_pipeline.errors import UserInputError
from cc_pipeline.index.parquet.locator import ParquetLocator
from cc_pipeline_tests.world import NEW, OLD, Bucket, Killed, harvest, workspace_of

pytestmark = pytest.mark.xdist_group("given")
_MIME = "coalesce(content_mime_detected, content_mime_type)"
#: Of the index of old crawls it is not known whether somebody looked.
_KNOWN_SINCE_2018 = {
    "lang=eng and tld=com": "content_languages LIKE '%eng%' AND url_host_tld = 'com'",
    "charset=UTF-8 and mime=text/html": f"content_charset = 'UTF-8' AND {_MIME} = 'text/html'",
    "mime_claimed=text/html and lang=eng": "content_mime_type = 'text/html' AND content_languages LIKE '%eng%'",
}


def scanned(question: LookupRequest, where: str, out: Path) -> pa.Table:
    """What a scan gives."""
    tables: list[pa.Table] = []
    scan(question, where, out, tables.append)
    delete_parts(out)
    return pa.concat_tables(tables) if tables else pa.table({"url": []})


@pytest.mark.parametrize("crawl", [NEW, OLD])
def test_a_scan_has_what_the_index_says(bucket: Bucket, tmp_path: Path, crawl: str) -> None:
    workspace = workspace_of(bucket[0], tmp_path / "home")
    harvest(workspace, crawl)
    table = bucket[0] / f"cc-index/table/cc-main/warc/crawl={crawl}/subset=warc/*.parquet"
    asked = {
        "mime=text/html and tld in (com, uk)": f"{_MIME} = 'text/html' AND url_host_tld IN ('com', 'uk')",
        "mime like application/%": f"{_MIME} LIKE 'application/%'",
        "status=200 and domain=example.com": "fetch_status = 200 AND url_host_registered_domain = 'example.com'",
        "mime!=text/html": f"{_MIME} <> 'text/html'",
        "tld=nowhere": "false",
        **(_KNOWN_SINCE_2018 if crawl == NEW else {}),
    }
    with open_lookup(workspace.settings, (), [crawl]) as question, duckdb.connect() as connection:
        for where, sql in asked.items():
            rows = connection.execute(
                f"SELECT url FROM read_parquet('{table}', union_by_name=true, hive_partitioning=false) WHERE {sql}"
            ).fetchall()
            found = scanned(question, where, tmp_path / "out.parquet")
            assert sorted(found["url"].to_pylist()) == sorted(url for (url,) in rows), where


def test_a_killed_scan_goes_on_and_its_rows_are_taken(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = workspace_of(bucket[0], tmp_path / "home")
    harvest(workspace)
    out, where, whole = tmp_path / "out.parquet", "mime=text/html", ParquetLocator.scan
    read: list[str] = []

    def counted(self: ParquetLocator, places: Any, *given: Any) -> Iterator[pa.Table]:
        read.append(places[0].file.path)
        if len(read) == 2:
            raise Killed
        return whole(self, places, *given)

    monkeypatch.setattr(ParquetLocator, "scan", counted)
    with open_lookup(workspace.settings, (), [NEW]) as question:
        with pytest.raises(Killed):
            scanned(question, where, out)
        with pytest.raises(UserInputError, match="results of an unfinished scan"):
            scanned(question, "mime=text/css", out)
        # a part of a file that the source has replaced since
        (part,) = out.with_name(f"{out.name}.parts").glob("*.parquet")
        part.with_stem("replaced").write_bytes(part.read_bytes())
        found = scanned(question, where, out)
        assert read.count(read[0]) == 1 and read.count(read[1]) == 2
        assert found.equals(scanned(question, where, tmp_path / "again.parquet"))
    assert not [*tmp_path.glob("*.parts")]
    pq.write_table(found, out)
    assert add_captures(workspace.settings, out).held == {NEW: found.num_rows}
    expensive = workspace_of(bucket[0], tmp_path / "home", max_requests=1)
    with (
        open_lookup(expensive.settings, (), [NEW]) as question,
        pytest.raises(UserInputError, match="Confirm the cost with --yes"),
    ):
        scanned(question, where, out)


def test_all_of_a_crawl_needs_a_condition() -> None:
    assert condition_of_all(["* where mime=a/b"]) == "mime=a/b"
    assert condition_of_all(["*.example.com"]) == condition_of_all(["a", "b"]) == ""
    for text in ("*", "* where", "* mime=a/b"):
        with pytest.raises(UserInputError, match="add a condition"):
            condition_of_all([text])
