"""A catalog kept crawl by crawl against one built whole: equal, through kills, merges, drops and readers beside it."""

from __future__ import annotations

import os
import random
import shutil
import threading
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cc_pipeline.commoncrawl.key_ranges import KeyRange, prefix_range
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.index.catalog import keep as merge
from cc_pipeline.index.catalog.build import build_catalog
from cc_pipeline.index.catalog.catalog import Catalog, open_catalog
from cc_pipeline.index.catalog.contents import base_file, crawl_file, recent_file
from cc_pipeline.index.catalog.keep import MOST_ASKED, CatalogChange, CrawlSources, merged_crawls, update_catalog
from cc_pipeline.index.catalog.schemas import (
    COLUMN_CHUNKS_SCHEMA,
    COVERAGE_SCHEMA,
    INDEX_FILES_SCHEMA,
    ROW_GROUPS_SCHEMA,
)
from cc_pipeline_tests.world import Killed

EVERYTHING = [KeyRange(b"", None)]
TABLES = ("index_files", "row_groups", "column_chunks", "coverage")
#: What a crawl is made from: a seed, and how many row groups.
Made = tuple[int, int]


def crawl_of(crawl: str, made: Made) -> CrawlSources:
    """A crawl's tables; a seed gives other keys, ETags and places."""
    seed, count = made
    chance = random.Random(f"{crawl} {seed}")
    groups, chunks = [], []
    for number in range(count):
        low, high = sorted(f"com,{chance.choice('abcdefgh')}{chance.randrange(100):02d})/".encode() for _ in range(2))
        known = chance.random() > 0.2
        place = {"crawl": crawl, "path": f"{crawl}/{number % 2}.parquet", "row_group": number}
        size = chance.randrange(1, 1000)
        groups.append(
            {
                **place, "subset": chance.choice(["warc", "robotstxt"]), "rows": size, "compressed_bytes": seed,
                "url_surtkey_min": low if known else None, "url_surtkey_max": high if known else None,
            }
        )  # fmt: skip
        chunk = {"codec": "GZIP", "encodings": "PLAIN", "compressed_bytes": size}
        chunks += [{**place, **chunk, "column": name, "chunk_offset": n} for n, name in enumerate(("url", "url_path"))]
    files = [
        {"crawl": crawl, "subset": "warc", "path": f"{crawl}/{n}.parquet", "outcome": "decoded", "etag": f"{seed}"}
        for n in range(2)
    ]
    covered = dict.fromkeys(COVERAGE_SCHEMA.names, 0) | {"crawl": crawl, "subset": "warc", "rows": seed, "reason": None}
    return {
        "index_files": pa.Table.from_pylist(files, schema=INDEX_FILES_SCHEMA),
        "row_groups": pa.Table.from_pylist(groups, schema=ROW_GROUPS_SCHEMA),
        "column_chunks": pa.Table.from_pylist(chunks, schema=COLUMN_CHUNKS_SCHEMA),
        "coverage": pa.Table.from_pylist([covered], schema=COVERAGE_SCHEMA),
    }


def digests(crawls: Mapping[str, Made]) -> dict[str, str]:
    return {crawl: f"{made}" for crawl, made in crawls.items()}


def update(folder: Path, crawls: Mapping[str, Made], most_unmerged: int = 4) -> CatalogChange:
    return update_catalog(
        folder, digests(crawls), lambda crawl: crawl_of(crawl, crawls[crawl]), most_unmerged=most_unmerged
    )


def whole(path: Path, crawls: Mapping[str, Made]) -> Path:
    """The same crawls in one file, built at once."""
    path.unlink(missing_ok=True)
    parts = [crawl_of(crawl, made) for crawl, made in crawls.items()]
    empty = crawl_of("none", (0, 0))
    build_catalog(
        path, **{name: pa.concat_tables([empty[name].slice(0, 0), *(part[name] for part in parts)]) for name in TABLES}
    )
    return path


