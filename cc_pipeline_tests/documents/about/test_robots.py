"""What pages ask of robots, in tags and headers."""

from __future__ import annotations

from typing import Any

import pytest

from cc_pipeline.documents.parse import parse_page
from cc_pipeline_tests.documents.pages import page


def row(head: str = "", headers: tuple[tuple[str, str], ...] = (), **more: Any) -> dict[str, Any]:
    return dict(parse_page(page(f"<title>t</title>{head}", headers=headers, **more)).metadata)


def tag(name: str, content: str) -> str:
    return f'<meta name="{name}" content="{content}">'


@pytest.mark.parametrize(
    ("head", "headers", "rules", "for_all"),
    [
        (tag("robots", "NOINDEX, nofollow"), (), ["meta *: noindex, nofollow"], "noindex, nofollow"),
        (tag("ROBOTS", "none"), (), ["meta *: none"], "noindex, nofollow"),
        (tag("robots", "noai, noimageai"), (), ["meta *: noai, noimageai"], "noai, noimageai"),
        (tag("robots", "noindex;nofollow all"), (), ["meta *: noindex, nofollow, all"], "noindex, nofollow, all"),
        (tag("robots", "max-snippet: -1, b:c"), (), ["meta *: max-snippet:-1, b:c"], "max-snippet:-1, b:c"),
        (tag("googlebot-news", "noindex"), (), ["meta googlebot-news: noindex"], None),
        (tag("CCBot", "nofollow"), (), ["meta ccbot: nofollow"], None),
        (tag("google", "notranslate"), (), ["meta google: notranslate"], None),
        (tag("google-site-bot", "verification text"), (), None, None),
        (tag("robots", ""), (), None, None),
        ("", ("noindex",), ["header *: noindex"], "noindex"),
        (
            "",
            ("googlebot: nofollow", "otherbot: noindex, nofollow"),
            ["header googlebot: nofollow", "header otherbot: noindex, nofollow"],
            None,
        ),
        (
            "",
            ("noarchive, unavailable_after: Wed, 25 Jun 2025 15:00:00 PST",),
            ["header *: noarchive, unavailable_after:wed, 25 jun 2025 15:00:00 pst"],
            "noarchive, unavailable_after:wed, 25 jun 2025 15:00:00 pst",
        ),
        (tag("robots", "index"), ("noai",), ["header *: noai", "meta *: index"], "noai, index"),
        ("", (), None, None),
    ],
)
def test_robots(head: str, headers: tuple[str, ...], rules: list[str] | None, for_all: str | None) -> None:
    found = row(head, tuple(("X-Robots-Tag", value) for value in headers))
    read = [f"{each['source']} {each['bot'] or '*'}: {', '.join(each['directives'])}" for each in found["robots"] or ()]
    assert (read or None, ", ".join(found["robots_directives"] or ()) or None) == (rules, for_all)


@pytest.mark.parametrize(("said", "meant"), [("1", True), ("0", False), ("yes", None), ("", None)])
def test_reservation_of_text_and_data_mining(said: str, meant: bool | None) -> None:
    assert row(f'<meta name="tdm-reservation" content="{said}">')["tdm_reservation"] is meant
    assert row("", (("TDM-Reservation", said),))["tdm_reservation"] is meant


def test_a_policy_is_an_address_and_the_header_comes_first() -> None:
    tags = '<meta name="tdm-reservation" content="0"><meta name="tdm-policy" content="/tags.json">'
    assert row(tags)["tdm_policy"] == "https://www.example.com/tags.json"
    found = row(tags, (("tdm-reservation", "1"), ("tdm-policy", "/header.json")))
    assert (found["tdm_reservation"], found["tdm_policy"]) == (True, "https://www.example.com/header.json")


def test_headers_speak_for_captures_that_are_no_pages() -> None:
    headers = (("X-Robots-Tag", "noindex"), ("Link", '</doc>; rel="canonical"'))
    for found in (
        row(headers=headers, mime="application/pdf"),
        row(headers=headers, http_status=404, http_status_line="HTTP/1.1 404 Not Found"),
    ):
        assert found["robots_directives"] == ["noindex"]
        assert (found["canonical_url"], found["canonical_from"]) == ("https://www.example.com/doc", "header")


def test_the_number_of_rules_is_bounded() -> None:
    found = row('<meta name="robots" content="noindex">' * 200, (("X-Robots-Tag", "a: noindex, " * 500),) * 60)
    assert len(found["robots"]) == 50
