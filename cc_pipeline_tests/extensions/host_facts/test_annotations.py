"""The YAML files of cc-index-annotations: what is taken of them, how arguments are quoted, what is refused."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from cc_pipeline.errors import UserInputError
from cc_pipeline.extensions.host_facts.annotations import read_action, read_join
from cc_pipeline.extensions.host_facts.folders import datasets_path
from cc_pipeline.extensions.host_facts.registered_datasets import add_dataset
from cc_pipeline.stores import opening, web
from cc_pipeline.transport.faults import FaultKind, RangeFault
from cc_pipeline.workspace.workspace import open_named
from cc_pipeline_tests.faultserver import FaultServer
from cc_pipeline_tests.world import workspace_of


def join(text: str, file: Path) -> Any:
    found = read_join(yaml.safe_load(text), file)
    assert found is not None
    return found


def test_a_join_on_hosts_of_a_crawl_by_a_list_of_paths(tmp_path: Path) -> None:
    paths = [f"projects/x/crawl=CC-MAIN-{week}/part-{n}.parquet" for week in ("2025-18", "2024-51") for n in range(3)]
    (tmp_path / "paths.gz").write_bytes(gzip.compress("\n".join(paths).encode()))
    found = join(
        "table: {web_prefix: 'https://data.commoncrawl.org/', paths: paths.gz}\n"
        "limits: {grep: [2025-18], count: 2}\n"
        "right_columns: [webgraph_outdegree, webgraph_indegree]\n"
        "join_columns: [surt_host_name, crawl]\n"
        "join_type: INNER\n",
        tmp_path / "join.yaml",
    )
    assert found.definition["key"].get("of") is None
    assert found.definition == {
        "where": {"root": "https://data.commoncrawl.org", "files": paths[:2], "crawl": "partition"},
        "key": {"column": "surt_host_name", "form": "surt_host"},
        "columns": ["webgraph_outdegree", "webgraph_indegree"],
        "prefix": "",
        "join": "inner",
    }


def test_a_folder_of_parquet_files_is_searched_to_its_bottom(tmp_path: Path) -> None:
    for name in ("a.parquet", "crawl=C/deep/b.parquet"):
        (tmp_path / "data" / name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"surt_host_name": ["com,example"], "spam": [1]}), tmp_path / "data" / name)
    text = "table: {local: data}\nright_columns: [spam]\njoin_columns: [surt_host_name]\n"
    found = join(text, tmp_path / "join.yaml")
    assert found.definition["where"] == {
        "root": str(tmp_path / "data"),
        "files": ["a.parquet", "crawl=C/deep/b.parquet"],
        "crawl": "none",
    }


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"join_columns": ["domain"]}, "field join_columns must be one of surt_host_name"),
        ({"join_columns": ["url_surtkey"]}, "url_surtkey with fetch_time"),
        ({"join_columns": {"left": ["surt_host_name", "crawl"], "right": ["h", "crawl_id"]}}, "pairs crawl"),
        ({"join_columns": {"left": ["surt_host_name"], "right": ["a", "b"]}}, "as many columns"),
        ({"join_type": "RIGHT"}, "field join_type is neither"),
        ({"right_columns": []}, "field right_columns must be a list of names"),
        ({"table": {"local": "a", "web_prefix": "b"}}, "exactly one of"),
        ({"table": {"web_prefix": "https://x.example/"}}, "field table.paths is missing"),
        ({"table": {"local": "nowhere"}}, "comes to 0 files"),
        ({"table": {"source": {"url": "a.csv", "urls": ["b.csv"]}}}, "either url or urls"),
        ({"table": {"source": {"url": "https://x.example/crawl=*/a.parquet"}}}, "each by its name"),
        ({"limits": {"grep": "a", "most": 3}}, "field limits may have"),
        ({"sql": "DROP TABLE x"}, "field sql is not known"),
    ],
)
def test_what_is_wrong_is_said_with_file_and_field(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    good = {"table": {"local": "."}, "right_columns": ["a"], "join_columns": ["surt_host_name"]}
    with pytest.raises(UserInputError, match=said) as refused:
        read_join(good | change, tmp_path / "join.yaml")
    assert str(tmp_path / "join.yaml") in str(refused.value)


ACTION = {
    "sql": "\nSELECT\n  {columns}\nFROM joined\nWHERE {where}\nORDER BY hcrank10 DESC\n",
    "columns": "surt_host_name, crawl, hcrank10",
    "where": "surt_host_name LIKE '{argv}%'{and_tld}",
    "argv": {"surt_host_name": True},
}


def test_an_action_is_a_filter_with_columns_and_an_order() -> None:
    found = read_action(ACTION, "action.yaml", [".commoncrawl.org"])
    assert found.where.text == "surt_host_name LIKE 'org,commoncrawl,%' AND url_host_tld = 'org'"
    assert (found.columns, found.order, found.limit) == (
        ("surt_host_name", "crawl", "hcrank10"),
        (("hcrank10", True),),
        None,
    )
    plain = {
        "sql": "SELECT {columns} FROM joined WHERE {where} LIMIT 5",
        "columns": "*",
        "where": "a = {arg1} or b = '{arg2}'",
    }
    assert read_action(plain, "f", ["7", "x'y"]).where.text == "a = 7 or b = 'x''y'"
    assert read_action(plain, "f", ["7", "x"]).limit == 5


@pytest.mark.parametrize("argument", ["x' OR '1'='1", "'; DROP TABLE captures; --", "a''b", "{arg1}", "%"])
def test_an_argument_in_quotes_stays_a_text(argument: str) -> None:
    plain = {"sql": "SELECT {columns} FROM joined WHERE {where}", "columns": "*", "where": "host = '{argv}'"}
    rows = pa.table({"host": ["a", argument, None]})
    assert read_action(plain, "f", [argument]).where.match_table(rows).rows.to_pylist() == [False, True, False]


@pytest.mark.parametrize(
    ("change", "arguments", "said"),
    [
        ({"sql": "SELECT * FROM read_parquet('/etc/passwd')"}, ["a.org"], "field sql must be SELECT"),
        ({"sql": "SELECT {columns} FROM joined WHERE {where}; DROP TABLE x"}, ["a.org"], "field sql must be SELECT"),
        ({"columns": "count(*)"}, ["a.org"], "field columns must be"),
        ({"where": "rank < {argv}", "argv": {}}, ["1 or true"], "outside quotes: only a number"),
        ({"where": "rank < {arg2}"}, ["a.org"], "has {arg2}, for which no argument"),
        ({}, [], "needs an argument"),
        ({"argv": {"surt_host_name": True}}, ["   "], "needs a host such as"),
        ({"where": "a = 1 ANDD b"}, ["a.org"], "AND or OR is missing"),
        ({"extra": 1}, ["a.org"], "field extra is not known"),
        ({"limits": 5}, ["a.org"], "field limits must be names with values"),
        ({"limits": {"count": "ten"}}, ["a.org"], "field limits.count must be a number of rows"),
        ({"limits": {"count": -3}}, ["a.org"], "field limits.count must be a number of rows"),
        ({"argv": "surt_host_name"}, ["a.org"], "field argv must be names with values"),
    ],
)
def test_what_an_action_cannot_say(change: dict[str, Any], arguments: list[str], said: str) -> None:
    with pytest.raises(UserInputError, match=said):
        read_action(ACTION | change, "action.yaml", arguments)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name: &a [x]\nprefix: *a\n", "aliases are not read here"),
        ("name: host-ranks-mine\nwhere: {files: [a.parquet]}\nkey: {column: h, form: surt_host}\n", "is taken by"),
        ("name: " + "[" * 1_500, "is no YAML"),
        ("# " + "x" * 2_000_000, "is larger than"),
    ],
    ids=["aliases", "taken", "deep", "large"],
)
def test_a_file_that_is_no_dataset(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "odd.yaml"
    file.write_text(text)
    with pytest.raises(UserInputError, match=said):
        add_dataset(workspace_of(tmp_path, tmp_path / "home").settings, file)


def test_a_csv_table_becomes_parquet_sorted_by_its_key(tmp_path: Path) -> None:
    home = workspace_of(tmp_path, tmp_path / "home").settings
    (tmp_path / "scores.csv").write_text('host,score,"odd ""name"\nb.org,2,x\na.org,1,y\n,3,z\n')
    (tmp_path / "join_scores.yaml").write_text(
        "table: {source: {url: scores.csv}}\nright_columns: [score, 'odd \"name']\n"
        "join_columns: {left: url_host_name, right: host}\n"
    )
    with pytest.raises(UserInputError, match="columns"):
        add_dataset(home, tmp_path / "join_scores.yaml")
    text = (tmp_path / "join_scores.yaml").read_text().replace(", 'odd \"name'", "")
    (tmp_path / "join_scores.yaml").write_text(text)
    added = add_dataset(home, tmp_path / "join_scores.yaml")
    assert _rows(f"{added.dataset.root}/{added.dataset.files[0]}") == [("a.org", 1), ("b.org", 2)]
    with pytest.raises(UserInputError, match="is taken"):
        add_dataset(home, tmp_path / "join_scores.yaml", "host-index")
    with pytest.raises(UserInputError, match="is no name"):
        add_dataset(home, tmp_path / "join_scores.yaml", "../x")
    (tmp_path / "scores.csv").write_text("")
    with pytest.raises(UserInputError, match="cannot be read as csv"):
        add_dataset(home, tmp_path / "join_scores.yaml")
    assert sorted(file.name for file in datasets_path(home).iterdir()) == [*added.dataset.files, "scores.yaml"]


def test_a_packed_table_on_the_web_is_unpacked(tmp_path: Path) -> None:
    (tmp_path / "scores.csv.gz").write_bytes(gzip.compress(b"host,score\nb.org,2\na.org,1\n"))
    with FaultServer(tmp_path) as server:
        home = workspace_of(server.url, tmp_path / "home").settings
        (tmp_path / "join_scores.yaml").write_text(
            f"table: {{source: {{url: {server.url}scores.csv.gz}}}}\nright_columns: [score]\n"
            "join_columns: {left: url_host_name, right: host}\n"
        )
        added = add_dataset(home, tmp_path / "join_scores.yaml")
    assert _rows(f"{added.dataset.root}/{added.dataset.files[0]}") == [("a.org", 1), ("b.org", 2)]


PRIVATE = ("127.0.0.1:9", "localhost:9", "[::1]", "169.254.169.254", "10.1.2.3", "192.168.0.1", "172.16.0.1", "0x7f.1")


@pytest.mark.parametrize("host", PRIVATE)
def test_a_file_may_not_name_an_address_of_this_machine_or_a_private_network(tmp_path: Path, host: str) -> None:
    of_public = workspace_of("https://data.example.com", tmp_path / "home").settings
    file = tmp_path / "join_scores.yaml"
    texts = (
        f"table: {{source: {{url: 'http://{host}/a/scores.csv'}}}}\n"
        "right_columns: [score]\njoin_columns: {left: url_host_name, right: host}\n",
        f"name: scores\nwhere: {{root: 'http://{host}/a', files: [scores.parquet]}}\n"
        "key: {column: host, form: host, www: kept}\ncolumns: [score]\n",
    )
    for text in texts:
        file.write_text(text)
        with pytest.raises(UserInputError, match="this machine or a private network"):
            add_dataset(of_public, file)
    assert not list(datasets_path(of_public).glob("*.*"))
    # where the source is, the person is
    at_home = workspace_of(f"http://{host}/bucket", tmp_path / "mine").settings
    add_dataset(at_home, file)
    open_named(at_home, f"http://{host}/a").close()
    # and at no other server of that host
    with pytest.raises(UserInputError, match="this machine or a private network"):
        open_named(at_home, f"http://{host.removesuffix(':9')}:10/a")


def test_what_a_name_stands_for_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = workspace_of("https://data.example.com", tmp_path / "home").settings
    for module in (opening, web):  # as of a name that nobody knows
        monkeypatch.setattr(module, "may_be_public", lambda host: True)
    with open_named(home, "http://localhost:9/a") as transport, pytest.raises(RangeFault) as refused:
        transport.read_all("scores.parquet")
    assert refused.value.kind is FaultKind.REDIRECTED
    assert "localhost has an address of a private network" in str(refused.value)


def _rows(file: str) -> list[tuple[object, ...]]:
    with duckdb.connect() as connection:
        return connection.sql(f"FROM '{file}'").fetchall()
