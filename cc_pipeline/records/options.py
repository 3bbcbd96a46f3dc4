"""How records are fetched: what a caller of ``fetch_records`` says, and may choose."""

from __future__ import annotations

from dataclasses import dataclass, field

from cc_pipeline import SOFTWARE
from cc_pipeline.records.plan import Coalescing
from cc_pipeline.records.segments import DEFAULT_ROTATION
from cc_pipeline.records.witness import Search


@dataclass(frozen=True, slots=True)
class RecordOptions:
    """How records are fetched. ``fail_on_digest``: a payload whose digest is not the index's goes to quarantine;
    otherwise the difference is only noted.

    ``group`` is how many captures are worked on at a time, in whole files of the source where they fit; it bounds
    memory.
    ``tries`` is how often bytes that are not the promised record are requested. After ``give_up_after`` ranges in a row
    without an answer the rest is not asked for, because then the source fails and not the data. ``witnessed``: the
    source gave a good record within a day; where it did not and gives none now, ``search`` says where one is looked for
    before anything counts as lost (``witness.py``). ``retry_settled`` asks again for captures that are in quarantine or
    gone, ``retry_mismatched`` for those whose payload has another digest than the index; what is held of them stays
    where nothing better comes. ``forget_settled``: what was settled is open where nothing comes. ``rotation`` is the
    size of a stored file in bytes. ``examiners`` is how many threads inflate and check (0: the caller's own); ``None``
    leaves one core for fetching and one for storing.
    """

    fail_on_digest: bool = False
    group: int = 50_000
    tries: int = 3
    give_up_after: int = 25
    witnessed: bool = False
    search: Search = field(default_factory=Search)
    retry_settled: bool = False
    retry_mismatched: bool = False
    forget_settled: bool = False
    rotation: int = DEFAULT_ROTATION
    examiners: int | None = None
    coalescing: Coalescing = field(default_factory=Coalescing)
    software: str = SOFTWARE


@dataclass(frozen=True, slots=True)
class Order:
    """One fetch of a crawl: ``commit`` names the new files and must be unused, ``plan`` (a digest) goes into their
    warcinfo."""

    crawl: str
    commit: str
    plan: str = ""
    options: RecordOptions = field(default_factory=RecordOptions)
