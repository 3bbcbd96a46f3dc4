"""What files read whole give: pages as parsed ones, and faults, whatever the kind of file."""

from __future__ import annotations

from typing import Any

from cc_pipeline.commoncrawl.domains import host_columns
from cc_pipeline.commoncrawl.surt import surt_key
from cc_pipeline.documents.language import detect_languages
from cc_pipeline.documents.page import PageInput, ParsedPage
from cc_pipeline.errors import DataFault
from cc_pipeline.extraction.source_files import SourceFile

#: A page, or what could not be read. A page whose ``metadata`` is empty came from a file that has only texts.
SourcePage = ParsedPage | DataFault


def page_input(file: SourceFile, url: str, **known: Any) -> PageInput:
    """The keys of a page out of ``file``; ``known`` are further fields of ``PageInput``."""
    domain = host_columns(url)["url_host_registered_domain"]
    return PageInput(
        crawl=file.crawl,
        subset="warc",
        url=url,
        payload=b"",
        target=file.slug,
        url_surtkey=surt_key(url),
        domain=str(domain) if domain is not None else None,
        source_kind=file.kind,
        source_file=file.location,
        **known,
    )


def text_row(text: str, languages: str | None = None) -> dict[str, Any]:
    """A row of ``page_text`` of which only the text is known; its languages are detected unless they are given."""
    if languages is not None:
        return {"text": text, "content_languages": languages}
    found = detect_languages(text)
    return {"text": text, "content_languages": found.codes, "language_reliable": found.reliable}
