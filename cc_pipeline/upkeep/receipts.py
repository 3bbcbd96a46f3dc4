"""Receipts of purges: what was held before any row went, what is gone, and a look for what is left or is back.

A receipt is a file in the lake, so that every home of it can look. It says of a target no more than its name, counts,
and digests: of what its rows said, and of the names of its files, by which one that is back is known.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

from cc_pipeline import SOFTWARE
from cc_pipeline.commoncrawl.slice_slugs import whole_slug
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.lake.lake import Lake
from cc_pipeline.lake.reading import open_bounded, quoted
from cc_pipeline.lake.slice import content_name
from cc_pipeline.lake.snapshot import published_elsewhere
from cc_pipeline.lake.streaming import count_rows
from cc_pipeline.lake.target_definitions import slugs_of
from cc_pipeline.transport.client import Transport
from cc_pipeline.upkeep.purge_plan import (
    PurgeNote,
    PurgePlan,
    purged_tables,
    read_json,
    read_note,
    refuse_unknown_tables,
    slices_of_target,
)
from cc_pipeline.workspace.workspace import Workspace

_FOLDER: Final = "receipts/"
#: Folders of the lake with files whose names a receipt may know.
_NAMED: Final = ("records/", "exports/")


@dataclass(frozen=True, slots=True)
class Held:
    """What a purge found when it began, or went on: rows by table, stored ``records`` and their ``bytes`` that no other
    target held, ``kept`` records that ``holders`` other targets held too, exported files. ``rows_sha256`` is of what
    the rows of each slice said, as tables note it; ``files`` are the SHA-256 of the names of stored and exported files,
    with the folders in which they lay."""

    at: str
    crawls: tuple[str, ...]
    rows: Mapping[str, int]
    rows_sha256: str
    records: int
    bytes: int
    kept: int
    holders: int
    exports: int
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Left:
    """What a look found, ``at`` a time. ``rows`` by table; ``files`` of the receipt; ``superseded`` files of tables
    that still have rows; ``published`` rows of this home's ``cc.duckdb``. It looked at so many ``tables``, ``names`` of
    files and files of tables that no table names any more (``old_files``)."""

    at: str
    rows: Mapping[str, int]
    files: int
    superseded: int
    published: int
    tables: int
    names: int
    old_files: int

    @property
    def nothing(self) -> bool:
        """Whether nothing is left, where somebody looked."""
        return self.tables > 0 and not (self.rows or self.files or self.superseded or self.published)


@dataclass(frozen=True, slots=True)
class Receipt:
    """Of one purge, which has ``begun``, has ``hidden`` the rows and ``ended``, at those times. ``held`` has an entry
    for each time that it found something, the first one of all; ``files`` are those of all, and what killed runs had
    left; ``left`` is what the last look found."""

    slug: str
    definition: str
    begun: str
    held: tuple[Held, ...] = ()
    files: tuple[str, ...] = ()
    hidden: str | None = None
    ended: str | None = None
    left: Left | None = None
    software: str = SOFTWARE

    @property
    def crawls(self) -> list[str]:
        """Those that it tells of: in no other can there be files of it."""
        return sorted({crawl for one in self.held for crawl in one.crawls})

    @property
    def key(self) -> str:
        """Its file in the lake."""
        return _key(self.slug, self.begun)


def hold(workspace: Workspace, note: PurgeNote, plan: PurgePlan) -> None:
    """Writes down what ``plan`` found, if anything, before any of it goes. Raises ``EnvironmentFault``."""
    known = _read(workspace.place, _key(note.slug, note.begun)) or Receipt(note.slug, note.definition, note.begun)
    names = [*(one.file for own in plan.files.values() for one in own if one.records), *plan.exports]
    if any(plan.rows.values()) or names:
        found = Held(
            _now(),
            tuple(sorted({one.crawl for one in plan.slices})),
            {table: count for table, count in plan.rows.items() if count},
            _rows_digest(workspace.lake, plan),
            plan.records,
            plan.bytes,
            plan.kept,
            len(plan.holders),
            len(plan.exports),
            _digests(names),
        )
        known = replace(known, held=(*known.held, found), files=_joined(known.files, found.files))
        _write(workspace.place, known)


def note_state(workspace: Workspace, note: PurgeNote, *, ended: bool) -> None:
    """Writes down how far the purge of ``note`` has come, where it found anything; when it has ``ended``, with a look
    at what is left. Raises ``EnvironmentFault``."""
    known = _read(workspace.place, _key(note.slug, note.begun))
    if known is None:
        return
    files = _joined(known.files, _digests(name for own in note.all_files.values() for name in own))
    hidden = None if note.removed_at is None else note.removed_at.isoformat(timespec="milliseconds")
    known = replace(known, files=files, hidden=hidden, left=None, ended=None)
    if ended:
        known = replace(known, left=look_for_rest(workspace, known), ended=_now())
    _write(workspace.place, known)


def receipts(workspace: Workspace, slug: str) -> list[Receipt]:
    """The receipts of a target, the oldest first. Raises ``EnvironmentFault``."""
    keys = [one.key for one in workspace.place.listing(f"{_FOLDER}{slug}/")]
    found = (_read(workspace.place, key) for key in keys if key.endswith(".json"))
    return sorted((one for one in found if one is not None), key=lambda one: one.begun)


def purged(workspace: Workspace) -> set[str]:
    """The slugs that have receipts. Raises ``EnvironmentFault``."""
    return {one.key.split("/")[1] for one in workspace.place.listing(_FOLDER) if one.key.endswith(".json")}


def look_for_rest(workspace: Workspace, receipt: Receipt) -> Left:
    """What is left in the lake, and in this home, of what a receipt tells of; nothing is changed.

    Raises ``EnvironmentFault`` where there is nothing to look at, or it cannot be read.
    """
    lake, slug = workspace.lake, receipt.slug
    refuse_unknown_tables(lake)
    tables = [spec.name for spec in purged_tables(lake) if lake.handle(spec) is not None]
    if not tables:
        raise EnvironmentFault(
            f"{lake.root} has none of the tables that the receipt tells of",
            "Look from a home of the lake that was purged (CC_PIPELINE_LAKE).",
        )
    own = sorted({slug, *(one.target for one in slices_of_target(lake, slug))})
    rows = {table: count_rows(lake, table, {"target": own}, ["target"]).total() for table in tables}
    rows["targets"] = len(slugs_of(lake, {slug}))
    folders = [f"{folder}{crawl}/" for folder in _NAMED for crawl in receipt.crawls]
    names = [one.key for folder in folders for one in workspace.place.listing(folder)]
    known = set(receipt.files)
    old = [(table, key) for table in tables for key in _superseded(workspace, table, receipt.crawls)]
    return Left(
        _now(),
        {table: count for table, count in rows.items() if count},
        sum(_digest(name) in known for name in names),
        sum(_has_rows(lake, key, slug) for _, key in old),
        _published(workspace, slug),
        len(tables),
        len(names),
        len(old),
    )


def sentences(workspace: Workspace, receipt: Receipt, left: Left) -> list[str]:
    """What a look found, and how it looked, for a person."""
    held = receipt.held[0]
    what = ", ".join(f"{count:,} {table}" for table, count in held.rows.items())
    said = [
        f"{receipt.definition}: purged {receipt.begun[:10]}. Held: {what}; {held.records:,} stored records "
        f"({held.bytes:,} bytes), {held.exports:,} exported files",
        f"looked at the rows of {left.tables:,} tables, {left.names:,} names of stored and exported files against "
        f"{len(receipt.files):,} of the receipt, {left.old_files:,} superseded files of tables, and cc.duckdb",
    ]
    said += [f"LEFT: {count:,} rows in {table}" for table, count in left.rows.items()]
    counts = [
        (left.files, "stored or exported files that the receipt names"),
        (left.superseded, "superseded files of tables with its rows; readers may have them open"),
        (left.published, "rows in cc.duckdb, which the next run or cc-pipeline automation upkeep publishes anew"),
    ]
    said += [f"LEFT: {count:,} {what}" for count, what in counts if count]
    if read_note(workspace.place, receipt.slug) is not None:
        said.append(f"its purge has not ended: cc-pipeline targets remove {receipt.slug} --purge goes on with it")
    if held.kept:
        said.append(f"{held.kept:,} records stayed, since {held.holders:,} other targets held them too")
    since = datetime.fromisoformat(receipt.hidden or receipt.begun)
    others = published_elsewhere(workspace.place, workspace.settings.home) if workspace.settings.lake_is_apart else {}
    if late := sum(when < since for when in others.values()):
        said.append(f"cc.duckdb of {late:,} other homes of the lake is from before it: look there too")
    return [*said, "nothing is left" if left.nothing else f"see {workspace.place.source}/{receipt.key}"]


def _superseded(workspace: Workspace, table: str, crawls: Iterable[str]) -> Iterator[str]:
    """The files in a table's folders of ``crawls`` that the table does not name."""
    live = {path.rpartition("/")[2] for path in workspace.lake.pin(table).files}
    for crawl in crawls:
        for one in workspace.place.listing(f"tables/{table}/crawl={quote(crawl, safe='')}/"):
            name = one.key.rpartition("/")[2]
            if name.endswith(".parquet") and name not in live:
                yield one.key


