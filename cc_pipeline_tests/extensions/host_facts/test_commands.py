"""Facts as a person asks for them: what is shown, what it costs, and what a filter lets a run fetch."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cc_pipeline_tests.cli.conftest import ARC, NEW, OLD, Cli, World
from cc_pipeline_tests.extensions.host_facts.keyed import KeyedSpec, KeyedTruth, write_keyed
from cc_pipeline_tests.faultserver import FaultServer
from cc_pipeline_tests.world import copy_of, rehome

pytestmark = pytest.mark.xdist_group("cli homes")

SITES = ("example.com", "example-foo.com", "beispiel-example.de", "example.org")


@pytest.fixture(scope="module")
def told(world: World, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, KeyedTruth]:
    """The bucket with facts of the newest crawl beside it."""
    root = copy_of(world.bucket, tmp_path_factory.mktemp("told") / "bucket")
    return root, write_keyed(root, KeyedSpec((NEW,)), world.truth.captures)


@pytest.fixture
def used(world: World, tmp_path: Path) -> Path:
    """A home with a harvested crawl, whose source has no facts."""
    return shutil.copytree(world.untouched, tmp_path / "home", ignore=shutil.ignore_patterns("dagster"))


@pytest.fixture
def home(used: Path, told: tuple[Path, KeyedTruth]) -> Path:
    """It again, of the bucket with facts."""
    rehome(used, told[0])
    return used


def matching(told: tuple[Path, KeyedTruth], least: int) -> set[str]:
    rows = told[1].rows["host-index", NEW]
    return {row["surt_host_name"] for row in rows if (row["fetch_200"] or 0) > least}


def test_facts_of_a_site(cli: Cli, told: tuple[Path, KeyedTruth], home: Path) -> None:
    said = cli("facts", "show", "example.org", "-c", NEW, "--format", "jsonl", "--home", home)
    assert said.status == 0, said.err
    rows = [json.loads(line) for line in said.out.splitlines()]
    truth = {row["surt_host_name"]: row for row in told[1].rows["host-index", NEW]}
    assert rows and all(row["fetch_200"] == truth[row["surt_host_name"]]["fetch_200"] for row in rows if
                        row["surt_host_name"] in truth)  # fmt: skip
    assert "requests" in said.told
    again = cli("facts", "show", "example.org", "-c", NEW, "--home", home)
    assert "no request" in again.err
    only = cli("facts", "show", "example.org", "-c", NEW, "--hosts", "fetch_200 > 100", "--columns", "host",
               "--format", "csv", "--home", home)  # fmt: skip
    hosts = {row["host"] for row in rows if (row["fetch_200"] or 0) > 100}
    assert set(only.out.split()[1:]) == hosts
    kept = cli("facts", "show", "example.org", "-c", NEW, "--dataset", "host-index", "--keep", "--home", home)
    assert kept.status == 0, kept.err
    query = "SELECT count(*), sum(fetch_200), any_value(facts_from) FROM host_facts"
    shown = cli("sql", query, "--csv", "--home", home)
    of_index = [row for row in rows if row["surt_host_name"] in truth]
    pages = sum(row["fetch_200"] or 0 for row in of_index)
    assert shown.out.splitlines()[1].split(",")[:2] == [str(len(of_index)), str(pages)]
    assert "host-index" in shown.out
    priced = cli("facts", "show", "example.org", "-c", NEW, "--estimate", "--format", "csv", "--home", home)
    assert (priced.status, "host-index" in priced.out) == (0, True), priced.err


def test_plan_shows_facts_first(cli: Cli, home: Path) -> None:
    for command, told in (("plan", "add --facts"), ("plan --facts", "pages fetched")):
        said = cli(*command.split(), "example.org", "-c", NEW, "--home", home)
        assert (said.status, told in said.told) == (0, True), said.err
    said = cli("plan", "example.org", "-c", NEW, "--home", home)
    assert "pages fetched" in said.told, "asked before, shown without a request"
    assert "add --facts" not in said.told


def test_no_request_is_sent_for_facts_that_nobody_asked_for(
    cli: Cli, told: tuple[Path, KeyedTruth], used: Path
) -> None:
    with FaultServer(told[0]) as server:
        rehome(used, server.url.rstrip("/"))
        assert cli("plan", "example.org", "-c", NEW, "--home", used).status == 0
        assert not [hit.key for hit in server.hits if hit.key.startswith("projects/")]


def test_a_source_without_facts_is_no_reason_not_to_plan(cli: Cli, used: Path) -> None:
    said = cli("plan", "example.org", "-c", NEW, "--facts", "--home", used)
    assert (said.status, "are not available: the path list" in said.told) == (0, True), said.err
    assert cli("facts", "show", "example.org", "-c", NEW, "--home", used).status == 1


@pytest.mark.process
def test_a_filter_decides_what_is_counted_and_fetched(
    cli: Cli, world: World, told: tuple[Path, KeyedTruth], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC_PIPELINE_SOURCE", str(told[0]))
    home = tmp_path / "home"
    meant = matching(told, 100)
    captures = [c for c in world.truth.captures_of(NEW, subset="warc") if c.url_surtkey.partition(")")[0] in meant]
    mine = [c for c in captures if c.domain in SITES]
    assert 0 < len(mine) < sum(c.domain in SITES for c in world.truth.captures_of(NEW, subset="warc"))
    domains = [*SITES]
    where = ("--hosts", "fetch_200 > 100")
    said = cli("run", "-c", NEW, *domains, *where, "--home", home)
    assert said.status == 0, said.err
    assert "known hosts of example.org match" in said.told
    rows = cli("sql", "SELECT DISTINCT warc_filename, warc_record_offset FROM page_metadata", "--csv", "--home", home)
    assert len(rows.out.splitlines()) - 1 == len(mine)
    assert cli("run", "-c", NEW, "example.org", "--home", home).status == 0
    said = cli("facts", "show", "example.org", "-c", NEW, "--captures", "--columns", "url,fetch_time,gneissweb_science",
               "--format", "jsonl", "--home", home)  # fmt: skip
    assert said.status == 0, said.err
    scores = {row["url_surtkey"]: row["gneissweb_science"] for row in told[1].rows["gneissweb-urls", NEW]}
    of_site = world.truth.captures_of(NEW, subset="warc", domain="example.org")
    shown = [json.loads(line) for line in said.out.splitlines()]
    assert len(shown) == len(of_site)
    keys = {capture.url: capture.url_surtkey for capture in of_site}
    assert any(row["gneissweb_science"] is not None for row in shown)
    assert all(row["gneissweb_science"] in (None, scores.get(keys[row["url"]])) for row in shown)
    said = cli("facts", "show", "example.com", "-c", NEW, "--captures", "--home", home)
    assert (said.status, "are not located" in said.told) == (1, True)
    assert cli("plan", *SITES, "-c", NEW, *where, "--home", home).status == 0


@pytest.mark.process
def test_nothing_that_matches_is_nothing_fetched(cli: Cli, home: Path) -> None:
    said = cli("run", "-c", NEW, "example.org", "--hosts", "fetch_200 > 100000", "--home", home)
    assert (said.status, "no host matches" in said.told + said.shown) == (0, True), said.err
    # nothing is decided where nothing is known: neither a match nor none
    said = cli("run", "-c", ARC, "example.org", "--hosts", "fetch_200 > 1", "--home", home)
    assert (said.status, "has nothing about this crawl" in said.told) == (1, True), said.err
    said = cli("run", "-c", ARC, "-c", NEW, "example.org", "--hosts", "fetch_200 > 100000", "--home", home)
    assert (said.status, "has nothing about this crawl" in said.told + said.shown) == (0, True)
    said = cli("run", "-c", NEW, "example.org", "--hosts", "pagerank > 5", "--home", home)
    assert (said.status, "there is no column pagerank (did you mean prank" in said.told) == (1, True)


def test_datasets_are_listed_added_and_forgotten(cli: Cli, home: Path, tmp_path: Path) -> None:
    (tmp_path / "list.csv").write_text("host,score\ncom.example,1\n")
    file = tmp_path / "join_scores.yaml"
    file.write_text("table:\n  source: {url: list.csv}\nright_columns: [score]\n"
                    "join_columns: {left: url_host_name, right: host}\n")  # fmt: skip
    assert cli("facts", "add", file, "--home", home).status == 0
    said = cli("facts", "datasets", "--format", "csv", "--home", home)
    assert {line.split(",")[0] for line in said.out.splitlines()[1:]} >= {"host-index", "degrees", "scores"}
    said = cli("facts", "show", "example.org", "-c", NEW, "--dataset", "host-index", "--dataset", "scores", "--columns",
               "host,score", "--home", home)  # fmt: skip
    assert said.status == 0, said.err
    assert cli("facts", "remove", "scores", "--home", home).status == 0
    assert "scores" not in cli("facts", "datasets", "--format", "csv", "--home", home).out
    action = tmp_path / "action.yaml"
    action.write_text(
        "sql: SELECT {columns} FROM joined WHERE {where}\ncolumns: '*'\nwhere: fetch_200 > 1\nlimits: 5\n"
    )
    said = cli("facts", "show", "example.org", "-c", NEW, "--action", action, "--home", home)
    assert (said.status, "field limits must be" in said.told) == (1, True), said.err


def test_values_of_several_crawls_stand_under_their_columns(cli: Cli, home: Path, tmp_path: Path) -> None:
    columns: dict[str, dict[str, list[int]]] = {NEW: {"a": [1], "b": [2]}, OLD: {"b": [3], "c": [4]}}
    for crawl, values in columns.items():
        (folder := tmp_path / f"crawl={crawl}").mkdir()
        pq.write_table(pa.table({"k": ["org,example"], **values}), folder / "part.parquet")
    file = tmp_path / "own.yaml"
    files = ", ".join(f"crawl={crawl}/part.parquet" for crawl in columns)
    file.write_text(f"name: own\nwhere: {{root: {tmp_path}, files: [{files}]}}\nkey: {{column: k, form: surt_host}}\n")
    assert cli("facts", "add", file, "--home", home).status == 0
    said = cli(
        "facts", "show", "example.org", "-c", NEW, "-c", OLD, "--dataset", "own", "--format", "jsonl", "--home", home
    )
    rows = [json.loads(line) for line in said.out.splitlines()]
    assert [(row["a"], row["b"], row["c"]) for row in rows] == [(1, 2, None), (None, 3, 4)], said.err


def test_what_is_not_here_is_said_and_what_was_meant(cli: Cli, home: Path) -> None:
    said = cli("facts", "ranks", "--home", home)
    assert (said.status, said.out, "no ranks were read into this home" in said.told) == (0, "", True)
    said = cli("facts", "show", "nobody.example", "-c", NEW, "--format", "jsonl", "--home", home)
    assert (said.status, said.out, "no host of nobody.example is in these datasets: host-index" in said.told) == (
        0, "", True,
    )  # fmt: skip
    said = cli(
        "facts", "show", "example.org", "-c", NEW, "--hosts", "fetch_200 > 100000", "--format", "csv", "--home", home
    )
    assert (said.status, len(said.out.splitlines()), "hosts matches" in said.told) == (0, 1, True)
    for arguments in (["--dataset", "host-indx"], ["--captures", "--dataset", "host-indx"]):
        said = cli("facts", "show", "example.org", "-c", NEW, *arguments, "--home", home)
        assert (said.status, "there is no dataset host-indx (did you mean host-index?)" in said.told) == (1, True)
    said = cli("facts", "show", "example.org", "-c", NEW, "--columns", "host,fetch200", "--home", home)
    assert (said.status, said.out, "did you mean fetch_200" in said.told) == (1, "", True)
