"""How the rows of a partition are distributed: by day, status, media type, language, host. For pictures of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline.lake.streaming import stream_rows
from cc_pipeline.workspace.workspace import Workspace

#: Rows of a partition that are looked at: a picture of so many is that of all.
MOST_ROWS: Final = 200_000
#: Bars of a picture; what is rarer is added up. More days than these are months, and more months years.
_BARS: Final = 8
_DAYS: Final = 31
OTHERS: Final = "others"
NONE: Final = "none"

_Column: TypeAlias = pa.Array


@dataclass(frozen=True, slots=True)
class _Shape:
    """What is counted: ``columns`` of the table, of which ``of`` makes one value a row; ``weight`` is a column that is
    added up instead of rows. ``in_time`` values are dates, shown in their order."""

    columns: tuple[str, ...]
    of: Callable[..., _Column]
    weight: str = ""
    in_time: bool = False


def _itself(values: _Column) -> _Column:
    return values.cast(pa.string())


def _first(values: _Column, otherwise: _Column) -> _Column:
    return pc.coalesce(values, otherwise)


def _language(values: _Column) -> _Column:
    return pc.list_element(pc.split_pattern(pc.fill_null(values, ""), ","), 0)


def _host(urls: _Column) -> _Column:
    return pc.struct_field(pc.extract_regex(urls, r"^[A-Za-z]+://(?P<host>[^/?#]*)"), "host")


def _day(moments: _Column) -> _Column:
    return moments.cast(pa.timestamp("ms")).cast(pa.date32(), safe=False)


_SHAPES: Final[dict[str, dict[str, _Shape]]] = {
    "captures": {
        "captures by day": _Shape(("fetch_time",), _day, in_time=True),
        "captures by status": _Shape(("fetch_status",), _itself),
        "captures by media type": _Shape(("content_mime_detected", "content_mime_type"), _first),
    },
    "records": {
        "records by outcome": _Shape(("reason", "outcome"), _first),
        "stored bytes by host": _Shape(("url",), _host, weight="stored_length"),
    },
    "page_metadata": {
        "pages by media type": _Shape(("mime_type",), _itself),
        "pages by failure": _Shape(("failure_reason",), _itself),
    },
    "page_text": {"texts by language": _Shape(("content_languages",), _language)},
    "page_links": {"links by domain": _Shape(("link_domain",), _itself)},
    "feed_items": {"items by day": _Shape(("published",), _day, in_time=True)},
}


def shapes(workspace: Workspace, table: str, crawl: str, slug: str) -> dict[str, dict[str, int]]:
    """By title, how many rows (or bytes) each value has: the commonest first, or days, months or years in their order.

    Reads a few narrow columns of ``MOST_ROWS`` rows at most. Raises ``EnvironmentFault``.
    """
    asked = _SHAPES.get(table, {})
    counts: dict[str, Counter[object]] = {title: Counter() for title in asked}
    columns = sorted({name for one in asked.values() for name in (*one.columns, one.weight) if name})
    rows = 0
    where = {"crawl": crawl, "target": workspace.rows_of([slug])[slug]}
    for batch in stream_rows(workspace.lake, table, where, columns) if columns else ():
        for title, one in asked.items():
            counts[title].update(_counted(batch, one))
        rows += batch.num_rows
        if rows >= MOST_ROWS:
            break
    found = {title: _in_time(own) if asked[title].in_time else _commonest(own) for title, own in counts.items()}
    return {title: own for title, own in found.items() if own and [*own] != [NONE]}


def _counted(batch: pa.RecordBatch, shape: _Shape) -> Mapping[object, int]:
    values = shape.of(*(batch.column(name) for name in shape.columns))
    if not shape.weight:
        return {row["values"]: row["counts"] for row in pc.value_counts(values).to_pylist()}
    table = pa.table({"value": values, "weight": batch.column(shape.weight)})
    summed = table.group_by("value").aggregate([("weight", "sum")]).to_pylist()
    return {row["value"]: row["weight_sum"] or 0 for row in summed}


def _commonest(counts: Counter[object]) -> dict[str, int]:
    ordered = sorted(
        ((NONE if v in (None, "") else str(v), n) for v, n in counts.items() if n), key=lambda one: -one[1]
    )
    rest = sum(count for _, count in ordered[_BARS:])
    return dict(ordered[:_BARS]) | ({OTHERS: rest} if rest else {})


def _in_time(counts: Counter[object]) -> dict[str, int]:
    days = {day: count for day, count in counts.items() if isinstance(day, date)}
    for length in (len("2024-05-18"), len("2024-05"), len("2024")):
        found: Counter[str] = Counter()
        for day, count in days.items():
            found[day.isoformat()[:length]] += count
        if len(found) <= _DAYS:
            break
    return {when: found[when] for when in sorted(found)}
