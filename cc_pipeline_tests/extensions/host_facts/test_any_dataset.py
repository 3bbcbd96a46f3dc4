"""Datasets of any form, order and writer against DuckDB over the same files: random hosts, row for row."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.extensions.host_facts import keyed_lookup
from cc_pipeline.extensions.host_facts.datasets import Dataset, parse_dataset
from cc_pipeline.extensions.host_facts.host_facts import estimate_host_lookups, facts_of_hosts
from cc_pipeline.extensions.host_facts.host_keys import HostForm, HostRanges, host_key
from cc_pipeline_tests.extensions.host_facts.brute import rows_of, whole
from cc_pipeline_tests.world import workspace_of

CRAWL = "CC-MAIN-2025-18"
LABELS = ["www", "www2", "example", "examplex", "example-x", "a", "blog", "shop"]
HOST = st.builds(
    lambda labels, end, port: ".".join([*labels, end]) + port,
    st.lists(st.sampled_from(LABELS), min_size=1, max_size=3),
    st.sampled_from(["com", "co.uk", "org"]),
    st.sampled_from(["", "", "", "", ":8443"]),
)
TARGETS = st.sampled_from(
    ["example.com", "host:www.example.com", "example.co.uk", "tld:org", "blog.example.com", "url:http://a.com/x",
     "set:s = example.com, host:a.org, examplex.com", "rev:com.exam"]
)  # fmt: skip
FORMS = st.sampled_from(
    [("surt_host", "folded"), ("reversed_host", "kept"), ("host", "kept"), ("reversed_host", "stripped")]
)


def dataset(form: str, www: str, files: list[str], root: Path) -> Dataset:
    listed = "\n".join(f"    - {name}" for name in files)
    return parse_dataset(
        f"""
name: mine
where:
  root: {root}
  crawl: none
  files:
{listed}
key: {{column: name of it, form: {form}, www: {www}, ending: last label}}
columns: {{pos: int64, score: double, word: string, yes: boolean}}
fold: {{pos: min, score: max, yes: any}}
""",
        "mine.yaml",
    )


def written(form: str, www: str, hosts: list[str]) -> list[str]:
    """Hosts as a column of this form has them."""
    found = []
    for given_host in hosts:
        host = given_host.removeprefix("www.") if www == "stripped" else given_host
        key = host_key(host)
        assert key is not None
        if form == "surt_host":
            found.append(key.surt)
        elif form == "reversed_host":
            name, colon, port = host.partition(":")
            found.append(".".join(reversed(name.split("."))) + colon + port)
        else:
            found.append(host)
    return list(dict.fromkeys(found))


def ending(key: str, form: str) -> str:
    found = host_key(key, form)
    assert found is not None
    return found.surt.partition(",")[0].partition(":")[0]


def expected(rows: dict[str, list[dict[str, Any]]], form: str, keys: dict[str, list[str]]) -> list[dict[str, Any]]:
    """One row a host: smallest position, largest score, the word of the host without ``www``."""
    found = []
    for surt in sorted(rows):
        same = sorted(
            zip(keys[surt], rows[surt], strict=True),
            key=lambda pair: form != "surt_host" and bool(host_key(pair[0], form).www),
        )
        values = {name: [row[name] for _, row in same if row[name] is not None] for name in rows[surt][0]}
        found.append(
            {
                "surt_host_name": surt,
                "pos": min(values["pos"], default=None),
                "score": max(values["score"], default=None),
                "word": next(iter(values["word"]), None),
                "yes": max(values["yes"], default=None),
            }
        )
    return found


@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(
    FORMS,
    TARGETS,
    st.lists(HOST, min_size=1, max_size=60, unique=True),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.integers(1, 3),
    st.randoms(use_true_random=False),
)
def test_any_dataset(
    form_www: tuple[str, str],
    target: str,
    hosts: list[str],
    in_order: bool,
    statistics: bool,
    page_index: bool,
    shards: int,
    draw: Any,
) -> None:
    form, www = form_www
    keys = written(form, www, hosts)
    keys = sorted(keys) if in_order else draw.sample(keys, len(keys))
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        names = []
        for number in range(shards):
            mine = (
                keys[number::shards]
                if not in_order
                else keys[len(keys) * number // shards : len(keys) * (number + 1) // shards]
            )
            counted = pa.array(
                [draw.choice([None, draw.randrange(100)]) for _ in mine],
                draw.choice([pa.int8(), pa.int64(), pa.float64()]),
            )
            columns = {
                "word": pa.array([draw.choice([None, f"w{place}"]) for place in range(len(mine))], pa.string()),
                "pos": counted,
                "name of it": pa.array(mine, pa.string()),
                "last label": pa.array(
                    [draw.choice([None, ending(key, form), ending(key, form)]) for key in mine]
                ).cast(pa.string()),
                "yes": pa.array([draw.choice([None, True, False]) for _ in mine], pa.bool_()),
                "score": pa.array(
                    [draw.choice([None, draw.random()]) for _ in mine], draw.choice([pa.float64(), pa.float32()])
                ),
            }
            if number and draw.random() < 0.3:
                del columns["score"]
            names.append(f"part-{number}.parquet")
            pq.write_table(
                pa.table(columns), root / names[-1], row_group_size=7, write_statistics=statistics,
                write_page_index=page_index, max_rows_per_page=3, write_batch_size=3,
            )  # fmt: skip
        mine = dataset(form, www, names, root)
        workspace = workspace_of(root, root / "home")
        with mock.patch.object(keyed_lookup, "_MIN_ENDING_RATIO", 0):
            found = facts_of_hosts(workspace, CRAWL, parse_target(target), [mine])
        price = estimate_host_lookups(workspace, CRAWL, parse_target(target), [mine])["mine"]
        again = facts_of_hosts(workspace, CRAWL, parse_target(target), [mine])
        every = whole(root, names, mine)
        by_key: dict[str, list[str]] = {}
        for row in every:
            key = host_key(row["_key"], form)
            assert key is not None
            by_key.setdefault(key.surt, []).append(row["_key"])
        rows = [
            {n: v for n, v in row.items() if n not in ("crawl", "host", "domain")} for row in found.table.to_pylist()
        ]
        assert rows == expected(rows_of(every, target, form), form, by_key)
        assert not found.gaps
        assert again.table.equals(found.table)
        assert again.from_cache == ("mine",)
        assert price.row_groups == sum(pq.ParquetFile(root / name).num_row_groups for name in names)
        assert price.without_bounds == price.to_read or statistics


@pytest.mark.parametrize(("form", "key"), [("reversed_host", b"org.a.www2"), ("host", b"www2.a.org")])
def test_where_www_is_stripped_its_numbered_sisters_are_found(form: HostForm, key: bytes) -> None:
    ranges = HostRanges(parse_target("host:a.org")).ranges_in(form, "stripped")
    assert any(key in each for each in ranges)
    assert not any(key.replace(b"www2", b"blog") in each for each in ranges)
