"""A certificate of completeness: what two indexes list of targets, and what became of each capture that one lists.

It is a JSON document, a Parquet file of all captures that it counts, and a page for people. It proves that neither
index lost rows that the other has, and that everything listed is accounted for. It does not prove that an index is
whole: both are made of the same logs of a crawl. Nobody signs it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from jinja2 import Environment, StrictUndefined, Template

from cc_pipeline.atomic import write_whole, written_whole
from cc_pipeline.commoncrawl.target import GIVEN_KIND, Target, by_subsets
from cc_pipeline.errors import DataFault, DataKind, EnvironmentFault, UserInputError, disk_trouble
from cc_pipeline.export.files import sha256_of
from cc_pipeline.export.provenance import Provenance
from cc_pipeline.extensions.delivery.inventory import read_manifest
from cc_pipeline.extensions.delivery.manifest import key_in, parse_manifest_name, read_table
from cc_pipeline.extensions.delivery.verification import verify_place
from cc_pipeline.harvesting.catalog import columnar_versions
from cc_pipeline.harvesting.index_sources import index_sources
from cc_pipeline.index.gaps import MissingHarvest
from cc_pipeline.index.locator import NoSuchIndex
from cc_pipeline.index.lookup import look_up
from cc_pipeline.lake.digests.digest import combine_digests
from cc_pipeline.progress import format_count
from cc_pipeline.transport.client import Transport
from cc_pipeline.workspace.workspace import Workspace

FORMAT: Final = "cc_pipeline certificate"
VERSION: Final = 1
INDEXES: Final = ("parquet", "zipnum")
#: Outcome of a capture that this home never requested. All other outcomes are those of ``records``.
NOT_REQUESTED: Final = "not requested"
#: Reasons why an index was not asked. They replace the error's own text, which may name a path of the home.
_NO_ANSWER: Final[Mapping[type[Exception], str]] = {
    NoSuchIndex: "there is no such index of the crawl here",
    UserInputError: "the index cannot search these targets",
    MissingHarvest: "the index was not harvested for these subsets",
    EnvironmentFault: "the index could not be read",
}
_MAX_EXAMPLES: Final = 10
_KEY: Final = ("crawl", "warc_filename", "warc_record_offset")
_INDEX_COLUMNS: Final = (*_KEY, "warc_record_length", "url", "content_digest", "subset")
_SCHEMA: Final = pa.schema(
    [
        ("crawl", pa.string()), ("subset", pa.string()), ("warc_filename", pa.string()),
        ("warc_record_offset", pa.int64()), ("warc_record_length", pa.int64()), ("url", pa.string()),
        ("content_digest", pa.string()), ("in_parquet", pa.bool_()), ("in_zipnum", pa.bool_()),
        ("outcome", pa.string()), ("reason", pa.string()),
    ]
)  # fmt: skip
PROVES: Final = (
    "The file of captures has every capture of the named targets and crawls that the columnar index or ZipNum lists, "
    "with its outcome. If both indexes were searched without gaps, they list the same captures, except for those that "
    "are counted as listed by only one."
)
PROVES_NOT: Final = (
    "Both indexes are made from the same logs of a crawl, so captures that the logs lack are in neither. Pages that "
    "the crawler did not visit are in no index. The certificate is not signed: anyone who can change it can replace it."
)


@dataclass(frozen=True, slots=True)
class QueriedIndex:
    """The answer of one index: its number of captures, its version, the files it could not read, or why it was not
    asked. ``captures`` and ``version`` are ``None`` if it was not asked: it may list captures.
    """

    captures: int | None = None
    version: str | None = None
    gaps: tuple[str, ...] = ()
    not_asked: str = ""


@dataclass(frozen=True, slots=True)
class CertifiedCrawl:
    """One crawl. ``only`` counts captures that one index alone lists, ``outcomes`` all captures listed."""

    crawl: str
    indexes: Mapping[str, QueriedIndex]
    only: Mapping[str, int]
    outcomes: Mapping[str, int]

    @property
    def findings(self) -> list[str]:
        """Sentences about everything that makes the crawl incomplete; empty if the crawl is complete."""
        messages = [
            f"{kind} was not searched: {index.not_asked}" for kind, index in self.indexes.items() if index.not_asked
        ]
        messages += [
            f"{kind} has gaps: {unread_file}" for kind, index in self.indexes.items() for unread_file in index.gaps
        ]
        messages += [
            f"{format_count(count, 'capture', 'are')} in {kind} only" for kind, count in self.only.items() if count
        ]
        messages += [
            f"{format_count(count, 'capture', 'are')} {name}"
            for name, count in self.outcomes.items()
            if name != "fetched" and count
        ]
        return messages


def certify(
    workspace: Workspace,
    targets: Sequence[Target],
    crawls: Sequence[str],
    provenance: Provenance,
    out: Path,
    on_message: Callable[[str], object],
) -> dict[str, Any]:
    """Queries both indexes of each crawl, compares them with each other and with the records of the home, and writes
    the certificate ``out`` (JSON). Two files lie beside it: ``.captures.parquet`` and ``.html``. Returns the
    document.

    ``on_message`` gets the full error of an index that cannot be asked; the certificate has a reason that names no
    path.

    Raises the errors of a lookup, except for a missing index and for unread index files, which go into the
    certificate. Raises ``UserInputError`` for captures that were added: no index can list these as such.
    """
    if added_captures := [target.definition for target in targets if target.kind == GIVEN_KIND]:
        raise UserInputError(
            f"{added_captures[0]} is a list of named captures, which no index can confirm; name a site"
        )
    certified: list[CertifiedCrawl] = []
    examples: list[dict[str, Any]] = []
    count, captures_file = 0, sibling_file(out, "captures.parquet")
    with disk_trouble(out):
        with written_whole(captures_file) as path, pq.ParquetWriter(path, _SCHEMA, compression="zstd") as writer:
            for crawl in crawls:
                rows, indexes = _query_indexes(workspace, crawl, targets, on_message)
                rows = _with_outcomes(workspace, crawl, rows).sort_by([(name, "ascending") for name in _KEY])
                writer.write_table(rows)
                certified.append(_count_captures(crawl, rows, indexes))
                examples += _first_findings(rows, _MAX_EXAMPLES - len(examples))
                count += len(rows)
        document = {
            "format": FORMAT,
            "version": VERSION,
            "targets": [target.written for target in targets],
            "complete": not any(certified_crawl.findings for certified_crawl in certified),
            "crawls": [
                asdict(certified_crawl) | {"findings": certified_crawl.findings} for certified_crawl in certified
            ],
            "captures": {"name": captures_file.name, "rows": count, "sha256": sha256_of(captures_file)},
            "proves": PROVES,
            "does_not_prove": PROVES_NOT,
            "provenance": provenance.as_json(),
        }
        document["sha256"] = _seal(document)
        write_whole(out, json.dumps(document, indent=1, ensure_ascii=False) + "\n")
        write_whole(sibling_file(out, "html"), _template().render(document=document, named=examples))
    return document


def sibling_file(out: Path, suffix: str) -> Path:
    """The path of another file of the certificate ``out``: the same name with another suffix."""
    return out.with_name(f"{out.name.removesuffix('.json')}.{suffix}")


def _seal(document: Mapping[str, Any]) -> str:
    """The SHA-256 of all fields of the document, independent of its layout."""
    sealed_fields = {name: value for name, value in document.items() if name != "sha256"}
    return sha256(json.dumps(sealed_fields, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def _query_indexes(
    workspace: Workspace, crawl: str, targets: Sequence[Target], on_message: Callable[[str], object]
) -> tuple[pa.Table, dict[str, QueriedIndex]]:
    """Returns each capture that any index lists once, with the indexes that list it, and the answer of each index."""
    sources = replace(index_sources(workspace, crawl), max_gaps=1.0)
    targets_by_subsets = by_subsets(targets, workspace.settings.subsets)
    captures_by_index: dict[str, pa.Table] = {}
    indexes: dict[str, QueriedIndex] = {}
    for kind in INDEXES:
        try:
            lookups = [
                look_up(crawl, subsets, subset_targets, sources, via=kind)
                for subsets, subset_targets in targets_by_subsets.items()
            ]
        except (*_NO_ANSWER,) as fault:
            on_message(f"{crawl}: {kind} was not searched: {fault}")
            indexes[kind] = QueriedIndex(
                not_asked=next(reason for fault_class, reason in _NO_ANSWER.items() if isinstance(fault, fault_class))
            )
            captures_by_index[kind] = _SCHEMA.empty_table().select(_INDEX_COLUMNS)
            continue
        rows = pa.concat_tables(
            [table.select(_INDEX_COLUMNS) for lookup in lookups for table in lookup.captures.values()]
        )
        first = rows.append_column("row", pa.array(range(len(rows)))).group_by(list(_KEY)).aggregate([("row", "min")])
        captures_by_index[kind] = rows.take(first["row_min"])
        gaps = [lookup.gaps for lookup in lookups if lookup.gaps is not None]
        unread_files = tuple(dict.fromkeys(f"{gap.summary} could not be read: {gap.file_summary}" for gap in gaps))
        version = lookups[0].index_version
        if not version and kind == "parquet":
            version = _harvest_version(
                workspace, crawl, {subset for subsets in targets_by_subsets for subset in subsets}
            )
        indexes[kind] = QueriedIndex(len(captures_by_index[kind]), version, unread_files)
    left, right = captures_by_index["parquet"], captures_by_index["zipnum"]
    index_flags = left.select(_KEY).append_column("in_parquet", pa.array([True] * len(left), pa.bool_())).join(
        right.select(_KEY).append_column("in_zipnum", pa.array([True] * len(right), pa.bool_())),
        list(_KEY), join_type="full outer", coalesce_keys=True,
    )  # fmt: skip
    described = left.join(index_flags, list(_KEY), join_type="inner")
    zipnum_only = right.join(index_flags.filter(pc.is_null(index_flags["in_parquet"])), list(_KEY), join_type="inner")
    all_captures = pa.concat_tables(
        [
            described.select([*_INDEX_COLUMNS, "in_parquet", "in_zipnum"]),
            zipnum_only.select([*_INDEX_COLUMNS, "in_parquet", "in_zipnum"]),
        ]
    )
    for name in ("in_parquet", "in_zipnum"):
        all_captures = all_captures.set_column(
            all_captures.schema.get_field_index(name), name, pc.fill_null(all_captures[name], False)
        )
    return all_captures, indexes


def _harvest_version(workspace: Workspace, crawl: str, subsets: Collection[str]) -> str:
    """The version of the harvested columnar index: a digest of its row groups of ``subsets``, those that were
    searched. Its lookups name no version, since the home knows it without a request. Empty if none was harvested."""
    versions = columnar_versions(workspace.lake, [crawl])
    digests = [versions[crawl, subset] for subset in subsets if (crawl, subset) in versions]
    return combine_digests(digests) if digests else ""


def _with_outcomes(workspace: Workspace, crawl: str, rows: pa.Table) -> pa.Table:
    """Joins ``rows`` with the outcomes in the home's records."""
    files = pc.unique(rows["warc_filename"]).to_pylist()
    columns = [*_KEY, "outcome", "reason"]
    records = workspace.lake.read("records", {"crawl": crawl, "warc_filename": files}, columns) if files else None
    if records is None:
        outcomes = pa.table({name: pa.array([], _SCHEMA.field(name).type) for name in columns})
    else:
        # A capture of two targets has two rows with the same outcome.
        outcomes = records.group_by(list(_KEY)).aggregate([("outcome", "min"), ("reason", "min")])
        outcomes = outcomes.rename_columns([*_KEY, "outcome", "reason"])
    joined = rows.join(outcomes, list(_KEY), join_type="left outer")
    outcome = pc.fill_null(joined["outcome"], NOT_REQUESTED)
    joined = joined.set_column(joined.schema.get_field_index("outcome"), "outcome", outcome)
    return joined.select(_SCHEMA.names).cast(_SCHEMA)


