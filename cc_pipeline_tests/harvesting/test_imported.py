"""A catalog is handed on as a file: what agrees with the source is used as if harvested, anything else is refused."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from cc_pipeline.checks.scope import Scope
from cc_pipeline.checks.tables import footers_verdict
from cc_pipeline.duck import connect
from cc_pipeline.errors import DataFault, EnvironmentFault, IndexIncomplete, UserInputError
from cc_pipeline.harvesting.catalog import catalog_gaps, columnar_versions, read_catalog_table, versions_of
from cc_pipeline.harvesting.crawl_index import commit_row_groups, harvest_footers, is_harvested, repair_statistics
from cc_pipeline.harvesting.imported_catalog import export_catalog, import_catalog
from cc_pipeline.index.catalog import catalog_file
from cc_pipeline.index.catalog.catalog_file import CatalogFile, read_catalog_file, write_catalog_file
from cc_pipeline.index.catalog.from_footers import FooterTables
from cc_pipeline.index.catalog.rows import pack_rows
from cc_pipeline.index.catalog.schemas import COVERAGE_SCHEMA
from cc_pipeline.workspace.workspace import Workspace
from cc_pipeline_tests.faultserver import FaultServer, Rule
from cc_pipeline_tests.world import NEW, OLD, Bucket, extract, harvest, harvested, workspace_of


@pytest.fixture(scope="module")
def server(bucket: Bucket) -> Iterator[FaultServer]:
    with FaultServer(bucket[0]) as running:
        yield running


@pytest.fixture(scope="module")
def exported(server: FaultServer, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Workspace]:
    """The catalog of all subsets of a crawl as a file, and the home that wrote it."""
    folder = tmp_path_factory.mktemp("exported")
    subsets = ("warc", "robotstxt", "crawldiagnostics")
    home = harvested(server.url, folder / "home", subsets=subsets)
    export_catalog(home, NEW, folder / "new.parquet")
    return folder / "new.parquet", home


def captures(workspace: Workspace) -> list[dict[str, object]]:
    extract(workspace, "example.com")
    rows = workspace.lake.read("captures", {"crawl": NEW}).to_pylist()
    return sorted(rows, key=lambda row: (row["warc_filename"], row["warc_record_offset"]))


def test_an_imported_catalog_answers_as_a_harvested_one_with_next_to_no_footer_requests(
    server: FaultServer, exported: tuple[Path, Workspace], tmp_path: Path
) -> None:
    file, theirs = exported
    ours = workspace_of(server.url, tmp_path, index="parquet")
    before = len(server.hits)
    done = import_catalog(ours, file)
    asked = [hit.key for hit in server.hits[before:]]
    # a bucket this small has fewer files than are compared
    assert done.compared == len([key for key in asked if key.endswith(".parquet")]) == 4
    # and the list of crawls, and the path list of this one
    assert len(asked) == done.requests == 6
    assert set(done.subsets) == {"warc", "robotstxt", "crawldiagnostics"}
    assert is_harvested(ours, NEW)
    assert columnar_versions(ours.lake, [NEW]) == columnar_versions(theirs.lake, [NEW])
    for table in ("row_groups", "column_chunks", "index_files"):
        mine, other = (read_catalog_table(one.lake, table, NEW) for one in (ours, theirs))
        assert mine.equals(other)
        assert len(mine)
    reasons = set(read_catalog_table(ours.lake, "coverage", NEW)["reason"].to_pylist())
    assert reasons == {f"imported:{done.sha256}"}
    assert footers_verdict(ours, Scope()).passed, "an imported subset needs no footers"
    rows = captures(ours)
    assert rows == captures(harvested(server.url, tmp_path / "other", index="parquet")) != []
    # nothing is imported twice, and row groups without footers stay as they are
    assert import_catalog(ours, file).subsets == ()
    commit_row_groups(ours, [NEW])
    assert len(ours.lake.read("row_groups", {"crawl": NEW})) == len(theirs.lake.read("row_groups", {"crawl": NEW}))


def test_what_is_stored_is_what_is_handed_on(
    server: FaultServer, exported: tuple[Path, Workspace], tmp_path: Path
) -> None:
    file, theirs = exported
    stored = theirs.lake.read("row_groups", {"crawl": NEW})
    assert pq.read_table(file).replace_schema_metadata(None).equals(stored.drop_columns("crawl"))
    ours = workspace_of(server.url, tmp_path)
    import_catalog(ours, file)
    mine = ours.lake.read("row_groups", {"crawl": NEW})
    assert mine.filter(pc.is_null(mine["coverage"])).equals(stored.filter(pc.is_null(stored["coverage"])))


def test_a_harvest_takes_the_place_of_what_was_imported_and_the_same_answers_stay(
    server: FaultServer, exported: tuple[Path, Workspace], tmp_path: Path
) -> None:
    workspace = workspace_of(server.url, tmp_path)
    import_catalog(workspace, exported[0])
    version = columnar_versions(workspace.lake, [NEW])
    harvest(workspace)
    assert columnar_versions(workspace.lake, [NEW]) == version
    covered = read_catalog_table(workspace.lake, "coverage", NEW).to_pylist()
    assert {row["subset"] for row in covered if row["reason"] is None} == {"warc"}
    assert all(row["harvested"] == row["expected"] > 0 for row in covered)


def test_subsets_that_were_harvested_here_stay(
    server: FaultServer, exported: tuple[Path, Workspace], tmp_path: Path
) -> None:
    workspace = harvested(server.url, tmp_path)
    done = import_catalog(workspace, exported[0])
    assert set(done.subsets) == {"robotstxt", "crawldiagnostics"}
    covered = {row["subset"]: row["reason"] for row in read_catalog_table(workspace.lake, "coverage", NEW).to_pylist()}
    assert covered["warc"] is None
    assert is_harvested(workspace, NEW)
    assert versions_of(workspace.lake.read("row_groups", {"crawl": NEW})) == columnar_versions_by_subset(workspace)


def columnar_versions_by_subset(workspace: Workspace) -> dict[str, str]:
    return {subset: digest for (_, subset), digest in columnar_versions(workspace.lake, [NEW]).items()}


def catalog_file_of(tables: FooterTables, input_digest: Mapping[str, str]) -> CatalogFile:
    """A catalog file with these rows, whatever they say."""
    files = tables.index_files["subset"].to_pylist()
    said = dict.fromkeys(COVERAGE_SCHEMA.names, 0) | {"crawl": NEW, "reason": None}
    rows = [said | {"subset": subset, "expected": files.count(subset)} for subset in sorted(set(files))]
    with connect() as connection:
        packed = pack_rows(
            connection,
            index_files=tables.index_files,
            row_groups=tables.row_groups,
            column_chunks=tables.column_chunks,
            coverage=pa.Table.from_pylist(rows, schema=COVERAGE_SCHEMA),
        )
    return CatalogFile(NEW, packed, input_digest)


Change = Callable[[FooterTables], FooterTables]


def set_first(table: pa.Table, name: str, value: object) -> pa.Table:
    values = table[name].to_pylist()
    field = table.schema.field(name)
    return table.set_column(table.schema.get_field_index(name), field, pa.array([value, *values[1:]], field.type))


def without_last_group(tables: FooterTables) -> FooterTables:
    """The last row group of the first file goes, and the file's counts with it: nothing within the catalog tells."""
    groups = tables.row_groups.sort_by([("path", "ascending"), ("row_group", "ascending")])
    files = tables.index_files.sort_by("path")
    path = files["path"][0].as_py()
    own = groups.filter(pc.equal(groups["path"], path)).to_pylist()
    lacking = own[-1]["row_group"]

    def kept(table: pa.Table) -> pa.Table:
        gone = pc.and_(pc.equal(table["path"], path), pc.equal(table["row_group"], lacking))
        return table.filter(pc.invert(gone))

    files = set_first(files, "rows", sum(row["rows"] for row in own[:-1]))
    return FooterTables(set_first(files, "row_groups", lacking), kept(groups), kept(tables.column_chunks))


