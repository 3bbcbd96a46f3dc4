"""Digests say the same wherever they stand: in the log, folded, or both, and wherever a fold was killed."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from cc_pipeline.lake.digests.digest_reader import FOLDER
from cc_pipeline.lake.digests.folding import fold, sweep_folded
from cc_pipeline.lake.digests.log import TransactionLog
from deltalake import DeltaTable

from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.lake.content_digests import digest_from_int
from cc_pipeline.lake.digests import folding
from cc_pipeline.lake.lake import Lake, TableSpec
from cc_pipeline.lake.vacuum import find_uncommitted_files, vacuum
from cc_pipeline_tests.weedserver import REGION, weed_server
from cc_pipeline_tests.world import Killed

SCHEMA = pa.schema([pa.field("crawl", pa.string()), pa.field("target", pa.string()), pa.field("n", pa.int64())])
TABLES = ("one", "other")
SPECS = [TableSpec(name, SCHEMA, ("crawl", "target"), ("target",)) for name in TABLES]
NAMES = [f"{stage}:{number}" for stage in "rst" for number in range(150)]

Truth = dict[str, dict[str, str]]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folding, "_NAMES_PER_FILE", 16)
    monkeypatch.setattr(folding, "_FILES_AT_ONCE", 3)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    made = Lake(str(tmp_path / "lake"), SPECS)
    row = pa.Table.from_pylist([{"crawl": "C", "target": "t", "n": 1}], schema=SCHEMA)
    for table in TABLES:
        made.commit(table, row, [{"crawl": "C", "target": "t"}], {})
    return made


def at_first() -> Truth:
    """What the two tables say before: how many rows their slice has."""
    return {table: {"rows:C:t": digest_from_int(1)} for table in TABLES}


def change(lake: Lake, truth: Truth, dice: random.Random) -> None:
    """Commits digests to both tables, of which some differ."""
    alike = {name: digest_from_int(dice.randrange(1 << 50)) for name in dice.sample(NAMES, 60)}
    for table in TABLES:
        own = alike | {name: digest_from_int(dice.randrange(1 << 50)) for name in dice.sample(NAMES, dice.randrange(3))}
        lake.commit_digests(table, own)
        truth[table] |= own


def says(lake: Lake, truth: Truth) -> None:
    """What is asked of the lake, by an object that knows it and by a new one, is what was committed."""
    for asked in (lake, Lake(lake.root, SPECS)):
        for table in TABLES:
            assert asked.digests(table, NAMES) == {name: truth[table].get(name) for name in NAMES}
            for starting in ("", "s:", "s:1"):
                mine = sorted(name for name in truth[table] if name.startswith(starting))
                assert sorted(asked.digest_names(table, starting)) == mine
            assert asked.read(table).num_rows == 1
        one, other = (truth[table] for table in TABLES)
        torn = sorted(name for name in {*one, *other} if name[0] == "s" and one.get(name) != other.get(name))
        assert asked.find_differing(TABLES, {}, "s:") == torn


def named_files(lake: Lake, table: str) -> set[str]:
    return {path.name for path in Path(lake.address(table), FOLDER).iterdir()}


@pytest.mark.parametrize("seed", range(3))
def test_digests_say_the_same_however_often_they_are_folded(lake: Lake, seed: int) -> None:
    dice, truth = random.Random(seed), at_first()
    for _ in range(6):
        change(lake, truth, dice)
        for table in TABLES:
            if dice.random() < 0.7:
                before = DeltaTable(lake.address(table)).file_uris()
                assert fold(lake, table, min_digests=-1) >= 0
                assert DeltaTable(lake.address(table)).file_uris() == before
        says(lake, truth)
    log = TransactionLog(lake.file_system(), lake.address("one"))
    fold(lake, "one", min_digests=-1)
    assert log.count_checkpointed() == 1, "more than the anchor is left in the log"


def test_tables_that_say_the_same_have_the_same_files(lake: Lake) -> None:
    for table in TABLES:
        lake.commit_digests(table, {name: digest_from_int(number) for number, name in enumerate(NAMES)})
        fold(lake, table, min_digests=-1)
    before = named_files(lake, "one")
    assert {one.partition("-")[0] for one in before if "-" in one} == {
        one.partition("-")[0] for one in named_files(lake, "other") if "-" in one
    }
    lake.commit_digests("one", {"s:7": digest_from_int(1 << 50)})
    fold(lake, "one", min_digests=-1)
    assert len(named_files(lake, "one") - before) == 2, "one file and the list"


def test_a_fold_killed_at_any_write_changes_no_answer(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folding, "_NAMES_PER_FILE", 100)
    dice, truth = random.Random(2), at_first()
    change(lake, truth, dice)
    fold(lake, "one", min_digests=-1)
    put, anchor = folding._Folding._put, folding._Folding._commit_anchor
    done = killed = 0
    while done == killed:
        change(lake, truth, dice)
        left = killed

        def until(wrapped: Callable[..., None]) -> Callable[..., None]:
            def write(*given: object) -> None:
                nonlocal left
                if not left:
                    raise Killed
                left -= 1
                wrapped(*given)

            return write

        monkeypatch.setattr(folding._Folding, "_put", until(put))
        monkeypatch.setattr(folding._Folding, "_commit_anchor", until(anchor))
        done += 1
        try:
            fold(lake, "one", min_digests=-1)
        except Killed:
            killed += 1
        lake.invalidate("one")
        says(lake, truth)
    assert killed > 5
    monkeypatch.undo()


def test_of_two_folds_at_once_one_is_refused_and_nothing_lost(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    dice, truth = random.Random(3), at_first()
    change(lake, truth, dice)
    anchor = folding._Folding._commit_anchor

    def meets(other: Callable[[], object]) -> int:
        """Folds, and another one does something right before that is committed."""

        def later(self: folding._Folding, handle: DeltaTable, number: int) -> None:
            monkeypatch.setattr(folding._Folding, "_commit_anchor", anchor)
            other()
            anchor(self, handle, number)

        monkeypatch.setattr(folding._Folding, "_commit_anchor", later)
        return fold(lake, "one", min_digests=-1)

    dropped: list[int] = []
    assert meets(lambda: dropped.append(fold(Lake(lake.root, SPECS), "one", min_digests=-1))) == 0
    assert dropped == [len(truth["one"])]
    says(lake, truth)
    # a commit of the same slices is in nobody's way, and counts
    assert meets(lambda: change(Lake(lake.root, SPECS), truth, dice)) == 0
    says(lake, truth)
    assert fold(lake, "one", min_digests=-1) > 0
    says(lake, truth)


def test_files_are_deleted_a_week_after_another_list_took_their_place(lake: Lake) -> None:
    dice, truth = random.Random(4), at_first()
    for _ in range(3):
        change(lake, truth, dice)
        fold(lake, "one", min_digests=-1)
    folder = Path(lake.address("one"), FOLDER)
    stray = folder / "0123-4567.parquet"
    stray.write_bytes(b"")
    assert sweep_folded(lake, "one", 168) == 0
    for path in folder.iterdir():
        at = path.stat().st_mtime - 169 * 3600
        os.utime(path, (at, at))
    # what takes away files of tables leaves these alone
    assert vacuum(lake, "one") == 0
    assert find_uncommitted_files(lake, "one") == set()
    assert sweep_folded(lake, "one", 168) > 1
    assert not stray.exists()
    assert len([name for name in named_files(lake, "one") if name.endswith(".json")]) == 1
    says(lake, truth)


def test_a_damaged_file_is_a_fault_that_names_the_table(lake: Lake) -> None:
    lake.commit_digests("one", {"s:1": digest_from_int(1)})
    fold(lake, "one", min_digests=-1)
    [damaged] = Path(lake.address("one"), FOLDER).glob("*.parquet")
    damaged.write_bytes(b"PAR1")
    with pytest.raises(EnvironmentFault, match="tables/one"):
        Lake(lake.root, SPECS).digests("one", ["s:1"])


@pytest.mark.process
def test_two_homes_fold_one_lake_on_s3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with weed_server(tmp_path, "lake") as server:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", server.key)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", server.secret)
        options = {"AWS_ENDPOINT_URL": server.endpoint, "AWS_REGION": REGION, "AWS_ALLOW_HTTP": "true"}
        mine, theirs = (Lake("s3://lake/here", SPECS, options) for _ in range(2))
        row = pa.Table.from_pylist([{"crawl": "C", "target": "t", "n": 1}], schema=SCHEMA)
        for table in TABLES:
            mine.commit(table, row, [{"crawl": "C", "target": "t"}], {})
        dice, truth = random.Random(5), at_first()
        for lake in (mine, theirs, mine):
            change(mine, truth, dice)
            change(theirs, truth, dice)
            for table in TABLES:
                assert fold(lake, table, min_digests=-1) > 0
            for asked in (mine, theirs, Lake("s3://lake/here", SPECS, options)):
                for table in TABLES:
                    assert asked.digests(table, NAMES) == {name: truth[table].get(name) for name in NAMES}
                    assert asked.read(table).num_rows == 1
            # what is named is spared, however old
            for table in TABLES:
                sweep_folded(lake, table, 0.0)