def _count_captures(crawl: str, rows: pa.Table, indexes: Mapping[str, QueriedIndex]) -> CertifiedCrawl:
    only = {
        "parquet": pc.sum(pc.invert(rows["in_zipnum"])).as_py() or 0,
        "zipnum": pc.sum(pc.invert(rows["in_parquet"])).as_py() or 0,
    }
    # An index that was not asked cannot be compared.
    only = {kind: 0 if any(index.not_asked for index in indexes.values()) else count for kind, count in only.items()}
    return CertifiedCrawl(crawl, dict(indexes), only, dict(sorted(Counter(rows["outcome"].to_pylist()).items())))


def _first_findings(captures: pa.Table, max_rows: int) -> list[dict[str, Any]]:
    """The first captures with a finding."""
    in_one_index = pc.or_(pc.invert(captures["in_parquet"]), pc.invert(captures["in_zipnum"]))
    rows = captures.filter(pc.or_(in_one_index, pc.not_equal(captures["outcome"], "fetched")))
    examples: list[dict[str, Any]] = rows.slice(0, max_rows).to_pylist()
    return examples


def verify_certificate(path: Path, place: Transport) -> list[str]:
    """Compares a certificate with a delivery and returns a sentence for each difference. Checks the certificate's own
    digests and counts, every byte that the delivery's manifests name, and that the delivery has each capture that
    the certificate calls fetched.

    Raises ``DataFault`` for a file that is no certificate, ``UserInputError`` if there is no delivery, and
    ``EnvironmentFault``.
    """
    try:
        document = json.loads(path.read_bytes())
        if document["format"] != FORMAT or document["version"] != VERSION:
            raise ValueError("another format or version")
        stored_seal, captures_file = str(document["sha256"]), sibling_file(path, "captures.parquet")
        problems = [] if _seal(document) == stored_seal else [f"{path.name}: the file was changed after it was written"]
        if sha256_of(captures_file) != document["captures"]["sha256"]:
            return [*problems, f"{captures_file.name}: its SHA-256 differs from the certificate"]
        captures = pq.read_table(captures_file, schema=_SCHEMA)
        problems += list(_find_wrong_counts(document, captures))
    except (ValueError, KeyError, TypeError, pa.ArrowException) as error:
        raise DataFault(DataKind.MALFORMED, path.name, None, f"not a certificate ({error!r:.100})") from error
    problems += verify_place(place).all_problems
    delivered = _read_delivered_captures(place)
    fetched = captures.filter(pc.equal(captures["outcome"], "fetched")).select(_KEY)
    undelivered = fetched.join(delivered, list(_KEY), join_type="left anti").sort_by(
        [(name, "ascending") for name in _KEY]
    )
    problems += [
        f"{row['warc_filename']} at byte {row['warc_record_offset']}: fetched according to the certificate, but not in "
        "the delivery"
        for row in undelivered.slice(0, _MAX_EXAMPLES).to_pylist()
    ]
    if len(undelivered) > _MAX_EXAMPLES:
        problems.append(f"{len(undelivered) - _MAX_EXAMPLES:,} more captures are not in the delivery")
    return problems


