"""Facts of hosts against DuckDB over the same files, read whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.extensions.host_facts.datasets import shipped_datasets
from cc_pipeline.extensions.host_facts.host_facts import host_facts
from cc_pipeline.workspace.workspace import Workspace
from cc_pipeline_tests.extensions.host_facts.brute import rows_of, whole
from cc_pipeline_tests.extensions.host_facts.conftest import CRAWL, ODD
from cc_pipeline_tests.extensions.host_facts.keyed import KeyedTruth

READY = shipped_datasets()
HOSTS = [READY["host-index"], READY["degrees"], READY["gneissweb-hosts"]]


def expected(rows: dict[str, list[dict[str, Any]]], target: str) -> list[dict[str, Any]]:
    """One row a host, of all datasets, by brute force."""
    by_host: dict[str, dict[str, Any]] = {}
    names: list[str] = []
    for dataset in HOSTS:
        assert dataset.columns is not None
        names += dataset.columns
        for surt, found in rows_of(rows[dataset.name], target).items():
            assert len(found) == 1
            by_host.setdefault(surt, {}).update(found[0])
    return [{"surt_host_name": key, **{n: by_host[key].get(n) for n in names}} for key in sorted(by_host)]


@pytest.mark.parametrize("crawl", [CRAWL, ODD])
def test_rows_are_those_of_duckdb(both: tuple[Path, KeyedTruth], home: Workspace, crawl: str) -> None:
    read = {dataset.name: whole(both[0], both[1].files[dataset.name, crawl], dataset) for dataset in HOSTS}
    for target in ("example.com", "tld:org", "host:www.example.com", "suffix:co.uk", "nobody.example"):
        found = host_facts(home, crawl, parse_target(target), HOSTS)
        rows = [{n: v for n, v in row.items() if n not in ("crawl", "host", "domain")} for row in found.to_pylist()]
        assert rows == expected(read, target), target