def counted(table: pa.Table) -> Counter[str]:
    return Counter(map(str, table.to_pylist()))


def answers(catalog: Catalog, some: list[str]) -> list[object]:
    """Everything a catalog can be asked of ``some`` crawls, as values that compare."""
    one, both = [prefix_range(b"com,c")], [prefix_range(b"com,a"), prefix_range(b"com,g5")]
    said: list[object] = [catalog.crawls()]
    for crawls, subsets, ranges in (
        *((None, None, each) for each in (one, both, EVERYTHING)),
        (some[0], ["warc"], EVERYTHING), (some, ["warc"], both), (["CC-MAIN-1999-01"], None, EVERYTHING),
    ):  # fmt: skip
        found = catalog.row_groups_for(crawls, subsets, ranges)
        said += [counted(found), counted(catalog.column_chunks(found, ["url"]))]
    for crawl in (None, *some):
        said += [counted(catalog.coverage(crawl)), counted(catalog.index_files(crawl))]
    said += [counted(catalog.sql(f"FROM catalog.{name}")) for name in TABLES]
    return said


def assert_same(folder: Path, beside: Path, crawls: Mapping[str, Made]) -> None:
    some = sorted(crawls)[:3] or ["CC-MAIN-2024-22"]
    with open_catalog(folder) as kept, open_catalog(whole(beside, crawls)) as built:
        assert answers(kept, some) == answers(built, some)


steps = st.lists(
    st.dictionaries(
        st.sampled_from([f"CC-MAIN-2024-{week:02d}" for week in range(10, 18)]),
        st.none() | st.tuples(st.integers(1, 2), st.integers(0, 12)),
        min_size=1,
        max_size=4,
    ),
    min_size=1,
    max_size=5,
)


@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps)
def test_kept_step_by_step_it_answers_as_if_built_at_once(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, changes: list[dict[str, Made | None]]
) -> None:
    monkeypatch.setattr(merge, "_SLICE_ROWS", 8)  # a slice of the key space is a block
    monkeypatch.setattr("cc_pipeline.index.catalog.build.BLOCK_ROWS", 4)
    monkeypatch.setattr(merge, "BLOCK_ROWS", 4)
    place = tmp_path_factory.mktemp("catalog")
    crawls: dict[str, Made] = {"CC-MAIN-2024-09": (1, 3)}
    for change in changes:
        crawls = {crawl: made for crawl, made in (crawls | change).items() if made is not None}
        assert update(place / "catalog", crawls) is not None
        assert not update(place / "catalog", crawls)
        assert_same(place / "catalog", place / "whole.duckdb", crawls)
        left = {path.stem for path in (place / "catalog").glob("CC-*.duckdb")}
        assert left == set(crawls)


def killed_at(monkeypatch: pytest.MonkeyPatch, step: int) -> list[int]:
    """Lets the ``step``-th file that is put in place or removed be the last; before or after it, in turn."""
    taken = [0]

    def stop(real, before: bool):
        def one(*arguments, **named):
            taken[0] += 1
            if taken[0] > step:
                raise Killed  # nothing happens any more, not even in what cleans up
            if taken[0] == step and before:
                raise Killed
            done = real(*arguments, **named)
            if taken[0] == step:
                raise Killed
            return done

        return one

    monkeypatch.setattr(os, "replace", stop(os.replace, step % 2 == 0))
    monkeypatch.setattr(Path, "unlink", stop(Path.unlink, step % 2 == 0))
    return taken


