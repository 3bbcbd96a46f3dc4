"""Descriptions of a data set for programs: a Croissant document, and the head of a card for Hugging Face.

Both are built from the written files and their ``Provenance``. The document is Croissant 1.1 with the vocabulary
PROV (https://docs.mlcommons.org/croissant/docs/croissant-spec-1.1.html). Its library accepts only
``https://schema.org`` as vocabulary, and only exact media types.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from cc_pipeline import SOFTWARE
from cc_pipeline.documents.html.text import ISO_639_3
from cc_pipeline.export.provenance import Provenance

#: Media types by suffix, as mlcroissant compares them.
_MEDIA: Final = {".parquet": "application/x-parquet", ".jsonl": "application/jsonlines", ".csv": "text/csv"}
TABULAR: Final = tuple(_MEDIA)
TERMS: Final = "https://commoncrawl.org/terms-of-use"
_INDEX: Final = "https://data.commoncrawl.org/crawl-data/{crawl}/index.html"
_CONTEXT: Final = {
    "@language": "en", "@vocab": "https://schema.org/", "sc": "https://schema.org/", "dct": "http://purl.org/dc/terms/",
    "cr": "http://mlcommons.org/croissant/",
    "prov": "http://www.w3.org/ns/prov#", "rdfs": "http://www.w3.org/2000/01/rdf-schema#",
    "citeAs": "cr:citeAs", "column": "cr:column", "conformsTo": "dct:conformsTo", "containedIn": "cr:containedIn",
    "data": {"@id": "cr:data", "@type": "@json"}, "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "examples": {"@id": "cr:examples", "@type": "@json"}, "extract": "cr:extract", "field": "cr:field",
    "arrayShape": "cr:arrayShape", "isArray": "cr:isArray", "equivalentProperty": "cr:equivalentProperty",
    "fileObject": "cr:fileObject", "fileProperty": "cr:fileProperty", "fileSet": "cr:fileSet", "format": "cr:format",
    "includes": "cr:includes", "isLiveDataset": "cr:isLiveDataset", "jsonPath": "cr:jsonPath", "key": "cr:key",
    "md5": "cr:md5", "parentField": "cr:parentField", "path": "cr:path", "recordSet": "cr:recordSet",
    "references": "cr:references", "regex": "cr:regex", "repeated": "cr:repeated", "replace": "cr:replace",
    "samplingRate": "cr:samplingRate", "separator": "cr:separator", "source": "cr:source", "subField": "cr:subField",
    "transform": "cr:transform", "annotation": "cr:annotation", "value": "cr:value",
}  # fmt: skip
_SIZES: Final = "1K 10K 100K 1M 10M 100M 1B 10B 100B 1T".split()
_WORD: Final = re.compile(r"[^A-Za-z0-9_.-]+")


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file of rows: its name, its path relative to the document, its digest and size, its number of rows, its
    columns."""

    name: str
    path: str
    sha256: str
    bytes: int
    rows: int
    schema: pa.Schema


@dataclass(frozen=True, slots=True)
class DatasetDescription:
    """The description of a data set: ``title``, ``creator`` and ``url`` (optional, by a person), and ``languages`` (ISO
    639-3) of its texts."""

    title: str
    creator: str = ""
    url: str = ""
    languages: tuple[str, ...] = ()


def schema_of(path: Path, columns: Sequence[tuple[str, str]]) -> pa.Schema:
    """Returns the columns of a written file: those of a Parquet file, else ``columns`` with their DuckDB types."""
    if path.suffix == ".parquet":
        return pq.read_schema(path)
    return pa.schema([(name, _OF_DUCKDB.get(kind, pa.null())) for name, kind in columns])


_OF_DUCKDB: Final = {
    "VARCHAR": pa.string(), "BIGINT": pa.int64(), "INTEGER": pa.int32(), "DOUBLE": pa.float64(), "BOOLEAN": pa.bool_(),
    "DATE": pa.date32(), "TIMESTAMP": pa.timestamp("us"), "TIMESTAMP WITH TIME ZONE": pa.timestamp("us", "UTC"),
}  # fmt: skip


