"""News pages of the corpus, and what htmldate and trafilatura say about them."""

from __future__ import annotations

import logging
import re
from datetime import date
from functools import lru_cache

from cc_pipeline_tests.documents.gold import NEWSPAPER, gold_articles


@lru_cache(maxsize=1)
def news_pages() -> list[tuple[str, str]]:
    """(URL, page). Of those of newspaper's tests only the host is known."""
    found = [(url if url.startswith("http") else f"http://{url}", markup) for url, markup, _ in gold_articles()]
    for path in sorted(NEWSPAPER.glob("*.html")):
        host = path.stem.rstrip("0123456789")
        found.append((f"http://www.{host}/", path.read_bytes().decode("utf-8", "replace")))
    return found


def htmldate_day(url: str, markup: str) -> date | None:
    """The day of publication by htmldate as it comes."""
    from htmldate import find_date  # noqa: PLC0415 - slow to import

    logging.getLogger("htmldate").setLevel(logging.CRITICAL)
    found = find_date(markup, original_date=True, url=url)
    return date.fromisoformat(found) if found else None


def trafilatura_author(url: str, markup: str) -> str | None:
    """The names by trafilatura."""
    from trafilatura.metadata import extract_metadata  # noqa: PLC0415

    found = extract_metadata(markup, default_url=url)
    return (found.author or None) if found else None


def same_names(ours: str, theirs: str) -> bool:
    """Whether one has no name that the other lacks; trafilatura takes dots out and changes capitals."""
    mine, other = (set(re.findall(r"[^\W\d_]+", names.lower())) - {"by"} for names in (ours, theirs))
    return mine <= other or other <= mine
