"""From layout 3 to layout 4: what slices were made from, said in the words of today.

Until layout 3 a slice's digests named the digests of the stage before, the index of the whole crawl and all subsets at
once, and a second reading of all records told whether they had to be parsed. Slices that were up to date by that rule
are up to date by today's (``plan.py``), so that nothing is located, fetched or parsed again; the others keep what they
have under a digest that is none of today's. What several subsets had in one slice becomes a slice for each.

A table is changed when all that its digests are told by is still there: pages first, captures last. Each commit says
beside its digests that the table is done for a crawl. So a migration that was killed, or that another home on the lake
has made, goes on where it was: what is said in the words of today is never read as if it were of before.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain, combinations, product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline.capture_columns import CAPTURE_ORDER
from cc_pipeline.commoncrawl.crawls import ARC_CRAWLS, SUBSETS
from cc_pipeline.commoncrawl.slice_slugs import PLAIN, SEPARATOR, subsets_in, with_subset
from cc_pipeline.extraction.fetch_counts import Shortfall, shortfalls
from cc_pipeline.extraction.plan import fetched_from, located_from, parsed_from, with_open
from cc_pipeline.extraction.shortfall import fetch_rows
from cc_pipeline.index.btree.files import ABOUT, index_folder
from cc_pipeline.indexing.catalog import version_name, versions_of_rows
from cc_pipeline.lake.digests.digest import NOTHING, content_versions, input_digest
from cc_pipeline.lake.lake import Lake
from cc_pipeline.lake.ordered import OrderedRows
from cc_pipeline.lake.slice import FETCH, GONE, HARVEST, LOCATE, PARSE, Slice, Stage, content_name
from cc_pipeline.lake.streaming import count_rows, stream_rows, stream_slices
from cc_pipeline.records.places import PLACE_NAME
from cc_pipeline.records.storage import STORED
from cc_pipeline.settings import DIGEST_POLICIES, EXTRACTORS

_STAGES: Final = (LOCATE, FETCH, PARSE)
#: Committed with a table's digests of a crawl.
_DONE: Final = input_digest({"layout": 4})
#: What ``via`` could be, and how pages could be parsed: the digests do not tell. Of before layout 4: a later locator or
#: parser is not added.
_VIAS: Final = ("auto", "parquet", "btree", "zipnum")
_PARSED_AS: Final = tuple(product(("2", "1"), EXTRACTORS, (False, True)))
#: Bytes that are written anew in seconds.
_SMALL: Final = 64 << 20
_EVERY: Final = tuple(chain.from_iterable(combinations(SUBSETS, count) for count in range(1, len(SUBSETS) + 1)))
_OUTCOMES: Final = (*CAPTURE_ORDER, "outcome")
_STANDING: Final = (
    *("target", "subset", "url", "outcome", "reason", "detail", "settled", "rounds", "digest_check", "payload_length"),
    *(*PLACE_NAME, *STORED),
)


@dataclass(frozen=True, slots=True)
class _Before:
    """A slice of layout 3: the subsets it has, its digests by stage, the ``version`` of its definition where that and
    its index are those of now (else empty), and whether it was located over no holes."""

    slice_: Slice
    subsets: tuple[str, ...]
    digests: Mapping[str, str | None]
    version: str
    complete: bool

    @property
    def today(self) -> list[Slice]:
        """Its slices of now."""
        return [Slice(self.slice_.crawl, with_subset(self.slice_.target, one)) for one in self.subsets]

    @property
    def is_split(self) -> bool:
        """Whether its rows get other slugs."""
        return self.subsets != (PLAIN,)


def to_layout_4(lake: Lake) -> None:
    """Brings all slices to layout 4. May be killed at any moment and run again."""
    # indexes built here lie in the home; of a lake elsewhere nobody knows which home that was
    home = Path(lake.root).parent
    harvested = [one.crawl for name in lake.digest_names("row_groups") or () if (one := HARVEST.slice_of(name))]
    for crawl in dict.fromkeys(harvested):
        _indexes_now(lake, home, crawl)
    for crawl, slices in _slices_before(lake, home).items():
        _Crawl(lake, home, crawl, slices).migrate()


def _mark(crawl: str) -> dict[str, str]:
    """What says that a table's slices of a crawl are in the words of today."""
    return {f"layout4:{crawl}": _DONE}


