"""What pages ask of robots, in tags and headers."""

from __future__ import annotations

from typing import Any

import pytest

from cc_pipeline.documents.parse import parse_page
from cc_pipeline_tests.documents.pages import page


def row(head: str = "", headers: tuple[tuple[str, str], ...] = (), **more: Any) -> dict[str, Any]:
    return dict(parse_page(page(f"<title>t</title>{head}", headers=headers, **more)).metadata)


def rule(source: str, bot: str | None, *directives: str) -> dict[str, Any]:
    return {"source": source, "bot": bot, "directives": list(directives)}


@pytest.mark.parametrize(
    ("head", "headers", "rules", "for_all"),
    [
        (
            '<meta name="robots" content="NOINDEX, nofollow">',
            (),
            [rule("meta", None, "noindex", "nofollow")],
            ["noindex", "nofollow"],
        ),
        ('<meta name="ROBOTS" content="none">', (), [rule("meta", None, "none")], ["noindex", "nofollow"]),
        (
            '<meta name="robots" content="noai, noimageai">',
            (),
            [rule("meta", None, "noai", "noimageai")],
            ["noai", "noimageai"],
        ),
        (
            '<meta name="robots" content="noindex;nofollow noarchive">',
            (),
            [rule("meta", None, "noindex", "nofollow", "noarchive")],
            ["noindex", "nofollow", "noarchive"],
        ),
        (
            '<meta name="robots" content="max-snippet: -1, max-image-preview:large">',
            (),
            [rule("meta", None, "max-snippet:-1", "max-image-preview:large")],
            ["max-snippet:-1", "max-image-preview:large"],
        ),
        ('<meta name="googlebot-news" content="noindex">', (), [rule("meta", "googlebot-news", "noindex")], None),
        ('<meta name="CCBot" content="nofollow">', (), [rule("meta", "ccbot", "nofollow")], None),
        ('<meta name="google" content="notranslate">', (), [rule("meta", "google", "notranslate")], None),
        ('<meta name="google-site-bot" content="verification text">', (), None, None),
        ('<meta name="robots" content="">', (), None, None),
        ("", (("X-Robots-Tag", "noindex"),), [rule("header", None, "noindex")], ["noindex"]),
        (
            "",
            (("X-Robots-Tag", "googlebot: nofollow"), ("x-robots-tag", "otherbot: noindex, nofollow")),
            [rule("header", "googlebot", "nofollow"), rule("header", "otherbot", "noindex", "nofollow")],
            None,
        ),
        (
            "",
            (("X-Robots-Tag", "noarchive, unavailable_after: Wed, 25 Jun 2025 15:00:00 PST"),),
            [rule("header", None, "noarchive", "unavailable_after:wed, 25 jun 2025 15:00:00 pst")],
            ["noarchive", "unavailable_after:wed, 25 jun 2025 15:00:00 pst"],
        ),
        (
            '<meta name="robots" content="index">',
            (("X-Robots-Tag", "noai"),),
            [rule("header", None, "noai"), rule("meta", None, "index")],
            ["noai", "index"],
        ),
        ("", (), None, None),
    ],
)
def test_robots(
    head: str, headers: tuple[tuple[str, str], ...], rules: list[dict[str, Any]] | None, for_all: list[str] | None
) -> None:
    found = row(head, headers)
    assert (found["robots"], found["robots_directives"]) == (rules, for_all)


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
