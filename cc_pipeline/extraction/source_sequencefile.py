"""SequenceFiles of 2012 (and those exported here): ``metadata-nnnnn`` and ``textData-nnnnn``."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from cc_pipeline.archive.sequencefile import SequencePair, iter_pairs
from cc_pipeline.documents.legacy_read import read_metadata_json
from cc_pipeline.documents.mapping import page_keys
from cc_pipeline.documents.page import ParsedPage
from cc_pipeline.errors import DataFault
from cc_pipeline.extraction.source_files import SourceFile
from cc_pipeline.extraction.source_pages import SourcePage, page_input, text_row

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
            yield DataFault(file.location, pair.offset, "key or value is no Text")
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
        return DataFault(file.location, offset, fault.reason)