def _has_rows(lake: Lake, key: str, slug: str) -> bool:
    try:
        with lake.file_system().open_input_file(f"{lake.root}/{key}".removeprefix("s3://")) as source:
            for batch in pq.ParquetFile(source, pre_buffer=False).iter_batches(columns=["target"]):
                if any(whole_slug(target) == slug for target in batch.column(0).unique().to_pylist() if target):
                    return True
    except FileNotFoundError:
        pass  # deleted since the folder was read
    except pa.ArrowInvalid:
        pass  # no table names it and no reader opens it: a job is writing it, or was killed while it did; that is swept
    except (OSError, pa.ArrowException) as error:
        raise EnvironmentFault(
            f"could not read {lake.root}/{key}: {error}", "Check the place and its permissions, then run it again."
        ) from error
    return False


def _published(workspace: Workspace, slug: str) -> int:
    if not workspace.settings.published_path.exists():
        return 0
    with open_bounded(workspace.settings) as connection:
        query = f"SELECT count(*) FROM main.capture_targets WHERE target = {quoted(slug)}"
        return int((connection.execute(query).fetchone() or (0,))[0])


def _rows_digest(lake: Lake, plan: PurgePlan) -> str:
    made = hashlib.sha256()
    names = [content_name(one) for one in plan.slices]
    for spec in purged_tables(lake):
        for name, digest in sorted(lake.digests(spec.name, names).items()):
            made.update(f"{spec.name} {name} {digest}\n".encode())
    return made.hexdigest()


def _digests(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({_digest(name) for name in names}))


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()


def _joined(*files: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted({one for some in files for one in some}))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _key(slug: str, begun: str) -> str:
    return f"{_FOLDER}{slug}/{begun.replace(':', '').replace('+0000', 'Z')}.json"


def _write(place: Transport, receipt: Receipt) -> None:
    place.put(receipt.key, (json.dumps(asdict(receipt), indent=1, ensure_ascii=False) + "\n").encode())


def _read(place: Transport, key: str) -> Receipt | None:
    def of(noted: Any) -> Receipt:
        held = tuple(
            Held(**{**one, "crawls": tuple(one["crawls"]), "files": tuple(one["files"])}) for one in noted["held"]
        )
        left = None if noted["left"] is None else Left(**noted["left"])
        return Receipt(**{**noted, "held": held, "files": tuple(noted["files"]), "left": left})

    return read_json(place, key, of, "is no receipt of a purge", "It was changed, or written by a newer version.")
