"""The provenance of an export: source, crawls with the digests of their indexes, and the outcome of each target.

It is gathered once. The README, ``provenance.json``, the Croissant document and the card of Hugging Face are written
from it. It contains no path of the home.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from cc_pipeline import SOFTWARE, __version__
from cc_pipeline.addresses import redact_address, scheme_of
from cc_pipeline.commoncrawl.slice_slugs import whole_slug
from cc_pipeline.commoncrawl.target import Target
from cc_pipeline.commoncrawl.target_text import SET_SLUG
from cc_pipeline.documents.schemas import PARSER_VERSION
from cc_pipeline.export.stored_state import StoredState
from cc_pipeline.extraction.blocklist import Blocklist, read_blocklist
from cc_pipeline.lake.slice import HARVEST, LOCATE, MANIFEST
from cc_pipeline.lake.slices import SliceRow
from cc_pipeline.workspace.workspace import Workspace

FORMAT: Final = "cc_pipeline provenance"
#: Raised when older readers would misread the document.
VERSION: Final = 1
#: Outcomes of a target: captures were found; the indexes have none; it is blocked; it was looked up in no crawl.
OUTCOMES: Final = ("found", "not found", "blocked", "not looked up")
#: Maximum number of targets named in a sentence.
_MAX_NAMED_TARGETS: Final = 20


@dataclass(frozen=True, slots=True)
class CrawlSource:
    """A crawl of the rows. ``path_list`` is the digest of the paths of its index files, ``indexes`` are the digests of
    the indexes that named captures, by kind; ``None`` or empty if this home never read them."""

    crawl: str
    path_list: str | None = None
    indexes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TargetOutcome:
    """The outcome of a target, or of a member of the set ``of``, over all crawls."""

    definition: str
    outcome: str
    of: str = ""
    crawls: int = 0
    captures: int = 0


@dataclass(frozen=True, slots=True)
class Provenance:
    """The origin of exported rows. ``source`` is an address; of a folder only its name; empty if it is not known.
    ``selection`` describes the selection in words, ``versions`` are those of the lake's tables at the publication,
    ``published`` is its time, ``exported`` describes the rows for a later export of new ones."""

    source: str = ""
    selection: tuple[str, ...] = ()
    crawls: tuple[CrawlSource, ...] = ()
    targets: tuple[TargetOutcome, ...] = ()
    versions: Mapping[str, int] = field(default_factory=dict)
    published: datetime | None = None
    exported: Mapping[str, Any] | None = None
    created_at: datetime = field(default_factory=lambda: datetime.now(UTC))

    @property
    def outcomes(self) -> dict[str, int]:
        """The number of targets (and members of sets) by outcome; all of ``OUTCOMES``, in their order."""
        return {name: sum(target.outcome == name for target in self.targets) for name in OUTCOMES}

    def as_rows(self) -> list[tuple[str, str]]:
        """Returns names and values, for files that contain it as a table."""
        rows = [("software", f"cc_pipeline {__version__}"), ("parser version", str(PARSER_VERSION))]
        rows += [("source", self.source)] if self.source else []
        rows += [("asked", sentence) for sentence in self.selection]
        rows += [
            (f"index of {crawl_source.crawl}, {kind}", digest)
            for crawl_source in self.crawls
            for kind, digest in crawl_source.indexes.items()
        ]
        rows += [(f"targets {name}", str(count)) for name, count in self.outcomes.items() if count]
        return rows + [(f"version of {name}", str(version)) for name, version in sorted(self.versions.items())]

    def as_json(self) -> dict[str, Any]:
        """Returns the content of ``provenance.json``, without files and counts."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "software": {"name": "cc_pipeline", "version": __version__, "user_agent": SOFTWARE},
            "parser_version": PARSER_VERSION,
            "made_at": self.created_at.isoformat(timespec="seconds"),
            "published_at": None if self.published is None else self.published.isoformat(),
            "source": self.source,
            "asked": list(self.selection),
            "crawls": [asdict(crawl_source) for crawl_source in self.crawls],
            "targets": self.outcomes,
            "tables": dict(sorted(self.versions.items())),
            **({} if self.exported is None else {"exported": self.exported}),
        }


