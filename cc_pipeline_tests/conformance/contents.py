"""What belongs to the main content of a page."""

from __future__ import annotations

from cc_pipeline_tests.conformance.responses import Case, Has, answer, case

_PROSE = "".join(
    f"<p>Paragraph {number} tells of the river, of the mill beside it, and of those who crossed it in spring.</p>"
    for number in range(6)
)


def _kept(report: str, about: str, inner: str, text: str) -> Case:
    page = f"<title>The mill</title><body><div class=post><h1>The mill</h1>{_PROSE}{inner}{_PROSE}</div>"
    return case(report, about, answer(page), main=Has(text))


CASES = (
    _kept(
        "adbar/trafilatura#354",
        "a heading of a class of its own",
        '<h2 class="presto-h2 ">Part of it</h2>',
        "Part of it",
    ),
    _kept(
        "adbar/trafilatura#147", "a heading of the first rank in an anchor", "<h1><a>Part of it</a></h1>", "Part of it"
    ),
    _kept(
        "adbar/trafilatura#309", "headings in a list", f"<ol><li><h2>Part of it</h2>{_PROSE}</li></ol>", "Part of it"
    ),
    _kept(
        "HTML 4.4.9",
        "definitions",
        "<dl><dt>Weir</dt><dd>A low dam across the river.</dd></dl>",
        "Weir\nA low dam across",
    ),
    _kept("HTML 4.4.3", "code with its lines", "<pre>first = 1\n\n  second = 2\n</pre>", "first = 1\n\n  second = 2"),
    _kept(
        "HTML 4.5.10",
        "ruby without its readings",
        "<p>They write it <ruby>\u6f22<rt>kan</rt></ruby><ruby>\u5b57<rt>ji</rt></ruby>, and read it aloud.</p>",
        "write it \u6f22\u5b57, and read",
    ),
    _kept(
        "goose3/goose3#17", "lists", "<ul><li>Empathy</li><li>Patience and time</li></ul>", "Empathy\nPatience and time"
    ),
    _kept(
        "adbar/trafilatura#63",
        "quotations and cells",
        "<blockquote>This is quoted text</blockquote><table><tr><td>One</td><td>Two</td></tr></table>",
        "This is quoted text\nOne\nTwo",
    ),
    _kept(
        "adbar/trafilatura#43",
        "soft hyphens and words that do not break",
        "<p><strong>Wir fördern Unter\xadnehmen, die seit <span>5 Jahren</span> am Markt sind.</strong></p>",
        "seit 5 Jahren am Markt",
    ),
)
