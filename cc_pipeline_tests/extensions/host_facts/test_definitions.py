"""The assets of this extension beside those of the core, and what is there without it."""

from __future__ import annotations

import dagster as dg
import pytest

from cc_pipeline import extension
from cc_pipeline.cli.known_hosts import find_known_hosts, require_known_hosts
from cc_pipeline.defs.declared import collected_parts
from cc_pipeline.defs.declared.build import definitions
from cc_pipeline.defs.home_namespace import OWN_HOME
from cc_pipeline.errors import UserInputError
from cc_pipeline.extensions.host_facts.definitions import KEYED
from cc_pipeline.extensions.host_facts.schemas import HOST_FACTS_SCHEMA
from cc_pipeline.workspace.tables import all_tables


def test_each_column_comes_from_data_of_others_but_those_of_the_program() -> None:
    specs = {spec.key: spec for spec in definitions(OWN_HOME).resolve_all_asset_specs()}
    spec = specs[dg.AssetKey("host_facts")]
    lineage = spec.metadata["dagster/column_lineage"].deps_by_column
    assert {*HOST_FACTS_SCHEMA.names} - lineage.keys() == {"crawl", "target", "other_facts", "facts_from"}
    for found in lineage.values():
        for source in found:
            columns = specs[source.asset_key].metadata["dagster/column_schema"].columns
            assert source.column_name in {column.name for column in columns}
    assert {dep.asset_key for dep in spec.deps} == {*KEYED}
    assert dg.AssetKey("host_facts") in {dep.asset_key for dep in specs[dg.AssetKey("warehouse")].deps}


def test_without_it_there_is_no_asset_no_table_and_no_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC_PIPELINE_WITHOUT", "host_facts")
    found = definitions(OWN_HOME)
    dg.Definitions.validate_loadable(found)
    assert dg.AssetKey("host_facts") not in {spec.key for spec in found.resolve_all_asset_specs()}
    assert "host_facts" not in {spec.name for spec in all_tables()}
    assert "host_facts" not in {one.name for one in extension.extensions()}
    assert not any(asset.name == "host_facts" for asset in collected_parts.published_assets())
    assert find_known_hosts() is None
    with pytest.raises(UserInputError, match="none is in use"):
        require_known_hosts()
