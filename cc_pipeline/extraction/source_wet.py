"""WET files: the text Common Crawl extracts, as rows of ``page_text``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from cc_pipeline.archive.wet import iter_wet
from cc_pipeline.documents.mapping import page_keys
from cc_pipeline.documents.page import ParsedPage
from cc_pipeline.errors import DataFault
from cc_pipeline.extraction.source_files import SourceFile
from cc_pipeline.extraction.source_pages import SourcePage, page_input, text_row
from cc_pipeline.extraction.source_wat import warc_key

_PARSER = "commoncrawl-wet"


def wet_pages(file: SourceFile, path: Path) -> Iterator[SourcePage]:
    """One page with text and nothing else per ``conversion`` record.

    A WET file does not say where in its WARC file a record lies: ``warc_record_offset`` stays empty, and
    ``warc_filename`` is known only from the WET file's own key.
    """
    described = warc_key(file.location)
    for record in iter_wet(path, file.location):
        if isinstance(record, DataFault):
            yield record
            continue
        if not record.url:
            yield DataFault(file.location, record.offset, "a text without an address")
            continue
        page = page_input(file, record.url, fetch_time=record.fetch_time, warc_filename=described)
        languages = ",".join(record.languages) or None
        keys = page_keys(page) | {"parser": _PARSER}
        yield ParsedPage(keys, {}, text_row(record.text, languages))
