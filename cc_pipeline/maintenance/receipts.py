"""Receipts of purges: an inventory from before the purge, the times of its steps, and the search for leftovers.

A receipt is a file in the lake, so that every home of it can search. Of a target it has only the name, counts, and
digests: of its rows, and of the names of its files, so that a file that is back is recognized.
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
from cc_pipeline.lake.published_file import open_bounded
from cc_pipeline.lake.quoting import quote_literal
from cc_pipeline.lake.slice import content_name
from cc_pipeline.lake.snapshot import find_other_publications
from cc_pipeline.lake.streaming import count_rows
from cc_pipeline.lake.target_definitions import find_defining_slugs
from cc_pipeline.maintenance.purge_plan import (
    PurgeNote,
    PurgePlan,
    purged_tables,
    read_json,
    read_note,
    refuse_unknown_tables,
    slices_of_target,
)
from cc_pipeline.progress import format_count
from cc_pipeline.transport.client import Transport
from cc_pipeline.workspace.workspace import Workspace

_FOLDER: Final = "receipts/"
#: Folders of the lake with files whose names a receipt may have.
_FILE_FOLDERS: Final = ("records/", "exports/")


@dataclass(frozen=True, slots=True)
class PurgeInventory:
    """The inventory of a purge when it began or continued, ``at`` a time: ``rows`` by table, stored ``records`` and
    their ``bytes`` that no other target has, ``kept`` records that ``holders`` other targets have too, and exported
    files (``exports``). ``rows_sha256`` is the digest of the content digests of all slices; ``files`` are the SHA-256
    of the names of stored and exported files, folders included."""

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
class Leftovers:
    """The leftovers of a purge, found ``at`` a time: ``rows`` by table, ``files`` of the receipt, ``superseded`` files
    of tables that still have rows, and ``published`` rows of this home's ``cc.duckdb``. ``tables``, ``names`` of files
    and ``old_files`` (superseded files of tables) are how many were searched."""

    at: str
    rows: Mapping[str, int]
    files: int
    superseded: int
    published: int
    tables: int
    names: int
    old_files: int

    @property
    def is_clean(self) -> bool:
        """Whether the search found no leftovers; ``False`` if there were no tables to search."""
        return self.tables > 0 and not (self.rows or self.files or self.superseded or self.published)


@dataclass(frozen=True, slots=True)
class Receipt:
    """The receipt of one purge: the times when it had ``begun``, had ``hidden`` the rows and ``ended``. ``held`` has an
    inventory for each time that it found rows or files, the complete one first; ``files`` are those of all inventories
    and those of killed runs; ``left`` are the last leftovers."""

    slug: str
    definition: str
    begun: str
    held: tuple[PurgeInventory, ...] = ()
    files: tuple[str, ...] = ()
    hidden: str | None = None
    ended: str | None = None
    left: Leftovers | None = None
    software: str = SOFTWARE

    @property
    def crawls(self) -> list[str]:
        """The crawls of the inventories. No other crawl can have files of the target."""
        return sorted({crawl for inventory in self.held for crawl in inventory.crawls})

    @property
    def key(self) -> str:
        """The key of its file in the lake."""
        return _key(self.slug, self.begun)


def record_inventory(workspace: Workspace, note: PurgeNote, plan: PurgePlan) -> None:
    """Records the inventory of ``plan``, if it is not empty, before anything is deleted. Raises
    ``EnvironmentFault``."""
    receipt = _read(workspace.place, _key(note.slug, note.begun)) or Receipt(note.slug, note.definition, note.begun)
    names = [*(share.file for shares in plan.files.values() for share in shares if share.records), *plan.exports]
    if any(plan.rows.values()) or names:
        inventory = PurgeInventory(
            _now(),
            tuple(sorted({slice_.crawl for slice_ in plan.slices})),
            {table: count for table, count in plan.rows.items() if count},
            _rows_digest(workspace.lake, plan),
            plan.records,
            plan.bytes,
            plan.kept_records,
            len(plan.holders),
            len(plan.exports),
            _digests(names),
        )
        receipt = replace(receipt, held=(*receipt.held, inventory), files=_join_names(receipt.files, inventory.files))
        _write(workspace.place, receipt)


def update_receipt(workspace: Workspace, note: PurgeNote, *, ended: bool) -> None:
    """Updates the receipt of the purge of ``note``, if there is one; if it has ``ended``, with its leftovers. Raises
    ``EnvironmentFault``."""
    receipt = _read(workspace.place, _key(note.slug, note.begun))
    if receipt is None:
        return
    files = _join_names(receipt.files, _digests(name for file_names in note.all_files.values() for name in file_names))
    hidden = None if note.removed_at is None else note.removed_at.isoformat(timespec="milliseconds")
    receipt = replace(receipt, files=files, hidden=hidden, left=None, ended=None)
    if ended:
        receipt = replace(receipt, left=find_leftovers(workspace, receipt), ended=_now())
    _write(workspace.place, receipt)


def read_receipts(workspace: Workspace, slug: str) -> list[Receipt]:
    """Reads the receipts of a target, the oldest first. Raises ``EnvironmentFault``."""
    keys = [stored_file.key for stored_file in workspace.place.listing(f"{_FOLDER}{slug}/")]
    parsed_receipts = (_read(workspace.place, key) for key in keys if key.endswith(".json"))
    return sorted((receipt for receipt in parsed_receipts if receipt is not None), key=lambda receipt: receipt.begun)


def list_purged_slugs(workspace: Workspace) -> set[str]:
    """Returns the slugs that have receipts. Raises ``EnvironmentFault``."""
    return {
        stored_file.key.split("/")[1]
        for stored_file in workspace.place.listing(_FOLDER)
        if stored_file.key.endswith(".json")
    }


def find_leftovers(workspace: Workspace, receipt: Receipt) -> Leftovers:
    """Searches the lake and this home for leftovers of the target of a receipt; nothing is changed.

    Raises ``EnvironmentFault`` if there are no tables to search, or if they cannot be read.
    """
    lake, slug = workspace.lake, receipt.slug
    refuse_unknown_tables(lake)
    tables = [spec.name for spec in purged_tables(lake) if lake.handle(spec) is not None]
    if not tables:
        raise EnvironmentFault(
            f"{lake.root} has none of the tables of the receipt",
            "Use a home whose lake (CC_PIPELINE_LAKE) is the one that was purged.",
        )
    slice_slugs = sorted({slug, *(slice_.target for slice_ in slices_of_target(lake, slug))})
    rows = {table: count_rows(lake, table, {"target": slice_slugs}, ["target"]).total() for table in tables}
    rows["targets"] = len(find_defining_slugs(lake, {slug}))
    folders = [f"{folder}{crawl}/" for folder in _FILE_FOLDERS for crawl in receipt.crawls]
    names = [stored_file.key for folder in folders for stored_file in workspace.place.listing(folder)]
    known_digests = set(receipt.files)
    old = [(table, key) for table in tables for key in _list_superseded(workspace, table, receipt.crawls)]
    return Leftovers(
        _now(),
        {table: count for table, count in rows.items() if count},
        sum(_digest(name) in known_digests for name in names),
        sum(_has_rows(lake, key, slug) for _, key in old),
        _count_published(workspace, slug),
        len(tables),
        len(names),
        len(old),
    )


def describe_leftovers(workspace: Workspace, receipt: Receipt, leftovers: Leftovers) -> list[str]:
    """Describes leftovers, and what was searched, in sentences."""
    inventory = receipt.held[0]
    row_text = ", ".join(f"{count:,} {table}" for table, count in inventory.rows.items())
    lines = [
        f"{receipt.definition}: purged {receipt.begun[:10]}. It had {row_text}; "
        f"{format_count(inventory.records, 'stored record')} ({inventory.bytes:,} bytes), "
        f"{format_count(inventory.exports, 'exported file')}",
        f"searched for its rows in {format_count(leftovers.tables, 'table')}, "
        f"{format_count(leftovers.old_files, 'superseded file')} of tables and cc.duckdb; searched for its "
        f"{format_count(len(receipt.files), 'file')} among {format_count(leftovers.names, 'stored or exported file')}",
    ]
    lines += [f"LEFT: {format_count(count, 'row')} in {table}" for table, count in leftovers.rows.items()]
    counts = [
        (leftovers.files, "stored or exported file", "that the receipt names"),
        (leftovers.superseded, "superseded file", "of tables with its rows; a reader may have them open"),
        (leftovers.published, "row", "in cc.duckdb, which the next run or cc-pipeline automation maintenance removes"),
    ]
    lines += [f"LEFT: {format_count(count, noun)} {relation}" for count, noun, relation in counts if count]
    if read_note(workspace.place, receipt.slug) is not None:
        lines.append(f"its purge has not ended; to continue it: cc-pipeline targets remove {receipt.slug} --purge")
    if inventory.kept:
        lines.append(
            f"{format_count(inventory.kept, 'record', 'were')} kept, because "
            f"{format_count(inventory.holders, 'other target', 'have')} them too"
        )
    since = datetime.fromisoformat(receipt.hidden or receipt.begun)
    other_homes = (
        find_other_publications(workspace.place, workspace.settings.home)
        if workspace.settings.has_separate_lake
        else {}
    )
    if stale_homes := sum(published_at < since for published_at in other_homes.values()):
        lines.append(
            f"cc.duckdb of {format_count(stale_homes, 'other home')} of the lake is older than the purge: check "
            "there too"
        )
    return [*lines, "no leftovers" if leftovers.is_clean else f"see {workspace.place.source}/{receipt.key}"]


def _list_superseded(workspace: Workspace, table: str, crawls: Iterable[str]) -> Iterator[str]:
    """Yields the files in a table's folders of ``crawls`` that the table does not name."""
    live = {path.rpartition("/")[2] for path in workspace.lake.pin(table).files}
    for crawl in crawls:
        for stored_file in workspace.place.listing(f"tables/{table}/crawl={quote(crawl, safe='')}/"):
            name = stored_file.key.rpartition("/")[2]
            if name.endswith(".parquet") and name not in live:
                yield stored_file.key


