"""The gold articles of the corpus and the measure they came with: precision and recall of 4-word shingles."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable
from functools import lru_cache

from cc_pipeline_tests.corpus import CORPUS

PAGES = CORPUS / "html_text_metadata"
ARTICLES = PAGES / "scrapinghub_aeb"
NEWSPAPER = PAGES / "newspaper" / "html"
_WORD = re.compile(r"\w+", re.UNICODE)
_SHINGLE = 4


@lru_cache(maxsize=1)
def gold_articles() -> list[tuple[str, str, str]]:
    """(URL, page, article text)."""
    truth = json.loads((ARTICLES / "ground-truth.json").read_text(encoding="utf-8"))
    found = []
    for path in sorted((ARTICLES / "html").glob("*.html.gz")):
        entry = truth.get(path.name.removesuffix(".html.gz"))
        if entry is not None:
            found.append(
                (entry.get("url", ""), gzip.decompress(path.read_bytes()).decode("utf-8"), entry["articleBody"])
            )
    return found


def f1(extract: Callable[[str], str | None]) -> tuple[float, float, float]:
    """F1, precision and recall over all articles: the mean of each page's precision and recall, as the benchmark
    the articles come from computes them."""
    return mean_f1([(extract(page) or "", truth) for _, page, truth in gold_articles()])


def mean_f1(pairs: Iterable[tuple[str, str]]) -> tuple[float, float, float]:
    """The same of pairs of an extracted and a gold text."""
    scores = [_precision_recall(found, truth) for found, truth in pairs]
    precisions = [precision for precision, _ in scores if precision is not None]
    recalls = [recall for _, recall in scores if recall is not None]
    precision, recall = sum(precisions) / len(precisions), sum(recalls) / len(recalls)
    return 2 * precision * recall / (precision + recall or 1), precision, recall


def _precision_recall(found: str, truth: str) -> tuple[float | None, float | None]:
    ours, theirs = _shingles(found), _shingles(truth)
    common = sum((ours & theirs).values())
    extra, missing = sum((ours - theirs).values()), sum((theirs - ours).values())
    if common + extra + missing == 0:
        return None, None
    precision = common / (common + extra) if common + extra else 0.0
    recall = common / (common + missing) if common + missing else 0.0
    return precision, recall


def _shingles(text: str) -> Counter[tuple[str, ...]]:
    words = _WORD.findall(text)
    size = min(_SHINGLE, len(words)) or 1
    return Counter(tuple(words[at : at + size]) for at in range(len(words) - size + 1)) if words else Counter()
