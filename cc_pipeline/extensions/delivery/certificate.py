"""A certificate of completeness: what two indexes list of targets, and what became of each capture that one lists.

It is a JSON document, a Parquet file of all captures that it counts, and a page for people. It proves that neither
index lost rows that the other has, and that everything listed is accounted for. It does not prove that an index is
whole: both are made of the same logs of a crawl. Nobody signs it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from cc_pipeline.extensions.delivery.manifest import delivery_of_manifest, key_in, read_table
from cc_pipeline.extensions.delivery.verifying import verify_place
from cc_pipeline.extraction.locate import index_sources
from cc_pipeline.index.gaps import NotHarvested
from cc_pipeline.index.locator import NoSuchIndex
from cc_pipeline.index.lookup import look_up
from cc_pipeline.transport.client import Transport
from cc_pipeline.workspace.workspace import Workspace

FORMAT: Final = "cc_pipeline certificate"
VERSION: Final = 1
INDEXES: Final = ("parquet", "zipnum")
#: What became of a capture that an index lists: as in ``records``, or nobody asked for it here.
NOT_ASKED: Final = "not asked"
#: Why an index was not asked: what a fault itself says may name a path of the home.
_NO_ANSWER: Final[Mapping[type[Exception], str]] = {
    NoSuchIndex: "the crawl has none here",
    UserInputError: "it cannot answer this",
    NotHarvested: "it was not harvested for these subsets",
    EnvironmentFault: "it could not be read",
}
_NAMED: Final = 10
_KEY: Final = ("crawl", "warc_filename", "warc_record_offset")
_LISTED: Final = (*_KEY, "warc_record_length", "url", "content_digest", "subset")
_SCHEMA: Final = pa.schema(
    [
        ("crawl", pa.string()), ("subset", pa.string()), ("warc_filename", pa.string()),
        ("warc_record_offset", pa.int64()), ("warc_record_length", pa.int64()), ("url", pa.string()),
        ("content_digest", pa.string()), ("in_parquet", pa.bool_()), ("in_zipnum", pa.bool_()),
        ("outcome", pa.string()), ("reason", pa.string()),
    ]
)  # fmt: skip
PROVES: Final = (
    "Of the targets and crawls named, each capture that the columnar index or ZipNum lists is named in the file of "
    "captures, with what became of it. Where both were asked without holes, neither lists a capture that the other "
    "lacks, but for those counted as such."
)
PROVES_NOT: Final = (
    "Both indexes are made of the same logs of a crawl, so what those lack is in neither. Pages that the crawler did "
    "not visit are in no index. The certificate is not signed: whoever can change it can write another one."
)


@dataclass(frozen=True, slots=True)
class AskedIndex:
    """What one index said: how many captures, its version, the files it could not read, or why it was not asked.
    ``captures`` and ``version`` are ``None`` where they are not known: of an index that was not asked, which may list
    captures, and ``version`` of one that names none."""

    captures: int | None = None
    version: str | None = None
    holes: tuple[str, ...] = ()
    not_asked: str = ""


@dataclass(frozen=True, slots=True)
class CertifiedCrawl:
    """One crawl. ``only`` counts captures that one index alone lists, ``outcomes`` all captures listed."""

    crawl: str
    indexes: Mapping[str, AskedIndex]
    only: Mapping[str, int]
    outcomes: Mapping[str, int]

    @property
    def findings(self) -> list[str]:
        """What keeps the crawl from being complete, in words; nothing where it is."""
        said = [f"{kind} was not asked: {one.not_asked}" for kind, one in self.indexes.items() if one.not_asked]
        said += [f"{kind} has holes: {hole}" for kind, one in self.indexes.items() for hole in one.holes]
        said += [f"{count:,} captures are in {kind} alone" for kind, count in self.only.items() if count]
        said += [
            f"{count:,} captures are {name}" for name, count in self.outcomes.items() if name != "fetched" and count
        ]
        return said


def certify(
    workspace: Workspace,
    targets: Sequence[Target],
    crawls: Sequence[str],
    provenance: Provenance,
    out: Path,
    tell: Callable[[str], object],
) -> dict[str, Any]:
    """Asks both indexes of each crawl, compares them with each other and with what the home fetched, and writes the
    certificate ``out`` (JSON), with ``.captures.parquet`` and ``.html`` in the place of its suffix; gives the document.
    Why an index was not asked is told in full, and written in words that name no path.

    Raises as look-ups do, but for a missing index and for holes: these are written down. Raises ``UserInputError`` for
    captures that were added: no index tells which these are.
    """
    if added := [target.definition for target in targets if target.kind == GIVEN_KIND]:
        raise UserInputError(f"{added[0]} is captures that were added, which no index lists as such; name a site")
    certified: list[CertifiedCrawl] = []
    named: list[dict[str, Any]] = []
    count, listed = 0, beside(out, "captures.parquet")
    with disk_trouble(out):
        with written_whole(listed) as path, pq.ParquetWriter(path, _SCHEMA, compression="zstd") as writer:
            for crawl in crawls:
                rows, asked = _asked(workspace, crawl, targets, tell)
                rows = _with_outcomes(workspace, crawl, rows).sort_by([(name, "ascending") for name in _KEY])
                writer.write_table(rows)
                certified.append(_counted(crawl, rows, asked))
                named += _named(rows, _NAMED - len(named))
                count += len(rows)
        document = {
            "format": FORMAT,
            "version": VERSION,
            "targets": [target.written for target in targets],
            "complete": not any(one.findings for one in certified),
            "crawls": [asdict(one) | {"findings": one.findings} for one in certified],
            "captures": {"name": listed.name, "rows": count, "sha256": sha256_of(listed)},
            "proves": PROVES,
            "does_not_prove": PROVES_NOT,
            "provenance": provenance.as_json(),
        }
        document["sha256"] = _seal(document)
        write_whole(out, json.dumps(document, indent=1, ensure_ascii=False) + "\n")
        write_whole(beside(out, "html"), _template().render(document=document, named=named))
    return document


def beside(out: Path, suffix: str) -> Path:
    """A file of the certificate ``out``: the same name with another suffix."""
    return out.with_name(f"{out.name.removesuffix('.json')}.{suffix}")


def _seal(document: Mapping[str, Any]) -> str:
    """The SHA-256 of all that the document says, however it is laid out."""
    said = {name: value for name, value in document.items() if name != "sha256"}
    return sha256(json.dumps(said, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def _asked(
    workspace: Workspace, crawl: str, targets: Sequence[Target], tell: Callable[[str], object]
) -> tuple[pa.Table, dict[str, AskedIndex]]:
    """The captures that any index lists, each once, with which lists it; and what each index said."""
    sources = replace(index_sources(workspace, crawl), max_gaps=1.0)
    found: dict[str, pa.Table] = {}
    asked: dict[str, AskedIndex] = {}
    for kind in INDEXES:
        try:
            answers = [
                look_up(crawl, subsets, some, sources, via=kind)
                for subsets, some in by_subsets(targets, workspace.settings.subsets).items()
            ]
        except (*_NO_ANSWER,) as fault:
            tell(f"{crawl}: {kind} was not asked: {fault}")
            asked[kind] = AskedIndex(not_asked=next(said for of, said in _NO_ANSWER.items() if isinstance(fault, of)))
            found[kind] = _SCHEMA.empty_table().select(_LISTED)
            continue
        rows = pa.concat_tables([table.select(_LISTED) for one in answers for table in one.captures.values()])
        first = rows.append_column("row", pa.array(range(len(rows)))).group_by(list(_KEY)).aggregate([("row", "min")])
        found[kind] = rows.take(first["row_min"])
        gaps = [one.gaps for one in answers if one.gaps is not None]
        holes = tuple(dict.fromkeys(f"{one.what} could not be read: {one.named}" for one in gaps))
        asked[kind] = AskedIndex(len(found[kind]), answers[0].index_version or None, holes)
    left, right = found["parquet"], found["zipnum"]
    both = left.select(_KEY).append_column("in_parquet", pa.array([True] * len(left), pa.bool_())).join(
        right.select(_KEY).append_column("in_zipnum", pa.array([True] * len(right), pa.bool_())),
        list(_KEY), join_type="full outer", coalesce_keys=True,
    )  # fmt: skip
    described = left.join(both, list(_KEY), join_type="inner")
    alone = right.join(both.filter(pc.is_null(both["in_parquet"])), list(_KEY), join_type="inner")
    whole = pa.concat_tables(
        [described.select([*_LISTED, "in_parquet", "in_zipnum"]), alone.select([*_LISTED, "in_parquet", "in_zipnum"])]
    )
    for name in ("in_parquet", "in_zipnum"):
        whole = whole.set_column(whole.schema.get_field_index(name), name, pc.fill_null(whole[name], False))
    return whole, asked


def _with_outcomes(workspace: Workspace, crawl: str, rows: pa.Table) -> pa.Table:
    """``rows`` with what the home's records say of each capture."""
    files = pc.unique(rows["warc_filename"]).to_pylist()
    columns = [*_KEY, "outcome", "reason"]
    records = workspace.lake.read("records", {"crawl": crawl, "warc_filename": files}, columns) if files else None
    if records is None:
        known = pa.table({name: pa.array([], _SCHEMA.field(name).type) for name in columns})
    else:
        # a capture of two targets has a row of each, with one outcome
        known = records.group_by(list(_KEY)).aggregate([("outcome", "min"), ("reason", "min")])
        known = known.rename_columns([*_KEY, "outcome", "reason"])
    joined = rows.join(known, list(_KEY), join_type="left outer")
    outcome = pc.fill_null(joined["outcome"], NOT_ASKED)
    joined = joined.set_column(joined.schema.get_field_index("outcome"), "outcome", outcome)
    return joined.select(_SCHEMA.names).cast(_SCHEMA)