def _find_wrong_counts(document: Mapping[str, Any], captures: pa.Table) -> Iterator[str]:
    for crawl in document["crawls"]:
        crawl_captures = captures.filter(pc.equal(captures["crawl"], crawl["crawl"]))
        if dict(Counter(crawl_captures["outcome"].to_pylist())) != crawl["outcomes"]:
            yield f"{crawl['crawl']}: the outcomes in the certificate differ from those in its file of captures"
        for kind in INDEXES:
            count = pc.sum(crawl_captures[f"in_{kind}"]).as_py() or 0
            stored_count = crawl["indexes"][kind]["captures"] or 0  # null: it was not asked
            if count != stored_count:
                yield (
                    f"{crawl['crawl']}: {kind} lists {format_count(stored_count, 'capture')}, the file of captures "
                    f"has {count:,}"
                )


def _read_delivered_captures(place: Transport) -> pa.Table:
    """Reads the captures of all parts that the manifests of ``place`` name."""
    list_tables = []
    sizes = {stored_object.key: stored_object.size for stored_object in place.listing("")}
    for key in sizes:
        folder, _, name = key.rpartition("/")
        if parse_manifest_name(name) is None:
            continue
        try:
            for part in read_manifest(place, key).parts:
                list_key = key_in(folder, part.list.name)
                if list_key in sizes and key_in(folder, part.file.name) in sizes:
                    list_tables.append(read_table(place, list_key, sizes[list_key], _KEY)[0].select(_KEY))
        except DataFault:
            continue  # verify_place reports it
    kinds = [(name, _SCHEMA.field(name).type) for name in _KEY]
    return pa.concat_tables([pa.schema(kinds).empty_table(), *(table.cast(pa.schema(kinds)) for table in list_tables)])