def _has_rows(lake: Lake, key: str, slug: str) -> bool:
    try:
        with lake.file_system().open_input_file(f"{lake.root}/{key}".removeprefix("s3://")) as source:
            for batch in pq.ParquetFile(source, pre_buffer=False).iter_batches(columns=["target"]):
                if any(whole_slug(target) == slug for target in batch.column(0).unique().to_pylist() if target):
                    return True
    except FileNotFoundError:
        pass  # deleted since the folder was read
    except pa.ArrowInvalid:
        pass  # no table names it: a job is writing it, or was killed meanwhile; such files are swept
    except (OSError, pa.ArrowException) as error:
        raise EnvironmentFault(
            f"could not read {lake.root}/{key}, so the search for leftovers is not complete: {error}",
            "Check the lake and its permissions, then run the command again.",
        ) from error
    return False


def _count_published(workspace: Workspace, slug: str) -> int:
    if not workspace.settings.published_path.exists():
        return 0
    with open_bounded(workspace.settings) as connection:
        query = f"SELECT count(*) FROM main.capture_targets WHERE target = {quote_literal(slug)}"
        return int((connection.execute(query).fetchone() or (0,))[0])


def _rows_digest(lake: Lake, plan: PurgePlan) -> str:
    checksum = hashlib.sha256()
    names = [content_name(slice_) for slice_ in plan.slices]
    for spec in purged_tables(lake):
        for name, digest in sorted(lake.digests(spec.name, names).items()):
            checksum.update(f"{spec.name} {name} {digest}\n".encode())
    return checksum.hexdigest()


def _digests(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({_digest(name) for name in names}))


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()


def _join_names(*files: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted({name for names in files for name in names}))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _key(slug: str, started_at: str) -> str:
    return f"{_FOLDER}{slug}/{started_at.replace(':', '').replace('+0000', 'Z')}.json"


def _write(place: Transport, receipt: Receipt) -> None:
    place.put(receipt.key, (json.dumps(asdict(receipt), indent=1, ensure_ascii=False) + "\n").encode())


def _read(place: Transport, key: str) -> Receipt | None:
    def parse_receipt(document: Any) -> Receipt:
        inventories = tuple(
            PurgeInventory(**{**inventory, "crawls": tuple(inventory["crawls"]), "files": tuple(inventory["files"])})
            for inventory in document["held"]
        )
        leftovers = None if document["left"] is None else Leftovers(**document["left"])
        return Receipt(**{**document, "held": inventories, "files": tuple(document["files"]), "left": leftovers})

    return read_json(
        place,
        key,
        parse_receipt,
        "cannot be read as the receipt of a purge",
        "The file was changed, or a newer version of cc_pipeline wrote it.",
    )