TAMPERED: dict[str, tuple[Change, str]] = {
    "a row group is left out": (
        lambda t: replace(t, row_groups=t.row_groups.slice(1)), "row groups with .* rows; the catalog has others",
    ),
    "and its counts with it": (without_last_group, "is .* in the catalog and .* in the footer"),
    "an index file is left out": (
        lambda t: FooterTables(*(
            table.filter(pc.not_equal(table["path"], pc.max(t.index_files["path"])))
            for table in (t.index_files, t.row_groups, t.column_chunks)
        )),
        "the path list of .* has 2 files of warc, the catalog 1",
    ),
    "keys are said to be others": (
        lambda t: replace(t, row_groups=set_first(t.row_groups, "url_surtkey_min", b"a")), "url_surtkey_min is b'a'",
    ),
    "a chunk is said to be elsewhere": (
        lambda t: replace(t, column_chunks=set_first(t.column_chunks, "chunk_offset", 5)), "chunk_offset is 5",
    ),
    "a chunk lies behind the file": (
        lambda t: replace(t, column_chunks=set_first(t.column_chunks, "chunk_offset", 1 << 40)), "outside its file",
    ),
}  # fmt: skip


@pytest.mark.parametrize("change", TAMPERED)
def test_a_tampered_catalog_is_refused_and_named(
    change: str, server: FaultServer, exported: tuple[Path, Workspace], tmp_path: Path
) -> None:
    handed = read_catalog_file(exported[0])
    tamper, said = TAMPERED[change]
    write_catalog_file(tmp_path / "tampered.parquet", catalog_file_of(tamper(handed.tables()), handed.footer_digests))
    workspace = workspace_of(server.url, tmp_path / "home")
    with pytest.raises(DataFault, match=said) as refused:
        import_catalog(workspace, tmp_path / "tampered.parquet")
    assert "tampered.parquet" in str(refused.value)
    assert not len(workspace.lake.read("row_groups", {"crawl": NEW}))


