"""Which hosts a filter chooses, against DuckDB over the same files; and what is left of targets of all kinds."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cc_pipeline.commoncrawl.expressions import parse_filter
from cc_pipeline.commoncrawl.surt import surt_key
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.errors import UserInputError
from cc_pipeline.extensions.host_facts.datasets import parse_dataset, shipped_datasets
from cc_pipeline.extensions.host_facts.host_facts import facts_of_hosts, stored_facts
from cc_pipeline.extensions.host_facts.host_selection import (
    choose_hosts,
    datasets_for_crawl,
    datasets_for_filter,
    default_datasets,
    describe_prediction,
    facts_of,
    host_datasets,
    narrow_target,
)
from cc_pipeline.extensions.host_facts.rank_text import LEVELS, parse_release
from cc_pipeline.extensions.host_facts.ranks import convert_ranks, estimate_ranks
from cc_pipeline.extensions.host_facts.registered_datasets import (
    RegisteredDataset,
    add_dataset,
    known_datasets,
    remove_dataset,
)
from cc_pipeline.workspace.workspace import Workspace
from cc_pipeline_tests.extensions.host_facts.brute import rows_of, whole
from cc_pipeline_tests.extensions.host_facts.conftest import CRAWL, ODD
from cc_pipeline_tests.extensions.host_facts.graph import GraphSpec, write_graph
from cc_pipeline_tests.extensions.host_facts.keyed import KeyedSpec, KeyedTruth, plain_hosts, write_keyed
from cc_pipeline_tests.world import workspace_of

READY = {name: RegisteredDataset(dataset) for name, dataset in shipped_datasets().items()}


WHERES = (
    "prank10 > 2 and fetch_200 > 20",
    "fetch_200 > 20 and webgraph_indegree > 10",
    "not (prank10 > 2) or fetch_200 in (1, 2, 3)",
    "prank10 is null",
)


def hosts_by_sql(read: dict[str, list[dict[str, Any]]], target: str, where: str) -> set[str]:
    """The hosts of a target whose row matches, by DuckDB over the whole files."""
    index, degrees = (rows_of(read[name], target) for name in ("host-index", "degrees"))
    rows = [
        (key, *(index[key][0][name] if key in index else None for name in ("prank10", "fetch_200")),
         degrees[key][0]["webgraph_indegree"] if key in degrees else None)
        for key in {*index, *degrees}
    ]  # fmt: skip
    with duckdb.connect() as session:
        session.execute("CREATE TABLE facts (k VARCHAR, prank10 DOUBLE, fetch_200 BIGINT, webgraph_indegree BIGINT)")
        session.executemany("INSERT INTO facts VALUES (?, ?, ?, ?)", rows)
        return {row[0] for row in session.execute(f"SELECT k FROM facts WHERE {where}").fetchall()}


@pytest.mark.parametrize("crawl", [CRAWL, ODD])
def test_hosts_are_those_of_sql(both: tuple[Path, KeyedTruth], home: Workspace, crawl: str) -> None:
    read = {name: whole(both[0], both[1].files[name, crawl], READY[name].dataset) for name in ("host-index", "degrees")}
    for where, target in itertools.product(WHERES, ("tld:com", "example.com", "suffix:co.uk")):
        condition = parse_filter(where)
        needed = datasets_for_filter(condition, READY)
        found = choose_hosts(home, crawl, parse_target(target), condition, needed)
        matched = found.facts.table.filter(condition.match_table(found.facts.table).rows)["surt_host_name"].to_pylist()
        expected = hosts_by_sql(read, target, where)
        if "degrees" not in {one.name for one in needed}:
            expected &= {*found.facts.table["surt_host_name"].to_pylist()}
        assert set(matched) == expected, (where, target)
        assert found.matched == len(expected)
        members = [] if found.narrowed_target is None else found.narrowed_target.members or (found.narrowed_target,)
        assert len(members) + len(found.unnameable) == found.matched
        for key in expected:
            host = key.partition(":")[0].split(",")[::-1]
            port = key.partition(":")[1] + key.partition(":")[2]
            url = f"http://www.{'.'.join(host)}{port}/page"
            if surt_key(url).startswith(key + ")") and found.narrowed_target is not None:
                assert found.narrowed_target.matches(url)


@pytest.mark.parametrize(
    ("target", "hosts", "written"),
    [
        ("example.com", ["com,example"], "prefix:http://example.com/"),
        ("example.com", [], None),
        ("example.com", ["com,example:8443"], "prefix:http://example.com:8443/"),
        ("www.example.com", ["com,example"], "host:www.example.com"),
        ("www.example.com", ["com,example,www,sub"], "prefix:http://sub.www.example.com/"),
        ("host:www.example.com", ["com,example"], "host:www.example.com"),
        ("prefix:example.com/blog/", ["com,example"], "prefix:http://example.com/blog/"),
        ("url:example.com/a", ["com,example"], "url:http://example.com/a"),
        ("url:example.com/a", ["org,example"], None),
        ("suffix:gov.uk", ["uk,gov,x"], "prefix:http://x.gov.uk/"),
        ("192.168.0.1", ["1,0,168,192"], "prefix:http://192.168.0.1/"),
    ],
)
def test_what_is_left_of_a_target(target: str, hosts: list[str], written: str | None) -> None:
    left, unnameable = narrow_target(parse_target(target), hosts)
    assert (None if left is None else left.written, unnameable) == (written, ())


def test_several_hosts_are_a_set_named_by_what_it_holds() -> None:
    target = parse_target("example.com")
    left, _ = narrow_target(target, ["com,example", "com,example,a"])
    again, _ = narrow_target(target, ["com,example,a", "com,example"])
    other, _ = narrow_target(target, ["com,example", "com,example,b"])
    assert left is not None and again is not None and other is not None
    assert left.slug == again.slug != other.slug
    assert left.slug.startswith("set-example-com-where-")
    assert parse_target(left.definition).version == left.version
    assert left.matches("https://www.example.com/x") and left.matches("http://a.example.com/")
    assert not left.matches("http://b.example.com/")


def test_members_of_a_set_are_kept_or_narrowed() -> None:
    target = parse_target("set:press = example.com, host:www.bbc.co.uk, url:example.org/a")
    left, _ = narrow_target(target, ["com,example,a", "uk,co,bbc"])
    assert left is not None
    assert [member.written for member in left.members] == ["host:www.bbc.co.uk", "prefix:http://a.example.com/"]


@pytest.mark.parametrize("target", ["example.com:8080", "rev:com.nytimes.w"])
def test_what_cannot_be_narrowed_is_refused(target: str) -> None:
    with pytest.raises(UserInputError, match="cannot be applied to"):
        narrow_target(parse_target(target), ["com,example"])


def test_a_column_that_nobody_has_is_refused_before_anything_is_asked() -> None:
    listed = parse_dataset(
        "name: l\nwhere: {files: [a.parquet]}\nkey: {column: k, form: surt_host}\ncolumns: [place]", "l"
    )
    with pytest.raises(UserInputError, match=r"there is no column plaec .did you mean place"):
        datasets_for_filter(parse_filter("place > 5 and plaec > 5"), READY | {"l": RegisteredDataset(listed)})
    with pytest.raises(
        UserInputError, match=r"there is no column pagerank.*; there are crawl, surt_host_name.*prank10"
    ):
        datasets_for_filter(parse_filter("pagerank > 5"), READY)
    assert [one.name for one in datasets_for_filter(parse_filter("host like '%.gov'"), READY)] == ["host-index"]
    assert [one.name for one in datasets_for_filter(parse_filter("FETCH_200 > 1"), READY)] == ["host-index"]
    assert {one.name for one in datasets_for_filter(parse_filter("fetch_200 > webgraph_indegree"), READY)} == {
        "host-index",
        "degrees",
    }


def test_ranks_that_were_converted_are_asked_too(tmp_path: Path) -> None:
    crawl, release = "CC-MAIN-2025-51", parse_release("cc-main-2025-oct-nov-dec")
    spec = KeyedSpec((crawl,), domains=60)
    keyed = write_keyed(tmp_path / "bucket", spec)
    write_graph(tmp_path / "bucket", GraphSpec(release, tuple(plain_hosts(spec, crawl))))
    workspace = workspace_of(tmp_path / "bucket", tmp_path / "home")
    assert default_datasets(datasets_for_crawl(workspace, crawl)) == ["host-index", "degrees"]
    with pytest.raises(UserInputError, match="cc-pipeline facts ranks"):
        host_datasets(datasets_for_crawl(workspace, crawl), ["host-ranks"])
    for level in LEVELS:
        convert_ranks(workspace, release, level, estimate_ranks(workspace, release, level))
    known = datasets_for_crawl(workspace, crawl)
    assert default_datasets(known) == ["host-index", "degrees", "host-ranks", "domain-ranks"]
    target = parse_target("tld:com")
    found = facts_of(workspace, crawl, target, host_datasets(known, default_datasets(known)))
    rows = found.table.select(["host", "domain", "harmonicc_pos", "domain_harmonicc_pos"]).to_pylist()
    by_domain: dict[str, set[int | None]] = {}
    for row in rows:
        by_domain.setdefault(row["domain"], set()).add(row["domain_harmonicc_pos"])
    assert all(len(positions) == 1 for positions in by_domain.values()), "a domain's rank is said of all its hosts"
    assert any(len([r for r in rows if r["domain"] == name]) > 1 for name in by_domain)
    assert "of all domains by harmonic centrality" in describe_prediction(found)
    where = parse_filter("domain_harmonicc_pos <= 20")
    assert [one.name for one in datasets_for_filter(where, known)] == ["host-index", "domain-ranks"]
    assert keyed.rows


def test_what_was_asked_before_is_shown_without_a_request(both: tuple[Path, KeyedTruth], tmp_path: Path) -> None:
    workspace = workspace_of(both[0], tmp_path)
    datasets = [READY["host-index"].dataset, READY["degrees"].dataset]
    target = parse_target("example.com")
    assert stored_facts(workspace, CRAWL, target, datasets) is None
    assert workspace.transport.stats.requests == 0
    asked = facts_of_hosts(workspace, CRAWL, target, datasets[:1])
    requests = workspace.transport.stats.requests
    here = stored_facts(workspace, CRAWL, target, datasets)
    assert here is not None and here.table.equals(asked.table)
    assert workspace.transport.stats.requests == requests
    pages = sum(row or 0 for row in asked.table["fetch_200"].to_pylist())
    assert f"about {pages:,} pages fetched" in describe_prediction(here)


def test_lists_of_ones_own_join_on_hosts_and_on_registered_domains(
    both: tuple[Path, KeyedTruth], tmp_path: Path
) -> None:
    workspace = workspace_of(both[0], tmp_path / "home")
    domains = sorted({row["url_host_registered_domain"] for row in both[1].rows["host-index", CRAWL]} - {None})
    (tmp_path / "ranks.csv").write_text("".join(f"{n},{name}\n" for n, name in enumerate(domains[::2], 1)))
    (tmp_path / "join_tranco.yaml").write_text(
        "table:\n  source:\n    url: ranks.csv\n    format: csv\n    options:\n      header: false\n"
        "      columns: {rank: INTEGER, domain: VARCHAR}\n"
        "prefix: tranco_\nright_columns: [rank]\n"
        "join_columns: {left: url_host_registered_domain, right: domain}\n"
    )
    added = add_dataset(workspace.settings, tmp_path / "join_tranco.yaml")
    assert (added.name, added.dataset.of_domains, list(added.columns() or ())) == ("tranco", True, ["tranco_rank"])
    known = known_datasets(workspace.settings)
    found = facts_of(workspace, CRAWL, parse_target("tld:com"), [known["host-index"], known["tranco"]])
    truth = {name: n for n, name in enumerate(domains[::2], 1)}
    rows = found.table.select(["domain", "tranco_rank"]).to_pylist()
    assert rows and any(row["tranco_rank"] for row in rows)
    assert all(row["tranco_rank"] == truth.get(row["domain"]) for row in rows)
    where = parse_filter("tranco_rank <= 10 and fetch_200 >= 0")
    chosen = choose_hosts(workspace, CRAWL, parse_target("tld:com"), where, datasets_for_filter(where, known))
    best = {name for name, n in truth.items() if n <= 10 and name.endswith(".com")}
    assert {
        row["domain"] for row in chosen.facts.table.filter(where.match_table(chosen.facts.table).rows).to_pylist()
    } <= best
    assert chosen.matched
    remove_dataset(workspace.settings, "tranco")
    assert "tranco" not in known_datasets(workspace.settings)
    for name, said in (("host-index", "cannot be removed"), ("tranco", "no dataset was added to this home")):
        with pytest.raises(UserInputError, match=said):
            remove_dataset(workspace.settings, name)


def test_a_label_of_domains_is_unknown_where_a_file_of_it_was_not_read(
    both: tuple[Path, KeyedTruth], tmp_path: Path
) -> None:
    workspace = workspace_of(both[0], tmp_path / "home")
    pq.write_table(pa.table({"host": ["example.com"]}), tmp_path / "here.parquet")
    said = (
        "where: {root: %s, crawl: none, files: [%s]}\n"
        "key: {column: host, form: host, of: domains, www: kept}\naction: label\n"
    )
    labels = {}
    for files in ("here.parquet", "here.parquet, gone.parquet"):
        bad = parse_dataset("name: bad\n" + said % (tmp_path, files), "bad.yaml")
        asked = [READY["host-index"], RegisteredDataset(bad)]
        labels[files] = {
            row["bad"]
            for target in ("example.com", "example.org")
            for row in facts_of(workspace, CRAWL, parse_target(target), asked).table.to_pylist()
        }
    assert list(labels.values()) == [{True, False}, {True, None}]
