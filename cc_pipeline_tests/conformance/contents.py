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
