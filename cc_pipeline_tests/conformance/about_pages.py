"""Titles, dates and structured data of pages."""

from __future__ import annotations

from datetime import UTC, datetime

from cc_pipeline_tests.conformance.responses import answer, case

_SVG = "<svg><title>Facebook</title><path d='M0'/></svg>"


def _json_ld(script: str) -> bytes:
    return answer(f"<title>A</title><script type='application/ld+json'>{script}</script><p>One.")


_ORGANIZATION = '{"@context": "https://schema.org", "@type": "Organization", "name": "N"}'

CASES = (
    case("commoncrawl/ia-web-commons#37", "pictures have titles", answer(f"<head></head><body>{_SVG}<p>x"), title=None),
    case(
        "commoncrawl/ia-web-commons#37",
        "a title outside of the head",
        answer(f"<body>{_SVG}<p>x<title>Page</title>"),
        title="Page",
    ),
    case(
        "defunkt/jquery-pjax#616",
        "a picture's title behind the page's",
        answer(f"<title>Page</title>{_SVG}"),
        title="Page",
    ),
    case(
        "OP-Engineering/link-preview-js#154",
        "sixty-four pictures with titles",
        answer(f"<title>Page</title>{_SVG * 64}"),
        title="Page",
    ),
    case(
        "adbar/trafilatura#174",
        "a title with markup, references and line ends",
        answer("<title>\n A &amp; B <b>c</b>\n d </title>"),
        title="A & B <b>c</b> d",
    ),
    case(
        "scrapinghub/extruct#84",
        "control characters in JSON",
        _json_ld(_ORGANIZATION.replace('"N"', '"N\n\tx\x0b"')),
        json_ld_types=["Organization"],
    ),
    case(
        "scrapinghub/extruct#109",
        "a semicolon behind JSON",
        _json_ld(_ORGANIZATION + ";"),
        json_ld_types=["Organization"],
    ),
    case(
        "scrapinghub/extruct#143",
        "JSON in a section of character data, half of it a reference",
        _json_ld(f"// <![CDATA[\n{_ORGANIZATION}\n// ]]&gt;"),
        json_ld_types=["Organization"],
    ),
    case(
        "scrapinghub/extruct#45",
        "JSON behind a comment of HTML",
        _json_ld(f"<!-- note -->\n{_ORGANIZATION}"),
        json_ld_types=["Organization"],
    ),
    case(
        "scrapinghub/extruct#137",
        "comments of JavaScript within JSON",
        _json_ld(_ORGANIZATION.replace('"name"', '// "count": "",\n "url": "https://a.example/", /* two */ "name"')),
        json_ld_types=["Organization"],
    ),
    case(
        "indix/web-auto-extractor#19",
        "JSON in a comment, with a semicolon",
        _json_ld(f"/*<![CDATA[*/\n{_ORGANIZATION};\n/*]]>*/"),
        json_ld_types=["Organization"],
    ),
    case(
        "scrapinghub/extruct#45",
        "the type of the script has parameters",
        answer(f"<title>A</title><script type='application/ld+json; charset=UTF-8'>{_ORGANIZATION}</script>"),
        json_ld_types=["Organization"],
    ),
    case(
        "codelucas/newspaper#967",
        "a day of January is no month",
        answer("<title>A</title><meta name='dc.date' content='2023-01-02'/><p>Accepted 2022-12-16."),
        published=datetime(2023, 1, 2, tzinfo=UTC),
    ),
    case(
        "kepano/defuddle#295",
        "the time of another article in a link",
        answer(
            "<title>A</title><meta property='article:published_time' content='2024-05-12T10:00:00Z'>"
            "<a href='/b'><time datetime='2024-03-05T00:00'>Mar 5, 2024</time></a>"
        ),
        published=datetime(2024, 5, 12, 10, tzinfo=UTC),
    ),
    case(
        "wetneb/dissemin#240",
        "the beginning of Unix time is no date",
        answer(
            "<title>A</title><meta property='article:published_time' content='1970-01-01T00:00:00Z'>"
            "<meta name='dc.date' content='2016-05-24'>"
        ),
        published=datetime(2016, 5, 24, tzinfo=UTC),
    ),
    *(
        case(report, about, answer(f"<title>A</title>{byline}<p>One."), author=right)
        for report, about, byline, right in (
            (
                "zotero/translators#1165",
                "a date and tools in a byline",
                "<div class=byline><b>By <a href=/c rel=author>Chris Austin</a></b> | November 13, 2014",
                "Chris Austin",
            ),
            ("microlinkhq/metascraper#408", "a date is no author", "<div class=byline>February 25, 2021</div>", None),
            ("microlinkhq/metascraper#408", "the same with a day", "<p class=byline>By Tuesday, May 4, 2021</p>", None),
            (
                "codelucas/newspaper#619",
                "a byline in a meta tag",
                "<meta name=byl content='By Manny Fernandez and Ilana Panich'>",
                "Manny Fernandez and Ilana Panich",
            ),
            (
                "AndyTheFactory/newspaper4k#83",
                "names with by in them",
                "<div class=byline>By ABBY GOODNOUGH and ROBBY BYRD</div>",
                "ABBY GOODNOUGH, ROBBY BYRD",
            ),
            (
                "kepano/defuddle#291",
                "a name that is a day's",
                "<div class=byline>By Tuesday Weld</div>",
                "Tuesday Weld",
            ),
            ("kepano/defuddle#291", "a name that is a month's", "<div class=byline>By April May</div>", "April May"),
        )
    ),
)