def _is_done(lake: Lake, table: str, crawl: str) -> bool:
    return lake.holds(table, _mark(crawl))


def bytes_to_split(lake: Lake) -> int:
    """About how many bytes are written anew: those of slices that several subsets share; none where that is a matter of
    seconds, so that nobody is asked."""
    rows = lake.read("lookups", columns=["subsets", "captures"])
    shared = sum(row["captures"] for row in rows.to_pylist() if tuple(row["subsets"]) != (PLAIN,))
    pinned = [lake.pin(table) for stage in (LOCATE, FETCH, PARSE) for table in stage.tables]
    size = sum(int(table.bytes * min(1.0, shared / max(1, pinned[0].rows))) for table in pinned) if shared else 0
    return size if size > _SMALL else 0


def _slices_before(lake: Lake, home: Path) -> dict[str, list[_Before]]:
    """The slices that were located, by crawl."""
    versions = {row["slug"]: row["version"] for row in lake.read("targets", columns=["slug", "version"]).to_pylist()}
    noted: dict[Slice, set[str]] = {}
    today: dict[Slice, str] = {}
    columns = ["crawl", "target", "subsets", "made_from", "definition"]
    for row in lake.read("lookups", columns=columns).to_pylist():
        if row["definition"] is not None:
            today[Slice(row["crawl"], row["target"])] = row["made_from"]
        noted.setdefault(Slice(row["crawl"], Slice("", row["target"]).defined), set()).update(row["subsets"])
    names = [one for name in lake.digest_names("captures") or () if (one := LOCATE.slice_of(name)) is not None]
    done = {crawl for crawl in {one.crawl for one in names} if _is_done(lake, "captures", crawl)}
    names = [one for one in names if one.crawl not in done]
    made = {stage.label: _made_before(lake, stage, names) for stage in _STAGES}
    found: dict[str, list[_Before]] = {}
    for slice_ in names:
        digests = {label: own[slice_] for label, own in made.items()}
        here = digests[LOCATE.label]
        # a slice whose note names its definition was located by today's rule
        if here is None or here == GONE or slice_.subset != PLAIN or here == today.get(slice_):
            continue
        version, index = versions.get(slice_.target, ""), _index_before(lake, home, slice_)
        sets = [tuple(sorted(noted[slice_]))] if slice_ in noted else _EVERY
        subsets, complete = _located(slice_, here, version, index, sets)
        kept = subsets_in(slice_.crawl, noted.get(slice_) or subsets or _of_rows(lake, slice_))
        in_order = tuple(one for one in SUBSETS if one in kept) or (PLAIN,)
        found.setdefault(slice_.crawl, []).append(
            _Before(slice_, in_order, digests, version if subsets else "", complete)
        )
    return found


def _made_before(lake: Lake, stage: Stage, slices: list[Slice]) -> dict[Slice, str | None]:
    """What slices were made from, by the tables of the stage that are still as they were before."""
    found: dict[Slice, str | None] = {}
    for crawl in {one.crawl for one in slices}:
        mine = {one: stage.digest_name(one) for one in slices if one.crawl == crawl}
        tables = [table for table in stage.tables if not _is_done(lake, table, crawl)]
        agreed = lake.agreed(tables, list(mine.values())) if tables else {}
        found |= {one: agreed.get(name) for one, name in mine.items()}
    return found


def _of_rows(lake: Lake, slice_: Slice) -> set[str]:
    return {subset for (subset,) in count_rows(lake, "captures", slice_.where, ["subset"])}


