"""The card of a data set for readers who have nothing else: its columns with a row, its limits, the command."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq

from cc_pipeline.commoncrawl.target import Target
from cc_pipeline.export.provenance import name_of
from cc_pipeline.extensions.policies.dataset import Recipe
from cc_pipeline.terminal import escape_controls

#: Maximum characters of a value in the example row.
_MAX_VALUE_CHARACTERS: Final = 80
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


def card_sections(
    data: Path, recipe: Recipe, targets: Sequence[Target], crawls: Sequence[str], format: str, out: Path
) -> str:
    """Markdown with the columns and the first row of ``data``, the limits, and the command that made ``out``."""
    row = _first_row(data)
    lines = ["", "## Columns, and the first row", "", "| column | description | first row |", "|---|---|---|"]
    lines += [f"| `{name}` | {meaning} | {_markdown_value(row.get(name))} |" for name, meaning in COLUMNS.items()]
    lines += ["", "## Limits", ""]
    lines += [f"- {limit}" for limit in (*_LIMITS, *(() if recipe.respect else (_PREFERENCES_IGNORED,)))]
    lines += ["", "## To make it again", ""]
    lines += ["In a home with the same runs, which `provenance.json` lists:", ""]
    lines += ["```", dataset_command(recipe, targets, crawls, format, out), "```"]
    return "\n".join(lines)


def dataset_command(recipe: Recipe, targets: Sequence[Target], crawls: Sequence[str], format: str, out: Path) -> str:
    """The complete command that makes this data set, including default options. It has the targets of a list file, not
    the file.
    """
    words: list[str] = ["cc-pipeline", "dataset", *map(name_of, targets)]
    words += [word for crawl in crawls for word in ("--crawl", crawl)]
    words += [word for language in recipe.languages for word in ("--language", language)]
    words += ["--words", f"{recipe.min_words}..{recipe.max_words}", "--rules", ",".join(recipe.rules) or "none"]
    words += ["--near", f"{recipe.near or 0:g}", *([] if recipe.exact else ["--keep-copies"])]
    if recipe.respect:
        words += ["--respect", ",".join(recipe.respect), "--as-of", recipe.as_of]
        words += ["--known-only"] if recipe.known_only else []
    return shlex.join([*words, "--format", format, "--out", out.name])


def _first_row(data: Path) -> Mapping[str, Any]:
    """The first row of a file; empty for an empty file."""
    if data.suffix == ".parquet":
        with pq.ParquetFile(data) as file:
            batch = next(file.iter_batches(batch_size=1), None)
        return {} if batch is None or not batch.num_rows else dict(batch.to_pylist()[0])
    with data.open(encoding="utf-8") as lines:
        line = lines.readline()
    return dict(json.loads(line)) if line else {}


def _markdown_value(value: object) -> str:
    """A value as the cell of a Markdown table. Text of strangers is escaped."""
    if value is None:
        return ""
    text = " ".join(escape_controls(str(value)[: 4 * _MAX_VALUE_CHARACTERS]).split())
    text = text if len(text) <= _MAX_VALUE_CHARACTERS else f"{text[: _MAX_VALUE_CHARACTERS - 1]}…"
    return f"`{text.replace('`', chr(0x2019)).replace('|', chr(0x2502))}`" if text else ""
