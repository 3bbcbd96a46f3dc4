"""How records are fetched: what a caller of ``fetch_records`` may choose."""

from __future__ import annotations

from dataclasses import dataclass, field

from cc_pipeline import SOFTWARE
from cc_pipeline.records.plan import Coalescing
from cc_pipeline.records.segments import DEFAULT_ROTATION


@dataclass(frozen=True, slots=True)
class RecordOptions:
    """How records are fetched. ``fail_on_digest``: a payload whose digest is not the index's goes to quarantine;
    otherwise the difference is only noted.

    ``group`` is how many captures are worked on at a time, in whole files of the source where they fit; it bounds
    memory.
    ``tries`` is how often bytes that are not the promised record are requested. After ``give_up_after`` ranges in a row
    without an answer the rest is not asked for, because then the source fails and not the data. ``witnesses`` are keys
    that the source has for certain: where no file answers, they tell a file that is gone from a source that lacks
    everything. ``retry_settled`` asks again for captures that are in quarantine or gone. ``rotation`` is the size of a
    stored file in bytes. ``examiners`` is how many threads inflate and check (0: the caller's own); ``None`` leaves
    one core for fetching and one for storing.
    """

    fail_on_digest: bool = False
    group: int = 50_000
    tries: int = 3
    give_up_after: int = 25
    witnesses: tuple[str, ...] = ()
    retry_settled: bool = False
    rotation: int = DEFAULT_ROTATION
    examiners: int | None = None
    coalescing: Coalescing = field(default_factory=Coalescing)
    software: str = SOFTWARE