def _located(
    slice_: Slice, here: str | None, version: str, index: str, sets: Iterable[tuple[str, ...]]
) -> tuple[tuple[str, ...], bool]:
    """The subsets with which a slice would be located as it was, none where it would not; and whether that was over no
    holes."""
    for subsets, via in product(sets, _VIAS):
        whole = LOCATE.digest(
            version="1", crawl=slice_.crawl, index=index, subsets=sorted(subsets), via=via, target=version
        )
        if here in (whole, input_digest({"gaps": whole})):
            return tuple(one for one in SUBSETS if one in subsets), here == whole
    return (), True


def _index_before(lake: Lake, home: Path, slice_: Slice) -> str:
    built = index_folder(home / "url-index", slice_.crawl) / ABOUT
    harvested = lake.digest("row_groups", HARVEST.digest_name(Slice(slice_.crawl)))
    return input_digest({"built": built.read_text("utf-8") if built.exists() else None, "row_groups": harvested})


class _Crawl:
    """The slices of one crawl on their way."""

    def __init__(self, lake: Lake, home: Path, crawl: str, slices: list[_Before]) -> None:
        self._lake = lake
        self._crawl = crawl
        self._slices = slices
        self._split = pa.array([one.slice_.target for one in slices if one.is_split], pa.string())
        every = sorted({target.target for one in slices for target in (one.slice_, *one.today)})
        self._where = {"crawl": crawl, "target": every}
        self._indexes = _indexes_now(lake, home, crawl)
        self._lookups = self._noted("lookups")
        self._fetches = self._noted("fetches")
        self._contents = {table: self._contents_of(table) for table in ("captures", "records")}

    def migrate(self) -> None:
        """Pages first, captures last."""
        records = (self._relabelled(batch) for batch in stream_rows(self._lake, "records", self._where, _STANDING))
        found = shortfalls(records, [one for before in self._slices for one in before.today])
        located = {one: self._located_from(before, one) for before in self._slices for one in before.today}
        fetched: dict[Slice, str] = {}
        parsed: dict[Slice, str] = {}
        outcomes = self._outcomes()
        for before in self._slices:
            for one in before.today:
                captures = self._contents["captures"].get(one, located[one])
                if (digest := _fetched_from(before, captures)) is not None:
                    fetched[one] = with_open(digest) if found[one].unsettled else digest
                    says = self._contents["records"].get(one, fetched[one])
                    if (digest := _parsed_from(before, says, outcomes.get(before.slice_.target, ""))) is not None:
                        parsed[one] = digest
        self._commit(PARSE, parsed)
        if not _is_done(self._lake, "records", self._crawl):
            self._note_fetches(found, fetched)
        self._commit(FETCH, fetched)
        self._note("lookups", {one: self._lookup(b, one, located[one]) for b in self._slices for one in b.today})
        self._commit(LOCATE, located)

    def _note_fetches(self, found: Mapping[Slice, Shortfall], fetched: Mapping[Slice, str]) -> None:
        silent = {one: row["silent_runs"] for one, row in self._fetches.items()}
        rows = fetch_rows({one: found[one] for one in fetched}, fetched, silent)
        asked = {one: row["asked_at"] for one, row in self._fetches.items() if row["asked_at"] is not None}
        self._note("fetches", {one: {**row, "asked_at": asked.get(one, row["asked_at"])} for one, row in rows.items()})

    def _noted(self, table: str) -> dict[Slice, dict[str, Any]]:
        rows = self._lake.read(table, self._where).to_pylist()
        return {Slice(row["crawl"], row["target"]): row for row in rows}

    def _relabelled(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Rows under the slugs of today."""
        target, subset = batch.column("target"), batch.column("subset")
        moves = pc.and_(pc.is_in(target, self._split), pc.not_equal(subset, PLAIN))
        named = pc.if_else(moves, pc.binary_join_element_wise(target, subset, SEPARATOR), target)
        return batch.set_column(batch.schema.get_field_index("target"), batch.schema.field("target"), named)

    def _contents_of(self, table: str) -> dict[Slice, str]:
        """What the rows of each slice of today say; unknown of those that earlier versions did not tell of."""
        names = {content_name(one.slice_): one.slice_ for one in self._slices if not one.is_split}
        known = self._lake.digests(table, [*names])
        found = {names[name]: digest for name, digest in known.items() if digest is not None}
        return found | (self._count(table) if len(self._split) else {})

    def _count(self, table: str) -> dict[Slice, str]:
        apart = (*self._lake.specs[table].apart, "crawl")
        numbers = content_versions(self._rows(table), "target", apart)
        return {one: numbers.get(one.target, NOTHING) for b in self._slices if b.is_split for one in b.today}

    def _rows(self, table: str) -> Iterator[pa.RecordBatch]:
        """The rows of slices that are split, under the slugs of today."""
        schema = self._lake.specs[table].schema
        targets = [target.target for one in self._slices if one.is_split for target in (one.slice_, *one.today)]
        names = [name for name in schema.names if name != "crawl"]
        for batch in stream_slices(self._lake, table, self._crawl, targets, names):
            rows = pa.Table.from_batches([batch])
            crawl = pa.repeat(pa.scalar(self._crawl, pa.string()), rows.num_rows)
            for part in rows.append_column("crawl", crawl).select(schema.names).cast(schema).to_batches():
                yield self._relabelled(part)

    def _outcomes(self) -> dict[str, str]:
        """What layout 3 read of all records to know whether they had to be parsed, by target."""
        digests = {one.slice_.target: hashlib.sha256() for one in self._slices}
        schema = self._lake.specs["records"].schema
        with TemporaryDirectory(prefix="cc-pipeline-") as folder:
            rows = OrderedRows(pa.schema([schema.field(name) for name in _OUTCOMES]), _OUTCOMES, Path(folder))
            for batch in stream_rows(self._lake, "records", self._where, _OUTCOMES):
                rows.add(batch)
            for batch in rows.batches():
                for row in zip(*(batch.column(name).to_pylist() for name in _OUTCOMES), strict=True):
                    if row[0] in digests:
                        digests[row[0]].update(repr([*row]).encode())
        return {target: digest.hexdigest()[:16] for target, digest in digests.items()}

    def _located_from(self, before: _Before, one: Slice) -> str:
        by = self._located_by(before)
        if not before.version:
            return _of_before(before.digests[LOCATE.label])
        return located_from(self._crawl, before.version, by, self._indexes.get((by, one.subset), ""))

    def _located_by(self, before: _Before) -> str:
        row = self._lookups.get(before.slice_)
        if row is not None and row["located_by"]:
            return str(row["located_by"])
        found = count_rows(self._lake, "captures", before.slice_.where, ["located_by"])
        # a slice without captures does not tell; the usual index of its crawl it is
        return next((by for (by,) in found), "btree" if self._crawl in ARC_CRAWLS else "parquet")

    def _lookup(self, before: _Before, one: Slice, digest: str) -> dict[str, object]:
        row = self._lookups.get(one) or self._lookups.get(before.slice_) or {}
        captures = row.get("captures")
        if captures is None or before.is_split:
            where = {"crawl": self._crawl, "target": [before.slice_.target, one.target]}
            captures = count_rows(self._lake, "captures", where, ["subset"])[(one.subset,)]
        by = self._located_by(before)
        return {
            "index_files": None, "unread_files": 0, "unread": [], "looked_up_at": datetime.now(UTC),
            **row,
            # which member has how many captures is counted anew where they are fewer now
            "members": None if before.is_split else row.get("members"),
            "located_by": by, "subsets": [one.subset], "captures": captures, "made_from": digest,
            "complete": row.get("complete", before.complete), "definition": before.version,
            "index_version": self._indexes.get((by, one.subset), ""),
        }  # fmt: skip

    def _note(self, table: str, rows: Mapping[Slice, Mapping[str, object]]) -> None:
        """Replaces the rows of the crawl's slices in a table that has one row a slice."""
        schema = self._lake.specs[table].schema
        full = [{name: row.get(name) for name in schema.names} | one.where for one, row in rows.items()]
        slices = [{"crawl": self._crawl, "target": target} for target in self._where["target"]]
        self._lake.commit(table, pa.Table.from_pylist(full, schema=schema), slices, {})

    def _commit(self, stage: Stage, digests: Mapping[Slice, str]) -> None:
        """Commits the digests of today; slices that are split with the rows that they have now."""
        mark = _mark(self._crawl)
        for table in stage.tables:
            if self._lake.holds(table, mark):
                continue
            split = [one for before in self._slices if before.is_split for one in (before.slice_, *before.today)]
            plain = {stage.digest_name(one): digest for one, digest in digests.items() if one not in split}
            here = self._lake.digests(table, [stage.digest_name(before.slice_) for before in self._slices])
            made = [b for b in self._slices if b.is_split and here[stage.digest_name(b.slice_)] is not None]
            named = {one: digests.get(one, _of_before(b.digests[stage.label])) for b in made for one in b.today}
            gone = {b.slice_: GONE for b in made if PLAIN not in b.subsets}
            new = {stage.digest_name(one): digest for one, digest in (named | gone).items()}
            if made:
                contents = {content_name(one): NOTHING for one in gone}
                contents |= {content_name(one): number for one, number in self._count(table).items() if one in named}
                rows = pa.Table.from_batches(self._rows(table), self._lake.specs[table].schema)
                self._lake.commit(
                    table, rows, [one.where for one in dict.fromkeys(split)], new | contents | plain | mark
                )
            else:
                self._lake.commit_digests(table, plain | mark)


def _fetched_from(before: _Before, captures: str) -> str | None:
    """The digest of today of what was fetched, from what its captures say; ``None`` where nothing was fetched."""
    here = before.digests[FETCH.label]
    if here is None:
        return None
    for policy in DIGEST_POLICIES:
        whole = FETCH.digest(version="1", digest_policy=policy, located=before.digests[LOCATE.label])
        if here in (whole, input_digest({"incomplete": whole})):
            return fetched_from(captures, policy)
    return _of_before(here)


def _parsed_from(before: _Before, records: str, outcomes: str) -> str | None:
    here = before.digests[PARSE.label]
    if here is None:
        return None
    fetched = before.digests[FETCH.label]
    for parser, extractor, markdown in _PARSED_AS:
        options = f"{extractor} markdown" if markdown else extractor
        if here == PARSE.digest(parser=parser, main_content=options, fetched=fetched, outcomes=outcomes):
            return parsed_from(records, parser, extractor, markdown)
    return _of_before(here)


def _of_before(digest: str | None) -> str:
    """A digest that is none of today's."""
    return input_digest({"layout": 3, "digest": digest})


def _indexes_now(lake: Lake, home: Path, crawl: str) -> dict[tuple[str, str], str]:
    """The versions of a crawl's indexes by kind and subset, as ``locate.py`` has them. Those of the columnar index are
    written down where they were not."""
    built = index_folder(home / "url-index", crawl) / ABOUT
    columnar = {} if crawl in ARC_CRAWLS else versions_of_rows(lake, crawl)
    names = {version_name(crawl, subset): version for subset, version in columnar.items()}
    if names and not lake.holds("row_groups", names):
        lake.commit_digests("row_groups", names)
    found = {("parquet", subset): version for subset, version in columnar.items()}
    for subset in SUBSETS:
        if built.exists():
            found["btree", subset] = input_digest({"built": built.read_text("utf-8")})
        elif crawl in ARC_CRAWLS:
            found["btree", subset] = "published"
    return found