def gather_provenance(
    workspace: Workspace, state: StoredState, crawls: Sequence[str] = (), selection: Sequence[str] = ()
) -> Provenance:
    """Gathers the provenance of rows that ``state`` has of its targets, and names ``crawls`` even if they have none.
    ``selection`` are further conditions in words. Sends no requests. Raises ``EnvironmentFault`` if the blocklist
    cannot be read, and the errors of the state's rows."""
    source, targets = workspace.settings.source, [*state.targets.values()]
    found = _Totals()
    for row in state.slice_rows:
        found.add(row)
    return Provenance(
        redact_address(source) if scheme_of(source) else f"folder {Path(source).name}",
        (*selection, *([] if state.is_all else [_describe_targets(targets)])),
        tuple(found.describe_crawl(crawl) for crawl in sorted({*found.indexes, *crawls})),
        tuple(_list_outcomes(state.targets, found, read_blocklist(workspace))),
        state.versions,
        state.published,
    )


@dataclass(slots=True)
class _Totals:
    """The totals of lookups: captures by target and member, crawls by target, and the version of each index by crawl;
    and of crawls the path list and the versions of the harvested subsets."""

    captures: Counter[tuple[str, str]] = field(default_factory=Counter)
    crawls: dict[str, set[str]] = field(default_factory=dict)
    indexes: dict[str, dict[str, str]] = field(default_factory=dict)
    path_lists: dict[str, str | None] = field(default_factory=dict)
    harvested: dict[str, Mapping[str, str]] = field(default_factory=dict)

    def add(self, row: SliceRow) -> None:
        crawl, slug = row.slice_.crawl, whole_slug(row.slice_.target)
        if row.stage == MANIFEST.label:
            self.path_lists[crawl] = row.input.get("paths")
        elif row.stage == HARVEST.label:
            self.harvested[crawl] = row.note.get("versions", {})
        elif row.stage == LOCATE.label and row.note:
            kinds = self.indexes.setdefault(crawl, {})
            kind = row.note["located_by"]
            kinds[kind] = max(kinds.get(kind, ""), row.note["index_version"] or "")
            self.crawls.setdefault(slug, set()).add(crawl)
            members = (row.details or {}).get("members") or [{"member": "", "captures": row.note["captures"]}]
            for member_row in members:
                self.captures[slug, member_row["member"]] += member_row["captures"]

    def describe_crawl(self, crawl: str) -> CrawlSource:
        """The indexes that named captures in a crawl."""
        kinds = self.indexes.get(crawl, {})
        digests = {kind: digest for kind, digest in kinds.items() if kind != "parquet" and digest}
        if "parquet" in kinds:
            digests |= {f"columnar, {subset}": version for subset, version in self.harvested.get(crawl, {}).items()}
        return CrawlSource(crawl, self.path_lists.get(crawl), dict(sorted(digests.items())))


def name_of(target: Target) -> str:
    """Returns a target as text for others; of a set its name only: its definition may contain a path of the user."""
    if target.kind == "set" and target.slug.startswith(SET_SLUG):
        return f"set:{target.value}" + (f" where {target.where}" if target.where else "")
    return target.definition


def _describe_targets(targets: Sequence[Target]) -> str:
    names = [name_of(target) for target in targets[:_MAX_NAMED_TARGETS]]
    more_count = len(targets) - len(names)
    return f"targets: {', '.join(names)}" + (f", and {more_count:,} more" if more_count else "")


def _list_outcomes(
    targets_by_slug: Mapping[str, Target], found: _Totals, blocklist: Blocklist
) -> Iterator[TargetOutcome]:
    """Yields the outcome of each target, and of each member of a set."""
    for slug, target in targets_by_slug.items():
        crawl_count = len(found.crawls.get(slug, ()))
        for member in target.members or (target,):
            count = found.captures[slug, member.definition if target.members else ""]
            outcome = "found" if count else "not found" if crawl_count else "not looked up"
            if not count and blocklist.touching(member):
                outcome = "blocked"
            yield TargetOutcome(member.definition, outcome, slug if target.members else "", crawl_count, count)


def write_targets(path: Path, targets: Collection[TargetOutcome]) -> None:
    """Writes the outcome of each target as CSV. Raises ``OSError``."""
    names = ("definition", "outcome", "of", "crawls", "captures")
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(names)
        writer.writerows([getattr(target, name) for name in names] for target in targets)
