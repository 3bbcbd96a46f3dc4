"""The two families of failure, importable by every room.

A *data fault* is about bytes that somebody else wrote. It names the file, the offset and the reason. It is recorded
beside the good rows and never stops a run. An *environment fault* is about this machine at this moment (network,
disk, settings). It stops the run after complete work has been committed, and it says what to do.
"""

from __future__ import annotations

import errno
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from typing import Any, Final


class CcPipelineError(Exception):
    """Root of every error this package raises on purpose."""


class Kind(StrEnum):
    """Base of the two closed lists of kinds of fault: ``DataKind`` here, ``FaultKind`` in the transport.

    Code decides by the kind. The message beside it is for people and may change at any time.
    """


class DataKind(Kind):
    """What is wrong with bytes. docs/faults.md says what each means.

    The first six are values of the column ``reason`` of ``records`` too, so their spelling is public.
    """

    NOT_GZIP = "not_gzip"
    GZIP_TRUNCATED = "gzip_truncated"
    GZIP_CORRUPT = "gzip_corrupt"
    TOO_LARGE = "too_large"
    NOT_A_RECORD = "not_a_record"
    LENGTH_MISMATCH = "length_mismatch"
    TRUNCATED = "truncated"
    MALFORMED = "malformed"
    MISMATCH = "mismatch"
    UNSUPPORTED = "unsupported"
    PARSER_BROKE = "parser_broke"


class DataFault(CcPipelineError):
    """Bytes that break their format.

    ``kind`` says what is wrong, for code: a ``DataKind``, or the ``FaultKind`` of a range that could not be had.
    ``source`` is the key or path of the object, ``offset`` the byte at which reading failed (``None`` when
    the whole object is meant), ``reason`` a short sentence without a full stop, for people.
    """

    kind: Kind

    def __init__(self, kind: Kind, source: str, offset: int | None, reason: str) -> None:
        self.kind = kind
        self.source = source
        self.offset = offset
        self.reason = reason
        where = source if offset is None else f"{source} at byte {offset}"
        super().__init__(f"{where}: {reason}")

    def __reduce__(self) -> tuple[Any, ...]:
        # exceptions are pickled by their message alone, which is not what the constructor takes
        return type(self), (self.kind, self.source, self.offset, self.reason), self.__dict__


class EnvironmentFault(CcPipelineError):
    """Something on this machine or its network stops the work. ``what`` says what, ``advice`` what a person can do.

    Its text is both, each on a line of its own, so that they can be told apart in an event log too.
    """

    def __init__(self, what: str, advice: str) -> None:
        # what another fault says may be part of it, and has its advice on a line of its own
        self.what = ". ".join(what.splitlines())
        self.advice = advice
        super().__init__(f"{self.what}\n{advice}" if advice else self.what)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.what, self.advice), self.__dict__


class PlaceFault(EnvironmentFault):
    """What this pipeline writes to (the disk, the home, the lake) does not take it: the fault of no target."""


class Incomplete(EnvironmentFault):
    """The source did not give all that was planned, and may still give it. What is complete was committed.

    Commands end with status 3, so that whoever calls them can tell "run it again" from any other failure. ``report`` is
    what the call would have given, where it has something to give.
    """

    report: Any = None


class NotNow(Incomplete):
    """The source refuses for longer than was waited for; the message says when it may be asked again."""


class IndexIncomplete(Incomplete):
    """Files of a crawl's index could not be read, so captures in them would be left out of an answer in silence."""


class Doubted(Incomplete):
    """An index no longer lists captures that it named, and nobody accepted that they are gone. They stay."""


class UserInputError(CcPipelineError):
    """A value a person typed (a crawl, a target, a setting) that cannot be used; the message says why."""


class NotPublished(UserInputError):
    """A crawl that is announced: the source has no path list of it yet."""


_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
#: SQLITE_FULL, where a file cannot grow, and SQLITE_IOERR, where its shared memory cannot.
_SQLITE_NO_ROOM: Final = frozenset({13, 10})
#: How the Delta library, which has neither error numbers nor a class of its own for it, says that a disk is full.
_NO_ROOM_WORDS: Final = ("No space left", "ENOSPC", "os error 28")


def no_such(what: str, name: str, known: Collection[str]) -> str:
    """That there is no ``what`` called ``name``, which one may have been meant, and which there are."""
    near = get_close_matches(name, known, 3)
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    return f"{hint}there is no {what} {name[:120]}; there are {', '.join(known)}"


def disk_is_full(error: BaseException) -> bool:
    """Whether ``error``, or the error wrapped in it (``__cause__`` or ``orig``), says that a disk is full.

    This is the only place that decides by an error's message, and only for errors that carry no number or class.
    """
    inner = getattr(error, "orig", None) or error.__cause__
    if isinstance(inner, BaseException) and disk_is_full(inner):
        return True
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno in _NO_ROOM
    code = getattr(error, "sqlite_errorcode", None)
    if isinstance(code, int):
        return code & 0xFF in _SQLITE_NO_ROOM
    return any(words in str(error) for words in _NO_ROOM_WORDS)


@contextmanager
def disk_trouble(path: Path) -> Iterator[None]:
    """Turns an ``OSError`` inside the block into a ``PlaceFault`` about ``path`` that says what to do."""
    try:
        yield
    except OSError as error:
        advice = f"Check that {path.parent} can be written to"
        if error.errno in _NO_ROOM:
            advice = "Free some space; what is complete is kept and the next run goes on from there"
        raise PlaceFault(f"{path} cannot be written: {error.strerror or error}", advice) from error
