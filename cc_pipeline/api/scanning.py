"""Lookups without a site: finds the captures of a condition in a crawl's whole columnar index, file by file, so that a
killed scan continues with the remaining files."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cc_pipeline import progress
from cc_pipeline.advice import option
from cc_pipeline.api.lookups import LookupRequest, find_index_sources
from cc_pipeline.api.reporter import get_reporter
from cc_pipeline.atomic import write_whole, written_whole
from cc_pipeline.errors import UserInputError
from cc_pipeline.progress import format_count

if TYPE_CHECKING:
    import pyarrow as pa

#: The description of a scan, in the folder of its parts.
_DESCRIPTION_FILE: Final = "about.json"
#: Columns that are read completely: the first one that the condition names, else the key, which every index has.
_FULL_COLUMNS: Final = ("content_mime_detected", "content_languages", "content_mime_type", "content_charset")
_KEY: Final = "url_surtkey"
_EVERYTHING: Final = "*"


def condition_of_all(texts: list[str]) -> str:
    """Returns the condition of ``* where …``; empty if sites are named. Raises ``UserInputError`` for ``*`` without
    any."""
    words = texts[0].split(None, 2) if len(texts) == 1 else []
    if not words or words[0] != _EVERYTHING:
        return ""
    if len(words) < 3 or words[1].lower() != "where":
        raise UserInputError(
            "* means a whole crawl, which has a few billion captures: add a condition, as in "
            "'* where mime=application/pdf'"
        )
    return words[2]


def scan(question: LookupRequest, where: str, out: Path, write: Callable[[pa.Table], None]) -> int:
    """Calls ``write`` with all captures in the crawls that match a condition, as far as the index tells; returns how
    many there are. Parts are kept beside ``out`` until the scan is complete. Raises ``UserInputError`` above the limits
    of the settings if nobody agrees, ``EnvironmentFault`` and ``DataFault`` for an index that cannot be read."""
    import pyarrow.parquet as pq

    from cc_pipeline.commoncrawl.conditions import parse_condition

    condition = parse_condition(where)
    parts = out.with_name(f"{out.name}.parts")
    settings = question.settings
    subsets = condition.subsets or settings.subsets
    description = {"crawls": question.crawls, "where": condition.text, "subsets": subsets, "source": settings.source}
    description_text = json.dumps(description)
    parts.mkdir(exist_ok=True)
    description_path = parts / _DESCRIPTION_FILE
    if description_path.exists() and description_path.read_text() != description_text:
        raise UserInputError(
            f"the folder {parts} has results of an unfinished scan with other crawls, condition, subsets or source. "
            "Delete the folder, or name another file with --out"
        )
    write_whole(description_path, description_text)
    # parts of index files that the source has replaced since may lie in the folder too
    part_paths = [part for crawl in question.crawls for part in _scan_crawl(question, crawl, where, parts)]
    row_count = 0
    for part in part_paths:
        for batch in pq.ParquetFile(part).iter_batches():
            import pyarrow as pa

            write(pa.Table.from_batches([batch]))
            row_count += batch.num_rows
    return row_count


def delete_parts(out: Path) -> None:
    """Deletes the parts once the file is complete."""
    shutil.rmtree(out.with_name(f"{out.name}.parts"), ignore_errors=True)


def _scan_crawl(question: LookupRequest, crawl: str, where: str, parts: Path) -> list[Path]:
    """Writes the missing parts of a crawl; returns the paths of all its parts."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from cc_pipeline.commoncrawl.conditions import parse_condition
    from cc_pipeline.commoncrawl.index_schema import NAMED_CAPTURES
    from cc_pipeline.commoncrawl.key_ranges import KeyRange, merge_ranges
    from cc_pipeline.commoncrawl.target_text import parse_target
    from cc_pipeline.index.locator import surt_ranges
    from cc_pipeline.index.lookup import open_locators
    from cc_pipeline.index.parquet.locator import ParquetLocator

    condition, settings = parse_condition(where), question.settings
    subsets = condition.subsets or settings.subsets
    sources = find_index_sources(question.workspace, crawl, "parquet", harvest=question.harvests)
    site_values = [(kind, value) for kind in ("tld", "domain", "host") for value in condition.values_of(kind)]
    kinds = {kind for kind, _ in site_values}
    # one column with sites is enough to locate them
    sites = [parse_target(f"{kind}:{value}") for kind, value in site_values if kind == next(iter(sorted(kinds)))]
    ranges_of = surt_ranges(crawl, "parquet")
    ranges = merge_ranges(keys for site in sites for keys in ranges_of(site)) if sites else (KeyRange(b"", None),)
    with open_locators(crawl, subsets, sources, "parquet") as available:
        locator = available["parquet"]()
        assert isinstance(locator, ParquetLocator)
        places = locator.places(crawl, subsets, ranges)
        common_columns = set.intersection(*(set(place.columns) for place in places)) if places else set()
        key = next(
            (column for column in _FULL_COLUMNS if column in condition.columns and column in common_columns), _KEY
        )
        files = [
            (path, list(file_locations)) for path, file_locations in groupby(places, lambda place: place.file.path)
        ]
        todo = {path: file_locations for path, file_locations in files if not (parts / _name(crawl, path)).exists()}
        requests, size = locator.scan_price(
            [location for file_locations in todo.values() for location in file_locations], key
        )
        estimate = (
            f"{crawl}: reads {len(todo):,} of {len(files):,} index files: {size / 1e6:,.1f} MB of the column {key} and "
            f"the other columns of matching rows, at most {format_count(requests, 'request')}"
        )
        get_reporter().notice(estimate)
        exceeds_limits = requests > settings.max_requests or size > settings.max_bytes
        if exceeds_limits and not get_reporter().agrees("Go on?"):
            raise UserInputError(
                f"{estimate}, more than CC_PIPELINE_MAX_REQUESTS or CC_PIPELINE_MAX_BYTES, so {crawl} was not read. "
                f"Confirm the cost with {option(yes=True)}"
            )
        with get_reporter().bars():
            for finished, (path, file_locations) in enumerate(todo.items()):
                progress.report("scan", finished, len(todo), crawl)
                with (
                    written_whole(parts / _name(crawl, path)) as temporary_path,
                    pq.ParquetWriter(temporary_path, NAMED_CAPTURES) as writer,
                ):
                    for rows in locator.scan(file_locations, key, condition):
                        target = pa.repeat(pa.scalar(_EVERYTHING), rows.num_rows)
                        writer.write_table(
                            rows.add_column(0, NAMED_CAPTURES.field("target"), target).cast(NAMED_CAPTURES)
                        )
            progress.report("scan", len(todo), len(todo), crawl)
    return [parts / _name(crawl, path) for path, _ in files]


def _name(crawl: str, path: str) -> str:
    return f"{crawl}-{path.replace('/', '_')}"
