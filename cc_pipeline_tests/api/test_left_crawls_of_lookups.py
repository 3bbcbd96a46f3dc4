"""A lookup of several crawls leaves out those without an index, and says what to do about each."""

from __future__ import annotations

import pytest

from cc_pipeline.api.lookups import NoIndex, look_up_each_crawl
from cc_pipeline.errors import EnvironmentFault

CRAWLS = ("CC-MAIN-2024-22", "CC-MAIN-2018-05")


def test_a_look_up_without_any_index_is_an_error_and_no_empty_result() -> None:
    def look_up(crawl: str) -> list[object]:
        raise NoIndex(f"this home has no index of {crawl}", f"Make one: {crawl}")

    failed: list[str] = []
    with pytest.raises(NoIndex, match="nothing was searched: none of the 2 crawls") as refused:
        list(look_up_each_crawl(CRAWLS, look_up, failed))
    assert (refused.value.advice, failed) == (f"Make one: {CRAWLS[0]}", [])


def test_the_advice_of_a_crawl_that_failed_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    def look_up(crawl: str) -> list[object]:
        if crawl == CRAWLS[0]:
            raise EnvironmentFault("the index has not been harvested", "Harvest it once")
        return []

    failed: list[str] = []
    assert [crawl for crawl, _ in look_up_each_crawl(CRAWLS, look_up, failed)] == [CRAWLS[1]]
    assert failed == [CRAWLS[0]]
    assert "could not be searched: the index has not been harvested. Harvest it once" in capsys.readouterr().err