def _counted(crawl: str, rows: pa.Table, asked: Mapping[str, AskedIndex]) -> CertifiedCrawl:
    only = {
        "parquet": pc.sum(pc.invert(rows["in_zipnum"])).as_py() or 0,
        "zipnum": pc.sum(pc.invert(rows["in_parquet"])).as_py() or 0,
    }
    # one that was not asked lacks nothing
    only = {kind: 0 if any(one.not_asked for one in asked.values()) else count for kind, count in only.items()}
    return CertifiedCrawl(crawl, dict(asked), only, dict(sorted(Counter(rows["outcome"].to_pylist()).items())))


def _named(captures: pa.Table, most: int) -> list[dict[str, Any]]:
    """The first captures that are not as they should be."""
    alone = pc.or_(pc.invert(captures["in_parquet"]), pc.invert(captures["in_zipnum"]))
    rows = captures.filter(pc.or_(alone, pc.not_equal(captures["outcome"], "fetched")))
    named: list[dict[str, Any]] = rows.slice(0, most).to_pylist()
    return named


def verify_certificate(path: Path, place: Transport) -> list[str]:
    """What of a certificate is not so, in words, given a delivery: its own digests and counts, every byte that the
    delivery's manifests name, and that each capture which it calls fetched is in the delivery. Nothing: all is so.

    Raises ``DataFault`` for a file that is no certificate, ``UserInputError`` where there is no delivery, and
    ``EnvironmentFault``.
    """
    try:
        document = json.loads(path.read_bytes())
        if document["format"] != FORMAT or document["version"] != VERSION:
            raise ValueError("of another format")
        said, listed = str(document["sha256"]), beside(path, "captures.parquet")
        wrong = [] if _seal(document) == said else [f"{path.name}: it was changed after it was written"]
        if sha256_of(listed) != document["captures"]["sha256"]:
            return [*wrong, f"{listed.name}: its SHA-256 is not the certificate's"]
        captures = pq.read_table(listed, schema=_SCHEMA)
        wrong += list(_miscounted(document, captures))
    except (ValueError, KeyError, TypeError, pa.ArrowException) as error:
        raise DataFault(DataKind.MALFORMED, path.name, None, f"it is no certificate ({error!r:.100})") from error
    wrong += verify_place(place).all_wrong
    there = _delivered(place)
    fetched = captures.filter(pc.equal(captures["outcome"], "fetched")).select(_KEY)
    lacking = fetched.join(there, list(_KEY), join_type="left anti").sort_by([(name, "ascending") for name in _KEY])
    wrong += [
        f"{row['warc_filename']} at {row['warc_record_offset']}: fetched by the certificate, and not in the delivery"
        for row in lacking.slice(0, _NAMED).to_pylist()
    ]
    if len(lacking) > _NAMED:
        wrong.append(f"{len(lacking) - _NAMED:,} more captures are not in the delivery")
    return wrong


