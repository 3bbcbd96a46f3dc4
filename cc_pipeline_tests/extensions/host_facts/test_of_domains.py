"""Datasets of registered domains: said of each host of a domain, kept as other answers are, and written down."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.errors import UserInputError
from cc_pipeline.extensions.host_facts.datasets import Dataset, parse_dataset, shipped_datasets
from cc_pipeline.extensions.host_facts.fill import fill_facts
from cc_pipeline.extensions.host_facts.folders import datasets_path
from cc_pipeline.extensions.host_facts.host_facts import facts_of_hosts, stored_facts
from cc_pipeline.extensions.host_facts.host_keys import host_key
from cc_pipeline.extensions.host_facts.host_selection import add_host_index, datasets_for_crawl, host_datasets
from cc_pipeline.extensions.host_facts.registered_datasets import known_datasets
from cc_pipeline.lake.slice import Slice
from cc_pipeline_tests.extensions.host_facts.brute import rows_of, whole
from cc_pipeline_tests.extensions.host_facts.conftest import CRAWL
from cc_pipeline_tests.extensions.host_facts.keyed import KeyedTruth
from cc_pipeline_tests.world import workspace_of

INDEX = shipped_datasets()["host-index"]
SAID = """
name: mine
where: {root: %s, crawl: none, files: [mine.parquet]}
key: {column: domain, form: %s, of: domains, www: %s}
columns: {rank: int64, spam: boolean}
"""


def domains_of(truth: KeyedTruth) -> list[str]:
    return sorted({row["url_host_registered_domain"] for row in truth.rows["host-index", CRAWL]} - {None})


def write(folder: Path, domains: list[str], form: str = "host", first: int = 1) -> list[dict[str, Any]]:
    """A list of every other domain, and what it says."""
    rows = [{"domain": name, "rank": first + n, "spam": n % 3 == 0} for n, name in enumerate(domains[::2])]
    written = {
        "host": lambda name: name,
        "reversed_host": lambda name: ".".join(reversed(name.split("."))),
        "surt_host": lambda name: host_key(name).surt,
    }[form]
    keyed = sorted(({**row, "domain": written(row["domain"])} for row in rows), key=lambda row: row["domain"])
    pq.write_table(pa.Table.from_pylist(keyed), folder / "mine.parquet", row_group_size=5)
    return rows


def mine(folder: Path, form: str = "host", www: str = "kept", more: str = "") -> Dataset:
    return parse_dataset(SAID % (folder, form, www) + more, "mine.yaml")


@pytest.mark.parametrize(
    ("form", "www", "more"),
    [
        ("host", "kept", ""),
        ("reversed_host", "stripped", "join: inner"),
        ("surt_host", "folded", "action: label"),
        ("host", "stripped", "action: filter"),
    ],
)
def test_what_is_written_down_is_the_join_of_sql(
    keyed: tuple[Path, KeyedTruth], tmp_path: Path, form: str, www: str, more: str
) -> None:
    workspace = workspace_of(keyed[0], tmp_path / "home")
    said = write(tmp_path, domains_of(keyed[1]), form)
    targets = [parse_target("tld:com"), parse_target("suffix:co.uk")]
    workspace.register_targets(targets)
    one = mine(tmp_path, form, www, more)
    fill_facts(workspace, CRAWL, [target.slug for target in targets], [one, INDEX])
    host_index = rows_of(whole(keyed[0], keyed[1].files["host-index", CRAWL], INDEX), "set:s = tld:com, suffix:co.uk")
    with duckdb.connect() as session:
        hosts = [(key, rows[0]["url_host_registered_domain"], rows[0]["fetch_200"]) for key, rows in host_index.items()]
        session.register(
            "hosts", pa.table(dict(zip(("key", "domain", "pages"), zip(*hosts, strict=True), strict=True)))
        )
        session.register("said", pa.Table.from_pylist(said))
        left = "" if "inner" in more or "filter" in more else "LEFT"
        truth = session.execute(
            f"SELECT key, pages, rank, spam, said.domain IS NOT NULL FROM hosts {left} JOIN said USING (domain)"
        ).fetchall()
    told = {key: (pages, rank, spam, here) for key, pages, rank, spam, here in truth}
    columns = ["surt_host_name", "fetch_200", "other_facts"]
    slugs = [Slice(CRAWL, target.slug).where for target in targets]
    rows = [row for where in slugs for row in workspace.lake.read("host_facts", where, columns).to_pylist()]
    assert {row["surt_host_name"] for row in rows} == set(told)
    assert len(rows) == len(told) > 5
    for row in rows:
        pages, rank, spam, here = told[row["surt_host_name"]]
        others = {"rank": rank and str(rank), "spam": None if spam is None else str(spam).lower()}
        if "action" in more:
            others = {"mine": str(here).lower()} if "label" in more else {}
        assert row["fetch_200"] == pages
        assert dict(row["other_facts"] or ()) == {name: value for name, value in others.items() if value is not None}
    again = fill_facts(workspace, CRAWL, [target.slug for target in targets], [one, INDEX])
    assert (again.fresh_slices, again.requests) == (0, 0)


def test_an_answer_is_kept_until_its_files_change(keyed: tuple[Path, KeyedTruth], tmp_path: Path) -> None:
    workspace = workspace_of(keyed[0], tmp_path / "home")
    domains = domains_of(keyed[1])
    target = parse_target("tld:com")
    write(tmp_path, domains)
    datasets = [INDEX, mine(tmp_path)]
    first = facts_of_hosts(workspace, CRAWL, target, datasets)
    assert first.from_cache == ()
    again = facts_of_hosts(workspace, CRAWL, target, datasets)
    assert (again.from_cache, again.requests, again.bytes) == (("host-index", "mine"), 0, 0)
    assert again.table.equals(first.table)
    here = stored_facts(workspace, CRAWL, target, datasets)
    assert here is not None and here.table.equals(first.table)
    # a definition that says something else is another question
    labelled = facts_of_hosts(workspace, CRAWL, target, [INDEX, mine(tmp_path, more="action: label")])
    assert (labelled.from_cache, labelled.table["mine"].null_count) == (("host-index",), 0)
    # other files under another name are others; replaced ones are noticed when they are read
    moved = tmp_path / "moved"
    moved.mkdir()
    write(moved, domains, first=1000)
    other = facts_of_hosts(workspace, CRAWL, target, [INDEX, mine(moved)])
    assert other.from_cache == ("host-index",)
    assert other.table["rank"].drop_null().to_pylist() == [
        rank + 999 for rank in first.table["rank"].drop_null().to_pylist()
    ]


def test_what_is_not_here_of_domains_is_left_out_without_a_request(
    keyed: tuple[Path, KeyedTruth], tmp_path: Path
) -> None:
    workspace = workspace_of(keyed[0], tmp_path / "home")
    write(tmp_path, domains_of(keyed[1]))
    target = parse_target("example.com")
    facts_of_hosts(workspace, CRAWL, target, [INDEX])
    requests = workspace.transport.stats.requests
    here = stored_facts(workspace, CRAWL, target, [mine(tmp_path), INDEX])
    assert here is not None and "rank" not in here.table.column_names
    assert here.table.num_rows and workspace.transport.stats.requests == requests


def test_domains_alone_do_not_say_which_hosts_there_are(keyed: tuple[Path, KeyedTruth], tmp_path: Path) -> None:
    workspace = workspace_of(keyed[0], tmp_path / "home")
    write(tmp_path, domains_of(keyed[1]))
    with pytest.raises(UserInputError, match="name a dataset of hosts beside it"):
        facts_of_hosts(workspace, CRAWL, parse_target("example.com"), [mine(tmp_path)])
    datasets_path(workspace.settings).mkdir(parents=True)
    (datasets_path(workspace.settings) / "mine.yaml").write_text(SAID % (tmp_path, "host", "kept"))
    assert known_datasets(workspace.settings)["mine"].dataset.of_domains
    known = datasets_for_crawl(workspace, CRAWL)
    assert [one.name for one in host_datasets(known, add_host_index(known, ["mine"]))] == ["host-index", "mine"]


def test_captures_have_no_domains() -> None:
    with pytest.raises(UserInputError, match=r"key\.of is domains"):
        parse_dataset(
            "name: x\nwhere: {files: [a.parquet]}\nkey: {column: u, form: url_key, of: domains, time: t}", "x.yaml"
        )


def test_a_host_of_strangers_that_no_target_can_name_has_no_domain_facts(
    keyed: tuple[Path, KeyedTruth], tmp_path: Path
) -> None:
    workspace = workspace_of(keyed[0], tmp_path / "home")
    odd = ["com,a b", "com,a..b", "com,", "com,exa_mple", f"com,{'x' * 70}", "com,%41", "com,example"]
    pq.write_table(pa.table({"k": sorted(odd)}), tmp_path / "odd.parquet")
    hosts = parse_dataset(
        f"name: odd\nwhere: {{root: {tmp_path}, crawl: none, files: [odd.parquet]}}\n"
        "key: {column: k, form: surt_host}",
        "odd.yaml",
    )
    write(tmp_path, ["example.com"])
    found = facts_of_hosts(workspace, CRAWL, parse_target("tld:com"), [hosts, mine(tmp_path)])
    assert found.table.num_rows == len(odd)
    ranks = dict(zip(found.table["surt_host_name"].to_pylist(), found.table["rank"].to_pylist(), strict=True))
    assert {key for key, rank in ranks.items() if rank is not None} == {"com,example"}
