"""What rows say, as a number: of values alone, whatever their order, batches and files."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from cc_pipeline.documents.schemas import SCHEMAS
from cc_pipeline.lake.content_digests import NOTHING, combine_digests, compute_content_digests
from cc_pipeline.records.schema import RECORD_SCHEMA
from cc_pipeline.workspace.schemas import CAPTURES_SCHEMA

TABLES = {**SCHEMAS, "captures": CAPTURES_SCHEMA, "records": RECORD_SCHEMA}
ROWS = 24


def value(kind: pa.DataType, chance: random.Random) -> Any:
    if chance.random() < 0.2:
        return None
    if pa.types.is_string(kind):
        return "".join(chance.choice("ab€ü") for _ in range(chance.choice((0, 1, 7, 8, 9, 60, 1_500))))
    if pa.types.is_binary(kind):
        return chance.randbytes(chance.randrange(12))
    if pa.types.is_boolean(kind):
        return chance.random() < 0.5
    if pa.types.is_integer(kind):
        return chance.randrange(-100, 100)
    if pa.types.is_floating(kind):
        return chance.random()
    if pa.types.is_timestamp(kind):
        return datetime(2020, 1, 1, tzinfo=UTC) + timedelta(seconds=chance.randrange(9_999))
    if pa.types.is_date(kind):
        return date(2020, 1, chance.randrange(1, 28))
    if pa.types.is_struct(kind):
        return {field.name: value(field.type, chance) for field in kind}
    if pa.types.is_map(kind):
        return [(f"key {number}", value(kind.item_type, chance)) for number in range(chance.randrange(3))]
    return [value(kind.value_type, chance) for _ in range(chance.randrange(3))]


def made(schema: pa.Schema, chance: random.Random) -> tuple[pa.Schema, list[dict[str, Any]]]:
    loose = pa.schema([field.with_nullable(True) for field in schema])
    rows = [
        {field.name: value(field.type, chance) for field in loose} | {"target": f"t{number % 3}"}
        for number in range(ROWS)
    ]
    return loose, rows


def versions(rows: list[dict[str, Any]], schema: pa.Schema, at_once: int | None = None) -> dict[str, str]:
    return compute_content_digests(pa.Table.from_pylist(rows, schema).to_batches(at_once), "target", ())


@pytest.mark.parametrize("table", TABLES)
def test_any_other_value_gives_another_number_and_another_order_does_not(table: str) -> None:
    chance = random.Random(table)
    schema, rows = made(TABLES[table], chance)
    was = versions(rows, schema)
    assert set(was) == {"t0", "t1", "t2"}
    mixed = rows[:]
    chance.shuffle(mixed)
    assert versions(mixed, schema, 7) == was
    for field in schema:
        if field.name == "target":
            continue
        other = [*rows]
        place = chance.randrange(ROWS)
        while other[place][field.name] == rows[place][field.name]:
            other[place] = rows[place] | {field.name: value(field.type, chance)}
        slug = rows[place]["target"]
        assert versions([row for row in other if row["target"] == slug], schema)[slug] != was[slug], field.name


def test_a_row_that_comes_or_goes_or_is_there_twice_gives_another_number() -> None:
    schema, rows = made(RECORD_SCHEMA, random.Random(5))
    seen = [versions(some, schema)["t0"] for some in (rows, rows[3:], [*rows, rows[0]], [*rows, rows[0], rows[0]])]
    assert len(set(seen)) == 4


def test_values_move_between_rows_columns_and_places_of_a_list_only_with_notice() -> None:
    schema = pa.schema([("target", pa.string()), ("a", pa.list_(pa.string())), ("b", pa.list_(pa.string()))])

    def number(*rows: tuple[list[str] | None, list[str] | None]) -> str:
        return versions([{"target": "t", "a": a, "b": b} for a, b in rows], schema)["t"]

    alike = [
        number((["x"], ["y"])),
        number((["y"], ["x"])),
        number((["x", "y"], [])),
        number((["y", "x"], [])),
        number((["xy"], [])),
        number((["x"], []), ([], ["y"])),
        number((["x", "y"], None)),
        number((["x", "y", ""], [])),
        number((["x\0"], ["y"])),
    ]
    assert len(set(alike)) == len(alike)


def test_slices_together_are_as_if_they_were_one() -> None:
    schema, rows = made(CAPTURES_SCHEMA, random.Random(3))
    one = versions([row | {"target": "t"} for row in rows], schema)["t"]
    assert combine_digests(versions(rows, schema).values()) == one
    assert combine_digests([]) == NOTHING == combine_digests([NOTHING, NOTHING])


def test_numbers_stay_what_they_are() -> None:
    # committed in homes: another algorithm would give other numbers to the same rows
    schema = pa.schema(
        [("target", pa.string()), ("text", pa.string()), ("n", pa.int64()), ("l", pa.list_(pa.string()))]
    )
    rows = [{"target": "t", "text": "x" * long, "n": long, "l": ["a", "bc"]} for long in (0, 5, 8, 700, 5_000)]
    assert versions(rows, schema) == {"t": "4c5534c2e3e2e3e"}
