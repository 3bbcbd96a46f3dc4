"""A look at a source as it is now: a few requests through what every run uses, and which assumptions they bear out.

The home is not touched but for its request budget, which these requests count in like all others: a home of its own is
made for them and deleted. Of several places the first one is asked.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from cc_pipeline.addresses import host_of, scheme_of
from cc_pipeline.checks.assumptions import ASSUMPTIONS
from cc_pipeline.checks.live_steps import STEPS, SUBSETS, Look, Skipped
from cc_pipeline.errors import CcPipelineError, EnvironmentFault, UserInputError
from cc_pipeline.settings import Settings
from cc_pipeline.stores.opening import is_loopback
from cc_pipeline.stores.watched import Seen
from cc_pipeline.workspace.workspace import Workspace

MOST_REQUESTS: Final = 60
#: Requests a second to each host.
RATE: Final = 1.0
PUBLIC_BUCKET: Final = "s3://commoncrawl"
#: Of an answer's headers, those that say how the source and what stands before it work.
HEADERS: Final = ("accept-ranges", "age", "cache-control", "content-encoding", "content-length", "content-range",
                  "content-type", "date", "etag", "last-modified", "retry-after", "server", "via", "x-amz-cf-pop",
                  "x-cache")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that was tried. ``outcome`` is ``done``, ``failed`` or ``skipped``, ``text`` what came of it."""

    name: str
    outcome: str
    text: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """An assumption: whether it ``held`` (``None``: not seen), and by what evidence."""

    name: str
    says: str
    held: bool | None
    evidence: str

    @property
    def told(self) -> str:
        """``held``, ``did not hold`` or ``not seen``."""
        return {True: "held", False: "did not hold", None: "not seen"}[self.held]


@dataclass(frozen=True, slots=True)
class Live:
    """What a look at ``source`` found at ``at`` (aware UTC). ``answers`` are all of them, each with its step; at most
    ``most`` requests were allowed, ``requests`` were sent."""

    source: str
    at: datetime
    steps: tuple[Step, ...]
    verdicts: tuple[Verdict, ...]
    answers: tuple[tuple[str, Seen], ...]
    requests: int
    most: int
    seconds: float

    @property
    def failed(self) -> bool:
        """Whether something could not be done; an assumption that did not hold is no failure if all can be done."""
        return any(step.outcome == "failed" for step in self.steps)

    @property
    def bytes(self) -> int:
        """Of all bodies."""
        return sum(seen.bytes for _, seen in self.answers)

    def as_json(self) -> dict[str, Any]:
        """For a file: plain values, of headers those in ``HEADERS``. Times are seconds."""
        return {
            "source": self.source,
            "at": f"{self.at:%Y-%m-%dT%H:%M:%SZ}",
            "requests": self.requests,
            "most_requests": self.most,
            "bytes": self.bytes,
            "seconds": round(self.seconds, 3),
            "steps": [asdict(step) for step in self.steps],
            "assumptions": [asdict(one) | {"held": one.told} for one in self.verdicts],
            "answers": [_plain(step, seen) for step, seen in self.answers],
        }


def _plain(step: str, seen: Seen) -> dict[str, Any]:
    headers = {name: seen.headers[name] for name in HEADERS if name in seen.headers}
    return {"step": step, **asdict(replace(seen, headers=headers)), "seconds": round(seen.seconds, 3)}


def look_live(
    settings: Settings,
    *,
    rate: float | None = None,
    most: int = MOST_REQUESTS,
    bucket: str | None = None,
    told: Callable[[Step], None] = lambda step: None,
) -> Live:
    """Asks the source of ``settings`` (its first place) at most ``most`` requests, one at a time.

    ``rate`` is requests a second to each host (``None``: ``rate_for``). ``bucket`` is the S3 place that is compared
    (``None``: Common Crawl's, for its own data). ``told`` hears of each step. Raises ``UserInputError`` for a folder;
    what goes wrong with the source is in the answer.
    """
    if scheme_of(settings.source) in ("", "file"):
        raise UserInputError(f"{settings.source} is a folder: only a source that answers requests can be looked at")
    begun, at = time.monotonic(), datetime.now(UTC)
    chosen = rate_for(settings) if rate is None else rate
    plain = replace(
        settings,
        rate=chosen,
        concurrency=1,
        mirrors=(),
        mirror_access=(),
        record_mirror=False,
        via="auto",
        subsets=SUBSETS,
        wait=0.0,
    )
    own = settings.is_common_crawl and scheme_of(settings.source) != "s3"
    look = Look(plain, most, bucket or (PUBLIC_BUCKET if own else ""), settings.official_mirror)
    with _workspace(look):
        steps = tuple(_steps(look, told))
    verdicts = tuple(Verdict(one.name, one.says, *one.judge(look.facts, look.answers)) for one in ASSUMPTIONS)
    took = time.monotonic() - begun
    return Live(plain.source, at, steps, verdicts, tuple(look.answers), look.requests, most, took)


def rate_for(settings: Settings) -> float | None:
    """Requests a second: ``RATE``, or a lower one that a person set. This machine has no limit but that."""
    if is_loopback(host_of(settings.source)):
        return settings.rate
    return min(RATE, settings.rate or RATE)


@contextmanager
def _workspace(look: Look) -> Iterator[None]:
    with TemporaryDirectory(prefix="cc-pipeline-live-") as folder:
        settings = replace(look.asking, home=Path(folder), lake=str(Path(folder) / "lake"))
        look.workspace = Workspace(settings, opener=look.open)
        try:
            yield
        finally:
            for transport in look.opened:
                transport.close()


def _steps(look: Look, told: Callable[[Step], None]) -> Iterator[Step]:
    for name, work in STEPS.items():
        look.step = name
        try:
            step = Step(name, "done", work(look))
        except Skipped as skipped:
            step = Step(name, "skipped", str(skipped))
        except CcPipelineError as fault:
            step = Step(name, "failed", fault.what if isinstance(fault, EnvironmentFault) else str(fault))
        told(step)
        yield step
