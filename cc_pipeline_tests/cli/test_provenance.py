"""What data sets and exports say of their origin, read by the programs it is written for."""

from __future__ import annotations

import csv
import itertools
import json
from pathlib import Path

import datasets
import mlcroissant
import pyarrow.parquet as pq
import pytest
import rdflib

from cc_pipeline_tests.cli.conftest import NEW, Cli

pytestmark = pytest.mark.xdist_group("cli")
PROV = rdflib.Namespace("http://www.w3.org/ns/prov#")


@pytest.fixture(autouse=True)
def nothing_from_a_hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


def test_a_data_set_is_read_by_croissant_by_hugging_face_and_by_a_reader_of_prov(
    cli: Cli, rich: Path, tmp_path: Path
) -> None:
    out = tmp_path / "corpus"
    said = cli("dataset", "--min-words", 5, "--rules", "none", "--creator", "A lab", "--out", out, "--home", rich)
    assert said.status == 0, said.err
    rows = pq.read_table(out / "texts.parquet").to_pylist()
    document = mlcroissant.Dataset(jsonld=str(out / "croissant.json"))
    assert not document.metadata.ctx.issues.errors
    found = list(document.records("texts"))
    assert [one["texts/url"].decode() for one in found] == [row["url"] for row in rows] != []
    loaded = datasets.load_dataset(str(out), "texts", split="train", cache_dir=str(tmp_path / "cache"))
    assert loaded["text"][:] == [row["text"] for row in rows]
    graph = rdflib.Graph().parse(out / "croissant.json", format="json-ld")
    derived = {str(one) for one in graph.objects(None, PROV.wasDerivedFrom)}
    assert {row["crawl"] for row in rows} <= {one.split("/")[-2] for one in derived}
    assert list(graph.subjects(rdflib.RDF.type, PROV.SoftwareAgent))
    for file in out.rglob("*"):
        if file.suffix in (".json", ".md", ".csv"):
            assert str(rich) not in file.read_text("utf-8"), file.name
    provenance = json.loads((out / "provenance.json").read_text("utf-8"))
    with (out / "targets.csv").open(encoding="utf-8") as stream:
        targets = list(csv.DictReader(stream))
    # every page is of a target that is named, and every target is told of
    assert sum(int(one["pages"]) for one in targets) == len(rows)
    assert provenance["targets"]["found"] == len([one for one in targets if one["outcome"] == "found"]) > 1
    assert all(one["path_list"] and one["indexes"] for one in provenance["crawls"] if one["crawl"] == NEW)
    assert {one["name"] for one in provenance["files"]} == {"texts.parquet", "datasheet.json", "targets.csv"}


def test_each_table_of_an_export_is_a_configuration_and_a_record_set(cli: Cli, rich: Path, tmp_path: Path) -> None:
    out = tmp_path / "handed"
    assert cli("export", "-d", "example.com", "--format", "parquet", "--out", out, "--home", rich).status == 0
    names = datasets.get_dataset_config_names(str(out))
    assert {"page_text", "records", "feed_items"} <= {*names}
    for name in names:
        rows = pq.ParquetFile(out / f"{name}.parquet").metadata.num_rows
        if rows:
            loaded = datasets.load_dataset(str(out), name, split="train", cache_dir=str(tmp_path / "cache"))
            assert loaded.num_rows == rows
    document = mlcroissant.Dataset(jsonld=str(out / "croissant.json"))
    sets = [one.id for one in document.metadata.record_sets]
    assert {f"{name}.parquet" for name in sets} == {path.name for path in out.glob("*.parquet")}
    for name in ("page_metadata", "page_links", "captures"):
        assert list(itertools.islice(document.records(name), 1))


def test_a_target_without_captures_is_told_of(cli: Cli, rich: Path, tmp_path: Path) -> None:
    out = tmp_path / "titles.csv"
    assert cli("export", "--query", "SELECT url, title FROM page_text", "--out", out, "--home", rich).status == 0
    assert (tmp_path / "titles.csv.croissant.json").exists()
    told = json.loads((tmp_path / "titles.csv.provenance.json").read_text("utf-8"))
    assert told["asked"] == ["query: `SELECT url, title FROM page_text`"]
    assert (
        sum(told["targets"].values()) == len((tmp_path / "titles.csv.targets.csv").read_text("utf-8").splitlines()) - 1
    )
