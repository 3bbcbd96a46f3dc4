"""A hundred thousand slices named at once: nothing grows with their number but what has to."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cc_pipeline.lake.adding import SliceReplacement
from cc_pipeline.lake.lake import Lake, TableSpec
from cc_pipeline.lake.streaming import count_rows, stream_rows
from cc_pipeline_tests.lake.test_lake import SCHEMA, SPEC, content, rows

#: In a process of its own, since what is tested ended it: rows of every tenth name are read, replaced and emptied.
_PROGRAM = """
import sys
import pyarrow as pa
from cc_pipeline.lake.lake import Lake
from cc_pipeline.lake.streaming import count_rows
from cc_pipeline_tests.lake.test_lake import SCHEMA, SPEC, rows

lake = Lake(sys.argv[1], [SPEC])
names = [f"name-{one:06}.example" for one in range(100_000)]
here = names[::10]
data = pa.Table.from_pylist([dict(crawl="A", target=one, value=1, extra=[], at=0) for one in here], schema=SCHEMA)
lake.commit("things", data, [dict(crawl="A", target=one) for one in names], {})
assert lake.read("things", {"crawl": "A", "target": names}, ["value"]).num_rows == len(here)
assert count_rows(lake, "things", {"target": names[5:]}, ["crawl"]) == {("A",): len(here) - 1}
lake.commit("things", SCHEMA.empty_table(), [dict(crawl="A", target=one) for one in names if one != here[7]], {})
assert lake.read("things")["target"].to_pylist() == [here[7]]
"""


@pytest.mark.bomb
def test_a_hundred_thousand_names_end_no_process(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(tmp_path)], capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three names are many."""
    monkeypatch.setattr("cc_pipeline.lake.predicates.MAX_NAMED_VALUES", 2)


@pytest.mark.parametrize("is_new", [True, False])
@pytest.mark.parametrize("columns", [("crawl", "target"), ("target",)])
@pytest.mark.parametrize("count", [900, 1_500, 6_000])
def test_what_lies_between_replaced_slices_stays(
    tmp_path: Path, count: int, columns: tuple[str, ...], is_new: bool
) -> None:
    lake = Lake(str(tmp_path), [TableSpec("things", SCHEMA, columns)])
    names = [f"name-{one:05}.example" for one in range(2 * count)]

    def made(some: list[str], value: int) -> pa.Table:
        return pa.Table.from_pylist(
            [{"crawl": "A", "target": one, "value": value, "extra": [], "at": 0} for one in some], schema=SCHEMA
        )

    lake.commit("things", made(names, 1), [], {})
    slices = [{name: {"crawl": "A", "target": one}[name] for name in columns} for one in names[::2]]
    lake.commit("things", made(names[:count:2], 2), slices, {"digest": "1"} if is_new else {})
    here = lake.read("things").to_pylist()
    assert len(here) == count + count // 2
    assert {row["target"]: row["value"] for row in here} == dict.fromkeys(names[1::2], 1) | dict.fromkeys(
        names[:count:2], 2
    )


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("seed", range(4))
def test_what_is_not_named_stays_as_it_is_between_what_is_replaced(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    lake, expected = Lake(str(tmp_path), [SPEC]), {}
    pairs = [(crawl, target) for crawl in ("A", "B'") for target in ("a", "b'", "c", "d", "e~16-0003", "f")]
    for value in range(12):
        chosen = chance.sample(pairs, chance.randint(1, 7))
        full = [pair for pair in chosen if chance.random() < 0.7]
        data = pa.concat_tables([SCHEMA.empty_table(), *(rows(*pair, [value, value + 100]) for pair in full)])
        slices = [{"crawl": crawl, "target": target} for crawl, target in chosen]
        if value % 2:
            lake.commit("things", data, slices, {"at": f"{value:x}"})
        else:
            lake.commit_stream("things", data.to_batches, slices, {"at": f"{value:x}"})
        expected = {pair: was for pair, was in expected.items() if pair not in chosen} | dict.fromkeys(full, value)
        assert content(lake) == sorted((*pair, one) for pair, v in expected.items() for one in (v, v + 100))
        asked = chance.sample([target for crawl, target in pairs if crawl == "A"], 4)
        found = lake.read("things", {"crawl": "A", "target": asked}, ["value"])
        assert found.schema.names == ["value"]
        mine = sorted(
            one for pair, v in expected.items() if pair[0] == "A" and pair[1] in asked for one in (v, v + 100)
        )
        assert sorted(found["value"].to_pylist()) == mine
        where = {"crawl": ["A", "B'", "C"], "target": asked}
        counted = count_rows(lake, "things", where, ["crawl", "target"])
        assert counted == {pair: 2 for pair in expected if pair[1] in asked}
        assert sum(batch.num_rows for batch in stream_rows(lake, "things", where)) == 2 * len(counted)


@pytest.mark.usefixtures("few")
def test_a_row_that_somebody_adds_between_many_slices_meanwhile_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(str(tmp_path), [SPEC])
    lake.commit("things", rows("A", "m", [1]), [{"crawl": "A", "target": "m"}], {})
    plain, met = SliceReplacement.plan, []

    def interrupted(*arguments: Any) -> object:
        found = plain(*arguments)
        if not met:
            met.append(True)
            other = Lake(str(tmp_path), [SPEC])
            other.commit("things", rows("A", "n", [2]), [{"crawl": "A", "target": "n"}], {})
            other.commit("things", rows("A", "m", [3]), [{"crawl": "A", "target": "m"}], {})
            other.commit("things", rows("A", "b", [4]), [{"crawl": "A", "target": "b"}], {})
        return found

    monkeypatch.setattr(SliceReplacement, "plan", interrupted)
    lake.commit("things", rows("A", "a", [9]), [{"crawl": "A", "target": one} for one in "abz"], {})
    assert met
    assert content(lake) == [("A", "a", 9), ("A", "m", 3), ("A", "n", 2)]