@cache
def _template() -> Template:
    return Environment(autoescape=True, undefined=StrictUndefined).from_string(_PAGE)


_PAGE: Final = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Certificate of completeness</title>
<style>body{font:16px/1.5 sans-serif;max-width:60em;margin:2em auto;padding:0 1em}table{border-collapse:collapse}
td,th{border:1px solid #bbb;padding:.2em .6em;text-align:left}code{word-break:break-all}</style>
<h1>{{ "Complete" if document.complete else "Not complete" }}</h1>
<p>{{ document.targets | join(", ") }}</p>
<table><tr><th>crawl<th>columnar index<th>ZipNum<th>in one only<th>outcomes<th>findings</tr>
{% for one in document.crawls %}<tr><td>{{ one.crawl }}
{% for kind in ("parquet", "zipnum") %}<td>{{ one.indexes[kind].not_asked or one.indexes[kind].captures }}{% endfor %}
<td>{{ one.only.parquet + one.only.zipnum }}
<td>{% for name, count in one.outcomes.items() %}{{ count }} {{ name }}{{ ", " if not loop.last }}{% endfor %}
<td>{{ one.findings | join("; ") or "none" }}</tr>
{% endfor %}</table>
{% if named %}<h2>The first captures with findings</h2><table>
<tr><th>URL<th>file<th>offset<th>columnar index<th>ZipNum<th>outcome</tr>
{% for one in named %}<tr><td>{{ one.url }}<td>{{ one.warc_filename }}<td>{{ one.warc_record_offset }}
<td>{{ one.in_parquet }}<td>{{ one.in_zipnum }}<td>{{ one.outcome }} {{ one.reason or "" }}</tr>
{% endfor %}</table>{% endif %}
<h2>What it proves, and what not</h2><p>{{ document.proves }}<p>{{ document.does_not_prove }}
<p>Made at {{ document.provenance.made_at }} by cc_pipeline {{ document.provenance.software.version }} from
{{ document.provenance.source }}. All {{ document.captures.rows }} captures are in
<code>{{ document.captures.name }}</code>, SHA-256 <code>{{ document.captures.sha256 }}</code>.
</html>
"""