def test_a_file_with_another_digest_or_of_another_source_is_refused(
    bucket: Bucket, exported: tuple[Path, Workspace], server: FaultServer, tmp_path: Path
) -> None:
    workspace = workspace_of(server.url, tmp_path / "home")
    with pytest.raises(DataFault, match="SHA-256 of the file is"):
        import_catalog(workspace, exported[0], sha256="0" * 64)
    # a folder gives its files other ETags
    with pytest.raises(EnvironmentFault, match="another ETag") as refused:
        import_catalog(workspace_of(bucket[0], tmp_path / "other"), exported[0])
    assert f"cc-pipeline index harvest --crawl {NEW}" in refused.value.advice
    with pytest.raises(EnvironmentFault, match="to export"):
        export_catalog(workspace, NEW, tmp_path / "none.parquet")


@pytest.mark.parametrize("kind", ["500", "cut"])
def test_a_footer_that_does_not_come_says_nothing_of_the_catalog(
    kind: str, bucket: Bucket, exported: tuple[Path, Workspace], tmp_path: Path
) -> None:
    with FaultServer(bucket[0], rules=[Rule(kind, key="*subset=robotstxt*", times=None)]) as failing:
        workspace = workspace_of(failing.url, tmp_path)
        with pytest.raises(EnvironmentFault, match=r"subset=robotstxt.* could not be compared") as refused:
            import_catalog(workspace, exported[0])
    assert "again" in refused.value.advice
    assert not len(workspace.lake.read("row_groups", {"crawl": NEW}))