def _miscounted(document: Mapping[str, Any], captures: pa.Table) -> Iterator[str]:
    for one in document["crawls"]:
        own = captures.filter(pc.equal(captures["crawl"], one["crawl"]))
        if dict(Counter(own["outcome"].to_pylist())) != one["outcomes"]:
            yield f"{one['crawl']}: the certificate counts other outcomes than its file of captures has"
        for kind in INDEXES:
            count = pc.sum(own[f"in_{kind}"]).as_py() or 0
            said = one["indexes"][kind]["captures"] or 0  # null: it was not asked
            if count != said:
                yield f"{one['crawl']}: {kind} lists {said:,} captures, the file of captures has {count:,}"


def _delivered(place: Transport) -> pa.Table:
    """The captures in the parts that the manifests of ``place`` name."""
    found = []
    sizes = {one.key: one.size for one in place.listing("")}
    for key in sizes:
        folder, _, name = key.rpartition("/")
        if delivery_of_manifest(name) is None:
            continue
        try:
            for part in read_manifest(place, key).parts:
                where = key_in(folder, part.list.name)
                if where in sizes and key_in(folder, part.file.name) in sizes:
                    found.append(read_table(place, where, sizes[where], _KEY)[0].select(_KEY))
        except DataFault:
            continue  # verify_place has named it
    kinds = [(name, _SCHEMA.field(name).type) for name in _KEY]
    return pa.concat_tables([pa.schema(kinds).empty_table(), *(table.cast(pa.schema(kinds)) for table in found)])


