"""Releases of the web graph: their names over the years, and what is called what in them."""

from __future__ import annotations

import pytest

from cc_pipeline.errors import UserInputError
from cc_pipeline.extensions.host_facts.rank_text import graph_key, parse_release


@pytest.mark.parametrize(
    ("name", "first", "last", "www_kept"),
    [
        ("cc-main-2026-may-jun-jul", (2026, 5), (2026, 7), True),
        ("cc-main-2025-oct-nov-dec", (2025, 10), (2025, 12), False),
        ("cc-main-2025-26-nov-dec-jan", (2025, 11), (2026, 1), True),
        ("cc-main-2025-nov-dec-jan", (2025, 11), (2026, 1), True),
        ("cc-main-2025-26-dec-jan-feb", (2025, 12), (2026, 2), True),
        ("cc-main-2021-22-oct-nov-jan", (2021, 10), (2022, 1), False),
        ("cc-main-2023-24-sep-nov-feb", (2023, 9), (2024, 2), False),
        ("cc-main-2023-may-sep-nov", (2023, 5), (2023, 11), False),
    ],
)
def test_names_of_releases(name: str, first: tuple[int, int], last: tuple[int, int], www_kept: bool) -> None:
    release = parse_release(name)
    assert (release.first, release.last, release.www_kept) == (first, last, www_kept)
    assert release.ranks_key("host") == f"projects/hyperlinkgraph/{name}/host/{name}-host-ranks.txt.gz"


@pytest.mark.parametrize(
    "name", ["", "cc-main-2026", "cc-main-2026-may", "CC-MAIN-2026-21", "../x", "cc-main-2026-x-y"]
)
def test_what_names_no_release(name: str) -> None:
    with pytest.raises(UserInputError, match="no release"):
        parse_release(name)


def test_a_release_spans_the_crawls_of_its_months() -> None:
    summer, winter = parse_release("cc-main-2026-may-jun-jul"), parse_release("cc-main-2025-26-nov-dec-jan")
    crawls = ["CC-MAIN-2026-17", "CC-MAIN-2026-21", "CC-MAIN-2026-25", "CC-MAIN-2026-30", "CC-MAIN-2026-34"]
    assert [summer.spans(crawl) for crawl in crawls] == [False, True, True, True, False]
    crawls = ["CC-MAIN-2025-43", "CC-MAIN-2025-47", "CC-MAIN-2025-51", "CC-MAIN-2026-04", "CC-MAIN-2026-08"]
    assert [winter.spans(crawl) for crawl in crawls] == [False, True, True, True, False]
    assert not summer.spans("CC-MAIN-2012") and not summer.spans("CC-MAIN-2026-60")


@pytest.mark.parametrize(
    ("name", "stripped", "kept"),
    [
        ("com.example", "com,example", "com,example"),
        ("com.example.www", "com,example,www", "com,example"),
        ("com.example.www2", "com,example", "com,example"),
        ("com.example.www.www", "com,example,www,www", "com,example,www"),
        ("com.www", "com", "com"),
        ("de.xn--bcher-kva", "de,xn--bcher-kva", "de,xn--bcher-kva"),
        ("com.example.wwww", "com,example,wwww", "com,example,wwww"),
    ],
)
def test_keys_of_nodes(name: str, stripped: str, kept: str) -> None:
    assert (graph_key(name, www_kept=False), graph_key(name, www_kept=True)) == (stripped, kept)
