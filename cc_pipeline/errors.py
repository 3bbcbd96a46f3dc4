"""The two families of failure, importable by every room.

A *data fault* is about bytes somebody else wrote: it names the file, the offset and the reason, is recorded
beside the good rows and never stops a run. An *environment fault* is about here and now (network, disk,
settings): it stops the run after what is complete has been committed, and says what to do.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class CcPipelineError(Exception):
    """Root of every error this package raises on purpose."""


class DataFault(CcPipelineError):
    """Bytes that do not keep their format's promise.

    ``source`` is the key or path of the object, ``offset`` the byte at which reading failed (``None`` when
    the whole object is meant), ``reason`` a short sentence without a full stop.
    """

    def __init__(self, source: str, offset: int | None, reason: str) -> None:
        self.source = source
        self.offset = offset
        self.reason = reason
        where = source if offset is None else f"{source} at byte {offset}"
        super().__init__(f"{where}: {reason}")


class EnvironmentFault(CcPipelineError):
    """Something here and now keeps the work from going on; ``advice`` says what a person can do."""

    def __init__(self, what: str, advice: str) -> None:
        self.what = what
        self.advice = advice
        super().__init__(f"{what}. {advice}" if advice else what)


class UserInputError(CcPipelineError):
    """A value a person typed (a crawl, a target, a setting) that cannot be used; the message says why."""


@contextmanager
def disk_trouble(path: Path) -> Iterator[None]:
    """Turns what the local disk refuses into an ``EnvironmentFault`` that says what to do."""
    try:
        yield
    except OSError as error:
        advice = f"Check that {path.parent} can be written to"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            advice = "Free some space; what is complete is kept and the next run goes on from there"
        raise EnvironmentFault(f"{path} cannot be written: {error.strerror or error}", advice) from error
