"""Captures to pages of many partitions: each has an end of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.errors import Incomplete, PlaceFault, UserInputError
from cc_pipeline.extraction import run as module
from cc_pipeline.extraction.engine import LOCAL, Engine, LocalEngine
from cc_pipeline.extraction.parse import parse_records
from cc_pipeline.extraction.run import TABLES, PartitionResult, extract
from cc_pipeline.lake.slice import FETCH, StageReport
from cc_pipeline.workspace.workspace import Workspace
from cc_pipeline_tests.faultserver import FaultServer, Rule
from cc_pipeline_tests.world import NEW, Bucket, harvested, notes_of, workspace_of


def made(
    workspace: Workspace, slugs: Sequence[str], *crawls: str, tables: Sequence[str] = TABLES, engine: Engine = LOCAL
) -> dict[str, PartitionResult]:
    wanted = [(crawl, slug) for crawl in crawls or (NEW,) for slug in slugs]
    found = list(extract(workspace, wanted, tables, engine))
    assert len({(one.crawl, one.slug) for one in found}) == len(found) == len(wanted), "each partition once"
    return {f"{one.crawl}|{one.slug}" if len(crawls) > 1 else one.slug: one for one in found}


@pytest.fixture
def workspace(bucket: Bucket, tmp_path: Path) -> Iterator[Workspace]:
    ready = harvested(bucket[0], tmp_path)
    ready.register_targets([parse_target(domain) for domain in bucket[1].domains()])
    yield ready


def rows(workspace: Workspace, table: str, slug: str) -> int:
    return workspace.lake.read(table, {"crawl": NEW, "target": slug}, ["target"]).num_rows


def test_a_target_that_means_nothing_and_one_that_is_too_dear_fail_alone(bucket: Bucket, workspace: Workspace) -> None:
    domains = sorted(bucket[1].domains())
    found = made(workspace, [*domains, "two words.com"])
    [bad] = [slug for slug, one in found.items() if one.error is not None]
    assert bad == "two words.com"
    assert isinstance(found[bad].error, UserInputError)
    assert found[bad].reports == {}
    for slug in domains:
        own = found[slug].reports
        assert set(own) == set(TABLES)
        planned = len(bucket[1].captures_of(NEW, subset="warc", domain=slug))
        for table in ("captures", "records", "page_metadata"):
            figures = own[table].per_target[slug]
            assert figures[f"rows:{table}"] == figures[f"written:{table}"] == planned
    again = made(workspace, domains)
    assert all(one.reports["records"].per_target[slug]["written:records"] == 0 for slug, one in again.items())


@pytest.mark.process
def test_what_a_source_gave_is_parsed_and_only_those_lack_that_it_did_not_serve(bucket: Bucket, tmp_path: Path) -> None:
    files: dict[str, list[str]] = {}
    for capture in bucket[1].captures_of(NEW, subset="warc"):
        files.setdefault(f"host:{urlsplit(capture.url).netloc}", []).append(capture.warc_filename)
    # hosts of one file, of the other, and of both
    refused = next(names[0] for names in files.values() if len(set(names)) == 1)
    targets = {parse_target(text).slug: (text, names) for text, names in files.items() if ":8" not in text}
    touched = {slug for slug, (_, names) in targets.items() if refused in names}
    partly = {slug for slug in touched if len(set(targets[slug][1])) > 1}
    assert 0 < len(partly) < len(touched) < len(targets)
    with FaultServer(bucket[0], rules=[Rule("500", key=refused, times=None)]) as server:
        workspace = harvested(server.url, tmp_path, max_pending=0.0)
        workspace.register_targets([parse_target(text) for text, _ in targets.values()])
        found = made(workspace, list(targets))
        failed = {slug for slug, one in found.items() if one.error is not None}
        assert failed == touched
        assert all(type(found[slug].error) is Incomplete for slug in failed)
        assert all(f" {slug} in {NEW}" in str(found[slug].error) for slug in failed)
        assert all(set(found[slug].reports) == {"captures"} for slug in failed)
        assert all(set(found[slug].reports) == set(TABLES) for slug in set(targets) - failed)
        for slug in failed:
            # a row for each, and those that did not come say so
            assert rows(workspace, "page_metadata", slug) == len(targets[slug][1])
        [verdict] = {row["failed_runs"] for row in notes_of(workspace, FETCH) if row["pending"]}
        assert verdict == 1, "nobody was asked again because the others of the group failed"
        server.set_rules([])
        again = made(workspace_of(server.url, tmp_path), sorted(failed))
        assert all(one.error is None for one in again.values())


def test_a_place_that_takes_nothing_ends_it_and_what_was_done_is_told(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, bucket: Bucket
) -> None:
    domains = sorted(bucket[1].domains())[:5]
    tried: list[str] = []

    def broken(opened: Workspace, crawl: str, slugs: Sequence[str], **given: Engine) -> StageReport:
        tried.extend(slugs)
        if domains[2] in slugs:
            raise PlaceFault("the lake cannot be written", "")
        return parse_records(opened, crawl, slugs, **given)

    monkeypatch.setattr(module, "parse_records", broken)
    found: dict[str, PartitionResult] = {}
    with pytest.raises(PlaceFault):
        for one in extract(workspace, [(NEW, slug) for slug in domains], TABLES, LocalEngine(partitions=2)):
            found[one.slug] = one
    assert tried == domains[:4]
    assert [slug for slug, one in found.items() if one.error is None] == domains[:2]
    # located and fetched before: that counts
    assert all(set(found[slug].reports) == {"captures", "records"} for slug in domains[2:4])
    assert domains[4] not in found