@cache
def _template() -> Template:
    return Environment(autoescape=True, undefined=StrictUndefined).from_string(_PAGE)


_PAGE: Final = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Certificate of completeness</title>
<style>body{font:16px/1.5 sans-serif;max-width:60em;margin:2em auto;padding:0 1em}table{border-collapse:collapse}
td,th{border:1px solid #bbb;padding:.2em .6em;text-align:left}code{word-break:break-all}</style>
<h1>{{ "Complete" if document.complete else "Not complete" }}</h1>
<p>{{ document.targets | join(", ") }}</p>
<table><tr><th>crawl<th>columnar index<th>ZipNum<th>in one alone<th>what became of the captures<th>findings</tr>
{% for one in document.crawls %}<tr><td>{{ one.crawl }}
{% for kind in ("parquet", "zipnum") %}<td>{{ one.indexes[kind].not_asked or one.indexes[kind].captures }}{% endfor %}
<td>{{ one.only.parquet + one.only.zipnum }}
<td>{% for name, count in one.outcomes.items() %}{{ count }} {{ name }}{{ ", " if not loop.last }}{% endfor %}
<td>{{ one.findings | join("; ") or "none" }}</tr>
{% endfor %}</table>
{% if named %}<h2>The first captures that are not as they should be</h2><table>
<tr><th>URL<th>file<th>offset<th>columnar index<th>ZipNum<th>outcome</tr>
{% for one in named %}<tr><td>{{ one.url }}<td>{{ one.warc_filename }}<td>{{ one.warc_record_offset }}
<td>{{ one.in_parquet }}<td>{{ one.in_zipnum }}<td>{{ one.outcome }} {{ one.reason or "" }}</tr>
{% endfor %}</table>{% endif %}
<h2>What it proves, and what not</h2><p>{{ document.proves }}<p>{{ document.does_not_prove }}
<p>Made at {{ document.provenance.made_at }} by cc_pipeline {{ document.provenance.software.version }} from
{{ document.provenance.sources | join(", ") }}. All {{ document.captures.rows }} captures are in
<code>{{ document.captures.name }}</code>, SHA-256 <code>{{ document.captures.sha256 }}</code>.
</html>
"""