@pytest.mark.process
def test_killed_between_any_two_steps_it_is_whole_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before: dict[str, Made] = {f"CC-MAIN-2024-{week}": (1, 6) for week in range(10, 14)}
    after = before | {"CC-MAIN-2024-11": (2, 5), "CC-MAIN-2024-20": (1, 3)}
    del after["CC-MAIN-2024-10"]
    start = tmp_path / "start"
    update(start, before, most_unmerged=2)
    assert set(merged_crawls(base_file(start))) == set(before)
    with open_catalog(whole(tmp_path / "whole.duckdb", after)) as built:
        wanted = answers(built, sorted(after))
    step, finished = 0, False
    while not finished:
        step += 1
        folder = tmp_path / f"{step}" / "catalog"
        shutil.copytree(start, folder)
        with monkeypatch.context() as patched:
            killed_at(patched, step)
            try:
                update(folder, after, most_unmerged=2)
                finished = True
            except Killed:
                pass
        with open_catalog(folder) as catalog:
            for crawl in catalog.crawls():
                alone = counted(catalog.row_groups_for(crawl, None, EVERYTHING))
                versions = [crawls[crawl] for crawls in (before, after) if crawl in crawls]
                sizes = [sum(alone.values()) == made[1] for made in versions]
                assert any(sizes), (step, crawl)
            every = Counter(catalog.row_groups_for(None, None, EVERYTHING)["crawl"].to_pylist())
            assert set(every) == set(catalog.crawls())
            assert all(every[crawl] in {before.get(crawl, (0, 0))[1], after.get(crawl, (0, 0))[1]} for crawl in every)
        update(folder, after, most_unmerged=2)
        with open_catalog(folder) as kept:
            assert answers(kept, sorted(after)) == wanted
        assert not [path for path in folder.iterdir() if path.name.startswith(".")]
    assert step > 10


def test_one_crawl_changed_touches_its_file_alone(tmp_path: Path) -> None:
    folder = tmp_path / "catalog"
    crawls: dict[str, Made] = {f"CC-MAIN-2024-{week}": (1, 4) for week in range(10, 20)}
    update(folder, crawls)
    changed = "CC-MAIN-2024-13"
    before = {path.name: path.stat().st_ino for path in folder.glob("*.duckdb")}
    asked: list[str] = []

    def read(crawl: str) -> CrawlSources:
        asked.append(crawl)
        return crawl_of(crawl, (2, 4))

    done = update_catalog(folder, digests(crawls | {changed: (2, 4)}), read)
    assert (asked, done) == ([changed], CatalogChange((changed,)))
    after = {path.name: path.stat().st_ino for path in folder.glob("*.duckdb")}
    assert {name for name in before | after if before.get(name) != after.get(name)} == {f"{changed}.duckdb"}
    assert_same(folder, tmp_path / "whole.duckdb", crawls | {changed: (2, 4)})


@pytest.mark.bomb
def test_a_question_about_one_crawl_of_120_opens_one_file_and_files_beside_merged_ones_stay_few(tmp_path: Path) -> None:
    folder = tmp_path / "catalog"
    crawls: dict[str, Made] = {}

    def opened(catalog: Catalog) -> int:
        return len(catalog._con.execute("FROM duckdb_databases() WHERE NOT internal").fetchall()) - 1  # memory

    merges = 0
    for number in range(120):
        crawls[f"CC-MAIN-{2013 + number // 10}-{10 + number % 10}"] = (number, 3)
        if number < 108 and number % 54:
            continue  # many at a time, as a harvest of many crawls adds them
        merges += update(folder, crawls, most_unmerged=9).merged
        with open_catalog(folder) as catalog:
            assert len(catalog.row_groups_for(None, None, EVERYTHING)) == 3 * len(crawls)
            assert opened(catalog) <= MOST_ASKED
    assert 2 < merges < 15
    assert list(folder.glob(".*")) == [], "what many crawls are merged by on the way"
    with open_catalog(folder) as catalog:
        assert opened(catalog) == 0
        newest = max(crawls)
        assert len(catalog.coverage(newest)) == 1
        found = catalog.row_groups_for(newest, None, EVERYTHING)
        assert (len(found), len(catalog.column_chunks(found)), len(catalog.index_files(newest))) == (3, 6, 2)
        assert opened(catalog) == 1
        assert len(catalog.crawls()) == 120
        assert len(catalog.coverage()) == 120


