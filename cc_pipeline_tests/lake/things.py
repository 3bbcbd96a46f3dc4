"""A small lake with one stage: rows of slices, and what is read of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

import pyarrow as pa

from cc_pipeline.capture_columns import SLICE
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.lake.lake import Lake, TableSpec
from cc_pipeline.lake.slice import Slice, Stage
from cc_pipeline.lake.slices import SLICES, Base, SliceRow, commit_stage, draw_generations
from cc_pipeline.lake.target_definitions import register
from cc_pipeline.workspace.tables import CORE_TABLES

SCHEMA = pa.schema(
    [
        pa.field("crawl", pa.string(), nullable=False),
        pa.field("target", pa.string(), nullable=False),
        pa.field("value", pa.int64()),
        pa.field("at", pa.timestamp("ms", tz="UTC")),
        pa.field("said", pa.map_(pa.string(), pa.string())),
        pa.field("links", pa.list_(pa.struct([pa.field("url", pa.string()), pa.field("rel", pa.list_(pa.string()))]))),
        pa.field("made_by", pa.string()),
    ]
)
MAKE = Stage("make", ("words", "things"))
NEXT = Stage("next", ("others",))
THINGS = TableSpec("things", SCHEMA, SLICE, ("target", "value"), ("made_by",), stage=MAKE)
WORDS = TableSpec("words", SCHEMA, SLICE, (), stage=MAKE)
OTHERS = TableSpec("others", SCHEMA, SLICE, (), stage=NEXT)
WHOLE = TableSpec("whole", pa.schema([SCHEMA.field("crawl"), SCHEMA.field("value")]), ("crawl",))
[TARGETS] = [spec for spec in CORE_TABLES if spec.name == "targets"]
SPECS = (THINGS, WORDS, OTHERS, WHOLE, TARGETS, SLICES)
CRAWL = "C"
Values = Mapping[str, Sequence[int]]


def lake_in(folder: object, options: Mapping[str, str] | None = None) -> Lake:
    return Lake(str(folder), SPECS, options)


def define(lake: Lake, *targets: str) -> None:
    """Defines targets, whose slices have an epoch from then on."""
    register(lake, [parse_target(target) for target in targets])


def build_rows(crawl: str, values: Values, made_by: str = "") -> pa.Table:
    return pa.Table.from_pylist(
        [
            {
                "crawl": crawl,
                "target": target,
                "value": value,
                "at": datetime.fromtimestamp(1_700_000_000 + value % 1_000, UTC),
                "said": None if value % 2 else [("a", "1"), ("b", None)],
                "links": [{"url": f"https://{target}/{value}", "rel": ["x", None]}] * (value % 3),
                "made_by": made_by,
            }
            for target in sorted(values)
            for value in values[target]
        ],
        schema=SCHEMA,
    )


def commit(
    lake: Lake, values: Values, crawl: str = CRAWL, stage: Stage = MAKE, *, made_of: str = "", base: Base | None = None
) -> list[SliceRow]:
    """Replaces slices by rows with these values."""
    inputs = {Slice(crawl, target): {"of": made_of} for target in sorted(values)}
    batches = build_rows(crawl, values).to_batches()
    return commit_stage(lake, stage, inputs, dict.fromkeys(stage.tables, batches), base=base)


def content(lake: Lake, table: str = "things") -> list[tuple[str, str, int]]:
    """The rows that count, in order."""
    found = lake.read(table, columns=["crawl", "target", "value"]).to_pylist()
    return sorted((row["crawl"], row["target"], row["value"]) for row in found)


def slices_in(crawl: str, targets: Iterable[str]) -> list[Slice]:
    return [Slice(crawl, target) for target in targets]


def new_generations(crawl: str, targets: Iterable[str]) -> dict[str, int]:
    return {slice_.target: number for slice_, number in draw_generations(slices_in(crawl, targets)).items()}