def build_croissant(
    description: DatasetDescription, provenance: Provenance, files: Sequence[DataFile], other_files: Sequence[DataFile]
) -> dict[str, Any]:
    """Builds the Croissant document of ``files``, each a record set; ``other_files`` are files without one, such as the
    list of target outcomes. Record sets leave out columns of structs and of lists of structs."""
    days = provenance.created_at.date().isoformat()
    crawls = [crawl_source.crawl for crawl_source in provenance.crawls]
    activity = {
        "@type": "prov:Activity",
        "prov:endedAtTime": provenance.created_at.isoformat(timespec="seconds"),
        "prov:wasAssociatedWith": {"@type": "prov:SoftwareAgent", "@id": f"#{SOFTWARE}", "rdfs:label": SOFTWARE},
        "prov:used": [{"@id": _INDEX.format(crawl=crawl)} for crawl in crawls],
    }
    outcomes = ", ".join(f"{count:,} {name}" for name, count in provenance.outcomes.items() if count)
    document: dict[str, Any] = {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.1",
        "name": _WORD.sub("-", description.title).strip("-") or "dataset",
        "description": f"{description.title}. Rows of Common Crawl, {', '.join(crawls)}. "
        f"Asked: {'; '.join(provenance.selection)}. Targets: {outcomes or 'none'}.",
        "license": TERMS,
        "url": description.url or "https://commoncrawl.org/",
        "version": "1.0.0",
        "creator": {"@type": "Organization", "name": description.creator or "not named"},
        "datePublished": days,
        "citeAs": f"{description.title}, made of Common Crawl ({', '.join(crawls)}) with {SOFTWARE} on {days}",
        "prov:wasDerivedFrom": [
            {
                "@id": _INDEX.format(crawl=crawl_source.crawl),
                "@type": "prov:Entity",
                "rdfs:label": _describe_digests(crawl_source.path_list, crawl_source.indexes),
            }
            for crawl_source in provenance.crawls
        ],
        "prov:wasGeneratedBy": activity,
        "distribution": [
            {
                "@type": "cr:FileObject",
                "@id": file.path,
                "name": file.path,
                "contentUrl": file.path,
                "contentSize": f"{file.bytes} B",
                "encodingFormat": _MEDIA.get(Path(file.path).suffix, "application/octet-stream"),
                "sha256": file.sha256,
                "prov:wasGeneratedBy": activity,
            }
            for file in (*files, *other_files)
        ],
        "recordSet": [_record_set(file) for file in files],
    }
    if description.languages:
        document["inLanguage"] = list(description.languages)
    return document


def _describe_digests(path_list: str | None, indexes: Mapping[str, str]) -> str:
    texts = ([f"path list {path_list}"] if path_list else []) + [
        f"index ({kind}) {digest}" for kind, digest in indexes.items()
    ]
    return "; ".join(texts) or "no digest is known"


def _record_set(file: DataFile) -> dict[str, Any]:
    fields = [record_field for column in file.schema if (record_field := _field(file, column)) is not None]
    return {"@type": "cr:RecordSet", "@id": file.name, "name": file.name, "field": fields}


def _field(file: DataFile, column: pa.Field) -> dict[str, Any] | None:
    kind, is_repeated = column.type, False
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        kind, is_repeated = kind.value_type, True
    type_name = _schema_type(kind)
    if type_name is None:
        return None
    field = {
        "@type": "cr:Field",
        "@id": f"{file.name}/{column.name}",
        "name": column.name,
        "dataType": type_name,
        "source": {"fileObject": {"@id": file.path}, "extract": {"column": column.name}},
    }
    return field | ({"isArray": True, "arrayShape": "-1"} if is_repeated else {})


def _schema_type(kind: pa.DataType) -> str | None:
    types = pa.types
    if types.is_string(kind) or types.is_large_string(kind) or types.is_binary(kind):
        return "sc:Text"
    if types.is_boolean(kind):
        return "sc:Boolean"
    if types.is_integer(kind):
        return "sc:Integer"
    if types.is_floating(kind) or types.is_decimal(kind):
        return "sc:Float"
    if types.is_timestamp(kind):
        return "sc:DateTime"
    return "sc:Date" if types.is_date(kind) else None


def _has_maps(kind: pa.DataType) -> bool:
    if pa.types.is_map(kind):
        return True
    return any(_has_maps(kind.field(number).type) for number in range(kind.num_fields))


def build_card_head(description: DatasetDescription, files: Sequence[DataFile]) -> str:
    """Builds the head of a README for Hugging Face, between lines of three dashes: licence, languages, size, and a
    configuration for each table, since ``load_dataset`` would derive splits from file names otherwise. Tables that it
    cannot load (with columns of maps, or without rows) have no configuration."""
    loaded = [file for file in files if file.rows and not any(_has_maps(column.type) for column in file.schema)]
    rows = sum(file.rows for file in files)
    power = max(0, len(str(rows)) - 3) if rows >= 1_000 else 0
    size = "n>1T" if power >= len(_SIZES) else f"{_SIZES[power - 1]}<n<{_SIZES[power]}" if power else "n<1K"
    short = {code: two for two, code in ISO_639_3.items() if len(two) == 2}
    languages = sorted({short.get(code, code) for code in description.languages})
    head: dict[str, Any] = {
        "pretty_name": description.title,
        "license": "other",
        "license_name": "common-crawl-terms-of-use",
        "license_link": TERMS,
        **({"language": languages} if languages else {}),
        "size_categories": [size],
        "tags": ["common-crawl", "croissant"],
        "configs": [
            {"config_name": file.name, **({"default": True} if not number else {}),
             "data_files": [{"split": "train", "path": file.path}]}
            for number, file in enumerate(loaded)
        ],
    }  # fmt: skip
    return f"---\n{yaml.safe_dump(head, sort_keys=False, allow_unicode=True)}---\n"