@pytest.mark.process
def test_readers_beside_a_builder_see_each_crawl_whole(tmp_path: Path) -> None:
    folder = tmp_path / "catalog"
    crawls: dict[str, Made] = {f"CC-MAIN-2024-{week}": (1, 5) for week in range(10, 16)}
    update(folder, crawls)
    held = open_catalog(folder)
    # what it has opened stays as it was
    first = counted(held.row_groups_for(None, None, EVERYTHING))
    wrong: list[object] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            try:
                with open_catalog(folder) as catalog:
                    found = catalog.row_groups_for(None, None, EVERYTHING)
                    seeds: dict[str, set[int]] = {}
                    for crawl, seed in zip(
                        found["crawl"].to_pylist(), found["compressed_bytes"].to_pylist(), strict=True
                    ):
                        seeds.setdefault(crawl, set()).add(seed)
                    sizes = Counter(found["crawl"].to_pylist())
                    if set(sizes.values()) != {5} or any(len(one) > 1 for one in seeds.values()):
                        wrong.append(sizes)
                    if len(catalog.column_chunks(catalog.row_groups_for("CC-MAIN-2024-12", None, EVERYTHING))) != 10:
                        wrong.append("chunks")
            except Exception as error:  # whatever a reader meets is what this test is about
                wrong.append(error)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    try:
        for seed in range(2, 9):
            crawls |= dict.fromkeys(random.Random(seed).sample(sorted(crawls), 3), (seed, 5))
            crawls[f"CC-MAIN-2025-{10 + seed}"] = (seed, 5)
            if seed > 4:
                del crawls[f"CC-MAIN-2025-{10 + seed - 3}"]
            update(folder, crawls)
    finally:
        done.set()
        for reader in readers:
            reader.join()
    assert wrong == []
    assert counted(held.row_groups_for(None, None, EVERYTHING)) == first
    held.close()
    assert_same(folder, tmp_path / "whole.duckdb", crawls)


@pytest.mark.parametrize("merged", [base_file, recent_file])
def test_a_broken_merged_file_is_told_and_merged_again(tmp_path: Path, merged) -> None:
    folder = tmp_path / "catalog"
    crawls: dict[str, Made] = {
        f"CC-MAIN-2024-{week}": (1, 5) for week in range(10, 14 if merged is recent_file else 16)
    }
    update(folder, crawls)
    assert merged(folder).exists()
    merged(folder).write_bytes(b"no database")
    with open_catalog(folder) as catalog:
        assert len(catalog.row_groups_for("CC-MAIN-2024-10", None, EVERYTHING)) == 5
        with pytest.raises(EnvironmentFault, match="cannot be opened"):
            catalog.row_groups_for(None, None, EVERYTHING)
    assert update(folder, crawls).merged
    assert_same(folder, tmp_path / "beside.duckdb", crawls)


def test_a_crawl_whose_file_is_lost_is_built_again(tmp_path: Path) -> None:
    folder = tmp_path / "catalog"
    crawls: dict[str, Made] = {f"CC-MAIN-2024-{week}": (1, 5) for week in (10, 11)}
    update(folder, crawls)
    crawl_file(folder, "CC-MAIN-2024-10").unlink()
    assert update(folder, crawls).built == ("CC-MAIN-2024-10",)
    assert_same(folder, tmp_path / "beside.duckdb", crawls)


def test_a_crawl_dropped_under_a_reader_has_no_rows(tmp_path: Path) -> None:
    folder = tmp_path / "catalog"
    crawls: dict[str, Made] = {f"CC-MAIN-2024-{week}": (1, 5) for week in (10, 11)}
    update(folder, crawls)
    with open_catalog(folder) as catalog:
        update(folder, {"CC-MAIN-2024-10": (1, 5)})
        assert len(catalog.row_groups_for("CC-MAIN-2024-11", None, EVERYTHING)) == 0
        assert len(catalog.row_groups_for(None, None, EVERYTHING)) == 5
