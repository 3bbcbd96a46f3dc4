"""The same bounds by SQL, for those who have Athena over Common Crawl's table: slower, and it costs money."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from cc_pipeline.commoncrawl.crawls import validate_crawl_id
from cc_pipeline.commoncrawl.index_schema import SUBSETS
from cc_pipeline.errors import UserInputError

#: Crawls that have no ``url_surtkey`` statistics in any row group (2017-43 to 2018-43).
WITHOUT_STATISTICS: Final = tuple(
    f"CC-MAIN-{week}"
    for week in (
        *("2017-43", "2017-47", "2017-51", "2018-05", "2018-09", "2018-13", "2018-17"),
        *("2018-22", "2018-26", "2018-30", "2018-34", "2018-39", "2018-43"),
    )
)


def athena_sql(
    crawls: Sequence[str] = WITHOUT_STATISTICS,
    *,
    subset: str = "warc",
    column: str = "url_surtkey",
    table: str = "ccindex.ccindex",
) -> str:
    """A query for Athena (or Trino) that reads a column's smallest and largest value in every index file.

    It scans the whole column of the crawls named (about 23 MB a row group, billed by the byte) and knows files, not
    row groups. ``table`` is the one of Common Crawl's set-up guide. Raises ``UserInputError`` for odd names.
    """
    if subset not in SUBSETS:
        raise UserInputError(f"{subset!r} is no subset; there are {', '.join(SUBSETS)}")
    for name in (column, *table.split(".")):
        if not name.isidentifier():
            raise UserInputError(f"{name!r} cannot be a name in SQL")
    if not crawls:
        raise UserInputError("name at least one crawl")
    listed = ",\n                ".join(f"'{validate_crawl_id(crawl)}'" for crawl in crawls)
    return f"""SELECT crawl,
       subset,
       "$path" AS path,
       count(*) AS row_count,
       min({column}) AS {column}_min,
       max({column}) AS {column}_max
FROM {table}
WHERE crawl IN ({listed})
  AND subset = '{subset}'
GROUP BY crawl, subset, "$path"
ORDER BY crawl, {column}_min;
"""


def catalog_sql(crawl: str, domain_start: str, domain_end: str, *, subset: str = "warc") -> str:
    """The catalog's own query for DuckDB: row groups of a crawl that may hold keys from start to before end."""
    start, end = (text.replace("'", "''") for text in (domain_start, domain_end))
    return f"""SELECT path, row_group, rows, compressed_bytes, url_surtkey_min, url_surtkey_max, url_surtkey_source
FROM row_groups
WHERE crawl = '{validate_crawl_id(crawl)}'
  AND subset = '{subset.replace("'", "''")}'
  AND (url_surtkey_max IS NULL OR url_surtkey_max >= '{start}'::BLOB)
  AND (url_surtkey_min IS NULL OR url_surtkey_min < '{end}'::BLOB)
ORDER BY path, row_group;
"""
