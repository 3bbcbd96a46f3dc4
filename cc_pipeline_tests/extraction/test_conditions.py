"""Targets with a condition, from the index to what is published."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow as pa

from cc_pipeline.commoncrawl.conditions import OPEN
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.export.table_files import _select_rows
from cc_pipeline.extraction.crawl_plan import plan_crawl, plan_targets
from cc_pipeline.extraction.parsed_pages import resolve_conditions
from cc_pipeline.index.btree.locator import CRAWL_2012
from cc_pipeline.lake import target_definitions as definitions
from cc_pipeline.workspace.tables import CORE_TABLES
from cc_pipeline_tests.world import NEW, Bucket, extract, harvested, publish, workspace_of

SITE = "example.com"


def test_only_what_a_condition_may_mean_is_fetched(bucket: Bucket, tmp_path: Path) -> None:
    workspace = harvested(bucket[0], tmp_path)
    text = f"{SITE} where mime=text/html and time>=2024 and path like /%"
    located, fetched, _ = extract(workspace, text)
    truth = [
        c for c in bucket[1].captures_of(NEW, subset="warc", domain=SITE) if c.content_mime_detected == "text/html"
    ]
    assert located.rows == fetched.rows == len(truth) < len(bucket[1].captures_of(NEW, subset="warc", domain=SITE))
    # the lake tells what the slug means, and nothing is to be done of it
    slug = parse_target(text).slug
    assert definitions.read_targets(workspace.lake, [slug]) == {slug: parse_target(text)}
    again = workspace_of(bucket[0], tmp_path)
    assert (
        plan_crawl(again, NEW, [slug]).plan.slice_plans
        == plan_targets(again, NEW, [parse_target(text)]).plan.slice_plans
        == ()
    )
    # whoever wants all of it fetches the rest
    _, rest, _ = extract(again, SITE)
    assert rest.rows == len(bucket[1].captures_of(NEW, subset="warc", domain=SITE))
    rows = again.lake.read("records", {"crawl": NEW, "target": [slug, SITE]}, ["target", "condition_match"]).to_pylist()
    assert {row["condition_match"] for row in rows if row["target"] == slug} == {"yes"}
    assert {row["condition_match"] for row in rows if row["target"] == SITE} == {None}


def test_a_page_settles_what_its_index_does_not_tell(bucket: Bucket, tmp_path: Path) -> None:
    workspace = workspace_of(bucket[0], tmp_path)
    asked = f"{SITE} where status=200 and lang=eng"
    located, _, _ = extract(workspace, asked, crawl=CRAWL_2012)
    assert located.rows == len(bucket[1].captures_of(CRAWL_2012, domain=SITE))
    slug = parse_target(asked).slug

    def said(table: str) -> list[dict[str, object]]:
        rows: list[dict[str, object]] = workspace.lake.read(table, {"crawl": CRAWL_2012, "target": [slug]}).to_pylist()
        return rows

    assert {row["condition_match"] for row in said("captures")} == {f"{OPEN}lang=eng and status=200"}
    texts = {(row["warc_filename"], row["warc_record_offset"]): row for row in said("page_text")}
    outcomes = set()
    for page in said("page_metadata"):
        text = texts.get((page["warc_filename"], page["warc_record_offset"]), {})
        languages = str(text.get("content_languages") or "").split(",")
        meant = "unknown" if page["http_result"] is None else "no"
        if page["http_result"] == 200 and "eng" in languages:
            meant = "yes"
        assert page["condition_match"] == text.get("condition_match", meant) == meant
        outcomes.add(meant)
    assert {"yes", "no"} <= outcomes
    assert {row["condition_match"] for row in said("page_links")} <= outcomes

    def shown() -> tuple[set[object], int]:
        publish(workspace)
        with duckdb.connect(str(workspace.settings.published_path), read_only=True) as connection:
            words = {
                row[0] for row in connection.execute("SELECT DISTINCT condition_match FROM page_metadata").fetchall()
            }
            [counted] = connection.execute("SELECT count(*) FROM page_metadata").fetchall()
        return words, counted[0]

    before = shown()
    assert before[0] == outcomes - {"no"}
    # what another target has too is shown, whatever one says of it
    extract(workspace, SITE, crawl=CRAWL_2012)
    words, count = shown()
    assert None in words and "no" not in words and count == located.rows > before[1]
    # but not where the one alone is handed on
    with duckdb.connect(str(workspace.settings.published_path), read_only=True) as connection:
        settled = connection.execute(
            "SELECT condition_match, count(*) FROM capture_targets WHERE target = ? GROUP BY 1", [slug]
        )
        assert {str(word) for word, _ in settled.fetchall()} == outcomes
        columns = [row[0] for row in connection.execute("DESCRIBE main.page_metadata").fetchall()]
        handed = connection.execute(_select_rows("page_metadata", columns, [slug], [])).fetchall()
        assert len(handed) == before[1]


def test_a_page_tells_the_parts_of_its_url() -> None:
    schemas = {spec.name: spec.schema for spec in CORE_TABLES}
    rows = [
        {"crawl": NEW, "target": "captures:mine", "url": url, "warc_filename": "f", "warc_record_offset": number,
         "http_result": 200, "condition_match": f"{OPEN}query is null and tld=ch"}
        for number, url in enumerate(("https://a.ch/", "https://a.ch/?", "https://a.org/"))
    ]  # fmt: skip
    batches = {
        "page_metadata": pa.RecordBatch.from_pylist(rows, schema=schemas["page_metadata"]),
        "page_text": pa.RecordBatch.from_pylist([], schema=schemas["page_text"]),
    }
    resolved = resolve_conditions(batches)["page_metadata"]
    assert resolved.column("condition_match").to_pylist() == ["yes", "no", "no"]
