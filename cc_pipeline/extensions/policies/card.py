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
    "url": "the address that was captured",
    "title": "the page's title",
    "language": "ISO 639-3 code of its first language, as CLD2 reads it or the index says; null: unknown",
    "fetch_time": "when Common Crawl fetched it, UTC",
    "text": "its main text, without menus and footers; unchanged by the filters",
    "extractor": "what found the main text",
    "words": "words of the text",
    "domain": "the registered domain of the address",
    "crawl": "the crawl that has the capture",
    "warc_filename": "the archive file of its record, below the root of the source",
    "warc_record_offset": "byte at which the record begins there",
    "warc_record_length": "bytes of the record, one gzip member",
    "content_digest": "SHA-1 of the captured payload, base 32, as the index has it",
}
_LIMITS: Final = (
    "Common Crawl fetches a sample of a site: pages it never visited, pages behind a login, and pages that robots.txt "
    "shut it out of are not here. A page that is not here may have existed.",
    "The crawler cuts large payloads (at 500 KiB until 2012, at 1 MiB and later at more since 2013); such a text ends "
    "early.",
    "Main texts, languages and the figures behind the rules are found by programs, and are wrong for some pages.",
    "Personal data, copyrighted texts and falsehoods are in it as they were on the pages; nothing was redacted. "
    "Rights stay with whoever wrote a page; Common Crawl's terms of use hold.",
    "Copies were looked for within this data set alone, not against others.",
)
_PREFERENCES_IGNORED: Final = "Wishes of sites on the use of their texts were not considered (no --respect)."


def card_sections(
    data: Path, recipe: Recipe, targets: Sequence[Target], crawls: Sequence[str], format: str, out: Path
) -> str:
    """Markdown with the columns and the first row of ``data``, the limits, and the command that made ``out``."""
    row = _first_row(data)
    lines = ["", "## Columns, and the first row", "", "| column | what it is | in the first row |", "|---|---|---|"]
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
