"""One page as text: parsed in a process of its own, wherever it is asked for."""

from __future__ import annotations

import gzip
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

import cc_pipeline
from cc_pipeline.api.captures import Page
from cc_pipeline.documents import parse
from cc_pipeline.documents.batch import pool
from cc_pipeline.documents.batch.worker import Input
from cc_pipeline.documents.page import PageInput
from cc_pipeline.errors import DataFault, DataKind
from cc_pipeline.export import capture_forms
from cc_pipeline.records.pages import page_of
from cc_pipeline_tests.world import NEW, Bucket

GZIPPED = (("Content-Type", "text/html"), ("Content-Encoding", "gzip"))


class _Crashing(tuple[tuple[str, str], ...]):
    def __iter__(self) -> Iterator[tuple[str, str]]:
        os.kill(os.getpid(), signal.SIGSEGV)
        return super().__iter__()


def crashing(item: Any, failure: str | None = None) -> Input:
    made = page_of(item, failure)
    return replace(made, http_headers=_Crashing()) if isinstance(made, PageInput) else made


@pytest.fixture
def page(bucket: Bucket, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """A page of a notebook."""

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    url = next(one.url for one in bucket[1].captures_of(NEW, domain="example.com", subset="warc") if one.kind == "html")
    home = cc_pipeline.open(tmp_path_factory.mktemp("none") / "home", source=str(bucket[0]), quiet=True)
    yield home.get(url, crawls=NEW)
    pool.end()


def test_no_page_is_parsed_in_the_process_that_asks(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError("the page was parsed here")

    monkeypatch.setattr(parse, "_parse", never)
    assert len(pool._workers) == 1, "a process waits since the page was asked for"
    [waiting] = pool._workers
    assert page.text and page.markdown and page.json()["links"]
    assert pool._workers == [waiting]


def test_a_body_is_unpacked_to_the_bound_in_the_process_that_asks(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = replace(page._nearest.record, payload=gzip.compress(b"<p>" + bytes(1 << 20)), http_headers=GZIPPED)
    monkeypatch.setattr(page, "_nearest", replace(page._nearest, record=packed))
    assert capture_forms._LIMIT == 64 << 20
    monkeypatch.setattr(capture_forms, "_LIMIT", 1_000)
    assert page.content == b"<p>" + bytes(997)
    assert len(page.html) == 1_000


@pytest.mark.process
def test_a_page_that_no_parser_gets_through_is_an_error_of_its_bytes(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    why = "parser process ended by SIGSEGV"
    monkeypatch.setattr(capture_forms, "page_of", crashing)
    with pytest.raises(DataFault, match=why) as raised:
        page.text  # noqa: B018
    assert (raised.value.kind, raised.value.source) == (DataKind.PARSER_BROKE, page._nearest.row["warc_filename"])
    assert page.content