def test_no_bytes_do_anything_but_be_refused(exported: tuple[Path, Workspace], tmp_path: Path) -> None:
    good = exported[0].read_bytes()
    file = tmp_path / "bad.parquet"
    draw = random.Random(7)
    for bad in (b"", b"PAR1", good[:-9], good[: len(good) // 2], *(_flipped(good, draw) for _ in range(60))):
        file.write_bytes(bad)
        try:
            read_catalog_file(file)
        except (DataFault, UserInputError) as refused:
            assert "bad.parquet" in str(refused)
    pq.write_table(pa.table({"path": ["x"]}), file)
    with pytest.raises(DataFault, match="no valid note that names its crawl"):
        read_catalog_file(file)


def _flipped(data: bytes, draw: random.Random) -> bytes:
    flipped = bytearray(data)
    for _ in range(3):
        flipped[draw.randrange(len(flipped))] ^= 1 << draw.randrange(8)
    return bytes(flipped)


def test_a_later_format_asks_for_a_newer_program(
    exported: tuple[Path, Workspace], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handed = read_catalog_file(exported[0])
    with monkeypatch.context() as later:
        later.setattr(catalog_file, "FORMAT", catalog_file.FORMAT + 1)
        write_catalog_file(tmp_path / "later.parquet", handed)
    with pytest.raises(UserInputError, match="another version"):
        read_catalog_file(tmp_path / "later.parquet")


def test_files_without_row_groups_come_back(exported: tuple[Path, Workspace], tmp_path: Path) -> None:
    handed = read_catalog_file(exported[0])
    files = handed.tables().index_files
    failed = {**files.slice(0, 1).to_pylist()[0], "outcome": "failed", "reason": "no footer", "row_groups": None,
              "rows": None}  # fmt: skip
    others = [row for row in files.to_pylist() if row["path"] != failed["path"]]
    tables = FooterTables(
        pa.Table.from_pylist([failed, *others], schema=files.schema),
        *(
            table.filter(pc.not_equal(table["path"], failed["path"]))
            for table in (handed.tables().row_groups, handed.tables().column_chunks)
        ),
    )
    write_catalog_file(tmp_path / "holes.parquet", catalog_file_of(tables, handed.footer_digests))
    back = read_catalog_file(tmp_path / "holes.parquet").tables()
    assert sorted(map(str, back.index_files.to_pylist())) == sorted(map(str, [failed, *others]))
    assert len(back.row_groups) == len(tables.row_groups)


@pytest.mark.parametrize("outcome", ["skipped", "failed"])
def test_a_file_of_a_catalog_that_was_not_harvested_is_a_hole_and_is_named(
    server: FaultServer, exported: tuple[Path, Workspace], tmp_path: Path, outcome: str
) -> None:
    handed = read_catalog_file(exported[0])
    files = [row for row in handed.tables().index_files.to_pylist() if row["subset"] == "warc"]
    lost = files[0]["path"]
    every = [
        {**row, "outcome": outcome, "row_groups": None, "rows": None} if row["path"] == lost else row
        for row in handed.tables().index_files.to_pylist()
    ]
    others = (
        table.filter(pc.not_equal(table["path"], lost))
        for table in (handed.tables().row_groups, handed.tables().column_chunks)
    )
    tables = FooterTables(pa.Table.from_pylist(every, schema=handed.tables().index_files.schema), *others)
    write_catalog_file(tmp_path / "holes.parquet", catalog_file_of(tables, handed.footer_digests))
    ours = workspace_of(server.url, tmp_path / "home", index="parquet")
    done = import_catalog(ours, tmp_path / "holes.parquet")
    assert (done.unread, done.files) == (1, len(every))
    [gaps] = catalog_gaps(ours, [NEW])
    assert (gaps.unread, gaps.expected, gaps.files) == (1, len(files), ((lost, outcome),))
    with pytest.raises(IndexIncomplete, match=f"1 of {len(files)} index files"):
        extract(ours, "example.com")
    # a harvest fills it
    assert not is_harvested(ours, NEW)
    harvest(ours)
    assert catalog_gaps(ours, [NEW]) == []
    assert captures(ours) == captures(harvested(server.url, tmp_path / "other", index="parquet")) != []


def test_bounds_that_no_footer_confirms_are_left_out_unless_they_are_believed(
    server: FaultServer, tmp_path: Path
) -> None:
    theirs = harvested(server.url, tmp_path / "theirs", crawl=OLD)
    repair_statistics(theirs, OLD)
    export_catalog(theirs, OLD, tmp_path / "old.parquet")
    unknown = {}
    for believe in (False, True):
        ours = workspace_of(server.url, tmp_path / str(believe))
        done = import_catalog(ours, tmp_path / "old.parquet", believe_repaired=believe)
        assert bool(done.unbounded) is not believe
        unknown[believe] = read_catalog_table(ours.lake, "row_groups", OLD)["url_surtkey_min"].null_count
    assert unknown[False] > unknown[True] == 0


def test_a_harvest_that_stops_half_way_leaves_the_imported_rows(
    server: FaultServer, exported: tuple[Path, Workspace], tmp_path: Path
) -> None:
    workspace = workspace_of(server.url, tmp_path)
    import_catalog(workspace, exported[0])
    rows = len(workspace.lake.read("row_groups", {"crawl": NEW}))
    harvest_footers(workspace, NEW)
    folder = workspace.settings.footers_path / NEW
    segment = next(folder.glob("*.footers"))
    segment.write_bytes(segment.read_bytes()[: segment.stat().st_size // 2])
    commit_row_groups(workspace, [NEW])
    assert len(workspace.lake.read("row_groups", {"crawl": NEW})) == rows
