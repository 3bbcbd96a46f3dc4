"""What a fetch is asked to do."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime

from cc_pipeline import SOFTWARE
from cc_pipeline.records.range_plan import Coalescing
from cc_pipeline.records.segments import DEFAULT_ROTATION


@dataclass(frozen=True, slots=True)
class RecordOptions:
    """Options of a fetch.

    ``group`` is the number of captures processed at a time, in whole files of the source if they fit; it bounds memory.
    After ``give_up_after`` ranges in a row without an answer no more are requested, because then the source fails and
    not the data. ``source_gave_good_record``: within a day, before this fetch. ``retry_lost`` requests lost captures
    again; they stay lost if no good record comes. ``rotation`` is the size of a stored file in bytes. ``examiners`` is
    the number of threads that inflate and verify (0: the caller's own); ``None`` leaves one core for fetching and one
    for storing."""

    group: int = 50_000
    give_up_after: int = 25
    source_gave_good_record: bool = False
    retry_lost: bool = False
    rotation: int = DEFAULT_ROTATION
    examiners: int | None = None
    coalescing: Coalescing = field(default_factory=Coalescing)
    software: str = SOFTWARE


@dataclass(frozen=True, slots=True)
class Order:
    """One fetch of a crawl: ``commit`` names the new files and must be unused, ``plan`` (a digest) goes into their
    warcinfo, ``ask_time`` is the time of its asks."""

    crawl: str
    commit: str
    plan: str = ""
    options: RecordOptions = field(default_factory=RecordOptions)
    ask_time: datetime = field(default_factory=lambda: datetime.now(UTC))
