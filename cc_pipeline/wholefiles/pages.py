"""Pages out of files read whole, and out of SequenceFiles of 2012 (and those exported here)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from cc_pipeline.archive.sequencefile import SequencePair, iter_pairs
from cc_pipeline.commoncrawl.domains import host_columns
from cc_pipeline.commoncrawl.surt import surt_key
from cc_pipeline.documents.html.text import detect_languages
from cc_pipeline.documents.legacy2012.mapping import page_keys
from cc_pipeline.documents.legacy2012.read import read_metadata_json
from cc_pipeline.documents.page import PageInput, ParsedPage
from cc_pipeline.errors import DataFault, DataKind
from cc_pipeline.stages.source_files import ARCHIVE, SourceFile

#: A page, or what could not be read. A page whose ``metadata`` is empty came from a file that has only texts.
SourcePage = ParsedPage | DataFault


def page_input(file: SourceFile, url: str, **known: Any) -> PageInput:
    """The keys of a page out of ``file``; ``known`` are further fields of ``PageInput``."""
    assert file.kind != ARCHIVE
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


_PARSER = "commoncrawl-2012"


def sequencefile_pages(file: SourceFile, path: Path) -> Iterator[SourcePage]:
    """One page per record: with metadata, links and feed items, or with text.

    Which of the two a file has is in its name (``metadata-…``, ``textData-…``), else its first value tells. Empty
    texts, which exported files have for records without one, give nothing.
    """
    pairs = iter_pairs(path, file.location)
    metadata = _has_metadata(file.location)
    if metadata is None:
        ahead = list(_until_first_pair(pairs))
        first = ahead[-1] if ahead else None
        value = first.value if isinstance(first, SequencePair) else None
        metadata = isinstance(value, str) and value.startswith("{") and '"disposition"' in value
        pairs = chain(ahead, pairs)
    for pair in pairs:
        if isinstance(pair, DataFault):
            yield pair
        elif not isinstance(pair.key, str) or not isinstance(pair.value, str):
            yield DataFault(DataKind.MALFORMED, file.location, pair.offset, "key or value is no Text")
        elif metadata:
            yield _metadata_page(file, pair.offset, pair.key, pair.value)
        elif pair.value:
            page = page_input(file, pair.key, archive_format="arc")
            yield ParsedPage(page_keys(page) | {"parser": _PARSER}, {}, text_row(pair.value))


def _has_metadata(location: str) -> bool | None:
    name = location.rpartition("/")[2].lower()
    if name.startswith("metadata"):
        return True
    return False if name.startswith("textdata") else None


def _until_first_pair(pairs: Iterator[SequencePair | DataFault]) -> Iterator[SequencePair | DataFault]:
    for pair in pairs:
        yield pair
        if isinstance(pair, SequencePair):
            return


def _metadata_page(file: SourceFile, offset: int, url: str, value: str) -> SourcePage:
    try:
        return read_metadata_json(value, page_input(file, url, archive_format="arc"))
    except DataFault as fault:
        return DataFault(fault.kind, file.location, offset, fault.reason)
