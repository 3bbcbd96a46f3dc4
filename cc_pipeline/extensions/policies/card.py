"""The card of a data set for readers who have nothing else: its columns and its limits."""

from __future__ import annotations

from typing import Final

from cc_pipeline.extensions.policies.dataset import Recipe

#: The columns of a data set, in their order, and what each holds.
COLUMNS: Final = {
    "url": "URL of the page, as captured",
    "title": "title of the page",
    "language": "ISO 639-3 code of its first language, by CLD2 or the index; null: unknown",
    "fetch_time": "time of Common Crawl's fetch, UTC",
    "text": "main text, without menus and footers; filters do not change it",
    "extractor": "program that extracted the main text",
    "words": "number of words in the text",
    "domain": "registered domain of the URL",
    "crawl": "crawl of the capture",
    "warc_filename": "archive file of its record, relative to the root of the source",
    "warc_record_offset": "byte of that file at which the record begins",
    "warc_record_length": "bytes of the record, one gzip member",
    "content_digest": "SHA-1 of the payload, base32, from the index",
}
_LIMITS: Final = (
    "Common Crawl fetches a sample of a site: pages that it never visited, pages behind a login, and pages that "
    "robots.txt disallowed are missing. A missing page may have existed.",
    "The crawler cuts large payloads (at 500 KiB until 2012, at 1 MiB and later at more since 2013); such a text ends "
    "early.",
    "Programs find main texts, languages and the metrics of the rules. They are wrong for some pages.",
    "The texts contain personal data, copyrighted texts and falsehoods as on the pages; nothing was redacted. "
    "Authors keep their rights; Common Crawl's terms of use apply.",
    "Copies were removed within this data set only, not against other data sets.",
)
_PREFERENCES_IGNORED: Final = "Usage preferences of sites were not considered (no --respect)."


def card_sections(recipe: Recipe) -> str:
    """Markdown with the columns of a data set, and its limits."""
    lines = ["", "## Columns", "", "| column | description |", "|---|---|"]
    lines += [f"| `{name}` | {meaning} |" for name, meaning in COLUMNS.items()]
    lines += ["", "## Limits", ""]
    lines += [f"- {limit}" for limit in (*_LIMITS, *(() if recipe.respect else (_PREFERENCES_IGNORED,)))]
    return "\n".join(lines)
