"""Captures that a person lists in a file: checks them, and keeps them as a target."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cc_pipeline.advice import advise, option
from cc_pipeline.api.user_input import STANDARD_INPUT
from cc_pipeline.commoncrawl.target_text import parse_named_captures
from cc_pipeline.errors import UserInputError
from cc_pipeline.progress import format_count
from cc_pipeline.settings import Settings
from cc_pipeline.terminal import escape_controls
from cc_pipeline.workspace.claim import claim_home

if TYPE_CHECKING:
    from cc_pipeline.commoncrawl.target import Target
    from cc_pipeline.named_captures.adding import Counts
    from cc_pipeline.named_captures.reading import RejectedRows
    from cc_pipeline.workspace.workspace import Workspace

#: The most crawls that a suggested command names one by one.
_MAX_NAMED_CRAWLS: Final = 8


@dataclass(frozen=True, slots=True, repr=False)
class AddedCaptures:
    """The result of reading a file of captures: the target that has them now, its captures by crawl (``held``), how
    they compare with earlier ones (``counts``), rows that could not be used (``wrong``), how many captures are of
    ``blocked`` sites, which no run fetches, and whether the file ``replaced`` earlier captures.

    ``notes`` are lines on what was added, changed and left out, and on rows that could not be used. ``run`` is the call
    that fetches the captures. Both are in the words of the door through which the file was added: they may be shown
    later.
    """

    target: Target
    held: Mapping[str, int]
    counts: Counts
    wrong: RejectedRows
    blocked: int
    replaced: bool = False
    notes: tuple[str, ...] = field(init=False)
    run: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "notes", self._describe())
        crawls = [*self.held] if len(self.held) <= _MAX_NAMED_CRAWLS else ["all"]
        object.__setattr__(self, "run", str(advise("run", self.target.definition, crawl=crawls)))

    def __repr__(self) -> str:
        counts_text = ", ".join(f"{crawl}: {count:,}" for crawl, count in self.held.items())
        lines = (f"{self.target.definition}: {counts_text or 'no captures'}", *self.notes)
        return "\n".join(escape_controls(line, one_line=True) for line in lines)

    def _describe(self) -> tuple[str, ...]:
        counts, notes = self.counts, [f"{format_count(self.counts.new, 'new capture')}"]
        if self.replaced:
            notes[0] += f", {counts.changed:,} changed, {counts.unmatched:,} removed"
        elif counts.changed:
            notes.append(
                f"{format_count(counts.changed, 'existing capture', 'have')} other values in the file; the existing "
                f"values were kept, and {option(replace=True)} overwrites them"
            )
        if counts.repeats:
            rows = format_count(counts.repeats, "row")
            notes.append(f"{rows} had the location of another row; each capture was added once")
        if self.blocked:
            notes.append(
                f"{format_count(self.blocked, 'capture', 'are')} of blocked sites, or have no URL to compare with "
                "blocked sites: no run fetches these captures"
            )
        if self.wrong.count:
            reasons = "; ".join(f"row {row:,}: {reason}" for row, reason in sorted(self.wrong.first))
            notes.append(f"{format_count(self.wrong.count, 'row')} of the file could not be used: {reasons}")
        return tuple(notes)


def add_captures(
    settings: Settings,
    file: str | Path,
    name: str | None = None,
    *,
    columns: Mapping[str, str] | None = None,
    extend: bool = False,
    replace: bool = False,
) -> AddedCaptures:
    """Makes the captures that a file lists (``-``: standard input) the target ``captures:NAME``; the default name is
    that of the file. ``columns`` maps columns of a capture to the file's if they have other names.

    If the target has other captures already, ``extend`` adds to them and ``replace`` also removes those that the file
    does not list; without either nothing is changed. Raises ``UserInputError`` and ``EnvironmentFault``.
    """
    from cc_pipeline.extraction.blocklist import read_blocklist
    from cc_pipeline.lake.target_definitions import read_stored_versions
    from cc_pipeline.named_captures.adding import Adding, Counts
    from cc_pipeline.named_captures.capture_rows import CaptureRowParser
    from cc_pipeline.named_captures.reading import RejectedRows, read_chunks
    from cc_pipeline.workspace.workspace import open_workspace

    target = parse_named_captures(_derive_name(str(file)) if name is None else name)
    claim_home(settings)
    with open_workspace(settings) as workspace, workspace.scratch_folder("given") as scratch:
        workspace.claim()
        path = _spool_input(scratch) if str(file) == STANDARD_INPUT else Path(file).expanduser()
        wrong, block, out = RejectedRows(), read_blocklist(workspace), 0
        places = CaptureRowParser(_make_crawl_test(workspace), wrong)
        adding = Adding(workspace.lake, target, scratch, replace=replace)
        for chunk in read_chunks(path, columns or {}, wrong):
            captures = places.parse(chunk)
            out += captures.num_rows - block.exclude_blocked(captures).num_rows
            adding.add(captures)
        by_crawl = adding.counts()
        counts = sum(by_crawl.values(), Counts())
        if not counts.matched + counts.new:
            problems = "".join(f"; row {row}: {reason}" for row, reason in wrong.first[:3])
            raise UserInputError(f"nothing was added: no row of {file} has a usable location{problems}")
        # a call that was killed leaves a definition without a version, and this one goes on
        is_defined = bool(read_stored_versions(workspace.lake, [target.slug]).get(target.slug))
        if is_defined and (counts.new or counts.unmatched or counts.changed) and not (extend or replace):
            raise UserInputError(
                f"nothing was changed: {target.definition} exists with {format_count(counts.earlier, 'capture')}. "
                f"{file} has {format_count(counts.new, 'new capture')}, lacks {counts.unmatched:,}, and has other "
                "values for "
                f"{counts.changed:,}: add {option(add=True)} to store the new captures too, {option(replace=True)} to "
                f"store exactly the file, or {option(name='NAME')} to store the file as another target"
            )
        adding.commit()
        counts_by_crawl = {
            crawl: crawl_counts.new + (crawl_counts.matched if replace else crawl_counts.earlier)
            for crawl, crawl_counts in by_crawl.items()
        }
        held = {crawl: count for crawl, count in counts_by_crawl.items() if count}
        return AddedCaptures(target, held, counts, wrong, out, replaced=replace)


def _derive_name(file: str) -> str:
    if file == STANDARD_INPUT:
        raise UserInputError(f"captures from standard input need a name: {option(name='NAME')}")
    return re.sub(r"[^a-z0-9_-]+", "-", Path(file).name.partition(".")[0].lower()).strip("-_")[:60]


def _spool_input(folder: Path) -> Path:
    """Copies standard input to a file, since a Parquet file is read from its end."""
    path = folder / "standard-input"
    with path.open("wb") as file:
        shutil.copyfileobj(sys.stdin.buffer, file)
    return path


def _make_crawl_test(workspace: Workspace) -> Callable[[str], bool]:
    """Returns a function that tells whether the source has a crawl. A crawl that is in no list costs a request."""
    from cc_pipeline.harvesting.crawls import find_crawl

    def knows(crawl: str) -> bool:
        try:
            find_crawl(workspace, crawl)
        except UserInputError:
            return False
        return True

    return knows
